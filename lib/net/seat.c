/* seat.c - a worker's part of a net: its seat and its ends, time, polling, counters */

#include "net/seat.h"

#include <stdio.h>
#include <stdlib.h>
#include <verbena/queue.h>
#include <verbena/worker.h>

/* ---- time ---- */

enum { LOOK_MS = 100, TICK_NS = 10000000 };

/* True for one of the workers that have an end there. */
static bool take_turn(struct net_seat *seat, struct net_if *iface)
{
	bool ours;

	if (seat->now < load_once(&iface->next_look) || !net_try(seat->net))
		return false;
	ours = seat->now >= iface->next_look;
	if (ours)
		store_once(&iface->next_look, seat->now + LOOK_MS);
	pthread_mutex_unlock(&seat->net->lock);
	return ours;
}

static void tick(struct net_seat *seat, uint64_t now)
{
	struct vbn_net *net = seat->net;

	store_once(&seat->now, now);
	vbn__hand_take(seat);
	vbn__learn_rest(seat);
	for (uint32_t i = 0; i < net->n_interfaces; i++) {
		struct net_if *iface = &net->interfaces[i];

		if (!seat->ends[iface->link] || !take_turn(seat, iface))
			continue;
		vbn__neighbours_look(seat, iface);
		vbn__addresses_look(seat, iface);
	}
	vbn__multicast_look(seat);
	vbn__fragments_look(seat);
	if (seat->n_waiting)
		vbn__waiting_look(seat);
}

/* All workers' time is one: that of the clock that orders them. */
static uint64_t clock_ms(void)
{
	return clock_ns() / 1000000;
}

static void on_timer(struct vbn_worker *worker, void *arg)
{
	struct net_seat *seat = arg;

	tick(seat, clock_ms());
	for (uint32_t links = seat->links; links; links &= links - 1)
		vbn__end_flush(seat->ends[__builtin_ctz(links)]);
	vbn_timer_start(worker, &seat->timer, TICK_NS);
}

VBN_API void vbn_net_tick(struct vbn_net_end *end, uint64_t now_ms)
{
	tick(end->seat, now_ms);
}

/* ---- seats ---- */

#define NET_COUNTER_NAME(name, help) {#name, help},
static const struct counter_name counter_names[] = {NET_COUNTERS(NET_COUNTER_NAME)};
#undef NET_COUNTER_NAME

static struct net_seat *seat_of(struct vbn_net *net, const struct vbn_worker *worker)
{
	struct net_seat *seat = NULL;

	pthread_mutex_lock(&net->lock);
	for (int i = 0; i < NET_SEATS && !seat; i++)
		if (net->seats[i] && net->seats[i]->worker == worker)
			seat = net->seats[i];
	pthread_mutex_unlock(&net->lock);
	return seat;
}

static void seat_free(struct net_seat *seat)
{
	free(seat->waiting);
	free(seat->datagrams);
	free(seat);
}

static int seat_enter(struct vbn_net *net, struct net_seat *seat)
{
	uint32_t i = 0;
	int err = -ENOSPC;

	pthread_mutex_lock(&net->lock);
	while (i < NET_SEATS && net->seats[i])
		i++;
	if (i < NET_SEATS)
		err = vbn__hand_open(net, i);
	if (!err) {
		seat->number = i;
		net->seats[i] = seat;
	}
	pthread_mutex_unlock(&net->lock);
	return err;
}

static int seat_make(struct vbn_net *net, struct vbn_worker *worker, struct net_seat **made)
{
	struct net_seat *seat = aligned_alloc(CACHE_LINE, sizeof(*seat));
	int err = -ENOMEM;

	if (!seat)
		return -ENOMEM;
	memset(seat, 0, sizeof(*seat));
	seat->net = net;
	seat->worker = worker;
	seat->waiting = calloc(net->conf.max_waiting, sizeof(*seat->waiting));
	seat->datagrams = calloc(net->conf.max_datagrams, sizeof(*seat->datagrams));
	if (seat->waiting && seat->datagrams)
		err = seat_enter(net, seat);
	if (err) {
		seat_free(seat);
		return err;
	}
	seat->random = mix(net->seed + seat->number);
	seat->id4 = (uint16_t)random32(seat);
	seat->id6 = random32(seat);
	seat->icmp_tokens = net->conf.icmp_rate * 1000;
	seat->now = seat->icmp_at = worker ? clock_ms() : 0;
	seat->set = (struct counter_set){
		.kind = "net", .names = counter_names, .values = seat->counters, .n = C_N};
	snprintf(seat->set.object, sizeof(seat->set.object), "%s/%d", net->name,
		worker ? vbn_worker_index(worker) : (int)seat->number);
	vbn__counters_add(&seat->set);
	vbn_timer_init(&seat->timer, on_timer, seat);
	if (worker)
		vbn_timer_start(worker, &seat->timer, 0);
	*made = seat;
	return 0;
}

