/* group.c - a worker's channels: their memory, the poll over them, modes and counters */

#include "chan/chan.h"

#include <stdio.h>
#include <stdlib.h>

#define HEADROOM      64 /* of a received buf: what it is sent on with has room for a header */
#define MAX_CHANNELS  65536u
#define MAX_HELD      (1u << 24)
#define MAX_MESSAGE   (1ull << 40)
#define SECOND_NS     (1000ull * 1000 * 1000)
#define RETRIES       7
#define TICKS_TO_LIFE 4 /* keepalive_ns is so many ticks */

static const struct counter_name counter_names[] = {
	{"opened", "channels that were opened"},
	{"closed", "channels that were closed in order"},
	{"failed", "channels that failed for good"},
	{"resumed", "broken channels that went on"},
	{"refused", "peers that were refused"},
	{"faults", "peers that broke a channel's rules"},
	{"dropped", "messages for a channel that takes none any more"},
	{"credits_sent", "sends that brought nothing but a limit"},
	{"large_sent", "messages that were written to a peer's place"},
	{"large_received", "messages that a peer has written to a place here"},
	{"probes", "signs of life that were asked for"},
};
static_assert(ARRAY_SIZE(counter_names) == COUNT_GROUP_N, "each count has its name");

/* ---- conf ---- */

static int check_range(const char *field, uint64_t value, uint64_t low, uint64_t high)
{
	if (value >= low && value <= high)
		return 0;
	return fail(EINVAL, "channel group cannot be created: %s is %llu and must be %llu to %llu",
		field, (unsigned long long)value, (unsigned long long)low,
		(unsigned long long)high);
}

static void fill_in(struct vbn_channel_group_conf *conf)
{
	conf->max_channels = conf->max_channels ? conf->max_channels : 16;
	conf->buf_size = conf->buf_size ? conf->buf_size : 4096;
	conf->window = conf->window ? conf->window : 64;
	conf->tx_depth = conf->tx_depth ? conf->tx_depth : 64;
	conf->n_held = conf->n_held ? conf->n_held : 256;
	conf->max_message = max(conf->max_message, (uint64_t)conf->buf_size);
	if (!conf->landing_size && conf->max_message > conf->buf_size)
		conf->landing_size = 2 * conf->max_message;
	conf->keepalive_ns = conf->keepalive_ns ? conf->keepalive_ns : SECOND_NS;
	conf->give_up_ns = conf->give_up_ns ? conf->give_up_ns : 2 * SECOND_NS;
	conf->connect_ns = conf->connect_ns ? conf->connect_ns : 5 * SECOND_NS;
}

/* Half of what a queue's ring may be: a shared one has an entry more than it is asked for. */
static uint32_t deepest_shared(const struct vbn_port *port)
{
	return (1u << log2_floor(port->info.max_depth)) / 2;
}

static int check(const struct vbn_channel_group_conf *conf, const struct vbn_port *port)
{
	int ret = check_range("max_channels", conf->max_channels, 1, MAX_CHANNELS);

	if (!ret)
		ret = check_range(
			"buf_size", conf->buf_size, HANDSHAKE_MIN_BUF, HANDSHAKE_MAX_BUF / 2);
	if (!ret)
		ret = check_range(
			"window", conf->window, HANDSHAKE_MIN_WINDOW, HANDSHAKE_MAX_WINDOW);
	if (!ret)
		ret = check_range("tx_depth", conf->tx_depth, 8, port->info.max_depth);
	if (!ret)
		ret = check_range("n_held", conf->n_held, 1, MAX_HELD);
	if (!ret)
		ret = check_range("shared", conf->shared, VBN_AUTO, VBN_OFF);
	if (!ret)
		ret = check_range("max_message", conf->max_message, 1, MAX_MESSAGE);
	if (!ret && !is_pow2(conf->window))
		ret = fail(EINVAL,
			"channel group cannot be created: window is %u and must be a power of two",
			conf->window);
	if (!ret && conf->max_message > conf->buf_size && conf->landing_size < conf->max_message)
		ret = fail(EINVAL,
			"channel group cannot be created: landing_size is %llu, too small for one message of max_message %llu",
			(unsigned long long)conf->landing_size,
			(unsigned long long)conf->max_message);
	if (!ret && conf->resume_ns && !port->driver->queue_reset)
		ret = fail(ENOTSUP,
			"channel group cannot be created: resume_ns is set, and port %s cannot take queues back to their start",
			port->info.name);
	if (!ret && conf->shared == VBN_ON && !port->driver->srq_create)
		ret = fail(ENOTSUP,
			"channel group cannot be created: shared is on, and port %s has no shared receive rings",
			port->info.name);
	if (!ret && conf->shared == VBN_ON && conf->window > deepest_shared(port))
		ret = fail(EINVAL,
			"channel group cannot be created: shared is on, and no shared ring holds a window of %u: at most %u",
			conf->window, deepest_shared(port));
	return ret;
}

