/* group.c - multicast groups: who has joined, and reports of it (IGMPv2, RFC 2236; MLDv1, RFC 2710) */

#include "net/seat.h"

#include <stdlib.h>

enum {
	REPORTS = 2,
	REPORT_MS = 10000,
	IGMP_QUERY = 0x11,
	IGMP_V1 = 0x12,
	IGMP_REPORT = 0x16,
	IGMP_LEAVE = 0x17
};

static const struct vbn_ip all_routers4 = {{[10] = 0xff, 0xff, 224, 0, 0, 2}},
			   all_routers6 = {{0xff, 0x02, [15] = 2}},
			   all_hosts4 = {{[10] = 0xff, 0xff, 224, 0, 0, 1}},
			   all_nodes6 = {{0xff, 0x02, [15] = 1}};

/* Joined for ever, and by everybody: of these nothing is reported. */
static bool is_everybody(const struct vbn_ip *group)
{
	if (ip_is4(group))
		return ip_equal(group, &all_hosts4);
	return ip_equal(group, &all_nodes6) || (group->bytes[1] & 15) == 1;
}

static struct net_group *find(
	const struct vbn_net *net, const struct vbn_ip *group, uint32_t interface)
{
	for (uint32_t i = 0; i < net->n_groups; i++) {
		struct net_group *at = &net->groups[i];

		if (load_acquire(&at->interface) == interface + 1 &&
			load_once(&at->ip_words[0]) == ip_high(group) &&
			load_once(&at->ip_words[1]) == ip_low(group))
			return at;
	}
	return NULL;
}

bool vbn__multicast_has(const struct vbn_net *net, const struct vbn_ip *group, uint32_t interface)
{
	return is_everybody(group) || find(net, group, interface);
}

static struct vbn_ip group_ip(const struct net_group *group)
{
	struct vbn_ip ip;

	memcpy(ip.bytes, group->ip_words, sizeof(ip.bytes));
	return ip;
}

/* ---- reports ---- */

static void send_igmp(
	struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *group, uint8_t type)
{
	const struct vbn_ip *to = type == IGMP_LEAVE ? &all_routers4 : group, *from;
	struct vbn_buf *buf = vbn__net_buf(seat, iface);
	struct dst *dst = dst_find(seat, to, iface->index + 1);
	struct wire_igmp *igmp;

	if (!buf)
		return;
	from = vbn__source_for(seat, dst);
	if (!from) {
		buf_drop(buf);
		return;
	}
	igmp = (struct wire_igmp *)buf->data;
	*igmp = (struct wire_igmp){.type = type};
	memcpy(igmp->group, group->bytes + 12, 4);
	igmp->sum = sum_finish(sum_add(0, igmp, sizeof(*igmp)));
	buf->len = sizeof(*igmp);
	seat_count(seat, reports_sent);
	vbn__ip_send(seat,
		&(struct ip_out){.dst = dst,
			.from = from,
			.to = to,
			.protocol = PROTO_IGMP,
			.ttl = 1,
			.router_alert = true},
		buf);
}

/* RFC 3590: from a link-local address, or from none while there is none. */
static struct vbn_ip mld_source(const struct net_if *iface)
{
	for (uint32_t i = 0; i < iface->n_addresses; i++)
		if (ip_is_link_local(&iface->addresses[i].ip) &&
			vbn__glance_byte(&iface->addresses[i].state) == ADDRESS_VALID)
			return iface->addresses[i].ip;
	return (struct vbn_ip){{0}};
}

static void send_mld(
	struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *group, uint8_t type)
{
	const struct vbn_ip *to = type == ICMP6_MLD_DONE ? &all_routers6 : group;
	struct vbn_ip from = mld_source(iface);
	struct vbn_buf *buf = vbn__net_buf(seat, iface);
	struct wire_icmp *mld;

	if (!buf)
		return;
	mld = (struct wire_icmp *)buf->data;
	*mld = (struct wire_icmp){.type = type};
	memcpy(buf->data + 8, group->bytes, 16);
	buf->len = 24;
	mld->sum = sum_finish(
		sum_add(sum_ips(&from, to) + sum_pseudo(24, PROTO_ICMP6), buf->data, 24));
	seat_count(seat, reports_sent);
	vbn__ip_send(seat,
		&(struct ip_out){.dst = dst_find(seat, to, iface->index + 1),
			.from = &from,
			.to = to,
			.protocol = PROTO_ICMP6,
			.ttl = 1,
			.router_alert = true},
		buf);
}

