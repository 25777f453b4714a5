/* channel_fixture.c - two groups of one worker on the emulated device */

#include "channel_fixture.h"

struct fixture f;

/* ---- events ---- */

static struct end *end_of(struct vbn_channel *channel)
{
	return vbn_channel_context(channel);
}

void release_held(struct end *end, int n)
{
	n = min(n, end->n_held);
	for (int i = 0; i < n; i++)
		vbn_channel_release(&end->held[i]);
	memmove(end->held, end->held + n, (size_t)(end->n_held - n) * sizeof(end->held[0]));
	end->n_held -= n;
}

static uint8_t pattern(uint64_t number, uint64_t at)
{
	return (uint8_t)(number * 131 + at * 7 + (at >> 8) + 1);
}

void fill(struct vbn_buf *buf, uint64_t number, uint64_t at)
{
	for (uint32_t i = 0; i < buf->len; i++)
		buf->data[i] = pattern(number, at + i);
}

struct vbn_buf *new_message(struct vbn_pool *pool, uint64_t number, uint32_t len)
{
	struct vbn_buf *buf;

	assert_int_equal(vbn_buf_alloc(pool, &buf, 1), 1);
	buf->len = len;
	fill(buf, number, 0);
	return buf;
}

void check_message(const struct vbn_channel_event *event)
{
	for (uint64_t i = 0; i < event->len; i++)
		if (event->data[i] != pattern(event->number, i))
			unit_fail("message %llu of %llu bytes: byte %llu is %u and should be %u",
				(unsigned long long)event->number, (unsigned long long)event->len,
				(unsigned long long)i, event->data[i], pattern(event->number, i));
}

static void on_message(struct end *end, const struct vbn_channel_event *event)
{
	end->received++;
	end->received_bytes += event->len;
	if (event->number != end->received)
		unit_fail("message %llu came as number %llu", (unsigned long long)end->received,
			(unsigned long long)event->number);
	check_message(event);
	if (end->holds && end->n_held < (int)ARRAY_SIZE(end->held))
		end->held[end->n_held++] = *event;
	else
		vbn_channel_release(event);
}

static void on_told(struct end *end, const struct vbn_channel_event *event)
{
	end->told_len = event->len;
	if (event->len)
		memcpy(end->told, event->data, event->len);
}

static void on_event(const struct vbn_channel_event *event)
{
	struct end *end = end_of(event->channel);
	struct vbn_buf *buf = event->buf;

	end->seen[event->op]++;
	if (event->op == VBN_CHANNEL_MESSAGE) {
		on_message(end, event);
		return;
	}
	if (event->op != VBN_CHANNEL_READY && end->n_order < (int)ARRAY_SIZE(end->order))
		end->order[end->n_order++] = event->op;
	switch (event->op) {
	case VBN_CHANNEL_SENT: end->sent_number = event->number; break;
	case VBN_CHANNEL_UNSENT: end->unsent_number = event->number; break;
	case VBN_CHANNEL_RESUMED: end->resumed_at = event->number; break;
	case VBN_CHANNEL_OPENED: on_told(end, event); break;
	case VBN_CHANNEL_FAILED:
		on_told(end, event);
		snprintf(end->error, sizeof(end->error), "%s", vbn_channel_error(event->channel));
		break;
	}
	if (buf)
		vbn_buf_free(&buf, 1);
}

/* How many events are asked for at a time differs from turn to turn. */
static void poll_group(struct vbn_channel_group *group)
{
	static const int sizes[] = {1, 64, 2, 13, 5, 32};
	struct vbn_channel_event events[64];
	int n;

	if (!group)
		return;
	n = vbn_channel_poll(group, events, sizes[f.turn++ % ARRAY_SIZE(sizes)]);
	for (int i = 0; i < n; i++)
		on_event(&events[i]);
}

void turn(void)
{
	poll_group(f.here);
	poll_group(f.there);
	vbn_worker_poll(f.worker);
	sched_yield();
}

void next_event_here(struct vbn_channel_event *event)
{
	uint64_t begin = clock_ns();

	while (!vbn_channel_poll(f.here, event, 1)) {
		poll_group(f.there);
		vbn_worker_poll(f.worker);
		sched_yield();
		if (clock_ns() - begin > LONG_NS)
			unit_fail("no event came; the log: %s", unit_log);
	}
}

/* ---- connecting ---- */

static int accept_channel(struct vbn_channel *channel, const void *data, size_t len, void *arg)
{
	assert_ptr_equal(arg, &f);
	memcpy(f.data, data, len);
	f.data_len = len;
	if (f.answer)
		assert_int_equal(vbn_channel_answer(channel, f.answer, strlen(f.answer)), 0);
	if (f.refuse)
		return -f.refuse;
	if (f.closing)
		return -ECANCELED;
	assert_true(f.n_b < (int)ARRAY_SIZE(f.b));
	f.b[f.n_b].channel = channel;
	vbn_channel_set_context(channel, &f.b[f.n_b++]);
	return 0;
}

