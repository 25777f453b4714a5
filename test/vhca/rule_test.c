/* rule_test.c - every rule of the device's contract, broken by writing the rings, records and
 * registers, and what the program then gets: under VHCA_STRICT=report, error and abort
 *
 * Each case runs in three processes of its own, since the option is read once. It answers with what
 * the CQ said, or with the state of a QP where that is the outcome. What was said on standard error
 * must name the rule, and no other.
 */

#include "broken.h"
#include "child.h"
#include "ring.h"

#include <ctype.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

enum {
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC,
	QUIET_MS = 5,
};

struct bench {
	struct pair pair;
	struct ring ring; /* of a */
};

static void open_bench(struct bench *bench, struct pair_conf conf)
{
	conf.no_scatter = true;
	conf.access = conf.access ? conf.access : ALL;
	pair_open(&bench->pair, &conf);
	ring_take(&bench->ring, &bench->pair.a);
}

static int outcome(const struct mlx5_err_cqe *cqe)
{
	if (!cqe)
		return NOTHING;
	return cqe->op_own >> 4 == MLX5_CQE_REQ ? FINE : cqe->syndrome;
}

static int first_cqe(struct bench *bench)
{
	return outcome(ring_wait(&bench->ring));
}

static int state_of(const struct side *side)
{
	return STATE + (int)qp_state(side->qp);
}

/* ---- what is written in a send WQE ---- */

/* One WQE of a to b, which has a receive for it. */
static int spoiled(const struct wqe *wqe)
{
	struct bench bench;

	open_bench(&bench, (struct pair_conf){0});
	post_recv(&bench.pair.b, 1, 0, 4096);
	ring_write(&bench.ring, wqe);
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

static int wqe_index(void)
{
	struct wqe wqe = good_send;

	wqe.index = 1;
	return spoiled(&wqe);
}

static int wqe_qpn(void)
{
	struct bench bench;
	uint64_t bell;

	open_bench(&bench, (struct pair_conf){0});
	ring_write(&bench.ring, &good_send);
	bell = ring_bell_value(&bench.ring);
	ring_slot(&bench.ring, 0)[6] ^= 1; /* the doorbell names the QP all the same */
	ring_record(&bench.ring, 1);
	ring_bell(&bench.ring, bell);
	return first_cqe(&bench);
}

static int wqe_ds(void)
{
	struct wqe wqe = good_send;

	wqe.ds = 63; /* past the record */
	return spoiled(&wqe);
}

static int wqe_opcode(void)
{
	struct wqe wqe = good_send;

	wqe.opcode = MLX5_OPCODE_UMR + 0x10;
	return spoiled(&wqe);
}

static int wqe_opmod(void)
{
	struct wqe wqe = good_send;

	wqe.opmod = 1;
	return spoiled(&wqe);
}

static int with_ctrl_byte(size_t at, uint8_t bits)
{
	struct bench bench;

	open_bench(&bench, (struct pair_conf){0});
	post_recv(&bench.pair.b, 1, 0, 4096);
	ring_write(&bench.ring, &good_send)[at] |= bits;
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

static int ctrl_reserved(void)
{
	return with_ctrl_byte(offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se), 0x10);
}

static int ctrl_reserved_beside_ds(void)
{
	return with_ctrl_byte(offsetof(struct mlx5_wqe_ctrl_seg, qpn_ds) + 3, 0x40);
}

static int ctrl_stale(void)
{
	return with_ctrl_byte(offsetof(struct mlx5_wqe_ctrl_seg, dci_stream_channel_id), 0x77);
}

/* A WQE with a remote address: `opcode` decides how many segments. */
static uint8_t *write_remote(struct bench *bench, uint32_t opcode, uint32_t rkey, uint64_t addr)
{
	bool atomic = opcode == MLX5_OPCODE_ATOMIC_FA;
	uint8_t *slot = ring_write_ctrl(&bench->ring, opcode, atomic ? 4 : 3);

	ring_raddr(slot + 16, rkey, addr);
	ring_data(slot + (atomic ? 48 : 32), 8, bench->ring.lkey, bench->ring.memory);
	return slot;
}

static uint8_t *write_good_remote(struct bench *bench, uint32_t opcode)
{
	return write_remote(bench, opcode, bench->pair.b.mr->rkey, (uintptr_t)bench->pair.b.memory);
}

static int post_first(struct bench *bench)
{
	ring_post(&bench->ring);
	return first_cqe(bench);
}

static int raddr_reserved(void)
{
	struct bench bench;
	struct mlx5_wqe_raddr_seg *raddr;

	open_bench(&bench, (struct pair_conf){0});
	raddr = (void *)(write_good_remote(&bench, MLX5_OPCODE_RDMA_WRITE) + 16);
	raddr->reserved = htobe32(1);
	return post_first(&bench);
}

/* A datagram from a to b, by the address vector that libmlx5 makes. */
static struct mlx5_wqe_av *write_datagram(struct bench *bench)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh = {.sgid_index = 3, .hop_limit = 64}};
	struct mlx5_wqe_av *av;
	struct mlx5dv_ah dv;
	struct mlx5dv_obj object = {.ah = {.out = &dv}};
	uint8_t *slot = ring_write_ctrl(&bench->ring, MLX5_OPCODE_SEND, 5);

	assert_int_equal(ibv_query_gid(bench->pair.context, 1, 3, &attr.grh.dgid), 0);
	object.ah.in = ibv_create_ah(bench->pair.pd, &attr);
	assert_non_null(object.ah.in);
	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_AH), 0);
	av = (void *)(slot + 16);
	*av = *dv.av;
	av->dqp_dct = htobe32(bench->pair.b.qp->qp_num | MLX5_EXTENDED_UD_AV);
	av->key.qkey.qkey = htobe32(PAIR_QKEY);
	av->key.qkey.reserved = 0;
	ring_data(slot + 64, 8, bench->ring.lkey, bench->ring.memory);
	return av;
}

