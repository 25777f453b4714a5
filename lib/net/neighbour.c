/* neighbour.c - neighbours: who has which MAC, for ARP and neighbour discovery alike
 *
 * The states are RFC 4861's, for IPv4 too. Entries come from one array, so a flood makes none; one that
 * leaves the table is used again after a grace period, so a reader's pointer is good for its iteration. A
 * reader takes the entry's one word, which has the MAC and what may be done with it, and writes nothing:
 * that a stale entry is used is said by vbn__neighbour_used(), which makes it one that is probed.
 */

#include "net/seat.h"

#include <stdlib.h>

enum {
	PROBES = 3,    /* unanswered ones, then it has failed */
	SPARE = 64,    /* entries on their way through a grace period */
	LOOKED_AT = 16 /* candidates for making room */
};

static uint32_t bucket(const struct vbn_net *net, const struct vbn_ip *ip, uint32_t interface)
{
	return (uint32_t)(mix((mix(ip_high(ip) ^ net->seed) + interface) ^ ip_low(ip)) >> 8) &
		net->neighbour_mask;
}

static struct vbn_ip neighbour_ip(const struct neighbour *neighbour)
{
	struct vbn_ip ip;

	memcpy(ip.bytes, neighbour->ip_words, sizeof(ip.bytes));
	return ip;
}

fast_path struct neighbour *vbn__neighbour_find(
	const struct vbn_net *net, const struct vbn_ip *ip, uint32_t interface)
{
	uint32_t at = load_acquire(&net->neighbour_heads[bucket(net, ip, interface)]);

	while (at) {
		struct neighbour *neighbour = &net->neighbours[at - 1];

		if (neighbour_is(neighbour, ip) && neighbour->interface == interface)
			return neighbour;
		at = load_acquire(&neighbour->next);
	}
	return NULL;
}

int vbn__neighbours_create(struct vbn_net *net)
{
	uint32_t n = net->conf.max_neighbours + SPARE, n_heads = (uint32_t)pow2_ceil(n);

	net->neighbours = calloc(n, sizeof(*net->neighbours));
	net->neighbour_heads = calloc(n_heads, sizeof(*net->neighbour_heads));
	net->neighbour_mask = n_heads - 1;
	if (!net->neighbours || !net->neighbour_heads)
		return -ENOMEM;
	for (uint32_t i = n; i--;) {
		net->neighbours[i].net = net;
		net->neighbours[i].free = net->free_neighbours;
		net->free_neighbours = &net->neighbours[i];
	}
	return 0;
}

void vbn__neighbours_destroy(struct vbn_net *net)
{
	free(net->neighbours);
	free(net->neighbour_heads);
}

/* ---- under the lock ---- */

static void set_state(struct neighbour *neighbour, enum vbn_neighbour_state state,
	const uint8_t *mac, uint64_t at)
{
	static const uint16_t flags[] = {
		[VBN_NEIGHBOUR_INCOMPLETE] = WORD_WAITING,
		[VBN_NEIGHBOUR_REACHABLE] = WORD_READY,
		[VBN_NEIGHBOUR_STALE] = WORD_STALE,
		[VBN_NEIGHBOUR_DELAY] = WORD_READY,
		[VBN_NEIGHBOUR_PROBE] = WORD_READY,
		[VBN_NEIGHBOUR_FAILED] = WORD_FAILED,
	};
	union mac_word word = {.word = neighbour->word};
	bool waited = word.flags & WORD_WAITING;

	if (mac)
		memcpy(word.mac, mac, 6);
	word.flags = (uint16_t)(flags[state] | neighbour->life);
	neighbour->state = (uint8_t)state;
	neighbour->at = at;
	store_release(&neighbour->word, word.word);
	if (waited && state != VBN_NEIGHBOUR_INCOMPLETE)
		__atomic_fetch_add(&neighbour->net->resolved, 1, __ATOMIC_RELEASE);
}

