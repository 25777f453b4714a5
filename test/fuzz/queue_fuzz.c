/* queue_fuzz.c - two queue pairs whose rings a fuzz target fills, and the memory that they may reach
 */

#include "queue_fuzz.h"

#include <rdma/mlx5-abi.h>
#include <stdlib.h>

enum {
	SLOTS = 32,   /* WQEBBs of the send ring */
	STRIDES = 16, /* of 64 bytes, of the receive ring and the SRQ */
	CQES = 64,
	ARENA = 4 * 4096,
	FIRST = 4096, /* of the arena, registered: what lies around it must stay as it is */
	BYTES = 2 * 4096,
	CANARY = 0x5a,
};

#define IOVA 0x10000000ull

static const uint32_t everything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
	IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

static struct {
	struct vhca_context *context;
	struct vhca_pd *pd;
	struct vhca_mr *mr;
	struct vhca_uar *uar;
	uint8_t *arena;
} fixed;

void fuzz_queues_init(void)
{
	fixed.context = fuzz_context();
	fixed.arena = aligned_alloc(4096, ARENA);
	fuzz_demand(fixed.arena != NULL);
	vhca_lock(fixed.context->device);
	fuzz_demand(!vhca_pd_create(fixed.context, &fixed.pd));
	fuzz_demand(!vhca_uar_create(fixed.context, &fixed.uar));
	fuzz_demand(!vhca_mr_create(
		fixed.pd, (uintptr_t)fixed.arena + FIRST, BYTES, IOVA, everything, &fixed.mr));
	vhca_unlock(fixed.context->device);
}

struct vhca_device *fuzz_device(void)
{
	return fixed.context->device;
}

/* ---- queues ---- */

static void *zeroed(size_t size)
{
	void *memory = aligned_alloc(4096, round_up(size, 4096));

	fuzz_demand(memory != NULL);
	memset(memory, 0, size);
	return memory;
}

static uint32_t cqe_size(uint8_t choice)
{
	return choice & CHOOSE_CQE_128 ? 128 : 64;
}

static void make_cq(struct fuzz_queue *queue, uint8_t choice)
{
	struct vhca_cq_attr attr = {.db = (uintptr_t)queue->records,
		.n_cqe = CQES,
		.cqe_size = cqe_size(choice),
		.uar_page = fixed.uar->page};

	queue->cq_buf = zeroed(CQES * cqe_size(choice));
	attr.buf = (uintptr_t)queue->cq_buf;
	fuzz_demand(!vhca_cq_create(fixed.context, &attr, &queue->cq));
}

static void make_srq(struct fuzz_queue *queue)
{
	struct vhca_srq_attr attr = {.pd = fixed.pd,
		.db = (uintptr_t)(queue->records + 4),
		.max_wr = STRIDES - 1,
		.max_sge = 3};

	queue->srq_buf = zeroed(STRIDES * 64);
	attr.buf = (uintptr_t)queue->srq_buf;
	fuzz_demand(!vhca_srq_create(fixed.context, &attr, &queue->srq));
}

static void make_qp(struct fuzz_queue *queue, uint8_t choice)
{
	static const uint8_t types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RC};
	struct vhca_qp_attr attr = {.pd = fixed.pd,
		.send_cq = queue->cq,
		.recv_cq = queue->cq,
		.srq = queue->srq,
		.type = types[choice & 3],
		.db = (uintptr_t)(queue->records + 2),
		.sq_wqe_count = SLOTS,
		.rq_wqe_count = queue->srq ? 0 : STRIDES,
		.rq_wqe_shift = 6,
		.flags = choice & CHOOSE_SCATTER ? MLX5_QP_FLAG_SCATTER_CQE : 0,
		.uar_page = fixed.uar->page};

	queue->rings = zeroed(STRIDES * 64 + SLOTS * 64);
	attr.buf = (uintptr_t)queue->rings;
	fuzz_demand(!vhca_qp_create(fixed.context, &attr, &queue->qp));
}

void fuzz_queue_make(struct fuzz_queue *queue, uint8_t choice)
{
	memset(queue, 0, sizeof(*queue));
	queue->records = zeroed(6 * sizeof(__be32));
	make_cq(queue, choice);
	if (choice & CHOOSE_SRQ)
		make_srq(queue);
	make_qp(queue, choice);
}