static int datagram_reserved(void)
{
	struct bench bench;

	open_bench(&bench, (struct pair_conf){.type = IBV_QPT_UD, .access = 1});
	write_datagram(&bench)->reserved0[2] = 1;
	return post_first(&bench);
}

static int address_vector(void)
{
	struct bench bench;

	open_bench(&bench, (struct pair_conf){.type = IBV_QPT_UD, .access = 1});
	write_datagram(&bench)->dqp_dct &= ~htobe32(MLX5_EXTENDED_UD_AV);
	return post_first(&bench);
}

static int segment_end(void)
{
	struct wqe wqe = good_send;

	wqe.byte_count = MLX5_INLINE_SEG | 13; /* of the 12 that fit */
	return spoiled(&wqe);
}

static int segment_zero(void)
{
	struct wqe wqe = good_send;

	wqe.byte_count = 0;
	return spoiled(&wqe);
}

static int message_length(void)
{
	struct bench bench;
	struct mlx5_wqe_data_seg *data;

	open_bench(&bench, (struct pair_conf){0});
	data = (void *)(write_good_remote(&bench, MLX5_OPCODE_ATOMIC_FA) + 48);
	data->byte_count = htobe32(4); /* an atomic is of 8 */
	return post_first(&bench);
}

/* The responder has no resources for reads. */
static int rd_atomic(void)
{
	struct bench bench;

	open_bench(&bench, (struct pair_conf){.unconnected = true});
	bench.pair.conf.max_rd_atomic = 0;
	qp_to_rtr(&bench.pair, &bench.pair.a, &bench.pair.b);
	qp_to_rtr(&bench.pair, &bench.pair.b, &bench.pair.a);
	bench.pair.conf.max_rd_atomic = 1;
	qp_to_rts(&bench.pair, &bench.pair.a);
	write_good_remote(&bench, MLX5_OPCODE_RDMA_READ);
	return post_first(&bench);
}

static int atomic_alignment(void)
{
	struct bench bench;

	open_bench(&bench, (struct pair_conf){0});
	write_remote(&bench, MLX5_OPCODE_ATOMIC_FA, bench.pair.b.mr->rkey,
		(uintptr_t)bench.pair.b.memory + 4);
	return post_first(&bench);
}

/* ---- what is written in a receive WQE ---- */