static void give_back(void *arg)
{
	struct neighbour *neighbour = arg;
	struct vbn_net *net = neighbour->net;

	pthread_mutex_lock(&net->lock);
	neighbour->free = net->free_neighbours;
	net->free_neighbours = neighbour;
	pthread_mutex_unlock(&net->lock);
}

static void forget(struct vbn_net *net, struct neighbour *neighbour)
{
	struct vbn_ip ip = neighbour_ip(neighbour);
	uint32_t *at = &net->neighbour_heads[bucket(net, &ip, neighbour->interface)];
	uint32_t self = (uint32_t)(neighbour - net->neighbours) + 1;

	while (*at != self)
		at = &net->neighbours[*at - 1].next;
	store_release(at, neighbour->next);
	store_release(&neighbour->word, 0);
	neighbour->used = false;
	net->n_neighbours--;
	__atomic_fetch_add(&net->resolved, 1, __ATOMIC_RELEASE);
	vbn__rcu_call(&neighbour->later, give_back, neighbour);
}

/* The less it is worth, the higher. */
static unsigned int worthless(const struct neighbour *neighbour)
{
	static const uint8_t order[] = {
		[VBN_NEIGHBOUR_FAILED] = 4,
		[VBN_NEIGHBOUR_INCOMPLETE] = 3,
		[VBN_NEIGHBOUR_STALE] = 2,
	};
	return neighbour->state < ARRAY_SIZE(order) ? order[neighbour->state] : 0;
}

/* Of some entries, going round, the one that is worth least goes; none that is in use. */
static bool evict(struct net_seat *seat)
{
	struct vbn_net *net = seat->net;
	struct neighbour *worst = NULL;
	uint32_t n = net->conf.max_neighbours + SPARE;

	for (uint32_t i = 0; i < LOOKED_AT; i++) {
		struct neighbour *neighbour = &net->neighbours[net->hand];

		net->hand = net->hand + 1 < n ? net->hand + 1 : 0;
		if (!neighbour->used || !worthless(neighbour))
			continue;
		if (!worst || worthless(neighbour) > worthless(worst))
			worst = neighbour;
	}
	if (!worst)
		return false;
	seat_count(seat, neighbours_evicted);
	forget(net, worst);
	return true;
}

static struct neighbour *make(struct net_seat *seat, const struct vbn_ip *ip, uint32_t interface)
{
	struct vbn_net *net = seat->net;
	struct neighbour *neighbour;
	uint32_t *head;

	if (net->n_neighbours >= net->conf.max_neighbours && !evict(seat))
		return NULL;
	neighbour = net->free_neighbours;
	if (!neighbour)
		return NULL;
	net->free_neighbours = neighbour->free;
	store_once(&neighbour->ip_words[0], ip_high(ip));
	store_once(&neighbour->ip_words[1], ip_low(ip));
	neighbour->interface = interface;
	/* Who remembers the first of all lives looks again. */
	neighbour->life = (uint16_t)(neighbour->life + WORD_LIFE);
	if (!neighbour->life)
		__atomic_fetch_add(&net->generation, 1, __ATOMIC_RELEASE);
	neighbour->used = true;
	neighbour->router = false;
	neighbour->probes = 0;
	head = &net->neighbour_heads[bucket(net, ip, interface)];
	store_once(&neighbour->next, *head);
	store_release(head, (uint32_t)(neighbour - net->neighbours) + 1);
	net->n_neighbours++;
	seat_count(seat, neighbours_made);
	return neighbour;
}

static uint64_t reachable_until(const struct net_seat *seat)
{
	/* RFC 4861: 0.5 to 1.5 times, so that not all are probed at once. */
	uint64_t base = seat->net->conf.reachable_ms,
		 spread = mix(seat->now + seat->net->n_neighbours);

	return seat->now + base / 2 + spread % (base + 1);
}

/* ---- from outside ---- */

