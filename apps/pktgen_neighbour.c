/* pktgen_neighbour.c - ARP and IPv6 neighbour discovery of pktgen: its source addresses are answered for, and
 * with --resolve it asks who has the destination
 *
 * Both are frames of their own beside those that are generated, and are counted apart.
 */
#include "pktgen.h"

#define ASK_AGAIN (SECOND / 5)

enum {
	MOST_ASKED = 10, /* times */
	ARP_REQUEST = 1,
	ARP_REPLY = 2,
	SOLICIT = 135,
	ADVERTISE = 136,
	ND = 32,    /* bytes, with one option of a MAC */
	ND_MIN = 24 /* and without */
};

struct message {
	uint8_t bytes[128];
	uint32_t len;
};

static uint32_t get16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

/* Ethernet's header, with the tag that the run's frames have; where what follows goes. */
static uint8_t *start(const struct pktgen_worker *own, const struct lane *lane, const uint8_t to[6],
	uint32_t type, struct message *message)
{
	uint8_t *at = message->bytes;

	*message = (struct message){.len = 0};
	memcpy(at, to, 6);
	memcpy(at + 6, lane->mac, 6);
	at += 12;
	if (own->conf->vlan) {
		at = put16(at, TYPE_TAG);
		at = put16(at, (uint32_t)own->conf->vlan);
	}
	return put16(at, type);
}

static void send(struct packet_worker *worker, struct lane *lane, const struct message *message)
{
	struct pktgen_worker *own = worker->own;
	struct vbn_buf *buf;

	if (vbn_buf_alloc(worker->pool, &buf, 1) < 0)
		return;
	memcpy(buf->data, message->bytes, message->len);
	buf->len = message->len;
	*vbn_buf_packet(buf) = (struct vbn_packet){.flags = 0};
	if (lane->tap)
		capture_burst(lane->tap, lane->device, CAPTURE_SENT, &buf, 1);
	if (vbn_send(lane->queue, &buf, 1) == 1)
		vbn_count(&own->neighbour_sent, 1);
	else
		vbn_buf_free(&buf, 1);
}

/* ---- messages ---- */

static void send_arp(struct packet_worker *worker, struct lane *lane, uint32_t operation,
	const uint8_t *sender, const uint8_t *target_mac, const uint8_t *target)
{
	static const uint8_t all[6] = {255, 255, 255, 255, 255, 255};
	struct message message;
	uint8_t *at = start(worker->own, lane, target_mac ? target_mac : all, TYPE_ARP, &message);

	put16(at, 1);
	put16(at + 2, TYPE_IPV4);
	put16(at + 4, 0x0604);
	put16(at + 6, operation);
	memcpy(at + 8, lane->mac, 6);
	memcpy(at + 14, sender, 4);
	if (target_mac)
		memcpy(at + 18, target_mac, 6);
	memcpy(at + 24, target, 4);
	message.len = LEAST_FRAME;
	send(worker, lane, &message);
}

static void fill_icmp6_sum(uint8_t *ip)
{
	uint32_t sum = ND + ICMP6;

	for (int i = 8; i < IPV6 + ND; i += 2) /* addresses, and all behind them */
		sum += get16(ip + i);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	put16(ip + IPV6 + 2, ~sum & 0xffff);
}

/* `target` is who is asked for, or who answers. */
static void send_nd(struct packet_worker *worker, struct lane *lane, uint8_t type,
	const uint8_t to_mac[6], const uint8_t src[16], const uint8_t dst[16],
	const uint8_t target[16])
{
	struct message message;
	uint8_t *ip = start(worker->own, lane, to_mac, TYPE_IPV6, &message), *nd = ip + IPV6;

	ip[0] = 0x60;
	ip[5] = ND;
	ip[6] = ICMP6;
	ip[7] = 255;
	memcpy(ip + 8, src, 16);
	memcpy(ip + 24, dst, 16);
	nd[0] = type;
	nd[4] = type == ADVERTISE ? 0x60 : 0; /* solicited, and overrides */
	memcpy(nd + 8, target, 16);
	nd[24] = type == ADVERTISE ? 2 : 1;
	nd[25] = 1;
	memcpy(nd + 26, lane->mac, 6);
	fill_icmp6_sum(ip);
	message.len = (uint32_t)(nd + ND - message.bytes);
	send(worker, lane, &message);
}

/* To whoever has the first destination, from the first source. */
static void ask(struct packet_worker *worker, struct lane *lane)
{
	const struct pktgen_worker *own = worker->own;
	const uint8_t *src = own->pattern->ends.src.first, *dst = own->pattern->ends.dst.first;
	uint8_t group[16] = {255, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 255};
	uint8_t group_mac[6] = {0x33, 0x33, 255};

	if (!own->pattern->v6) {
		send_arp(worker, lane, ARP_REQUEST, src + 12, NULL, dst + 12);
		return;
	}
	memcpy(group + 13, dst + 13, 3);
	memcpy(group_mac + 3, dst + 13, 3);
	send_nd(worker, lane, SOLICIT, group_mac, src, group, dst);
}