static int receive_inline(void)
{
	struct bench bench;
	struct mlx5dv_qp dv = {0};
	struct mlx5dv_obj object = {.qp = {.out = &dv}};
	struct mlx5_wqe_data_seg *seg;

	open_bench(&bench, (struct pair_conf){0});
	object.qp.in = bench.pair.b.qp;
	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
	post_recv(&bench.pair.b, 1, 0, 64);
	seg = dv.rq.buf;
	seg->byte_count |= htobe32(MLX5_INLINE_SEG);
	ring_write(&bench.ring, &good_send);
	return post_first(&bench);
}

static int receive_length(void)
{
	struct bench bench;

	open_bench(&bench, (struct pair_conf){0});
	post_recv(&bench.pair.b, 1, 0, 7);
	ring_write(&bench.ring, &good_send);
	return post_first(&bench);
}

static void take_srq(struct bench *bench, struct mlx5dv_srq *dv)
{
	struct mlx5dv_obj object = {.srq = {.out = dv}};

	memset(dv, 0, sizeof(*dv));
	open_bench(bench, (struct pair_conf){.srq = true});
	object.srq.in = bench->pair.srq;
	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_SRQ), 0);
	post_recv(&bench->pair.b, 1, 0, 64);
}

static int srq_link(void)
{
	struct bench bench;
	struct mlx5_wqe_srq_next_seg *link;
	struct mlx5dv_srq dv;

	take_srq(&bench, &dv);
	link = (void *)((uint8_t *)dv.buf + (size_t)dv.head * dv.stride);
	link->next_wqe_index = htobe16(0x8000);
	ring_write(&bench.ring, &good_send);
	ring_post(&bench.ring);
	ring_wait(&bench.ring);
	return state_of(&bench.pair.b);
}

/* ---- memory ---- */

static int lkey(void)
{
	struct wqe wqe = good_send;

	wqe.lkey_xor = 0x70;
	return spoiled(&wqe);
}

static int lkey_bounds(void)
{
	struct wqe wqe = good_send;

	wqe.addr_add = 65536 - 7;
	return spoiled(&wqe);
}

static int lkey_pd(void)
{
	struct bench bench;
	struct ibv_mr *mr;

	open_bench(&bench, (struct pair_conf){0});
	mr = ibv_reg_mr(ibv_alloc_pd(bench.pair.context), bench.pair.a.memory, 4096, 0);
	assert_non_null(mr);
	bench.ring.lkey = mr->lkey;
	ring_write(&bench.ring, &good_send);
	return post_first(&bench);
}

/* What a read brings is written. */
static int lkey_access(void)
{
	struct bench bench;
	struct ibv_mr *mr;

	open_bench(&bench, (struct pair_conf){0});
	mr = ibv_reg_mr(bench.pair.pd, bench.pair.a.memory, 4096, 0);
	assert_non_null(mr);
	bench.ring.lkey = mr->lkey;
	write_good_remote(&bench, MLX5_OPCODE_RDMA_READ);
	return post_first(&bench);
}

static int rkey(void)
{
	struct bench bench;

	open_bench(&bench, (struct pair_conf){0});
	write_remote(&bench, MLX5_OPCODE_RDMA_WRITE, bench.pair.b.mr->rkey + 1,
		(uintptr_t)bench.pair.b.memory);
	return post_first(&bench);
}

static int rkey_bounds(void)
{
	struct bench bench;

	open_bench(&bench, (struct pair_conf){0});
	write_remote(&bench, MLX5_OPCODE_RDMA_WRITE, bench.pair.b.mr->rkey,
		(uintptr_t)bench.pair.b.memory - 1);
	return post_first(&bench);
}

static int other_registration(bool other_pd, int access, uint32_t opcode)
{
	struct bench bench;
	struct ibv_mr *mr;

	open_bench(&bench, (struct pair_conf){0});
	mr = ibv_reg_mr(other_pd ? ibv_alloc_pd(bench.pair.context) : bench.pair.pd,
		bench.pair.b.memory, 4096, (unsigned int)access);
	assert_non_null(mr);
	write_remote(&bench, opcode, mr->rkey, (uintptr_t)bench.pair.b.memory);
	return post_first(&bench);
}

static int rkey_pd(void)
{
	return other_registration(true, ALL, MLX5_OPCODE_RDMA_WRITE);
}

