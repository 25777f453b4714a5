/* udp_socket.c - UDP sockets: opened, bound, connected, joined to groups, closed */

#include "net/udp.h"

#include <stdlib.h>
#include <verbena/worker.h>

enum { FIRST_FREE = 49152, DEFAULT_DEPTH = 256, DEFAULT_TTL = 64 };

int vbn__sockets_create(struct vbn_net *net)
{
	uint32_t n = (uint32_t)pow2_ceil(net->conf.max_sockets);

	net->socket_mask = n - 1;
	net->sockets = calloc(n, sizeof(struct vbn_udp *));
	net->next_port = (uint16_t)(FIRST_FREE + net->seed % (65536 - FIRST_FREE));
	return net->sockets ? 0 : -ENOMEM;
}

/* ---- keys: under the net's lock ---- */

/* A datagram could be meant for either, as far as one worker's sockets go. */
static bool collides(const struct udp_key *a, const struct udp_key *b)
{
	if (a->local_port != b->local_port || a->connected != b->connected || a->bound != b->bound)
		return false;
	if (a->interface && b->interface && a->interface != b->interface)
		return false;
	if (a->bound && !ip_equal(&a->local, &b->local))
		return false;
	/* Sockets of one group share its port. */
	if (a->bound && ip_is_multicast(&a->local))
		return false;
	return !a->connected || (a->peer_port == b->peer_port && ip_equal(&a->peer, &b->peer));
}

static bool is_taken(const struct vbn_net *net, const struct net_seat *seat,
	const struct vbn_udp *self, const struct udp_key *key)
{
	for (struct vbn_udp *udp = net->sockets[udp_bucket(net, key->local_port)]; udp;
		udp = udp->next)
		if (udp != self && (!seat || udp->seat == seat) && collides(udp->key, key))
			return true;
	return false;
}

/* A port that no worker's socket has. */
static bool port_choose(struct vbn_net *net, struct udp_key *key)
{
	for (uint32_t i = 0; i < 65536 - FIRST_FREE; i++) {
		bool taken = false;

		key->local_port = net->next_port++;
		if (net->next_port < FIRST_FREE)
			net->next_port = FIRST_FREE;
		for (struct vbn_udp *udp = net->sockets[udp_bucket(net, key->local_port)]; udp;
			udp = udp->next)
			taken |= udp->key->local_port == key->local_port;
		if (!taken)
			return true;
	}
	return false;
}

/* Which workers remember. */
static void sockets_changed(struct vbn_net *net)
{
	store_release(&net->sockets_generation, net->sockets_generation + 1);
}

static int enter(struct vbn_udp *udp)
{
	struct vbn_net *net = udp->seat->net;
	struct vbn_udp **head;

	if (net->n_sockets == net->conf.max_sockets)
		return -ENOSPC;
	if (!udp->key->local_port && !port_choose(net, udp->key))
		return -ENOSPC;
	if (is_taken(net, udp->seat, udp, udp->key))
		return -EADDRINUSE;
	head = &net->sockets[udp_bucket(net, udp->key->local_port)];
	udp->next = *head;
	rcu_publish(head, udp);
	sockets_changed(net);
	net->n_sockets++;
	return 0;
}

static void take_out(struct vbn_udp *udp)
{
	struct vbn_net *net = udp->seat->net;
	struct vbn_udp **at = &net->sockets[udp_bucket(net, udp->key->local_port)];

	while (*at != udp)
		at = &(*at)->next;
	rcu_publish(at, udp->next);
	sockets_changed(net);
	net->n_sockets--;
}

/* ---- opening ---- */

static bool is_an_address(const struct net_seat *seat, const struct vbn_ip *ip)
{
	for (uint32_t i = 0; i < seat->net->n_interfaces; i++)
		if (vbn__if_has(net_interface(seat->net, i), ip))
			return true;
	return ip_is_multicast(ip);
}

static void socket_free(void *arg)
{
	struct vbn_udp *udp = arg;

	free(udp->ring);
	free(udp->key);
	free(udp);
}

static int conf_check(const struct net_seat *seat, const struct vbn_udp_conf *conf)
{
	if (conf->depth && !is_pow2(conf->depth))
		return fail(EINVAL, "udp: depth %u is no power of two", conf->depth);
	if (conf->ttl.set && (conf->ttl.value < 1 || conf->ttl.value > 255))
		return fail(EINVAL, "udp: ttl %u is not 1 to 255", conf->ttl.value);
	if (conf->local.interface > seat->net->n_interfaces)
		return fail(EINVAL, "udp: there is no interface %u: the net has %u",
			conf->local.interface, seat->net->n_interfaces);
	if (!ip_is_none(&conf->local.ip) && !is_an_address(seat, &conf->local.ip))
		return fail(EADDRNOTAVAIL, "udp: no interface has the address to bind to");
	return 0;
}

