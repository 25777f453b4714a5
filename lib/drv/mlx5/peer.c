/* peer.c - where datagrams go: an address handle, and the address vector that each WQE to the peer
 * carries */

#include "drv/mlx5/queue.h"

#include <stdlib.h>

/* The handle of a peer is its vector's address. */
struct route {
	struct mlx5_wqe_av av cache_aligned;
	struct ibv_ah *ah;
};

int vbn__mlx5_peer_create(struct peer_entry *entry)
{
	struct route *route = aligned_alloc(CACHE_LINE, sizeof(*route));
	struct mlx5dv_ah dv = {0};
	struct mlx5dv_obj obj = {.ah = {.out = &dv}};
	struct address address;
	int ret = -ENOMEM;

	if (!route)
		return ret;
	ret = vbn__rdma_peer_create(entry, &route->ah, &address);
	if (ret)
		goto free_route;
	obj.ah.in = route->ah;
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH)) {
		ret = fail(EIO,
			"port %s does not show the address vector of a peer: is libmlx5 of this system's rdma-core?",
			entry->port->info.name);
		goto destroy_ah;
	}
	route->av = *dv.av;
	route->av.key.qkey.qkey = be32(address.qkey);
	route->av.key.qkey.reserved = 0;
	route->av.dqp_dct = be32(address.qpn | MLX5_EXTENDED_UD_AV);
	entry->peer.handle = (uintptr_t)&route->av;
	entry->driver_data = route;
	return 0;

destroy_ah:
	ibv_destroy_ah(route->ah);
free_route:
	free(route);
	return ret;
}

void vbn__mlx5_peer_destroy(struct peer_entry *entry)
{
	struct route *route = entry->driver_data;

	ibv_destroy_ah(route->ah);
	free(route);
}