static int rkey_access(void)
{
	return other_registration(false, ALL & ~IBV_ACCESS_REMOTE_WRITE, MLX5_OPCODE_RDMA_WRITE);
}

static int rkey_access_read(void)
{
	return other_registration(false, ALL & ~IBV_ACCESS_REMOTE_READ, MLX5_OPCODE_RDMA_READ);
}

static int rkey_access_atomic(void)
{
	return other_registration(false, ALL & ~IBV_ACCESS_REMOTE_ATOMIC, MLX5_OPCODE_ATOMIC_FA);
}

static int freed_memory(void)
{
	struct bench bench;
	struct ibv_mr *mr;
	void *page;

	open_bench(&bench, (struct pair_conf){0});
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	mr = ibv_reg_mr(bench.pair.pd, page, 4096, ALL);
	assert_non_null(mr);
	assert_int_equal(munmap(page, 4096), 0);
	bench.ring.lkey = mr->lkey;
	bench.ring.memory = (uintptr_t)page;
	post_recv(&bench.pair.b, 1, 0, 64);
	ring_write(&bench.ring, &good_send);
	return post_first(&bench);
}

/* ---- records ---- */

/* Far ahead of what the ring can hold: the WQE behind the last good one is a stale one. */
static int send_record(void)
{
	struct bench bench;

	open_bench(&bench, (struct pair_conf){0});
	post_recv(&bench.pair.b, 1, 0, 64);
	ring_write(&bench.ring, &good_send);
	if (post_first(&bench) != FINE)
		return WRONG;
	ring_post_record(&bench.ring, 0x8001);
	return first_cqe(&bench);
}

static int receive_record(void)
{
	struct bench bench;
	struct mlx5dv_qp dv = {0};
	struct mlx5dv_obj object = {.qp = {.out = &dv}};

	open_bench(&bench, (struct pair_conf){0});
	object.qp.in = bench.pair.b.qp;
	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
	post_recv(&bench.pair.b, 1, 0, 64);
	__atomic_store_n(&dv.dbrec[MLX5_RCV_DBR], htobe32(0x4321), __ATOMIC_RELEASE);
	ring_write(&bench.ring, &good_send);
	ring_post(&bench.ring);
	ring_wait(&bench.ring);
	return state_of(&bench.pair.b);
}

static int srq_record(void)
{
	struct bench bench;
	struct mlx5dv_srq dv;

	take_srq(&bench, &dv);
	__atomic_store_n(dv.dbrec, htobe32(0x4321), __ATOMIC_RELEASE);
	ring_write(&bench.ring, &good_send);
	ring_post(&bench.ring);
	ring_wait(&bench.ring);
	return state_of(&bench.pair.b);
}

/* After something that a device does not react to: nothing completes, until it is done as it should
 * be. */
static int mended(struct bench *bench)
{
	struct mlx5_err_cqe *cqe;

	child_wait_until_told();
	cqe = ring_poll(&bench->ring, QUIET_MS);

	if (cqe)
		return cqe->op_own >> 4 == MLX5_CQE_REQ ? WRONG : outcome(cqe);
	ring_record(&bench->ring, 0); /* what a broken one has left */
	ring_post(&bench->ring);
	return first_cqe(bench);
}

static void write_one(struct bench *bench)
{
	open_bench(bench, (struct pair_conf){0});
	post_recv(&bench->pair.b, 1, 0, 64);
	ring_write(&bench->ring, &good_send);
}

static int record_order(void)
{
	struct bench bench;

	write_one(&bench);
	ring_post_record(&bench.ring, htobe32(1));
	return mended(&bench);
}

static int record_slot(void)
{
	struct bench bench;

	write_one(&bench);
	__atomic_store_n(&bench.ring.dv.dbrec[MLX5_RCV_DBR], htobe32(1), __ATOMIC_RELEASE);
	ring_bell(&bench.ring, ring_bell_value(&bench.ring));
	return mended(&bench);
}

static void write_unsignalled(struct bench *bench)
{
	uint8_t *slot = write_good_remote(bench, MLX5_OPCODE_RDMA_WRITE);

	((struct mlx5_wqe_ctrl_seg *)(void *)slot)->fm_ce_se = 0;
}

