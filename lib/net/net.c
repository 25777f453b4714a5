/* net.c - a net: made from what its user wants, its workers' ends, time, and counters */

#include "net/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <verbena/queue.h>
#include <verbena/worker.h>

/* ---- interfaces ---- */

static int address_add(
	struct net_if *iface, const struct vbn_ip *ip, uint32_t length, enum vbn_switch probe)
{
	struct net_address *address = &iface->addresses[iface->n_addresses];

	if (iface->n_addresses == VBN_NET_ADDRESSES)
		return fail(EINVAL, "interface %s: more than %d addresses", iface->name,
			VBN_NET_ADDRESSES);
	*address = (struct net_address){.ip = *ip, .length = length, .state = ADDRESS_VALID};
	iface->n_addresses++;
	if (probe == VBN_OFF)
		return 0;
	address->announces = ip_is4(ip) ? 2 : 1;
	address->probes = probe == VBN_ON ? (ip_is4(ip) ? 3 : 1) : ip_is4(ip) ? 0 : 1;
	address->state = probe == VBN_ON ? ADDRESS_TENTATIVE : ADDRESS_VALID;
	return 0;
}

static int address_parse(struct net_if *iface, char *text, enum vbn_switch probe)
{
	char *slash = strchr(text, '/'), *end;
	struct vbn_ip ip;
	unsigned long length;

	if (slash)
		*slash = '\0';
	if (!slash || vbn_ip_parse(text, &ip))
		return fail(EINVAL, "interface %s: %s is no ADDRESS/LENGTH as 10.0.0.2/24",
			iface->name, text);
	length = strtoul(slash + 1, &end, 10);
	if (!slash[1] || *end || length < 1 || length > (ip_is4(&ip) ? 32 : 128))
		return fail(
			EINVAL, "interface %s: %s has no prefix length as /24", iface->name, text);
	if (ip_is_multicast(&ip) || ip_is_none(&ip) ||
		(ip_is4(&ip) && (ip.bytes[12] == 0 || ip.bytes[12] == 127)))
		return fail(EINVAL, "interface %s: %s is no address that a host can have",
			iface->name, text);
	if (!ip_is4(&ip) && iface->mtu < 1280)
		return fail(EINVAL, "interface %s: IPv6 needs an MTU of 1280, it has %u",
			iface->name, iface->mtu);
	return address_add(iface, &ip, (uint32_t)length, probe);
}

static int addresses_parse(struct net_if *iface, const char *text, enum vbn_switch probe)
{
	char *copy = strdup(text ? text : ""), *save = NULL;
	int err = copy ? 0 : -ENOMEM;

	for (char *one = copy ? strtok_r(copy, ", ", &save) : NULL; one && !err;
		one = strtok_r(NULL, ", ", &save))
		err = address_parse(iface, one, probe);
	free(copy);
	return err;
}

static int link_local_add(struct net_if *iface, enum vbn_switch probe)
{
	const uint8_t *mac = iface->mac;
	struct vbn_ip ip = {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe,
		mac[3], mac[4], mac[5]}};

	return vbn__if_has(iface, &ip) ? 0 : address_add(iface, &ip, 64, probe);
}

static int interface_make(
	struct vbn_net *net, uint32_t index, const struct vbn_net_interface_conf *conf)
{
	static const uint8_t none[6];
	struct net_if *iface = &net->interfaces[index];
	enum vbn_switch probe = net->conf.probe_addresses;
	uint32_t vid = conf->vlan.set ? conf->vlan.value : 0;
	int err;

	if (conf->name)
		snprintf(iface->name, sizeof(iface->name), "%s", conf->name);
	else
		snprintf(iface->name, sizeof(iface->name), "if%u", index);
	iface->index = index;
	iface->link = conf->link;
	iface->mtu = conf->mtu ? conf->mtu : 1500;
	memcpy(iface->mac, conf->mac, 6);
	iface->vlan = (uint16_t)vid;
	if (conf->link >= VBN_NET_LINKS)
		return fail(EINVAL, "interface %s: link %u is not 0 to %d", iface->name, conf->link,
			VBN_NET_LINKS - 1);
	if (iface->mtu < 68 || iface->mtu > 9216)
		return fail(EINVAL, "interface %s: an MTU of %u is not 68 to 9216", iface->name,
			iface->mtu);
	if (conf->mac[0] & 1 || !memcmp(conf->mac, none, 6))
		return fail(EINVAL, "interface %s: its MAC is no unicast one", iface->name);
	if (conf->vlan.set && (vid < 1 || vid > 4094))
		return fail(
			EINVAL, "interface %s: a VLAN of %u is not 1 to 4094", iface->name, vid);
	if (net->by_vlan[conf->link][vid])
		return fail(EINVAL,
			"interface %s: link %u has another one with the same VLAN, or none",
			iface->name, conf->link);
	net->by_vlan[conf->link][vid] = (uint8_t)(index + 1);
	err = addresses_parse(iface, conf->addresses, probe);
	if (err)
		return err;
	if (conf->link_local == VBN_ON && iface->mtu < 1280)
		return fail(EINVAL, "interface %s: IPv6 needs an MTU of 1280, it has %u",
			iface->name, iface->mtu);
	if (conf->link_local == VBN_OFF || iface->mtu < 1280)
		return 0;
	return link_local_add(iface, probe);
}