/* RC's timer so that all its retries together take about as long; IBTA 1.4, 9.7.6.1.3. */
static uint32_t timer_for(uint64_t ns)
{
	uint64_t units = ns / (RETRIES + 1) / 4096;

	return units <= 1 ? 1 : min(log2_floor(units), 31u);
}

static void plan_queues(struct vbn_channel_group *group)
{
	const struct vbn_channel_group_conf *conf = &group->conf;

	group->queue_conf = (struct vbn_queue_conf){
		.transport = VBN_RC,
		.tx_depth = (uint32_t)pow2_ceil(conf->tx_depth),
		.rx_depth = conf->window,
		.cq_mod = max((uint32_t)pow2_ceil(conf->tx_depth) / 4, 1u),
		.max_gather = min(8u, group->port->info.max_gather),
		.rx_pool = group->rx_pool,
		.tx_pool = conf->tx_pool,
		.remote_access = VBN_REMOTE_WRITE, /* also for signs of life */
		.retry_count = VBN_NUM(RETRIES),
		.rnr_retry = VBN_NUM(0), /* credits see to it that none is needed */
		.timeout = VBN_NUM(timer_for(conf->give_up_ns)),
	};
}

/* ---- memory ---- */

/* Shared rings that the windows of all channels fit into; none, where n is 0. */
struct ring_plan {
	uint32_t n, depth, each; /* each: windows of one ring */
};

static struct ring_plan plan_rings(const struct vbn_channel_group *group)
{
	const struct vbn_channel_group_conf *conf = &group->conf;
	uint64_t windows = (uint64_t)conf->max_channels * conf->window;
	struct ring_plan plan = {0};

	if (conf->shared == VBN_OFF || !group->port->driver->srq_create)
		return plan;
	plan.depth = (uint32_t)min(pow2_ceil(windows), (uint64_t)deepest_shared(group->port));
	plan.each = plan.depth / conf->window;
	plan.n = plan.each ? (conf->max_channels + plan.each - 1) / plan.each : 0;
	return plan;
}

/* Rings are kept full, and a ring may hold more than the windows that it was made for. */
static int create_pools(struct vbn_channel_group *group)
{
	const struct vbn_channel_group_conf *conf = &group->conf;
	const struct ring_plan plan = plan_rings(group);
	struct vbn_pool_conf rx = {
		.n_bufs =
			max(conf->max_channels * conf->window, plan.n * plan.depth) + conf->n_held,
		.data_size = conf->buf_size + CHANNEL_HEADER,
		.headroom = VBN_NUM(HEADROOM),
		.name = "channel rx",
	};
	struct vbn_pool_conf headers = {.n_bufs = 4 * group->conf.n_held,
		.data_size = CACHE_LINE,
		.name = "channel headers"};
	int ret = vbn_pool_create(&rx, &group->rx_pool);

	if (!ret)
		ret = vbn_pool_create(&headers, &group->header_pool);
	return ret ? ret : vbn_port_register(group->port, vbn_pool_zone(group->header_pool));
}

static int create_rings(struct vbn_channel_group *group)
{
	const struct ring_plan plan = plan_rings(group);
	int ret = 0;

	if (!plan.n)
		return 0;
	group->rings = calloc(plan.n, sizeof(*group->rings));
	if (!group->rings)
		return -ENOMEM;
	for (; group->n_rings < plan.n && !ret; group->n_rings += !ret) {
		struct vbn_srq_conf srq = {.depth = plan.depth, .pool = group->rx_pool};
		struct ring *ring = &group->rings[group->n_rings];

		ring->max_channels = plan.each;
		ret = vbn__srq_create_in(group->queues, group->port, &srq, &ring->srq);
	}
	if (ret != -ENOTSUP || group->n_rings || group->conf.shared == VBN_ON)
		return ret;
	free(group->rings);
	group->rings = NULL;
	return 0;
}