/* A ring full of WQEs without a CQE is done, but nothing has said so. */
static int slot_reuse(void)
{
	volatile uint8_t *arrived;
	struct bench bench;
	int patience = 10000;

	open_bench(&bench, (struct pair_conf){0});
	arrived = bench.pair.b.memory;
	bench.pair.a.memory[0] = 1;
	while (bench.ring.head < bench.ring.dv.sq.wqe_cnt)
		write_unsignalled(&bench);
	ring_post(&bench.ring);
	while (!*arrived && patience--)
		usleep(1000);
	usleep(20000); /* the first one has arrived, and soon the others */
	write_good_remote(&bench, MLX5_OPCODE_RDMA_WRITE);
	return post_first(&bench);
}

/* ---- doorbells ---- */

static int doorbell_value(void)
{
	struct bench bench;

	write_one(&bench);
	ring_record(&bench.ring, 1);
	ring_bell(&bench.ring, 0x0100000000000001);
	return mended(&bench);
}

static int doorbell_record(void)
{
	struct bench bench;

	write_one(&bench);
	ring_bell(&bench.ring, ring_bell_value(&bench.ring));
	return mended(&bench);
}

static int record_doorbell(void)
{
	struct bench bench;

	write_one(&bench);
	ring_record(&bench.ring, 1);
	return mended(&bench);
}

static int send_state(void)
{
	struct mlx5_err_cqe *cqe;
	struct bench bench;

	open_bench(&bench, (struct pair_conf){.unconnected = true});
	qp_to_rtr(&bench.pair, &bench.pair.a, &bench.pair.b);
	qp_to_rtr(&bench.pair, &bench.pair.b, &bench.pair.a);
	post_recv(&bench.pair.b, 1, 0, 64);
	ring_write(&bench.ring, &good_send);
	ring_post(&bench.ring);
	child_wait_until_told();
	cqe = ring_poll(&bench.ring, QUIET_MS);
	if (cqe)
		return outcome(cqe);
	qp_to_rts(&bench.pair, &bench.pair.a);
	ring_post(&bench.ring);
	return first_cqe(&bench);
}

/* ---- CQs ---- */

static bool cq_error_event(struct bench *bench)
{
	struct pollfd ready = {.fd = bench->pair.context->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	if (poll(&ready, 1, 500) != 1 || ibv_get_async_event(bench->pair.context, &event))
		return false;
	ibv_ack_async_event(&event);
	return event.event_type == IBV_EVENT_CQ_ERR;
}

/* 17 CQEs for 16 slots: the CQ is dead, and the QP with it. */
static int cq_overrun(void)
{
	struct bench bench;

	open_bench(&bench, (struct pair_conf){.cq_depth = 15});
	for (int i = 0; i < 17; i++)
		write_good_remote(&bench, MLX5_OPCODE_RDMA_WRITE);
	ring_post(&bench.ring);
	return cq_error_event(&bench) ? state_of(&bench.pair.a) : WRONG;
}

static void arm(struct mlx5dv_cq *cq, uint32_t record, uint32_t doorbell)
{
	uint64_t value = (uint64_t)doorbell << 32 | cq->cqn;

	__atomic_store_n(&cq->dbrec[1], htobe32(record), __ATOMIC_RELEASE);
	__atomic_store_n((uint64_t *)(void *)((uint8_t *)cq->cq_uar + MLX5_CQ_DOORBELL),
		htobe64(value), __ATOMIC_RELEASE);
}

/* By `error` the CQ is dead. */
static int arm_doorbell(void)
{
	struct bench bench;

	open_bench(&bench, (struct pair_conf){0});
	arm(&bench.ring.cq, 0, 2u << 28);
	return cq_error_event(&bench) ? QP_ERROR : FINE;
}

static int arm_sequence(void)
{
	struct bench bench;
	struct mlx5dv_cq cq = {0};
	struct mlx5dv_obj object = {.cq = {.out = &cq}};
	struct pollfd ready = {.events = POLLIN};
	struct ibv_cq *told;
	void *context;

	open_bench(&bench, (struct pair_conf){.events = true});
	object.cq.in = bench.pair.b.recv_cq;
	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ), 0);
	for (uint32_t i = 0; i < 3; i++) { /* the second one may have been on its way */
		post_recv(&bench.pair.b, i, 0, 64);
		arm(&cq, i, i); /* the same number, another consumer index */
		ring_write(&bench.ring, &good_send);
		if (post_first(&bench) != FINE)
			return WRONG;
		ready.fd = bench.pair.channel->fd;
		if (poll(&ready, 1, 5000) != 1)
			return NOTHING;
		assert_int_equal(ibv_get_cq_event(bench.pair.channel, &told, &context), 0);
		ibv_ack_cq_events(told, 1);
	}
	return FINE;
}