/* ---- the net ---- */

static uint32_t or_default(uint32_t value, uint32_t usual)
{
	return value ? value : usual;
}

static void conf_fill(struct vbn_net_conf *conf)
{
	conf->max_routes = or_default(conf->max_routes, 1024);
	conf->max_neighbours = or_default(conf->max_neighbours, 1024);
	conf->max_sockets = or_default(conf->max_sockets, 1024);
	conf->max_groups = or_default(conf->max_groups, 256);
	conf->max_paths = or_default(conf->max_paths, 256);
	conf->max_waiting_each = or_default(conf->max_waiting_each, 16);
	conf->max_waiting = or_default(conf->max_waiting, 256);
	conf->max_datagrams = or_default(conf->max_datagrams, 64);
	conf->max_fragments = or_default(conf->max_fragments, 1024);
	conf->reassembly_ms = or_default(conf->reassembly_ms, 15000);
	conf->reachable_ms = or_default(conf->reachable_ms, 30000);
	conf->retransmit_ms = or_default(conf->retransmit_ms, 1000);
	conf->delay_ms = or_default(conf->delay_ms, 5000);
	conf->stale_ms = or_default(conf->stale_ms, 600000);
	conf->icmp_rate = or_default(conf->icmp_rate, 100);
}

static int conf_check(const struct vbn_net_conf *conf)
{
	const struct {
		const char *name;
		uint32_t value;
	} limits[] = {
		{"max_routes", conf->max_routes},
		{"max_neighbours", conf->max_neighbours},
		{"max_sockets", conf->max_sockets},
		{"max_groups", conf->max_groups},
		{"max_paths", conf->max_paths},
		{"max_waiting", conf->max_waiting},
		{"max_datagrams", conf->max_datagrams},
		{"max_fragments", conf->max_fragments},
		{"icmp_rate", conf->icmp_rate},
	};

	if (!conf->n_interfaces || conf->n_interfaces > VBN_NET_INTERFACES || !conf->interfaces)
		return fail(EINVAL, "net: %u interfaces are not 1 to %d", conf->n_interfaces,
			VBN_NET_INTERFACES);
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		if (limits[i].value > 65536)
			return fail(EINVAL, "net: %s %u is above 65536", limits[i].name,
				limits[i].value);
	return 0;
}

static void net_free(struct vbn_net *net)
{
	vbn__routes_destroy(net);
	vbn__neighbours_destroy(net);
	free(net->groups);
	free(net->paths);
	free(net->sockets);
	free(net->by_vlan);
	free(net->interfaces);
	pthread_mutex_destroy(&net->lock);
	pthread_mutex_destroy(&net->routes_lock);
	free(net);
}

static int net_fill(struct vbn_net *net)
{
	const struct vbn_net_conf *conf = &net->conf;
	int err = conf_check(conf);

	net->interfaces = calloc(conf->n_interfaces, sizeof(*net->interfaces));
	net->by_vlan = calloc(VBN_NET_LINKS, sizeof(*net->by_vlan));
	if (!err && (!net->interfaces || !net->by_vlan))
		err = -ENOMEM;
	for (uint32_t i = 0; i < conf->n_interfaces && !err; i++)
		err = interface_make(net, i, &conf->interfaces[i]);
	if (err)
		return err;
	net->n_interfaces = conf->n_interfaces;
	net->conf.interfaces = NULL;
	if (vbn__neighbours_create(net) || vbn__multicast_create(net) || vbn__paths_create(net) ||
		vbn__sockets_create(net) || vbn__routes_create(net))
		return fail(ENOMEM, "net %s: there is no memory for its tables", net->name);
	return 0;
}

VBN_API int vbn_net_create(const struct vbn_net_conf *conf, struct vbn_net **created)
{
	struct vbn_net *net = aligned_alloc(CACHE_LINE, round_up(sizeof(*net), CACHE_LINE));
	int err;

	if (!net)
		return fail(ENOMEM, "net: there is no memory for it");
	*net = (struct vbn_net){.conf = *conf, .forward = conf->forward, .generation = 1};
	snprintf(net->name, sizeof(net->name), "%s", conf->name ? conf->name : "net");
	conf_fill(&net->conf);
	pthread_mutex_init(&net->lock, NULL);
	pthread_mutex_init(&net->routes_lock, NULL);
	if (getrandom(&net->seed, sizeof(net->seed), GRND_NONBLOCK) != sizeof(net->seed))
		net->seed = clock_ns() ^ (uintptr_t)net;
	err = net_fill(net);
	if (err)
		net_free(net);
	else
		*created = net;
	return err;
}