static void describe(const struct counter_set *set, struct fact_list *list)
{
	const struct vbn_channel_group *group =
		container_of(set, struct vbn_channel_group, counters);

	vbn__fact_number(list, "worker", vbn__worker_number(group->worker));
	vbn__fact_text(list, "port", group->port->info.name);
	vbn__fact_number(list, "window", group->window);
	vbn__fact_gauge(
		list, "channels", "channels that there are", vbn__glance(&group->n_channels));
}

static int add_counters(struct vbn_channel_group *group)
{
	static uint32_t n_groups;

	snprintf(group->name, sizeof(group->name), "%.20s/%u", group->port->info.name,
		__atomic_fetch_add(&n_groups, 1, __ATOMIC_RELAXED));
	group->counters = (struct counter_set){.kind = "channels",
		.names = counter_names,
		.values = group->counts,
		.n = COUNT_GROUP_N,
		.describe = describe};
	memcpy(group->counters.object, group->name, sizeof(group->name));
	vbn__counters_add(&group->counters);
	return 0;
}
static_assert(
	sizeof(((struct vbn_channel_group *)0)->name) == sizeof(((struct counter_set *)0)->object),
	"one name for both");

/* ---- create and destroy ---- */

static void end_connections(struct vbn_channel_group *group)
{
	struct vbn_channel_listener *listener;

	group->ending = true;
	for (listener = group->listeners; listener; listener = listener->next)
		vbn_channel_unlisten(listener);
	vbn__dial_settle();
	vbn__letters_take(group); /* no step is under way any more */
	while (group->channels)
		vbn__channel_free(group->channels);
	vbn__dial_end_group(group);
	vbn__letters_take(group); /* they only bring the dials home */
	while ((listener = group->listeners)) {
		group->listeners = listener->next;
		free(listener);
	}
}

/* What needs the worker goes before it does: a group may be destroyed after it. */
static void leave_worker(struct vbn_channel_group *group)
{
	if (!group->queues)
		return;
	end_connections(group);
	for (uint32_t i = 0; i < group->n_rings; i++)
		vbn_srq_destroy(group->rings[i].srq);
	group->n_rings = 0;
	vbn__worker_remove(group->worker, group);
	vbn__queues_end(group->queues);
	group->queues = NULL;
}

static void end_of_worker(struct vbn_worker *worker, void *arg)
{
	(void)worker;
	leave_worker(arg);
}

static int build(struct vbn_channel_group *group)
{
	int ret = vbn__reactor_start();

	if (!ret)
		ret = vbn__queues_make(group->worker, &group->queues);
	if (!ret)
		ret = vbn__worker_add_last_exit(group->worker, end_of_worker, group);
	if (!ret)
		ret = create_pools(group);
	if (!ret)
		ret = create_rings(group);
	if (!ret)
		ret = vbn__landing_create(group);
	if (ret)
		return ret;
	if (!group->conf.tx_pool)
		group->conf.tx_pool = group->rx_pool;
	plan_queues(group);
	return add_counters(group);
}

VBN_API int vbn_channel_group_create(struct vbn_worker *worker, struct vbn_port *port,
	const struct vbn_channel_group_conf *asked, struct vbn_channel_group **result)
{
	static const struct vbn_channel_group_conf defaults;
	struct vbn_channel_group_conf conf;
	struct vbn_channel_group *group;
	int ret = vbn__check_own_worker(worker);

	*result = NULL;
	if (!ret && !port)
		ret = fail(EINVAL, "channel group cannot be created: it has no port: open one");
	if (ret)
		return ret;
	if (!asked)
		asked = &defaults;
	conf = *asked;
	fill_in(&conf);
	ret = check(&conf, port);
	if (ret)
		return ret;
	group = calloc(1, sizeof(*group));
	if (!group)
		return -ENOMEM;
	group->worker = worker;
	group->port = port;
	group->conf = conf;
	group->asked = *asked;
	group->window = conf.window;
	group->credit_batch = (conf.window - CHANNEL_RESERVE) / 2;
	group->tick_cycles = conf.keepalive_ns / TICKS_TO_LIFE * (vbn__clock_hz() / 1000000) / 1000;
	group->next_tick = clock_cycles() + group->tick_cycles;
	ret = build(group);
	if (ret) {
		vbn_channel_group_destroy(group);
		return ret;
	}
	*result = group;
	return 0;
}