void fuzz_queue_end(struct fuzz_queue *queue)
{
	fuzz_demand(!vhca_object_destroy(&queue->qp->object));
	fuzz_demand(!vhca_object_destroy(&queue->cq->object));
	if (queue->srq)
		fuzz_demand(!vhca_object_destroy(&queue->srq->object));
	free(queue->rings);
	free(queue->cq_buf);
	free(queue->srq_buf);
	free(queue->records);
}

static void modify(struct vhca_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	fuzz_demand(!vhca_qp_modify(qp, attr, (uint32_t)mask, attr->ah_attr.grh.sgid_index));
}

void fuzz_queue_connect(
	struct fuzz_queue *queue, const struct fuzz_queue *peer, const uint8_t address[16])
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = 0x11111111,
		.qp_access_flags = everything,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->number,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 1,
		.timeout = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh.sgid_index = 3}};
	bool rc = queue->qp->type == IBV_QPT_RC, ud = queue->qp->type == IBV_QPT_UD;

	memcpy(&attr.ah_attr.grh.dgid, address ? address : fixed.context->device->gids[3].raw, 16);
	modify(queue->qp, &attr,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			(ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	modify(queue->qp, &attr,
		IBV_QP_STATE |
			(ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
			(rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	attr.qp_state = IBV_QPS_RTS;
	modify(queue->qp, &attr,
		IBV_QP_STATE | IBV_QP_SQ_PSN |
			(rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_MAX_QP_RD_ATOMIC
			    : 0));
}

/* ---- what lies in them ---- */

/* Index and numbers are what they must be; opcode and size stay as they came. */
void fuzz_queue_mend(const struct fuzz_queue *queue, const struct fuzz_queue *peer)
{
	uint8_t *ring = queue->qp->sq;
	uint32_t index = 0;

	while (index < SLOTS) {
		struct mlx5_wqe_ctrl_seg *ctrl = (void *)(ring + index * 64);
		struct mlx5_wqe_av *av = (void *)(ctrl + 1);
		uint32_t ds = from_be32(ctrl->qpn_ds) & 0x3f;

		ctrl->opmod_idx_opcode =
			be32(index << 8 | (from_be32(ctrl->opmod_idx_opcode) & 0xff));
		ctrl->qpn_ds = be32(queue->qp->number << 8 | ds);
		ctrl->fm_ce_se &= (uint8_t)~0x11;
		if (queue->qp->type == IBV_QPT_UD && ds > 4)
			av->dqp_dct = be32(peer->qp->number | MLX5_EXTENDED_UD_AV);
		index += max(1u, (ds + 3) / 4);
	}
}

void fuzz_queue_fill(struct fuzz_queue *queue, struct fuzz_bytes *input)
{
	uint32_t posted = (uint32_t)fuzz_take(input, 2), sent = (uint32_t)fuzz_take(input, 2);

	fuzz_copy(input, queue->qp->sq, SLOTS * 64);
	fuzz_copy(input, queue->srq ? queue->srq_buf : queue->rings, STRIDES * 64);
	queue->records[2] = be32(posted);
	queue->records[3] = be32(sent);
	queue->records[4] = be32(posted);
}

void fuzz_queue_ring(const struct fuzz_queue *queue, uint64_t choice)
{
	uint8_t *registers = fixed.context->bar + (size_t)fixed.uar->page * VHCA_PAGE;
	__be32 words[2] = {0, be32(queue->qp->number << 8 | 1)};
	uint64_t value;

	memcpy(&value, words, sizeof(value));
	store_once((uint64_t *)(void *)(registers + 0x800 + (choice & 3) * 0x100), value);
	if (choice & 4)
		store_once((uint64_t *)(void *)(registers + MLX5_CQ_DOORBELL),
			htobe64(queue->cq->number));
}

void fuzz_memory_reset(void)
{
	memset(fixed.arena, CANARY, ARENA);
}

/* Of the arena, only what is registered may have changed. */
void fuzz_memory_check(void)
{
	for (size_t i = 0; i < ARENA; i++)
		if (i < FIRST || i >= FIRST + BYTES)
			fuzz_demand(fixed.arena[i] == CANARY);
}