VBN_API void vbn_net_destroy(struct vbn_net *net)
{
	if (!net)
		return;
	for (int i = 0; i < NET_SEATS; i++) {
		if (!net->seats[i])
			continue;
		log_error(
			"net %s cannot be destroyed: a worker has an end of it: detach that first",
			net->name);
		return;
	}
	/* Neighbours and tables on their way through a grace period. */
	vbn__rcu_barrier();
	net_free(net);
}

/* ---- time ---- */

enum { LOOK_MS = 100, TICK_NS = 10000000 };

/* True for one of the workers that have an end there. */
static bool take_turn(struct net_seat *seat, struct net_if *iface)
{
	bool ours;

	if (seat->now < load_once(&iface->next_look))
		return false;
	pthread_mutex_lock(&seat->net->lock);
	ours = seat->now >= iface->next_look;
	if (ours)
		store_once(&iface->next_look, seat->now + LOOK_MS);
	pthread_mutex_unlock(&seat->net->lock);
	return ours;
}

static void tick(struct net_seat *seat, uint64_t now)
{
	struct vbn_net *net = seat->net;

	seat->now = now;
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
	for (int i = 0; i < VBN_NET_LINKS; i++)
		if (seat->ends[i])
			vbn__end_flush(seat->ends[i]);
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

struct net_seat *vbn__seat_of(struct vbn_net *net, const struct vbn_worker *worker)
{
	for (int i = 0; i < NET_SEATS; i++)
		if (net->seats[i] && net->seats[i]->worker == worker)
			return net->seats[i];
	return NULL;
}

static void seat_free(struct net_seat *seat)
{
	free(seat->waiting);
	free(seat->datagrams);
	free(seat);
}

static int seat_enter(struct vbn_net *net, struct net_seat *seat)
{
	int err = -ENOSPC;

	pthread_mutex_lock(&net->lock);
	for (uint32_t i = 0; i < NET_SEATS && err; i++) {
		if (net->seats[i])
			continue;
		seat->number = i;
		store_release(&net->seats[i], seat);
		err = 0;
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
	vbn__counters_remove(&seat->set);
	pthread_mutex_lock(&seat->net->lock);
	store_release(&seat->net->seats[seat->number], NULL);
	pthread_mutex_unlock(&seat->net->lock);
}

/* ---- ends ---- */

static int end_check(const struct vbn_net_end_conf *conf)
{
	if (conf->link >= VBN_NET_LINKS)
		return fail(EINVAL, "net: link %u is not 0 to %d", conf->link, VBN_NET_LINKS - 1);
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

VBN_API int vbn_net_attach(
	struct vbn_net *net, const struct vbn_net_end_conf *conf, struct vbn_net_end **attached)
{
	struct net_seat *seat;
	struct vbn_net_end *end;
	int err = end_check(conf);

	if (err)
		return err;
	seat = vbn__seat_of(net, conf->worker);
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
	seat->n_ends++;
	end_expect(end);
	forget_dsts(seat);
	*attached = end;
	return 0;
}

VBN_API void vbn_net_detach(struct vbn_net_end *end)
{
	struct net_seat *seat = end ? end->seat : NULL;

	if (!end)
		return;
	/* While it can still send: groups are left. */
	if (seat->n_ends == 1)
		seat_end(seat);
	vbn__end_flush(end);
	seat_count_n(seat, drop_tx_closed, end->n_out);
	vbn_buf_free(end->out, (int)end->n_out);
	seat->ends[end->link] = NULL;
	forget_dsts(seat);
	if (!--seat->n_ends)
		seat_free(seat);
	free(end);
}

VBN_API fast_path void vbn_net_input(struct vbn_net_end *end, struct vbn_buf **bufs, int n)
{
	struct net_seat *seat = end->seat;

	vbn__quick_input(end, bufs, n);
	if (unlikely(seat->n_waiting && seat->resolved != load_once(&seat->net->resolved)))
		vbn__waiting_look(seat);
}

VBN_API fast_path void vbn_net_flush(struct vbn_net_end *end)
{
	vbn__end_flush(end);
}

VBN_API fast_path int vbn_net_poll(struct vbn_worker *worker, void *arg)
{
	struct vbn_net_end *end = arg;
	struct net_seat *seat = end->seat;
	struct vbn_buf *bufs[BURST];
	int n = vbn_recv(end->queue, bufs, BURST);

	(void)worker;
	if (n > 0)
		vbn_net_input(end, bufs, n);
	else if (unlikely(seat->n_waiting && seat->resolved != load_once(&seat->net->resolved)))
		vbn__waiting_look(seat);
	for (int i = 0; i < VBN_NET_LINKS; i++)
		if (seat->ends[i] && seat->ends[i]->n_out)
			vbn__end_flush(seat->ends[i]);
	return max(n, 0);
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