VBN_API void vbn_channel_group_destroy(struct vbn_channel_group *group)
{
	if (!group)
		return;
	leave_worker(group);
	vbn__landing_destroy(&group->landing);
	vbn_pool_destroy(group->header_pool);
	vbn_pool_destroy(group->rx_pool);
	if (group->counters.kind)
		vbn__counters_remove(&group->counters);
	free(group->rings);
	free(group);
}

VBN_API struct vbn_pool *vbn_channel_group_pool(struct vbn_channel_group *group)
{
	return group->rx_pool;
}

/* ---- poll ---- */

static int give_held(struct vbn_channel_group *group, struct vbn_channel_event *events, int n)
{
	int given = min(n, group->n_held);

	memcpy(events, group->held + group->first_held, (size_t)given * sizeof(*events));
	group->n_held -= given;
	group->first_held = group->n_held ? group->first_held + given : 0;
	return given;
}

static bool tick_is_due(struct vbn_channel_group *group)
{
	uint64_t now = clock_cycles();

	if (likely((int64_t)(now - group->next_tick) < 0))
		return false;
	group->next_tick = now + group->tick_cycles;
	return true;
}

static noinline void begin_tick(struct vbn_channel_group *group)
{
	group->ticks++;
	group->ticking = group->channels;
}

VBN_API fast_path int vbn_channel_poll(
	struct vbn_channel_group *group, struct vbn_channel_event *events, int n)
{
	struct sink sink = {.events = events, .room = n};

	vbn__letters_take(group);
	if (unlikely(tick_is_due(group)))
		begin_tick(group);
	if (unlikely(group->ticking))
		vbn__group_tick(group);
	if (group->todo)
		vbn__group_do(group);
	if (unlikely(group->n_held))
		sink.n = give_held(group, events, n);
	while (sink.n < n && vbn__group_collect(group, &sink)) {
	}
	if (unlikely(group->hungry))
		vbn__group_grant(group);
	return sink.n;
}

VBN_API void vbn_channel_release(const struct vbn_channel_event *event)
{
	struct vbn_buf *buf = event->buf;

	if (event->place)
		vbn__landing_give(event->place);
	else if (buf)
		vbn_buf_free(&buf, 1);
}

/* ---- modes ---- */

static const char *milliseconds(uint64_t ns, char text[32])
{
	snprintf(text, 32, "%.1f ms", (double)ns / 1e6);
	return text;
}

VBN_API int vbn_channel_group_modes(
	const struct vbn_channel_group *group, struct vbn_mode *modes, int n)
{
	static const char *const asked[] = {
		[VBN_AUTO] = "auto", [VBN_ON] = "shared", [VBN_OFF] = "own"};
	struct mode_report report = {.modes = modes, .max = n};
	const struct vbn_channel_group_conf *conf = &group->conf;
	uint64_t patience = (RETRIES + 1) * (4096ull << group->queue_conf.timeout.value);
	char text[32];

	vbn__mode_add(&report, "channel_receives", asked[conf->shared],
		group->rings ? "shared" : "own", "%u rings for %u channels, windows of %u",
		group->rings ? group->n_rings : conf->max_channels, conf->max_channels,
		conf->window);
	vbn__mode_add(&report, "channel_landing",
		group->asked.landing_size ? vbn__mode_number(group->asked.landing_size, "B")
					  : "auto",
		conf->landing_size ? vbn__mode_number(conf->landing_size, "B") : "none",
		"messages above %u bytes are written there", conf->buf_size);
	vbn__mode_add(&report, "channel_keepalive",
		group->asked.keepalive_ns ? milliseconds(group->asked.keepalive_ns, text) : "auto",
		milliseconds(conf->keepalive_ns, text), "of silence, then a write of no bytes");
	vbn__mode_add(&report, "channel_give_up",
		group->asked.give_up_ns ? milliseconds(group->asked.give_up_ns, text) : "auto",
		milliseconds(patience, text), "%d retries of the device's timer", RETRIES);
	return report.n;
}