static struct udp_head head_of(const struct vbn_udp *udp)
{
	bool whole = udp->dont_fragment != VBN_OFF;
	struct wire_ip4 ip4 = {.version_ihl = 0x45,
		.tos = udp->traffic_class,
		.fragment = be16(whole ? IP4_DF : 0),
		.ttl = udp->ttl,
		.protocol = PROTO_UDP};
	struct wire_ip6 ip6 = {
		.version_class_flow = be32(0x60000000u | (uint32_t)udp->traffic_class << 20),
		.next = PROTO_UDP,
		.hops = udp->ttl};

	return (struct udp_head){.first4 = load2(&ip4),
		.fragment4 = load2(&ip4.fragment),
		.hop4 = load2(&ip4.ttl),
		.hop6 = load2(&ip6.next),
		.first6 = load4(&ip6),
		.sum4 = (uint32_t)csum_ip4_header(&ip4)};
}

static struct vbn_udp *socket_make(struct net_seat *seat, const struct vbn_udp_conf *conf)
{
	struct vbn_udp *udp = aligned_alloc(CACHE_LINE, sizeof(*udp));
	uint32_t depth = conf->depth ? conf->depth : DEFAULT_DEPTH;

	if (!udp)
		return NULL;
	*udp = (struct vbn_udp){.seat = seat,
		.number = seat->number,
		.recv = conf->recv,
		.arg = conf->arg,
		.ring_mask = depth - 1,
		.ttl = (uint8_t)(conf->ttl.set ? conf->ttl.value : DEFAULT_TTL),
		.group_ttl = (uint8_t)(conf->ttl.set ? conf->ttl.value : 1),
		.traffic_class = conf->traffic_class,
		.broadcast = conf->broadcast == VBN_ON,
		.dont_fragment = conf->dont_fragment};
	udp->common = head_of(udp);
	udp->key = calloc(1, sizeof(*udp->key));
	if (!conf->recv)
		udp->ring = calloc(depth, sizeof(struct vbn_buf *));
	if (!udp->key || (!conf->recv && !udp->ring)) {
		socket_free(udp);
		return NULL;
	}
	udp->key->local = conf->local.ip;
	udp->key->bound = !ip_is_none(&conf->local.ip);
	udp->key->local_port = conf->local.port;
	udp->key->interface = conf->local.interface;
	return udp;
}

VBN_API int vbn_udp_open(
	struct vbn_net_end *end, const struct vbn_udp_conf *conf, struct vbn_udp **opened)
{
	struct net_seat *seat = end->seat;
	int err = conf_check(seat, conf);
	struct vbn_udp *udp;

	if (err)
		return err;
	udp = socket_make(seat, conf);
	if (!udp)
		return fail(ENOMEM, "udp: there is no memory for a socket");
	pthread_mutex_lock(&seat->net->lock);
	err = enter(udp);
	pthread_mutex_unlock(&seat->net->lock);
	if (err) {
		socket_free(udp);
		if (err == -EADDRINUSE)
			return fail(EADDRINUSE,
				"udp: this worker has a socket on port %u: close it, or bind to another address",
				conf->local.port);
		return fail(-err,
			"udp: there are %u sockets, which is max_sockets, or no port is free",
			seat->net->n_sockets);
	}
	udp->next_mine = seat->mine;
	seat->mine = udp;
	*opened = udp;
	return 0;
}

static void leave(struct vbn_udp *udp, struct udp_group *group)
{
	uint32_t interface = group->interface;
	struct vbn_ip ip;

	memcpy(ip.bytes, group->ip_words, sizeof(ip.bytes));
	store_release(&group->interface, 0);
	vbn__multicast_leave(udp->seat, &ip, net_interface(udp->seat->net, interface - 1));
}

static void leave_all(struct vbn_udp *udp)
{
	for (int i = 0; i < UDP_GROUPS; i++)
		if (udp->groups[i].interface)
			leave(udp, &udp->groups[i]);
}

/* What has come and nobody has taken. */
static void drop_what_waits(struct vbn_udp *udp)
{
	struct net_seat *seat = udp->seat;

	if (seat->batch == udp) {
		vbn_buf_free(seat->batch_bufs, seat->n_batch);
		seat->n_batch = 0;
		seat->batch = NULL;
	}
	while (udp->tail != udp->head)
		buf_drop(udp->ring[udp->tail++ & udp->ring_mask]);
}

VBN_API void vbn_udp_close(struct vbn_udp *udp)
{
	struct vbn_udp **at;

	if (!udp)
		return;
	leave_all(udp);
	drop_what_waits(udp);
	at = &udp->seat->mine;
	while (*at != udp)
		at = &(*at)->next_mine;
	*at = udp->next_mine;
	pthread_mutex_lock(&udp->seat->net->lock);
	take_out(udp);
	pthread_mutex_unlock(&udp->seat->net->lock);
	vbn__rcu_call(&udp->later, socket_free, udp);
}

void vbn__udp_close_all(struct net_seat *seat)
{
	while (seat->mine)
		vbn_udp_close(seat->mine);
}

