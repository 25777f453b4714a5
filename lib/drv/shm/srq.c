/* srq.c - bufs that several queues of a worker receive into */

#include "drv/shm/shm.h"

#include <stdlib.h>

struct shm_srq {
	struct vbn_srq srq;
	struct shm_bufs bufs;
};

static struct shm_srq *shm_srq(const struct vbn_srq *srq)
{
	return container_of((struct vbn_srq *)(uintptr_t)srq, struct shm_srq, srq);
}

struct shm_bufs *vbn__shm_srq_bufs(struct vbn_srq *srq)
{
	return &shm_srq(srq)->bufs;
}

fast_path int vbn__shm_srq_refill(struct shm_bufs *bufs, struct vbn_event *event, int n)
{
	struct vbn_srq *srq = bufs->srq;
	const uint32_t missing = vbn__shm_bufs_fill(bufs);

	count_add(&srq->no_buf, missing);
	if (!missing)
		bufs->below = false;
	if (bufs->n >= srq->conf.limit || bufs->below || !n)
		return 0;
	bufs->below = true; /* said once, until the ring is full again */
	count_add(&srq->limits, 1);
	*event = (struct vbn_event){
		.cookie = srq->conf.context, .op = VBN_OP_SRQ_LIMIT, .status = VBN_OK};
	return 1;
}

int vbn__shm_srq_create(struct vbn_port *port, struct queue_list *list,
	const struct vbn_srq_conf *conf, struct vbn_srq **result)
{
	struct shm_srq *srq;

	(void)list;
	(void)port;
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return -ENOMEM;
	srq->bufs = (struct shm_bufs){.pool = conf->pool, .depth = conf->depth, .srq = &srq->srq};
	srq->bufs.stack = calloc(conf->depth, sizeof(struct vbn_buf *));
	if (!srq->bufs.stack) {
		free(srq);
		return -ENOMEM;
	}
	*result = &srq->srq;
	return 0;
}

int vbn__shm_srq_fill(struct vbn_srq *base)
{
	struct shm_bufs *bufs = vbn__shm_srq_bufs(base);

	if (!vbn__shm_bufs_fill(bufs))
		return 0;
	return fail(ENOMEM,
		"srq cannot post %u receives, but %u: pool \"%s\" has %u bufs left: make it larger",
		bufs->depth, bufs->n, bufs->pool->name, bufs->pool->n_free);
}

uint32_t vbn__shm_srq_posted(const struct vbn_srq *base)
{
	return load_once(&shm_srq(base)->bufs.n);
}

void vbn__shm_srq_stop(struct vbn_srq *base)
{
	(void)base;
}

void vbn__shm_srq_free(struct vbn_srq *base)
{
	struct shm_srq *srq = shm_srq(base);

	vbn__shm_bufs_drop(&srq->bufs);
	free(srq->bufs.stack);
	free(srq);
}