static void seat_end(struct net_seat *seat)
{
	vbn__udp_close_all(seat);
	vbn__waiting_drop(seat);
	vbn__fragments_drop(seat);
	if (seat->worker)
		vbn_timer_stop(seat->worker, &seat->timer);
	vbn__learn_rest(seat);
	vbn__hand_drop(seat);
	vbn__counters_remove(&seat->set);
	pthread_mutex_lock(&seat->net->lock);
	seat->net->seats[seat->number] = NULL;
	pthread_mutex_unlock(&seat->net->lock);
}

/* ---- ends ---- */

static bool has_interface(const struct vbn_net *net, uint32_t link)
{
	for (uint32_t i = 0; i < net->n_interfaces; i++)
		if (net->interfaces[i].link == link)
			return true;
	return false;
}

static int end_check(const struct vbn_net *net, const struct vbn_net_end_conf *conf)
{
	if (conf->link >= VBN_NET_LINKS)
		return fail(EINVAL, "net: link %u is not 0 to %d", conf->link, VBN_NET_LINKS - 1);
	if (!has_interface(net, conf->link))
		return fail(EINVAL,
			"net: no interface is on link %u: say one's link, or make an interface for it",
			conf->link);
	if (!conf->pool)
		return fail(EINVAL, "net: an end needs a pool to answer from");
	if (!conf->queue == !conf->output)
		return fail(EINVAL, "net: an end has a queue or an output function");
	if (conf->pool->data_size + conf->pool->headroom < VBN_NET_HEADROOM + 128)
		return fail(EINVAL,
			"net: the bufs of the end's pool are of %u bytes: %d are needed",
			conf->pool->data_size + conf->pool->headroom, VBN_NET_HEADROOM + 128);
	if (conf->worker && conf->worker != vbn_worker_self())
		return fail(EPERM, "net: an end is attached on its worker's thread");
	return 0;
}

/* Others hand fragments to who has an end there. */
static void link_seats_set(struct net_seat *seat, uint32_t link, bool has)
{
	uint64_t *seats = &seat->net->link_seats[link], bit = 1ull << seat->number;

	pthread_mutex_lock(&seat->net->lock);
	store_release(seats, has ? *seats | bit : *seats & ~bit);
	pthread_mutex_unlock(&seat->net->lock);
}

/* Where packets go has changed for this worker alone. */
static void forget_dsts(struct net_seat *seat)
{
	memset(seat->dsts, 0, sizeof(seat->dsts));
}

static void end_expect(struct vbn_net_end *end)
{
	const struct vbn_net *net = end->seat->net;
	const uint8_t mask[8] = {255, 255, 255, 255, 255, 255, 1};
	uint8_t first[8] = {0};

	end->untagged = net->by_vlan[end->link][0];
	if (end->untagged)
		memcpy(first, net_interface(net, end->untagged - 1)->mac, 6);
	else
		first[7] = 1; /* which the mask has not */
	end->first = load8(first);
	end->first_mask = load8(mask);
}

/* A thread that is no worker is no reader of RCU, nor does anybody hand it anything. */
static int may_join(struct vbn_net *net, const struct vbn_worker *worker)
{
	bool bad = false;

	pthread_mutex_lock(&net->lock);
	for (int i = 0; i < NET_SEATS; i++)
		bad |= net->seats[i] && net->seats[i]->worker != worker &&
			(!worker || !net->seats[i]->worker);
	pthread_mutex_unlock(&net->lock);
	return bad
		? fail(EINVAL,
			  "net: an end of a thread that is no worker must be the net's only one: attach the thread as a worker")
		: 0;
}

VBN_API int vbn_net_attach(
	struct vbn_net *net, const struct vbn_net_end_conf *conf, struct vbn_net_end **attached)
{
	struct net_seat *seat;
	struct vbn_net_end *end;
	int err = end_check(net, conf);

	if (!err)
		err = may_join(net, conf->worker);
	if (err)
		return err;
	seat = seat_of(net, conf->worker);
	if (seat && seat->ends[conf->link])
		return fail(EEXIST, "net: the worker has an end on link %u", conf->link);
	end = calloc(1, sizeof(*end));
	if (!end)
		return fail(ENOMEM, "net: there is no memory for an end");
	if (!seat && (err = seat_make(net, conf->worker, &seat))) {
		free(end);
		return fail(-err, "net: there is no memory for a worker's part, or there are %d",
			NET_SEATS);
	}
	end->seat = seat;
	end->queue = conf->queue;
	end->output = conf->output;
	end->arg = conf->arg;
	end->pool = conf->pool;
	end->link = conf->link;
	end->offload = conf->checksum_offload == VBN_ON ||
		(conf->checksum_offload == VBN_AUTO && conf->queue);
	seat->ends[conf->link] = end;
	seat->links |= 1u << conf->link;
	seat->n_ends++;
	end_expect(end);
	forget_dsts(seat);
	link_seats_set(seat, conf->link, true);
	*attached = end;
	return 0;
}

