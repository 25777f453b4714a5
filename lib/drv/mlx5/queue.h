/* queue.h - what the driver's table takes from the files */
#ifndef VBN_MLX5_QUEUE_H
#define VBN_MLX5_QUEUE_H

#include "drv/mlx5/group.h"

extern const struct driver vbn__driver_mlx5;

int vbn__mlx5_queue_create(struct vbn_port *port, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue);
int vbn__mlx5_queue_adopt(struct vbn_queue *queue);
void vbn__mlx5_queue_part(struct vbn_queue *queue);
void vbn__mlx5_queue_address(const struct vbn_queue *queue, struct vbn_address *address);
int vbn__mlx5_queue_fill(struct vbn_queue *queue);
uint32_t vbn__mlx5_queue_posted(const struct vbn_queue *queue);
int vbn__mlx5_queue_connect(struct vbn_queue *queue, const struct address *peer);
int vbn__mlx5_queue_fail(struct vbn_queue *queue);
int vbn__mlx5_queue_reset(struct vbn_queue *queue);
void vbn__mlx5_queue_stop(struct vbn_queue *queue);
void vbn__mlx5_queue_free(struct vbn_queue *queue);
void vbn__mlx5_queue_modes(const struct vbn_queue *queue, struct mode_report *report);
bool vbn__mlx5_cq_failed(struct vbn_queue *queue, const struct ibv_cq *cq);

int vbn__mlx5_srq_create(struct vbn_port *port, struct queue_list *list,
	const struct vbn_srq_conf *conf, struct vbn_srq **srq);
int vbn__mlx5_srq_fill(struct vbn_srq *srq);
void vbn__mlx5_srq_stop(struct vbn_srq *srq);
void vbn__mlx5_srq_free(struct vbn_srq *srq);
uint32_t vbn__mlx5_srq_posted(const struct vbn_srq *srq);

int vbn__mlx5_peer_create(struct peer_entry *entry);
void vbn__mlx5_peer_destroy(struct peer_entry *entry);

#endif
