/* raw_fuzz.c - any bytes in the rings of a raw send queue and of a receive work queue, plain or of
 * strides, whose port is plugged into itself: the device stays within the memory that is registered,
 * every frame that comes is delivered or counted as what it is
 *
 * An input is two bytes that choose the queues, then what lies in the rings. Where it says so, send
 * WQEs get the index and number that they must have, and no bits that are reserved.
 */

#include "device_fuzz.h"
#include "vhca/raw.h"
#include "vhca/steer.h"

#include <stdlib.h>

enum {
	SLOTS = 32,
	WQES = 8,
	LOG2_WQE = 6,
	CQES = 32,
	ARENA = 8 * 4096,
	FIRST = 4096,
	BYTES = 6 * 4096,
	CANARY = 0x5a,
	SWEEPS = 4,
};

enum {
	CHOOSE_STRIDES = 1,
	CHOOSE_CQE_128 = 2,
	CHOOSE_COMPRESSED = 4,
	CHOOSE_SHIFT = 8,
	CHOOSE_STRIP = 16,
	CHOOSE_OLD = 32,
	CHOOSE_MEND = 64,
	CHOOSE_SMALL = 128,
};

#define IOVA 0x10000000ull

static struct {
	struct vhca_context *context;
	struct vhca_pd *pd;
	struct vhca_mr *mr;
	struct vhca_uar *uar;
	uint8_t *arena;
} fixed;

struct queues {
	struct vhca_cq *send_cq, *recv_cq;
	struct vhca_qp *qp;
	struct vhca_wq *wq;
	struct vhca_rqt *rqt;
	struct vhca_tir *tir;
	struct vhca_steer_rule *rule;
	uint8_t *send_cqes, *recv_cqes, *sq, *rq;
	__be32 *records; /* two CQs, QP, WQ: two each */
};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_device_init("loopback");
	fixed.context = fuzz_context();
	fixed.arena = aligned_alloc(4096, ARENA);
	fuzz_demand(fixed.arena != NULL);
	vhca_lock(fixed.context->device);
	fuzz_demand(!vhca_pd_create(fixed.context, &fixed.pd));
	fuzz_demand(!vhca_uar_create(fixed.context, &fixed.uar));
	fuzz_demand(!vhca_mr_create(fixed.pd, (uintptr_t)fixed.arena + FIRST, BYTES, IOVA,
		IBV_ACCESS_LOCAL_WRITE, &fixed.mr));
	vhca_unlock(fixed.context->device);
	return 0;
}

static void *zeroed(size_t size)
{
	void *memory = aligned_alloc(4096, round_up(size, 4096));

	fuzz_demand(memory != NULL);
	memset(memory, 0, size);
	return memory;
}

/* ---- queues ---- */

static struct vhca_cq *make_cq(uint8_t *cqes, __be32 *record, uint8_t choice, uint8_t format)
{
	struct vhca_cq_attr attr = {.buf = (uintptr_t)cqes,
		.db = (uintptr_t)record,
		.n_cqe = CQES,
		.cqe_size = choice & CHOOSE_CQE_128 ? 128 : 64,
		.compress = format != 0,
		.compress_format = format,
		.uar_page = fixed.uar->page};
	struct vhca_cq *cq;

	fuzz_demand(!vhca_cq_create(fixed.context, &attr, &cq));
	return cq;
}

static void make_wq(struct queues *q, uint8_t choice, uint64_t fields)
{
	struct vhca_wq_attr attr = {.pd = fixed.pd,
		.cq = q->recv_cq,
		.buf = (uintptr_t)q->rq,
		.db = (uintptr_t)(q->records + 6),
		.n_wqe = WQES,
		.log2_stride = LOG2_WQE,
		.strip_vlan = choice & CHOOSE_STRIP,
		.striding = choice & CHOOSE_STRIDES,
		.log2_stride_bytes = choice & CHOOSE_SMALL ? 6 : 11,
		.log2_n_strides = 3,
		.two_byte_shift = choice & CHOOSE_SHIFT};
	struct vhca_tir_attr tir = {.fields = fields & 0xff};
	struct vhca_steer_attr all = {.class = VHCA_STEER_REST};

	if (tir.fields & 3 && tir.fields & 12)
		tir.fields &= 0xf3;
	if (tir.fields & 0x30 && tir.fields & 0xc0)
		tir.fields &= 0x3f;
	fuzz_demand(!vhca_wq_create(fixed.context, &attr, &q->wq));
	fuzz_demand(!vhca_rqt_create(fixed.context, &q->wq, 1, &q->rqt));
	tir.rqt = q->rqt;
	fuzz_demand(!vhca_tir_create(fixed.context, &tir, &q->tir));
	fuzz_demand(!vhca_wq_modify(q->wq, IBV_QPS_RTR));
	all.tir = q->tir;
	all.tir_holder = &q->tir->object;
	fuzz_demand(!vhca_steer_rule_create(fixed.context, &all, &q->rule));
}