void make_groups(
	const struct vbn_channel_group_conf *here, const struct vbn_channel_group_conf *there)
{
	assert_int_equal(vbn_channel_group_create(f.worker, f.port, here, &f.here), 0);
	assert_int_equal(vbn_channel_group_create(f.worker, f.port, there, &f.there), 0);
	f.pool_here = vbn_pool_available(vbn_channel_group_pool(f.here));
	f.pool_there = vbn_pool_available(vbn_channel_group_pool(f.there));
	assert_int_equal(
		vbn_channel_listen(f.there, "127.0.0.1:0", accept_channel, &f, &f.listener), 0);
}

void open_channel(int i)
{
	char data[32];

	snprintf(data, sizeof(data), "this is %d", i);
	assert_int_equal(vbn_channel_connect(f.here, vbn_channel_listener_address(f.listener), data,
				 strlen(data), &f.a[i].channel),
		0);
	vbn_channel_set_context(f.a[i].channel, &f.a[i]);
	turn_until(f.a[i].seen[VBN_CHANNEL_OPENED] && f.b[i].seen[VBN_CHANNEL_OPENED]);
	assert_memory_equal(f.data, data, strlen(data));
	assert_int_equal(f.data_len, strlen(data));
}

void send_all(struct end *end, struct vbn_pool *pool, uint64_t first, uint64_t last, uint32_t len)
{
	while (first <= last) {
		struct vbn_buf *bufs[24];
		int n = 0, sent = 0;

		while (n < (int)ARRAY_SIZE(bufs) && first + (uint64_t)n <= last &&
			vbn_pool_available(pool)) {
			bufs[n] = new_message(pool, first + (uint64_t)n, len);
			n++;
		}
		while (sent < n) {
			int ret = vbn_channel_send(end->channel, bufs + sent, n - sent);

			if (ret < 0)
				unit_fail("vbn_channel_send() says %d; %s", ret,
					vbn_channel_error(end->channel));
			sent += ret;
			if (sent < n)
				turn();
		}
		first += (uint64_t)n;
		if (!n)
			turn();
	}
}

/* ---- open and close ---- */

static struct vbn_pool *make_pool(const char *name, uint32_t headroom)
{
	struct vbn_pool *pool;

	assert_int_equal(vbn_pool_create(&(struct vbn_pool_conf){.n_bufs = N_BUFS,
						 .data_size = BUF_SIZE,
						 .headroom = {headroom, true},
						 .name = name},
				 &pool),
		0);
	return pool;
}

const char *port_name(void)
{
	const char *port = getenv("CHANNEL_PORT");

	return port ? port : "mlx5_0";
}

uint64_t patient(uint64_t ns)
{
	const char *times = getenv("CHANNEL_PATIENCE");

	return times ? ns * strtoull(times, NULL, 10) : ns;
}

int fixture_open(void **state)
{
	(void)state;
	assert_non_null(vhca_present());
	memset(&f, 0, sizeof(f));
	unit_catch_log();
	assert_int_equal(vbn_init(NULL, NULL), 0);
	unit_catch_log();
	assert_int_equal(vbn_worker_attach(&(struct vbn_worker_conf){0}, &f.worker), 0);
	assert_int_equal(vbn_port_open(port_name(), NULL, &f.port), 0);
	f.pool = make_pool("messages", 64);
	f.bare = make_pool("bare", 0);
	assert_int_equal(vbn_port_register(f.port, vbn_pool_zone(f.pool)), 0);
	assert_int_equal(vbn_port_register(f.port, vbn_pool_zone(f.bare)), 0);
	return 0;
}

static void close_ends(struct end *ends)
{
	for (int i = 0; i < 4; i++) {
		release_held(&ends[i], ends[i].n_held);
		vbn_channel_close(ends[i].channel);
		ends[i].channel = NULL;
	}
}

/* Every buf is home again, whatever happened to the channels. */
int fixture_close(void **state)
{
	(void)state;
	f.closing = true;
	close_ends(f.a);
	close_ends(f.b);
	if (f.here && f.there)
		turn_until(!f.here->n_channels && !f.there->n_channels);
	if (f.here && !f.here->n_rings)
		assert_int_equal(vbn_pool_available(vbn_channel_group_pool(f.here)), f.pool_here);
	if (f.there && !f.there->n_rings)
		assert_int_equal(vbn_pool_available(vbn_channel_group_pool(f.there)), f.pool_there);
	vbn_channel_group_destroy(f.here);
	vbn_channel_group_destroy(f.there);
	assert_int_equal(vbn_pool_available(f.pool), N_BUFS);
	assert_int_equal(vbn_pool_available(f.bare), N_BUFS);
	vbn_worker_detach(f.worker);
	vbn_pool_destroy(f.pool);
	vbn_pool_destroy(f.bare);
	vbn_port_close(f.port);
	vbn_fini();
	if (strstr(unit_log, "not home"))
		unit_fail("bufs were left: %s", unit_log);
	return 0;
}
