/* path.c - path MTUs that routers have told of (RFC 1191, 8201), remembered for ten minutes
 *
 * Places by hash; a new one takes that of an old one. A reader that finds one just being written takes
 * what the route says.
 */

#include "net/seat.h"

#include <stdlib.h>

enum { PATH_MS = 600000, LEAST4 = 552, LEAST6 = 1280, WAYS = 4 };

int vbn__paths_create(struct vbn_net *net)
{
	uint32_t sets = (uint32_t)pow2_ceil((net->conf.max_paths + WAYS - 1) / WAYS);

	net->path_mask = sets - 1;
	net->paths = calloc((size_t)sets * WAYS, sizeof(*net->paths));
	return net->paths ? 0 : -ENOMEM;
}

static struct net_path *paths_of(const struct vbn_net *net, const struct vbn_ip *ip)
{
	uint64_t hash = mix(mix(ip_high(ip) ^ net->seed) ^ ip_low(ip));

	return &net->paths[(hash & net->path_mask) * WAYS];
}

static bool is_path_of(const struct net_path *path, const struct vbn_ip *ip)
{
	return load_once(&path->ip_words[0]) == ip_high(ip) &&
		load_once(&path->ip_words[1]) == ip_low(ip);
}

/* The MTU of a path, 0: not known. */
static uint32_t path_read(const struct net_path *path, const struct vbn_ip *ip, uint64_t now)
{
	uint32_t seq = load_acquire(&path->seq), mtu;
	bool is_it;

	if (seq & 1)
		return 0;
	is_it = is_path_of(path, ip) && now < load_once(&path->until);
	mtu = load_once(&path->mtu);
	copied_before_check();
	return is_it && load_once(&path->seq) == seq ? mtu : 0;
}

uint32_t vbn__path_mtu(const struct vbn_net *net, uint64_t now, const struct vbn_ip *ip,
	uint32_t mtu, bool *locked)
{
	const struct net_path *paths = paths_of(net, ip);

	*locked = false;
	for (int i = 0; i < WAYS; i++) {
		uint32_t known = path_read(&paths[i], ip, now);

		if (!known || known >= mtu)
			continue;
		/* Less than what is believed: packets of that size then, but routers may cut them. */
		*locked = ip_is4(ip) && known <= LEAST4;
		return known;
	}
	return mtu;
}

static struct net_path *place_for(struct net_path *paths, const struct vbn_ip *ip)
{
	struct net_path *oldest = paths;

	for (int i = 0; i < WAYS; i++) {
		if (is_path_of(&paths[i], ip))
			return &paths[i];
		if (paths[i].until < oldest->until)
			oldest = &paths[i];
	}
	return oldest;
}

void vbn__path_learn(struct net_seat *seat, const struct news *news)
{
	const struct vbn_ip *ip = &news->ip;
	struct net_path *path = place_for(paths_of(seat->net, ip), ip);

	store_once(&path->seq, path->seq + 1);
	closed_before_reuse();
	store_once(&path->ip_words[0], ip_high(ip));
	store_once(&path->ip_words[1], ip_low(ip));
	store_once(&path->mtu, max(news->value, (uint32_t)(ip_is4(ip) ? LEAST4 : LEAST6)));
	store_once(&path->until, seat->now + PATH_MS);
	store_release(&path->seq, path->seq + 1);
	__atomic_fetch_add(&seat->net->generation, 1, __ATOMIC_RELEASE);
	seat_count(seat, path_mtu_lowered);
}

/* That of one of the workers: all have the same. */
static uint64_t now_of(struct vbn_net *net)
{
	uint64_t now = 0;

	pthread_mutex_lock(&net->lock);
	for (int i = 0; i < NET_SEATS; i++)
		if (net->seats[i])
			now = max(now, vbn__glance_count(&net->seats[i]->now));
	pthread_mutex_unlock(&net->lock);
	return now;
}

VBN_API uint32_t vbn_net_path_mtu(struct vbn_net *net, const struct vbn_ip *ip)
{
	const struct net_hop *hop;
	uint32_t mtu = 0;
	bool locked;

	/* The table is held by its updaters' lock, since the caller may be no reader. */
	pthread_mutex_lock(&net->routes_lock);
	hop = vbn__route_find(net, ip);
	if (hop)
		mtu = hop->mtu;
	pthread_mutex_unlock(&net->routes_lock);
	return mtu ? vbn__path_mtu(net, now_of(net), ip, mtu, &locked) : 0;
}