static void make_qp(struct queues *q)
{
	struct vhca_qp_attr attr = {.pd = fixed.pd,
		.send_cq = q->send_cq,
		.recv_cq = q->send_cq,
		.type = IBV_QPT_RAW_PACKET,
		.db = (uintptr_t)(q->records + 4),
		.sq_buf = (uintptr_t)q->sq,
		.sq_wqe_count = SLOTS,
		.uar_page = fixed.uar->page};
	static const enum ibv_qp_state states[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};

	fuzz_demand(!vhca_qp_create(fixed.context, &attr, &q->qp));
	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		struct ibv_qp_attr to = {.qp_state = states[i], .port_num = 1};

		fuzz_demand(!vhca_qp_modify(q->qp, &to, IBV_QP_STATE | (i ? 0 : IBV_QP_PORT), 0));
	}
}

static void make(struct queues *q, uint8_t choice, uint8_t second)
{
	static const uint8_t formats[] = {MLX5DV_CQE_RES_FORMAT_HASH, MLX5DV_CQE_RES_FORMAT_CSUM,
		MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX, MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX};
	uint8_t format = choice & CHOOSE_COMPRESSED ? formats[second & 3] : 0;

	memset(q, 0, sizeof(*q));
	q->records = zeroed(8 * sizeof(__be32));
	q->send_cqes = zeroed(CQES * 128);
	q->recv_cqes = zeroed(CQES * 128);
	q->sq = zeroed(SLOTS * 64);
	q->rq = zeroed(WQES << LOG2_WQE);
	q->send_cq = make_cq(q->send_cqes, q->records, choice, 0);
	q->recv_cq = make_cq(q->recv_cqes, q->records + 2, choice, format);
	make_wq(q, choice, second);
	make_qp(q);
}

static void end(struct queues *q)
{
	vhca_steer_rule_destroy(q->rule);
	fuzz_demand(!vhca_object_destroy(&q->qp->object));
	fuzz_demand(!vhca_object_destroy(&q->tir->object));
	fuzz_demand(!vhca_object_destroy(&q->rqt->object));
	fuzz_demand(!vhca_object_destroy(&q->wq->queue.object));
	fuzz_demand(!vhca_object_destroy(&q->send_cq->object));
	fuzz_demand(!vhca_object_destroy(&q->recv_cq->object));
	free(q->records);
	free(q->send_cqes);
	free(q->recv_cqes);
	free(q->sq);
	free(q->rq);
}

/* ---- what lies in them ---- */

static void mend(struct queues *q)
{
	uint32_t index = 0;

	while (index < SLOTS) {
		struct mlx5_wqe_ctrl_seg *ctrl = (void *)(q->sq + index * 64);
		struct mlx5_wqe_eth_seg *eth = (void *)(ctrl + 1);
		uint32_t ds = from_be32(ctrl->qpn_ds) & 0x3f;

		ctrl->opmod_idx_opcode =
			be32(index << 8 | (from_be32(ctrl->opmod_idx_opcode) & 0xff));
		ctrl->qpn_ds = be32(q->qp->number << 8 | ds);
		ctrl->fm_ce_se &= (uint8_t)~0x11;
		eth->rsvd0 = 0;
		eth->rsvd1 = 0;
		eth->mss = 0;
		index += max(1u, (ds + 3) / 4);
	}
}

static void ring(const struct queues *q)
{
	uint8_t *registers = fixed.context->bar + (size_t)fixed.uar->page * VHCA_PAGE;
	__be32 words[2] = {0, be32(q->qp->number << 8 | 1)};
	uint64_t value;

	memcpy(&value, words, sizeof(value));
	store_once((uint64_t *)(void *)(registers + 0x800), value);
}

/* Received is delivered, or dropped by a name. */
static void expect_accounts(const struct vhca_raw_counters *n)
{
	fuzz_demand(n->came == n->too_long + n->host + n->ruled_out + n->taken);
	fuzz_demand(n->copies == n->delivered + n->out_of_buffer + n->not_ready + n->failed);
}

static void expect_memory(void)
{
	for (size_t i = 0; i < ARENA; i++)
		if (i < FIRST || i >= FIRST + BYTES)
			fuzz_demand(fixed.arena[i] == CANARY);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_bytes input = {bytes, size};
	uint8_t choice = (uint8_t)fuzz_take(&input, 1), second = (uint8_t)fuzz_take(&input, 1);
	struct vhca_device *device = fixed.context->device;
	struct queues q;

	memset(fixed.arena, CANARY, ARENA);
	vhca_lock(device);
	device->facts = vhca_facts(choice & CHOOSE_OLD ? VHCA_CONNECTX4LX : VHCA_CONNECTX5);
	make(&q, choice, second);
	vhca_unlock(device);
	q.records[6] = be32((uint32_t)fuzz_take(&input, 1));
	q.records[5] = be32((uint32_t)fuzz_take(&input, 1));
	fuzz_copy(&input, fixed.arena + FIRST, 256);
	fuzz_copy(&input, q.rq, WQES << LOG2_WQE);
	fuzz_copy(&input, q.sq, SLOTS * 64);
	if (choice & CHOOSE_MEND)
		mend(&q);
	ring(&q);
	for (int i = 0; i < SWEEPS; i++)
		fuzz_sweep();
	expect_memory();
	expect_accounts(&device->raw);
	vhca_lock(device);
	end(&q);
	vhca_unlock(device);
	return 0;
}