static void report(
	struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *group, bool leaving)
{
	if (ip_is4(group))
		send_igmp(seat, iface, group, leaving ? IGMP_LEAVE : IGMP_REPORT);
	else
		send_mld(seat, iface, group, leaving ? ICMP6_MLD_DONE : ICMP6_MLD_REPORT);
}

/* ---- joining ---- */

/* The group in which an address of ours is asked for: as long as the net is there. */
static void put_solicited(struct vbn_net *net, const struct vbn_ip *address, uint32_t interface)
{
	struct vbn_ip group = vbn__ip_solicited(address);
	struct net_group *at = net->groups;

	if (find(net, &group, interface))
		return;
	while (at->interface)
		at++;
	*at = (struct net_group){
		{ip_high(&group), ip_low(&group)}, interface + 1, 1, REPORTS, 0, true};
}

int vbn__multicast_create(struct vbn_net *net)
{
	net->n_groups = net->conf.max_groups;
	for (uint32_t i = 0; i < net->n_interfaces; i++)
		net->n_groups += net_interface(net, i)->n_addresses;
	net->groups = calloc(net->n_groups + 1, sizeof(*net->groups));
	if (!net->groups)
		return -ENOMEM;
	for (uint32_t i = 0; i < net->n_interfaces; i++) {
		const struct net_if *iface = net_interface(net, i);

		for (uint32_t k = 0; k < iface->n_addresses; k++)
			if (!ip_is4(&iface->addresses[k].ip))
				put_solicited(net, &iface->addresses[k].ip, i);
	}
	return 0;
}

int vbn__multicast_join(
	struct net_seat *seat, const struct vbn_ip *group, const struct net_if *iface)
{
	struct vbn_net *net = seat->net;
	struct net_group *at, *place = NULL;
	bool joined = false;

	if (is_everybody(group))
		return 0;
	pthread_mutex_lock(&net->lock);
	at = find(net, group, iface->index);
	for (uint32_t i = 0; i < net->n_groups && !at && !place; i++)
		if (!net->groups[i].interface)
			place = &net->groups[i];
	if (at) {
		at->users++;
	} else if (place) {
		store_once(&place->ip_words[0], ip_high(group));
		store_once(&place->ip_words[1], ip_low(group));
		place->users = 1;
		place->reports = REPORTS - 1;
		place->report_at = seat->now + random32(seat) % REPORT_MS;
		place->reporter = true;
		store_release(&place->interface, iface->index + 1);
		__atomic_fetch_add(&net->generation, 1, __ATOMIC_RELEASE);
		joined = true;
	}
	pthread_mutex_unlock(&net->lock);
	if (joined)
		report(seat, iface, group, false);
	return at || place ? 0 : -ENOSPC;
}

void vbn__multicast_leave(
	struct net_seat *seat, const struct vbn_ip *group, const struct net_if *iface)
{
	struct vbn_net *net = seat->net;
	struct net_group *at;
	bool last = false;