/* ---- connecting ---- */

/* The key in which only the peer differs. */
static int key_for(struct vbn_udp *udp, const struct vbn_udp_address *peer, struct udp_key *key)
{
	struct net_seat *seat = udp->seat;
	struct dst *dst;
	const struct vbn_ip *source;
	bool scoped = ip_is_link_local(&peer->ip) || ip_is_multicast(&peer->ip);

	key->connected = !ip_is_none(&peer->ip);
	key->peer = peer->ip;
	key->peer_port = peer->port;
	if (!key->connected)
		return 0;
	if (!peer->port || peer->interface > seat->net->n_interfaces)
		return fail(EINVAL,
			"udp: a peer needs a port, and its interface must be one of the net's");
	if (key->bound && ip_is4(&key->local) != ip_is4(&peer->ip))
		return fail(EINVAL,
			"udp: the socket is bound to an address of the other version than the peer's");
	dst = dst_find(seat, &peer->ip, scoped ? (peer->interface ? peer->interface : 1) : 0);
	if (dst->kind == DST_NONE || dst->kind == DST_LOCAL)
		return fail(EHOSTUNREACH, "udp: there is no route to the peer: add one");
	source = key->bound ? &key->local : vbn__source_for(seat, dst);
	if (!source)
		return fail(EHOSTUNREACH, "udp: no address of ours can be used towards the peer");
	/* A group is sent to; what comes from it comes from its members. */
	if (ip_is_multicast(&peer->ip)) {
		key->connected = false;
		return 0;
	}
	key->local = *source;
	key->bound = true;
	return 0;
}

VBN_API int vbn_udp_connect(struct vbn_udp *udp, const struct vbn_udp_address *peer)
{
	struct vbn_net *net = udp->seat->net;
	struct udp_key *old = udp->key, *key = malloc(sizeof(*key));
	int err;

	if (!key)
		return fail(ENOMEM, "udp: there is no memory for a connection");
	*key = *old;
	err = key_for(udp, peer, key);
	if (err) {
		free(key);
		return err;
	}
	pthread_mutex_lock(&net->lock);
	if (is_taken(net, udp->seat, udp, key)) {
		err = -EADDRINUSE;
	} else {
		rcu_publish(&udp->key, key);
		sockets_changed(net);
	}
	pthread_mutex_unlock(&net->lock);
	if (err) {
		free(key);
		return fail(EADDRINUSE, "udp: this worker has a socket with the same ends");
	}
	udp->peer_scope = peer->interface;
	vbn__rcu_call(&old->later, free, old);
	return 0;
}

VBN_API void vbn_udp_local(const struct vbn_udp *udp, struct vbn_udp_address *local)
{
	*local = (struct vbn_udp_address){
		udp->key->local, udp->key->local_port, (uint16_t)udp->key->interface};
}

/* ---- groups ---- */

static int group_check(const struct vbn_udp *udp, const struct vbn_ip *group, uint32_t interface)
{
	if (!ip_is_multicast(group))
		return fail(EINVAL, "udp: a group that is joined or left is a multicast address");
	if (interface > udp->seat->net->n_interfaces)
		return fail(EINVAL, "udp: there is no interface %u: the net has %u", interface,
			udp->seat->net->n_interfaces);
	return 0;
}

static struct udp_group *group_find(
	struct vbn_udp *udp, const struct vbn_ip *group, uint32_t interface)
{
	for (int i = 0; i < UDP_GROUPS; i++)
		if (interface ? udp_group_is(&udp->groups[i], group, interface)
			      : !udp->groups[i].interface)
			return &udp->groups[i];
	return NULL;
}

VBN_API int vbn_udp_join(struct vbn_udp *udp, const struct vbn_ip *group, uint32_t interface)
{
	int err = group_check(udp, group, interface);
	struct udp_group *place;

	if (err)
		return err;
	interface = interface ? interface : 1;
	if (group_find(udp, group, interface))
		return fail(EADDRINUSE, "udp: the socket has joined this group");
	place = group_find(udp, group, 0);
	err = place ? vbn__multicast_join(
			      udp->seat, group, net_interface(udp->seat->net, interface - 1))
		    : -ENOSPC;
	if (err)
		return fail(ENOSPC, "udp: a socket can be in %d groups, and a net in max_groups",
			UDP_GROUPS);
	store_once(&place->ip_words[0], ip_high(group));
	store_once(&place->ip_words[1], ip_low(group));
	store_release(&place->interface, interface);
	return 0;
}

VBN_API int vbn_udp_leave(struct vbn_udp *udp, const struct vbn_ip *group, uint32_t interface)
{
	int err = group_check(udp, group, interface);
	struct udp_group *place;

	if (err)
		return err;
	interface = interface ? interface : 1;
	place = group_find(udp, group, interface);
	if (!place)
		return fail(EADDRNOTAVAIL, "udp: the socket has not joined this group");
	leave(udp, place);
	return 0;
}
