/* forbid_verbs.c - preloaded, makes every verb of the data path abort: whatever macro or inline
 * function hides it
 *
 * libibverbs' posting and polling are pointers in the context, the extended CQ and the extended QP;
 * a context gets others as it is opened, an extended CQ and a work queue as they are created, and the way
 * to an extended QP is closed.
 */
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

struct ibv_context *ibv_open_device(struct ibv_device *device);
struct ibv_context *mlx5dv_open_device(struct ibv_device *device, struct mlx5dv_context_attr *attr);
struct ibv_cq_ex *mlx5dv_create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
	struct mlx5dv_cq_init_attr *mlx5_attr);
struct ibv_wq *mlx5dv_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr,
	struct mlx5dv_wq_init_attr *mlx5_attr);
struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp);

static int guarded;

static _Noreturn void refuse(const char *verb)
{
	fprintf(stderr, "forbidden: %s was called\n", verb);
	abort();
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp, (void)wr, (void)bad;
	refuse("ibv_post_send");
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp, (void)wr, (void)bad;
	refuse("ibv_post_recv");
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)srq, (void)wr, (void)bad;
	refuse("ibv_post_srq_recv");
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)cq, (void)n, (void)wc;
	refuse("ibv_poll_cq");
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	(void)cq, (void)attr;
	refuse("ibv_start_poll");
}

static struct ibv_cq_ex *guard_cq(struct ibv_cq_ex *cq)
{
	if (cq)
		cq->start_poll = start_poll;
	return cq;
}

static struct ibv_cq_ex *(*provider_create_cq_ex)(
	struct ibv_context *, struct ibv_cq_init_attr_ex *);

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	return guard_cq(provider_create_cq_ex(context, attr));
}

static int post_wq_recv(struct ibv_wq *wq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)wq, (void)wr, (void)bad;
	refuse("ibv_post_wq_recv");
}

static struct ibv_wq *guard_wq(struct ibv_wq *wq)
{
	if (wq)
		wq->post_recv = post_wq_recv;
	return wq;
}

static struct ibv_wq *(*provider_create_wq)(struct ibv_context *, struct ibv_wq_init_attr *);

static struct ibv_wq *create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	return guard_wq(provider_create_wq(context, attr));
}

static struct ibv_context *guard_context(struct ibv_context *context)
{
	struct verbs_context *extended;

	if (!context)
		return NULL;
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
	context->ops.post_srq_recv = post_srq_recv;
	context->ops.poll_cq = poll_cq;
	extended = verbs_get_ctx_op(context, create_cq_ex);
	if (extended && extended->create_cq_ex != create_cq_ex) {
		provider_create_cq_ex = extended->create_cq_ex;
		extended->create_cq_ex = create_cq_ex;
	}
	extended = verbs_get_ctx_op(context, create_wq);
	if (extended && extended->create_wq != create_wq) {
		provider_create_wq = extended->create_wq;
		extended->create_wq = create_wq;
	}
	guarded++;
	return context;
}

/* The function that this one stands in front of. */
static void *next(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		refuse(name);
	return found;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *(*open_device)(struct ibv_device *) = next("ibv_open_device");

	return guard_context(open_device(device));
}

struct ibv_context *mlx5dv_open_device(struct ibv_device *device, struct mlx5dv_context_attr *attr)
{
	struct ibv_context *(*open_device)(struct ibv_device *, struct mlx5dv_context_attr *) =
		next("mlx5dv_open_device");

	return guard_context(open_device(device, attr));
}

struct ibv_cq_ex *mlx5dv_create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
	struct mlx5dv_cq_init_attr *mlx5_attr)
{
	struct ibv_cq_ex *(*create_cq)(struct ibv_context *, struct ibv_cq_init_attr_ex *,
		struct mlx5dv_cq_init_attr *) = next("mlx5dv_create_cq");

	return guard_cq(create_cq(context, attr, mlx5_attr));
}

struct ibv_wq *mlx5dv_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr,
	struct mlx5dv_wq_init_attr *mlx5_attr)
{
	struct ibv_wq *(*make_wq)(struct ibv_context *, struct ibv_wq_init_attr *,
		struct mlx5dv_wq_init_attr *) = next("mlx5dv_create_wq");

	return guard_wq(make_wq(context, attr, mlx5_attr));
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	(void)qp;
	refuse("ibv_qp_to_qp_ex");
}

static __attribute__((destructor)) void report(void)
{
	fprintf(stderr, "forbid_verbs guarded %d contexts\n", guarded);
}
