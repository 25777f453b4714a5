/* learn.c - what a worker has learned from a frame, and the tables that all workers read
 *
 * Who changes a table holds the net's lock, and on its way from a poll to a doorbell no worker waits for that:
 * where somebody else holds it, the news wait in the worker's own list, for its next iteration or the one after.
 * What finds that full is forgotten: it will be said again.
 */

#include "net/seat.h"

/* With the lock held; true: an address of ours is to be defended. */
static bool learn(struct net_seat *seat, const struct news *news)
{
	switch (news->kind) {
	case NEWS_MAC: vbn__neighbour_learn(seat, news); return false;
	case NEWS_PATH: vbn__path_learn(seat, news); return false;
	case NEWS_CLAIM: return vbn__address_learn(seat, news);
	default: vbn__multicast_learn(seat, news); return false;
	}
}

void vbn__learn(struct net_seat *seat, const struct news *news)
{
	bool defend;

	/* One after the other. */
	if (seat->n_news || !net_try(seat->net)) {
		if (seat->n_news == SEAT_NEWS) {
			seat_count(seat, learned_in_vain);
			return;
		}
		seat_count(seat, learned_later);
		seat->news[seat->n_news++] = *news;
		return;
	}
	defend = learn(seat, news);
	pthread_mutex_unlock(&seat->net->lock);
	if (defend)
		vbn__address_announce(seat, news->iface, &news->ip, false);
}

void vbn__learn_rest(struct net_seat *seat)
{
	uint64_t defend = 0;
	uint32_t n = seat->n_news;

	static_assert(SEAT_NEWS <= 64, "a bit for each");
	if (!n || !net_try(seat->net))
		return;
	for (uint32_t i = 0; i < n; i++)
		defend |= (uint64_t)learn(seat, &seat->news[i]) << i;
	pthread_mutex_unlock(&seat->net->lock);
	seat->n_news = 0;
	for (uint32_t i = 0; i < n; i++)
		if (defend >> i & 1)
			vbn__address_announce(seat, seat->news[i].iface, &seat->news[i].ip, false);
}