VBN_API void vbn_net_detach(struct vbn_net_end *end)
{
	struct net_seat *seat = end ? end->seat : NULL;

	if (!end)
		return;
	link_seats_set(seat, end->link, false);
	/* While it can still send: groups are left. */
	if (seat->n_ends == 1)
		seat_end(seat);
	vbn__end_flush(end);
	seat_count_n(seat, drop_tx_closed, end->n_out);
	vbn_buf_free(end->out, (int)end->n_out);
	seat->ends[end->link] = NULL;
	seat->links &= ~(1u << end->link);
	forget_dsts(seat);
	if (!--seat->n_ends)
		seat_free(seat);
	free(end);
}

/* What has waited for other workers. */
static noinline void look_behind(struct net_seat *seat)
{
	vbn__learn_rest(seat);
	if (seat->n_waiting)
		vbn__waiting_look(seat);
}

static force_inline bool is_something_behind(const struct net_seat *seat)
{
	return seat->n_news ||
		(seat->n_waiting &&
			(seat->unasked || seat->resolved != load_once(&seat->net->resolved)));
}

/* Returns how much others had for it. */
static force_inline int input(struct vbn_net_end *end, struct vbn_buf **bufs, int n)
{
	struct net_seat *seat = end->seat;
	int taken = 0;

	if (n > 0)
		vbn__quick_input(end, bufs, n);
	if (unlikely(hand_others(seat)))
		taken = vbn__hand_take(seat);
	if (unlikely(is_something_behind(seat)))
		look_behind(seat);
	return taken;
}

VBN_API fast_path void vbn_net_input(struct vbn_net_end *end, struct vbn_buf **bufs, int n)
{
	input(end, bufs, n);
}

VBN_API fast_path void vbn_net_flush(struct vbn_net_end *end)
{
	vbn__end_flush(end);
}

VBN_API fast_path int vbn_net_poll(struct vbn_worker *worker, void *arg)
{
	struct vbn_net_end *end = arg;
	const struct net_seat *seat = end->seat;
	struct vbn_buf *bufs[BURST];
	int n = vbn_recv(end->queue, bufs, BURST), taken = input(end, bufs, n);

	(void)worker;
	for (uint32_t links = seat->links; links; links &= links - 1)
		vbn__end_flush(seat->ends[__builtin_ctz(links)]);
	return max(n, 0) + taken;
}

/* ---- counters ---- */

VBN_API int vbn_net_counters(const struct vbn_net_end *end,
	int (*fn)(const char *name, const char *help, uint64_t value, void *arg), void *arg)
{
	int err = 0;

	for (size_t i = 0; i < C_N && !err; i++)
		err = fn(counter_names[i].name, counter_names[i].help,
			vbn__glance_count(&end->seat->counters[i]), arg);
	return err;
}

VBN_API uint64_t vbn_net_counter(const struct vbn_net_end *end, const char *name)
{
	for (size_t i = 0; i < C_N; i++)
		if (!strcmp(counter_names[i].name, name))
			return vbn__glance_count(&end->seat->counters[i]);
	return UINT64_MAX;
}

static uint64_t sum_from(const struct net_seat *seat, enum net_counter first, enum net_counter last)
{
	uint64_t sum = 0;

	for (int i = (int)first; i <= (int)last; i++)
		sum += seat->counters[i];
	return sum;
}

VBN_API bool vbn_net_balance(const struct vbn_net_end *end, int64_t *received, int64_t *sent)
{
	const struct net_seat *seat = end->seat;
	uint64_t in = seat->counters[C_rx_frames] + seat->counters[C_taken_over];
	uint64_t fates = sum_from(seat, C_delivered, C_drop_closed) + seat->n_held;
	uint64_t out = seat->counters[C_tx_packets];
	uint64_t gone = sum_from(seat, C_tx_frames, C_drop_tx_closed) + seat->n_waiting;

	for (int i = 0; i < VBN_NET_LINKS; i++)
		gone += seat->ends[i] ? seat->ends[i]->n_out : 0;
	if (received)
		*received = (int64_t)(in - fates);
	if (sent)
		*sent = (int64_t)(out - gone);
	return in == fates && out == gone;
}