/* ---- the cases ---- */

static struct rule_case cases[] = {
	REPORTED(wqe_index, WQE_INDEX, QP_ERROR),
	REPORTED(wqe_qpn, WQE_QPN, QP_ERROR),
	REPORTED(wqe_ds, WQE_DS, QP_ERROR),
	REPORTED(wqe_opcode, WQE_OPCODE, QP_ERROR),
	REPORTED(wqe_opmod, WQE_OPMOD, QP_ERROR),
	REPORTED(ctrl_reserved, CTRL_RESERVED, QP_ERROR),
	REPORTED(ctrl_reserved_beside_ds, CTRL_RESERVED, QP_ERROR),
	SOFT(ctrl_stale, CTRL_STALE),
	SOFT(raddr_reserved, RADDR_RESERVED),
	SOFT(datagram_reserved, DATAGRAM_RESERVED),
	REPORTED(address_vector, ADDRESS_VECTOR, QP_ERROR),
	REPORTED(segment_end, SEGMENT_END, QP_ERROR),
	WIDE(segment_zero, SEGMENT_ZERO, PROTECTION, PROTECTION),
	REPORTED(message_length, MESSAGE_LENGTH, LENGTH),
	REPORTED(rd_atomic, RD_ATOMIC, INVALID),
	REPORTED(atomic_alignment, ATOMIC_ALIGNMENT, INVALID),
	REPORTED(receive_inline, RECEIVE_INLINE, OPERATION),
	REPORTED(receive_length, RECEIVE_LENGTH, INVALID),
	UNDEFINED(srq_link, SRQ_LINK, STATE + IBV_QPS_RTS, STATE + IBV_QPS_ERR),
	REPORTED(lkey, LKEY, PROTECTION),
	REPORTED(lkey_pd, LKEY_PD, PROTECTION),
	REPORTED(lkey_bounds, LKEY_BOUNDS, PROTECTION),
	REPORTED(lkey_access, LKEY_ACCESS, PROTECTION),
	REPORTED(rkey, RKEY, ACCESS),
	REPORTED(rkey_pd, RKEY_PD, ACCESS),
	REPORTED(rkey_bounds, RKEY_BOUNDS, ACCESS),
	REPORTED(rkey_access, RKEY_ACCESS, ACCESS),
	REPORTED(rkey_access_read, RKEY_ACCESS, ACCESS),
	REPORTED(rkey_access_atomic, RKEY_ACCESS, ACCESS),
	REPORTED(freed_memory, FREED_MEMORY, PROTECTION),
	WIDE(send_record, SEND_RECORD, QP_ERROR, FLUSHED),
	WIDE(receive_record, RECEIVE_RECORD, STATE + IBV_QPS_RTS, STATE + IBV_QPS_ERR),
	WIDE(srq_record, SRQ_RECORD, STATE + IBV_QPS_RTS, STATE + IBV_QPS_ERR),
	UNDEFINED(record_order, RECORD_ORDER, FINE, FLUSHED),
	UNDEFINED(record_slot, RECORD_SLOT, FINE, FLUSHED),
	UNDEFINED(slot_reuse, SLOT_REUSE, FINE, FLUSHED),
	UNDEFINED(doorbell_value, DOORBELL_VALUE, FINE, FLUSHED),
	UNDEFINED(doorbell_record, DOORBELL_RECORD, FINE, FLUSHED),
	UNDEFINED(record_doorbell, RECORD_DOORBELL, FINE, FLUSHED),
	UNDEFINED(send_state, SEND_STATE, FINE, FLUSHED),
	UNDEFINED(cq_overrun, CQ_OVERRUN, STATE + IBV_QPS_ERR, STATE + IBV_QPS_ERR),
	UNDEFINED(arm_doorbell, ARM_DOORBELL, FINE, QP_ERROR),
	SOFT(arm_sequence, ARM_SEQUENCE),
};