static void ask(struct net_seat *seat, const struct net_if *iface, const struct vbn_ip *ip,
	const uint8_t *mac)
{
	if (ip_is4(ip))
		vbn__arp_request(seat, iface, ip, mac);
	else
		vbn__nd_solicit(seat, iface, ip, mac);
}

struct neighbour *vbn__neighbour_want(
	struct net_seat *seat, const struct vbn_ip *ip, const struct net_if *iface, bool *later)
{
	struct neighbour *neighbour;
	bool made = false;

	*later = !net_try(seat->net);
	if (*later)
		return NULL;
	neighbour = vbn__neighbour_find(seat->net, ip, iface->index);
	if (!neighbour) {
		neighbour = make(seat, ip, iface->index);
		made = neighbour != NULL;
	}
	if (made) {
		neighbour->probes = 1;
		set_state(neighbour, VBN_NEIGHBOUR_INCOMPLETE, NULL,
			seat->now + seat->net->conf.retransmit_ms);
	}
	pthread_mutex_unlock(&seat->net->lock);
	if (made)
		ask(seat, iface, ip, NULL);
	return neighbour;
}

void vbn__neighbour_used(struct net_seat *seat, struct neighbour *neighbour)
{
	if (!net_try(seat->net))
		return;
	if (neighbour->used && neighbour->state == VBN_NEIGHBOUR_STALE)
		set_state(
			neighbour, VBN_NEIGHBOUR_DELAY, NULL, seat->now + seat->net->conf.delay_ms);
	pthread_mutex_unlock(&seat->net->lock);
}

static void heard_of_known(struct net_seat *seat, struct neighbour *neighbour, const uint8_t mac[6],
	unsigned int heard)
{
	union mac_word word = {.word = neighbour->word};
	bool had = word.flags & (WORD_READY | WORD_STALE),
	     changed = had && memcmp(word.mac, mac, 6);

	if (heard & HEARD_ROUTER)
		neighbour->router = true;
	if (heard & HEARD_HOST)
		neighbour->router = false;
	if (changed && !(heard & HEARD_OVERRIDE)) {
		if (neighbour->state == VBN_NEIGHBOUR_REACHABLE)
			set_state(neighbour, VBN_NEIGHBOUR_STALE, NULL, seat->now);
		return;
	}
	if (changed)
		seat_count(seat, neighbours_changed);
	if (heard & HEARD_ANSWER)
		set_state(neighbour, VBN_NEIGHBOUR_REACHABLE, mac, reachable_until(seat));
	else if (changed || !had)
		set_state(neighbour, VBN_NEIGHBOUR_STALE, mac, seat->now);
}

/* What is known already and says nothing new takes no lock. */
static bool is_news(const struct net_seat *seat, const struct vbn_ip *ip,
	const struct net_if *iface, const uint8_t mac[6], unsigned int heard)
{
	const struct neighbour *neighbour = vbn__neighbour_find(seat->net, ip, iface->index);
	union mac_word word;

	if (!neighbour)
		return heard & HEARD_ASKING;
	word.word = load_acquire(&neighbour->word);
	return heard & (HEARD_ANSWER | HEARD_ROUTER | HEARD_HOST) ||
		!(word.flags & (WORD_READY | WORD_STALE)) || memcmp(word.mac, mac, 6);
}

void vbn__neighbour_heard(struct net_seat *seat, const struct vbn_ip *ip,
	const struct net_if *iface, const uint8_t mac[6], unsigned int heard)
{
	struct news news = {.kind = NEWS_MAC, .value = heard, .iface = iface, .ip = *ip};

	if (!is_news(seat, ip, iface, mac, heard))
		return;
	memcpy(news.mac, mac, 6);
	vbn__learn(seat, &news);
}

