/* ud.c - address handles of peers */

#include "drv/verbs/verbs.h"

#include <stdlib.h>

int vbn__verbs_peer_create(struct peer_entry *entry)
{
	struct verbs_way *way = calloc(1, sizeof(*way));
	struct address address;
	int ret;

	if (!way)
		return -ENOMEM;
	ret = vbn__rdma_peer_create(entry, &way->ah, &address);
	if (ret) {
		free(way);
		return ret;
	}
	way->qpn = address.qpn;
	way->qkey = address.qkey;
	entry->driver_data = way;
	entry->peer.handle = (uintptr_t)way;
	return 0;
}

void vbn__verbs_peer_destroy(struct peer_entry *entry)
{
	struct verbs_way *way = entry->driver_data;

	ibv_destroy_ah(way->ah);
	free(way);
}