/* ---- what is no breach ---- */

/* A program may arm a CQ again whose event it has not read: libmlx5 moves the number when it does.
 * UCX, that arms, finds more and arms again, was told of a broken rule. */
static int arm_again(void)
{
	struct pair_conf conf = {.events = true};
	struct ibv_cq *told;
	struct pair pair;
	void *context;

	pair_open(&pair, &conf);
	for (uint64_t i = 0; i < 40; i++) {
		assert_int_equal(ibv_req_notify_cq(pair.b.recv_cq, 0), 0);
		post_recv(&pair.b, i, 0, 64);
		post_send(&pair.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
		expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
		expect_wc(pair.b.recv_cq, i, IBV_WC_SUCCESS);
		if (i % 5 != 4)
			continue;
		assert_int_equal(ibv_get_cq_event(pair.channel, &told, &context), 0);
		ibv_ack_cq_events(told, 1);
	}
	return FINE;
}

static void armed_again(void **state)
{
	char said[8192];

	(void)state;
	assert_int_equal(child_run(arm_again, "report", said, sizeof(said)), FINE);
	assert_string_equal(said, "");
}

/* ---- the README's list ---- */

static char *read_file(const char *path)
{
	FILE *file = fopen(path, "r");
	size_t size = 1 << 20, n;
	char *text = malloc(size);

	if (!file)
		fail_msg("no %s", path);
	n = fread(text, 1, size - 1, file);
	text[n] = 0;
	fclose(file);
	return text;
}

/* The row's last column names a file and a function of it: `rule_test: wqe_index`. */
static void expect_test(const char *rule, const char *row)
{
	char file[64], function[64], path[1024], definition[80], *text;
	const char *column = strstr(row, "_test: ");
	const char *start = column;

	if (!column)
		fail_msg("rule %s has no test in \"%s\"", rule, row);
	while (start > row && (isalnum((unsigned char)start[-1]) || start[-1] == '_'))
		start--;
	if (sscanf(start, "%63[a-z_]: %63[a-z_]", file, function) != 2)
		fail_msg("rule %s has no test in \"%s\"", rule, row);
	snprintf(path, sizeof(path), "%s/%s.c", getenv("VHCA_TESTS"), file);
	text = read_file(path);
	snprintf(definition, sizeof(definition), " %s(void", function);
	if (!strstr(text, definition))
		fail_msg("rule %s: no %s() in %s", rule, function, path);
	free(text);
}

static void readme_lists_every_rule(void **state)
{
	static const char *const classes[] = {"reported", "undefined", "soft", "invisible"};
	char *readme, *end, due[1024];
	size_t n_rows = 0;

	(void)state;
	readme = read_file(getenv("VHCA_README"));
	for (size_t i = 0; i < VHCA_N_RULES; i++) {
		const struct broken_rule *rule = &broken_rules[i];
		char *row;

		snprintf(due, sizeof(due), "\n| `%s` | %s | %s | %s | ", rule->name,
			classes[rule->class], rule->sentence, rule->source);
		row = strstr(readme, due);
		if (!row) {
			fail_msg("the README has no row \"%s\"", due + 1);
			return; /* which the compiler does not know */
		}
		end = strchr(row + 1, '\n');
		*end = 0;
		if (rule->class != VHCA_INVISIBLE)
			expect_test(rule->name, row + strlen(due));
		*end = '\n';
		n_rows++;
	}
	for (char *row = readme; (row = strstr(row, "\n| `")); row++)
		if (strstr(row, " | ") && row[4] >= 'a' && row[4] <= 'z')
			n_rows--;
	assert_int_equal(n_rows, 0);
	free(readme);
}

int main(void)
{
	struct CMUnitTest tests[N(cases) + 2] = {
		cmocka_unit_test(readme_lists_every_rule), cmocka_unit_test(armed_again)};

	for (size_t i = 0; i < N(cases); i++)
		tests[i + 2] = (struct CMUnitTest){.name = cases[i].name,
			.test_func = rule_broken,
			.initial_state = &cases[i]};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