void vbn__neighbour_learn(struct net_seat *seat, const struct news *news)
{
	struct neighbour *neighbour = vbn__neighbour_find(seat->net, &news->ip, news->iface->index);

	if (neighbour) {
		heard_of_known(seat, neighbour, news->mac, news->value);
	} else if (news->value & HEARD_ASKING) {
		neighbour = make(seat, &news->ip, news->iface->index);
		if (neighbour)
			set_state(neighbour, VBN_NEIGHBOUR_STALE, news->mac, seat->now);
	}
}

/* ---- ageing ---- */

struct probe {
	struct vbn_ip ip;
	uint8_t mac[6];
	bool all;
};

enum { PROBES_AT_ONCE = 32 };

/* True: it is to be asked. */
static bool age(struct net_seat *seat, struct neighbour *neighbour)
{
	const struct vbn_net_conf *conf = &seat->net->conf;
	uint64_t now = seat->now;

	switch (neighbour->state) {
	case VBN_NEIGHBOUR_REACHABLE:
		set_state(neighbour, VBN_NEIGHBOUR_STALE, NULL, now);
		return false;
	case VBN_NEIGHBOUR_DELAY:
		neighbour->probes = 1;
		set_state(neighbour, VBN_NEIGHBOUR_PROBE, NULL, now + conf->retransmit_ms);
		return true;
	case VBN_NEIGHBOUR_INCOMPLETE:
	case VBN_NEIGHBOUR_PROBE:
		if (neighbour->probes++ < PROBES) {
			neighbour->at = now + conf->retransmit_ms;
			return true;
		}
		seat_count(seat, neighbours_failed);
		if (neighbour->state == VBN_NEIGHBOUR_PROBE)
			forget(seat->net, neighbour);
		else
			set_state(neighbour, VBN_NEIGHBOUR_FAILED, NULL,
				now + 3ull * conf->retransmit_ms);
		return false;
	default: forget(seat->net, neighbour); return false;
	}
}

static bool is_due(const struct net_seat *seat, const struct neighbour *neighbour)
{
	uint64_t after = neighbour->state == VBN_NEIGHBOUR_STALE ? seat->net->conf.stale_ms : 0;

	return neighbour->used && seat->now >= neighbour->at + after;
}

void vbn__neighbours_look(struct net_seat *seat, struct net_if *iface)
{
	struct vbn_net *net = seat->net;
	struct probe probes[PROBES_AT_ONCE];
	uint32_t n_probes = 0;

	if (!net_try(net))
		return;
	for (uint32_t i = 0; i < net->conf.max_neighbours + SPARE && n_probes < PROBES_AT_ONCE;
		i++) {
		struct neighbour *neighbour = &net->neighbours[i];
		union mac_word word = {.word = neighbour->word};

		if (neighbour->interface != iface->index || !is_due(seat, neighbour) ||
			!age(seat, neighbour))
			continue;
		probes[n_probes].ip = neighbour_ip(neighbour);
		probes[n_probes].all = neighbour->state == VBN_NEIGHBOUR_INCOMPLETE;
		memcpy(probes[n_probes++].mac, word.mac, 6);
	}
	pthread_mutex_unlock(&net->lock);
	for (uint32_t i = 0; i < n_probes; i++)
		ask(seat, iface, &probes[i].ip, probes[i].all ? NULL : probes[i].mac);
}

VBN_API int vbn_net_neighbours(struct vbn_net *net, struct vbn_neighbour *neighbours, int n)
{
	int found = 0;

	pthread_mutex_lock(&net->lock);
	for (uint32_t i = 0; i < net->conf.max_neighbours + SPARE; i++) {
		const struct neighbour *neighbour = &net->neighbours[i];
		union mac_word word = {.word = neighbour->word};

		if (!neighbour->used)
			continue;
		if (found < n) {
			neighbours[found] = (struct vbn_neighbour){.ip = neighbour_ip(neighbour),
				.interface = neighbour->interface,
				.state = neighbour->state};
			memcpy(neighbours[found].mac, word.mac, 6);
		}
		found++;
	}
	pthread_mutex_unlock(&net->lock);
	return found;
}