/* ---- what comes ---- */

static void learn(struct pktgen_worker *own, const struct lane *lane, const uint8_t mac[6])
{
	struct neighbour *neighbour = &own->pattern->neighbours[lane->device];

	if (!own->waits || load_once(&neighbour->known))
		return;
	memcpy(neighbour->mac, mac, 6);
	__atomic_store_n(&neighbour->known, true, __ATOMIC_RELEASE);
}

static bool take_arp(
	struct packet_worker *worker, struct lane *lane, const uint8_t *arp, uint32_t len)
{
	struct pktgen_worker *own = worker->own;
	uint8_t sender[16] = {0}, target[16] = {0};

	if (len < ARP || own->pattern->v6 || get16(arp) != 1 || get16(arp + 2) != TYPE_IPV4)
		return false;
	memcpy(sender + 12, arp + 14, 4);
	memcpy(target + 12, arp + 24, 4);
	if (!address_is_of(&own->pattern->ends.src, target))
		return false;
	if (get16(arp + 6) == ARP_REQUEST)
		send_arp(worker, lane, ARP_REPLY, target + 12, arp + 8, arp + 14);
	if (!memcmp(sender, own->pattern->ends.dst.first, 16))
		learn(own, lane, arp + 8);
	return true;
}

static bool take_nd(struct packet_worker *worker, struct lane *lane, const uint8_t *frame,
	const uint8_t *ip, uint32_t len)
{
	struct pktgen_worker *own = worker->own;
	const struct ends *ends = &own->pattern->ends;
	const uint8_t *nd = ip + IPV6;
	static const uint8_t nobody[16];

	if (len < IPV6 + ND_MIN || !own->pattern->v6 || ip[6] != ICMP6 || ip[7] != 255)
		return false;
	if (nd[0] == SOLICIT && memcmp(ip + 8, nobody, 16) && address_is_of(&ends->src, nd + 8)) {
		send_nd(worker, lane, ADVERTISE, frame + 6, nd + 8, ip + 8, nd + 8);
		return true;
	}
	if (nd[0] != ADVERTISE || memcmp(nd + 8, ends->dst.first, 16) || len < IPV6 + ND ||
		nd[24] != 2)
		return false;
	learn(own, lane, nd + 26);
	return true;
}

__attribute__((cold)) bool neighbour_take(
	struct packet_worker *worker, struct lane *lane, const struct vbn_buf *buf)
{
	struct pktgen_worker *own = worker->own;
	const uint8_t *at = buf->data;
	uint32_t len = buf->len, type;
	bool is = false;

	if (!own->pattern->ip || len < ETHERNET + TAG)
		return false;
	type = get16(at + 12);
	at += ETHERNET;
	len -= ETHERNET;
	if (type == TYPE_TAG) {
		type = get16(at + 2);
		at += TAG;
		len -= TAG;
	}
	if (type == TYPE_ARP)
		is = take_arp(worker, lane, at, len);
	else if (type == TYPE_IPV6)
		is = take_nd(worker, lane, buf->data, at, len);
	vbn_count(&own->neighbour_came, is);
	return is;
}

/* ---- who is there ---- */

bool neighbours_known(const struct packet_run *run, const struct pattern *pattern)
{
	for (int i = 0; i < run->n_devices; i++)
		if (!__atomic_load_n(&pattern->neighbours[i].known, __ATOMIC_ACQUIRE))
			return false;
	return true;
}

/* One worker asks, by the first lane of each device. */
static void ask_all(struct packet_worker *worker, uint64_t now)
{
	struct pktgen_worker *own = worker->own;
	const int queues = (int)worker->run->conf.queues;

	if (worker->index || (own->n_asked && now - own->asked_ns < ASK_AGAIN))
		return;
	if (own->n_asked++ == MOST_ASKED) {
		vbn_stop();
		return;
	}
	own->asked_ns = now;
	for (int i = 0; i < worker->n_lanes; i += queues)
		if (!load_once(&own->pattern->neighbours[worker->lanes[i].device].known))
			ask(worker, &worker->lanes[i]);
}

__attribute__((cold)) bool neighbours_found(struct packet_worker *worker)
{
	struct pktgen_worker *own = worker->own;

	if (!neighbours_known(worker->run, own->pattern)) {
		ask_all(worker, now_ns());
		return false;
	}
	own->waits = false;
	for (int i = 0; i < worker->n_lanes; i++)
		memcpy(worker->lanes[i].peer, own->pattern->neighbours[worker->lanes[i].device].mac,
			6);
	return true;
}
