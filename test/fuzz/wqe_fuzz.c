/* wqe_fuzz.c - any bytes in the rings and records of two queue pairs: the device stays within the
 * memory that is registered, and within the rings
 *
 * An input is a few bytes that choose the queues, then what lies in the rings. Where it says so, WQEs
 * get the index and number that they must have, so that decoding goes on behind them.
 */

#include "device_fuzz.h"
#include "vhca/device.h"

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
	SWEEPS = 6,
};

enum {
	CHOOSE_CQE_128 = 4,
	CHOOSE_SCATTER = 8,
	CHOOSE_SRQ = 16,
	CHOOSE_MEND = 32,
	CHOOSE_TWICE = 64
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

struct queue {
	struct vhca_cq *cq;
	struct vhca_srq *srq;
	struct vhca_qp *qp;
	uint8_t *cq_buf, *rings, *srq_buf;
	__be32 *records; /* CQ, QP, SRQ: two each */
};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_device_init();
	fixed.context = fuzz_context();
	fixed.arena = aligned_alloc(4096, ARENA);
	fuzz_demand(fixed.arena != NULL);
	vhca_lock(fixed.context->device);
	fuzz_demand(!vhca_pd_create(fixed.context, &fixed.pd));
	fuzz_demand(!vhca_uar_create(fixed.context, &fixed.uar));
	fuzz_demand(!vhca_mr_create(
		fixed.pd, (uintptr_t)fixed.arena + FIRST, BYTES, IOVA, everything, &fixed.mr));
	vhca_unlock(fixed.context->device);
	return 0;
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

static void make_cq(struct queue *queue, uint8_t choice)
{
	struct vhca_cq_attr attr = {.db = (uintptr_t)queue->records,
		.n_cqe = CQES,
		.cqe_size = cqe_size(choice),
		.uar_page = fixed.uar->page};

	queue->cq_buf = zeroed(CQES * cqe_size(choice));
	attr.buf = (uintptr_t)queue->cq_buf;
	fuzz_demand(!vhca_cq_create(fixed.context, &attr, &queue->cq));
}

static void make_srq(struct queue *queue)
{
	struct vhca_srq_attr attr = {.pd = fixed.pd,
		.db = (uintptr_t)(queue->records + 4),
		.max_wr = STRIDES - 1,
		.max_sge = 3};

	queue->srq_buf = zeroed(STRIDES * 64);
	attr.buf = (uintptr_t)queue->srq_buf;
	fuzz_demand(!vhca_srq_create(fixed.context, &attr, &queue->srq));
}

static void make_qp(struct queue *queue, uint8_t choice)
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

static void make_queue(struct queue *queue, uint8_t choice)
{
	memset(queue, 0, sizeof(*queue));
	queue->records = zeroed(6 * sizeof(__be32));
	make_cq(queue, choice);
	if (choice & CHOOSE_SRQ)
		make_srq(queue);
	make_qp(queue, choice);
}

static void end_queue(struct queue *queue)
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

static void connect_queue(struct queue *queue, const struct queue *peer)
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

	memcpy(&attr.ah_attr.grh.dgid, fixed.context->device->gids[3].raw, 16);
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
static void mend(const struct queue *queue, const struct queue *peer)
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

static void fill(struct queue *queue, struct fuzz_bytes *input)
{
	uint32_t posted = (uint32_t)fuzz_take(input, 2), sent = (uint32_t)fuzz_take(input, 2);

	fuzz_copy(input, queue->qp->sq, SLOTS * 64);
	fuzz_copy(input, queue->srq ? queue->srq_buf : queue->rings, STRIDES * 64);
	queue->records[2] = be32(posted);
	queue->records[3] = be32(sent);
	queue->records[4] = be32(posted);
}

static void ring_doorbell(const struct queue *queue, uint64_t choice)
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

/* Of the arena, only what is registered may have changed. */
static void check_canaries(void)
{
	for (size_t i = 0; i < ARENA; i++)
		if (i < FIRST || i >= FIRST + BYTES)
			fuzz_demand(fixed.arena[i] == CANARY);
}

static void go(struct queue *a, struct queue *b, struct fuzz_bytes *input, uint8_t choice)
{
	fill(a, input);
	fill(b, input);
	if (choice & CHOOSE_MEND) {
		mend(a, b);
		mend(b, a);
	}
	ring_doorbell(a, fuzz_take(input, 1));
	ring_doorbell(b, fuzz_take(input, 1));
	for (int i = 0; i < SWEEPS; i++)
		fuzz_sweep();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_bytes input = {bytes, size};
	uint8_t choice = (uint8_t)fuzz_take(&input, 1);
	struct vhca_device *device = fixed.context->device;
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct queue a, b;

	memset(fixed.arena, CANARY, ARENA);
	vhca_lock(device);
	make_queue(&a, choice);
	make_queue(&b, choice);
	connect_queue(&a, &b);
	connect_queue(&b, &a);
	vhca_unlock(device);
	go(&a, &b, &input, choice);
	if (choice & CHOOSE_TWICE) {
		vhca_lock(device);
		modify(a.qp, &reset, IBV_QP_STATE);
		a.records[2] = a.records[3] = 0;
		connect_queue(&a, &b);
		vhca_unlock(device);
		go(&a, &b, &input, choice);
	}
	check_canaries();
	vhca_lock(device);
	end_queue(&a);
	end_queue(&b);
	vhca_unlock(device);
	return 0;
}