	pthread_mutex_lock(&net->lock);
	at = find(net, group, iface->index);
	if (at && !--at->users) {
		last = at->reporter;
		store_release(&at->interface, 0);
		__atomic_fetch_add(&net->generation, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&net->lock);
	if (last)
		report(seat, iface, group, true);
}

/* A report that is due, if its link is one that the seat sends on. */
static bool group_due(struct net_seat *seat, struct net_group *group)
{
	if (!group->interface || seat->now < group->report_at ||
		!seat->ends[net_interface(seat->net, group->interface - 1)->link])
		return false;
	group->reporter = true;
	if (group->reports)
		group->reports--;
	group->report_at = group->reports ? seat->now + random32(seat) % REPORT_MS : UINT64_MAX;
	return true;
}

void vbn__multicast_look(struct net_seat *seat)
{
	struct vbn_net *net = seat->net;

	for (uint32_t i = 0; i < net->n_groups; i++) {
		struct net_group *at = &net->groups[i];
		const struct net_if *iface = NULL;
		struct vbn_ip group;

		if (!load_acquire(&at->interface) || seat->now < vbn__glance_count(&at->report_at))
			continue;
		if (!net_try(net))
			return;
		if (group_due(seat, at)) {
			iface = net_interface(net, at->interface - 1);
			group = group_ip(at);
		}
		pthread_mutex_unlock(&net->lock);
		if (iface)
			report(seat, iface, &group, false);
	}
}

/* ---- queries ---- */

/* All groups, or one: each is reported at a time of its own, up to so many ms from now. */
static void queried(struct net_seat *seat, const struct news *news)
{
	struct vbn_net *net = seat->net;
	uint64_t at = seat->now + random32(seat) % (news->value + 1);

	for (uint32_t i = 0; i < net->n_groups; i++) {
		struct net_group *known = &net->groups[i];
		struct vbn_ip ip = group_ip(known);

		if (known->interface == news->iface->index + 1 && ip_is4(&ip) == news->v4 &&
			(ip_is_none(&news->ip) || ip_equal(&news->ip, &ip)) &&
			at < known->report_at) {
			store_once(&known->report_at, at);
			known->reports = known->reports ? known->reports : 1;
		}
	}
}

/* Somebody else has said it. */
static void reported(struct net_seat *seat, const struct news *news)
{
	struct net_group *known = find(seat->net, &news->ip, news->iface->index);

	if (known && known->report_at != UINT64_MAX) {
		store_once(&known->report_at, UINT64_MAX);
		known->reports = 0;
		known->reporter = false;
	}
}

void vbn__multicast_learn(struct net_seat *seat, const struct news *news)
{
	if (news->kind == NEWS_QUERY)
		queried(seat, news);
	else
		reported(seat, news);
}

static void heard(struct rx *rx, enum news_kind kind, const struct vbn_ip *group, uint32_t within)
{
	vbn__learn(rx->seat,
		&(struct news){.kind = kind,
			.value = within,
			.iface = rx->iface,
			.ip = *group,
			.v4 = ip_is4(&rx->to)});
}

static void consume(struct rx *rx, struct vbn_buf *buf)
{
	seat_count(rx->seat, consumed);
	buf_drop(buf);
}

void vbn__igmp_input(struct rx *rx, struct vbn_buf *buf)
{
	const struct wire_igmp *igmp = (const struct wire_igmp *)buf->data;
	struct vbn_ip group, none = {{0}};

	if (buf->len < sizeof(*igmp) || vbn_buf_total(buf) != buf->len) {
		seat_drop(rx->seat, buf, drop_igmp);
		return;
	}
	if (!sum_is_good(sum_add(0, buf->data, buf->len))) {
		seat_drop(rx->seat, buf, drop_l4_sum);
		return;
	}
	group = ip_from4(igmp->group);
	/* Only who is on the link has a say. */
	if (rx->ttl != 1 || (load4(igmp->group) && !ip_is_multicast(&group))) {
		seat_drop(rx->seat, buf, drop_igmp);
		return;
	}
	if (igmp->type == IGMP_QUERY)
		heard(rx, NEWS_QUERY, load4(igmp->group) ? &group : &none,
			igmp->time ? igmp->time * 100u : REPORT_MS);
	else if (igmp->type == IGMP_REPORT || igmp->type == IGMP_V1)
		heard(rx, NEWS_REPORT, &group, 0);
	consume(rx, buf);
}

void vbn__mld_input(struct rx *rx, struct vbn_buf *buf)
{
	const struct wire_icmp *mld = (const struct wire_icmp *)buf->data;
	struct vbn_ip group;

	if (buf->len < 8 || vbn_buf_total(buf) != buf->len || rx->ttl != 1 ||
		(!ip_is_link_local(&rx->from) && !ip_is_none(&rx->from)) ||
		(mld->type != 143 && buf->len < 24)) {
		seat_drop(rx->seat, buf, drop_igmp);
		return;
	}
	if (mld->type != 143) {
		group = ip_from6(buf->data + 8);
		if (!ip_is_none(&group) && group.bytes[0] != 0xff) {
			seat_drop(rx->seat, buf, drop_igmp);
			return;
		}
		if (mld->type == ICMP6_MLD_QUERY)
			heard(rx, NEWS_QUERY, &group, from_be32(mld->rest) >> 16);
		else if (mld->type == ICMP6_MLD_REPORT)
			heard(rx, NEWS_REPORT, &group, 0);
	}
	consume(rx, buf);
}
