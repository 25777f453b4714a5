/* responder.c - what a message does at its addressee: receives and remote access */

#include "vhca/device.h"
#include "vhca/guard.h"
#include "vhca/receive_wqe.h"
#include "vhca/trace.h"

#include <endian.h>

/* ---- outcomes ---- */

static struct vhca_answer answer(enum vhca_answer_kind kind)
{
	return (struct vhca_answer){.kind = kind};
}

static struct vhca_answer not_ready(const struct vhca_qp *qp)
{
	vhca_counters_of(&qp->object)->out_of_buffer++;
	return (struct vhca_answer){.kind = VHCA_RNR, .rnr_timer = qp->set.min_rnr_timer};
}

/* The receive WQE completes in error, the QP fails, and the requester hears why. */
static struct vhca_answer completed_in_error(
	struct vhca_qp *qp, const struct vhca_receive *receive, uint8_t syndrome)
{
	vhca_cqe_error(qp, MLX5_CQE_RESP_ERR, syndrome, 0, 0, receive->index);
	vhca_qp_fail(qp);
	return answer(syndrome == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR ? VHCA_NAK_INVALID
								     : VHCA_NAK_OPERATION);
}

static struct vhca_answer receive_failed(
	struct vhca_qp *qp, const struct vhca_receive *receive, uint8_t syndrome)
{
	receive_take(qp, receive);
	return completed_in_error(qp, receive, syndrome);
}

/* A request that its addressee may not do: no WQE says so, but an event, and the QP fails. */
static struct vhca_answer refused(struct vhca_qp *qp, enum vhca_answer_kind kind)
{
	vhca_counters_of(&qp->object)->resp_remote_access_errors += kind == VHCA_NAK_ACCESS;
	if (qp->type == IBV_QPT_RC) {
		vhca_event_async(&qp->async,
			kind == VHCA_NAK_ACCESS ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
		vhca_qp_fail(qp);
	}
	return answer(kind);
}

/* A packet comes from the QP that the connection names. */
static force_inline uint32_t source_of(const struct vhca_qp *qp, const struct vhca_message *message)
{
	return likely(message->qp != qp) ? message->qp->number : qp->set.dest_qp_num;
}

/* ---- SEND ---- */

/* One packet of a message in several: the first one takes the WQE, the last one completes it. A UC
 * message that broke off has left its WQE to the next. */
static noinline struct vhca_answer receive_part(
	struct vhca_qp *qp, const struct vhca_message *message)
{
	bool has_imm = message->opcode == MLX5_OPCODE_SEND_IMM;
	struct vhca_received received = {
		.opcode = has_imm ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND,
		.length = message->before + message->length,
		.imm = has_imm ? message->imm : 0,
		.source_qpn = qp->set.dest_qp_num,
		.solicited = message->solicited,
	};
	struct scatter scatter;
	uint8_t syndrome;

	if (!qp->part_held) {
		if (!receive_peek(qp, &qp->part))
			return not_ready(qp);
		receive_take(qp, &qp->part);
		qp->part_held = true;
	}
	syndrome = scatter_build_at(qp, &qp->part, message->before, message->length, &scatter);
	if (syndrome) {
		qp->part_held = false;
		return completed_in_error(qp, &qp->part, syndrome);
	}
	copy_message(&scatter, message);
	if (message->more)
		return answer(VHCA_ACK);
	qp->part_held = false;
	received.wqe_counter = qp->part.index;
	vhca_cqe_receive(qp, &received);
	return answer(VHCA_ACK);
}

bool vhca_responder_ready(struct vhca_qp *qp)
{
	struct vhca_receive receive;

	return qp->part_held || receive_peek(qp, &receive);
}

void vhca_responder_release(struct vhca_qp *qp)
{
	if (!qp->part_held)
		return;
	qp->part_held = false;
	if (qp->srq) /* it is not the queue's any more */
		vhca_cqe_error(qp, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, 0,
			qp->part.index);
	else
		qp->rq_ci = qp->part.index;
}

/* Puts a whole message where the WQE says. */
static noinline uint8_t scatter_message(struct vhca_qp *qp, const struct vhca_receive *receive,
	const struct vhca_message *message, bool into_cqe)
{
	struct scatter scatter;
	uint8_t syndrome = scatter_build(qp, receive, message->length, &scatter);

	if (!syndrome && !into_cqe)
		copy_message(&scatter, message);
	return syndrome;
}

static force_inline uint8_t receive_into(struct vhca_qp *qp, const struct vhca_receive *receive,
	const struct vhca_message *message, bool into_cqe)
{
	struct vhca_sge sge;

	if (unlikely(message->n_sge != 1 || into_cqe ||
		    !scatter_first(qp, receive, 0, message->length, &sge)))
		return scatter_message(qp, receive, message, into_cqe);
	vhca_memory_write(sge.addr, message->sge[0].addr, message->length);
	return 0;
}

static force_inline struct vhca_answer receive_send(
	struct vhca_qp *qp, const struct vhca_message *message)
{
	struct vhca_received received = {
		.opcode = message->opcode == MLX5_OPCODE_SEND_IMM ? MLX5_CQE_RESP_SEND_IMM
								  : MLX5_CQE_RESP_SEND,
		.length = message->length,
		.imm = message->opcode == MLX5_OPCODE_SEND_IMM ? message->imm : 0,
		.source_qpn = source_of(qp, message),
		.solicited = message->solicited,
	};
	bool into_cqe = message->length <= qp->cqe_scatter && message->length;
	struct vhca_receive receive;
	uint8_t syndrome;

	if (unlikely(message->before | message->more | qp->part_held | vhca_fault_rnr)) {
		if (vhca_fault_rnr && !message->before && vhca_fault_not_ready())
			return not_ready(qp);
		if (message->before || message->more || qp->part_held)
			return receive_part(qp, message);
	}
	if (unlikely(!receive_peek(qp, &receive)))
		return not_ready(qp);
	syndrome = receive_into(qp, &receive, message, into_cqe);
	if (unlikely(syndrome))
		return receive_failed(qp, &receive, syndrome);
	if (into_cqe)
		received.inlined = message;
	received.wqe_counter = receive.index;
	receive_take(qp, &receive);
	vhca_cqe_receive(qp, &received);
	return answer(VHCA_ACK);
}

/* ---- remote access ---- */

/* Whether the QP's attributes let a peer do it at all. */
static bool qp_allows(const struct vhca_qp *qp, const struct vhca_message *message, uint32_t need)
{
	if (likely(qp->access & need))
		return true;
	vhca_rule_report(VHCA_RULE_RKEY_ACCESS, message->qp, message->qp->sq_ci,
		"access of the responder's QP", qp->access, need);
	return false;
}

/* Finds the bytes that a remote access names: VHCA_ACK, or why not after a report. */
static enum vhca_answer_kind remote_access(
	struct vhca_qp *qp, const struct vhca_message *message, uint32_t need, uint8_t **memory)
{
	const struct vhca_mr *mr = vhca_find_mr(vhca_tables_of(&qp->object), message->rkey);
	struct vhca_qp *from = message->qp;

	if (unlikely(!qp_allows(qp, message, need)))
		return VHCA_NAK_INVALID;
	if (unlikely(!mr)) {
		vhca_rule_report(
			VHCA_RULE_RKEY, from, from->sq_ci, "rkey", message->rkey, VHCA_ANOTHER);
		return VHCA_NAK_ACCESS;
	}
	if (unlikely(mr->pd != qp->pd)) {
		vhca_rule_report(VHCA_RULE_RKEY_PD, from, from->sq_ci, "PD of the rkey",
			mr->pd->pdn, qp->pd->pdn);
		return VHCA_NAK_ACCESS;
	}
	if (unlikely(need & ~mr->access)) {
		vhca_rule_report(
			VHCA_RULE_RKEY_ACCESS, from, from->sq_ci, "access", mr->access, need);
		return VHCA_NAK_ACCESS;
	}
	*memory = vhca_mr_at(mr, message->raddr, message->length);
	if (likely(*memory != NULL))
		return VHCA_ACK;
	vhca_rule_report(
		VHCA_RULE_RKEY_BOUNDS, from, from->sq_ci, "raddr", message->raddr, VHCA_ANOTHER);
	return VHCA_NAK_ACCESS;
}

/* A write of no bytes asks for no right, as the architecture has it. */
static enum vhca_answer_kind write_memory(struct vhca_qp *qp, const struct vhca_message *message)
{
	struct scatter scatter;
	enum vhca_answer_kind kind;

	vhca_counters_of(&qp->object)->rx_write_requests += !message->before;
	if (!message->length)
		return VHCA_ACK;
	scatter.n = 1;
	scatter.sge[0].length = message->length;
	kind = remote_access(qp, message, IBV_ACCESS_REMOTE_WRITE, &scatter.sge[0].addr);
	if (likely(kind == VHCA_ACK))
		copy_message(&scatter, message);
	return kind;
}

static struct vhca_answer receive_write(struct vhca_qp *qp, const struct vhca_message *message)
{
	enum vhca_answer_kind kind = write_memory(qp, message);

	return likely(kind == VHCA_ACK) ? answer(kind) : refused(qp, kind);
}

static struct vhca_answer receive_write_imm(struct vhca_qp *qp, const struct vhca_message *message)
{
	struct vhca_received received = {
		.opcode = MLX5_CQE_RESP_WR_IMM,
		.length = message->before + message->length,
		.imm = message->imm,
		.source_qpn = source_of(qp, message),
		.solicited = message->solicited,
	};
	enum vhca_answer_kind kind;
	struct vhca_receive receive;

	if ((vhca_fault_rnr && vhca_fault_not_ready()) || !receive_peek(qp, &receive))
		return not_ready(qp);
	kind = write_memory(qp, message);
	if (kind != VHCA_ACK)
		return refused(qp, kind);
	received.wqe_counter = receive.index;
	receive_take(qp, &receive);
	vhca_cqe_receive(qp, &received);
	return answer(VHCA_ACK);
}

/* ---- what brings data back: read and atomics ---- */

/* To where the requester wants it, `length` bytes in all. */
static void bring_back(const struct vhca_message *message, const uint8_t *from)
{
	for (uint32_t i = 0; i < message->n_sge; i++) {
		vhca_memory_write(message->sge[i].addr, from, message->sge[i].length);
		from += message->sge[i].length;
	}
}

/* There is nothing to answer from. */
static bool no_resource(const struct vhca_qp *qp, const struct vhca_message *message)
{
	if (likely(qp->set.max_dest_rd_atomic))
		return false;
	vhca_rule_report(VHCA_RULE_RD_ATOMIC, message->qp, message->qp->sq_ci,
		"max_dest_rd_atomic of the responder", 0, VHCA_ANOTHER);
	return true;
}

static struct vhca_answer receive_read(struct vhca_qp *qp, const struct vhca_message *message)
{
	enum vhca_answer_kind kind;
	uint8_t *memory;

	vhca_counters_of(&qp->object)->rx_read_requests += !message->before;
	if (no_resource(qp, message))
		return refused(qp, VHCA_NAK_INVALID);
	if (!message->length)
		return answer(VHCA_ACK);
	kind = remote_access(qp, message, IBV_ACCESS_REMOTE_READ, &memory);
	if (kind != VHCA_ACK)
		return refused(qp, kind);
	bring_back(message, memory);
	return answer(VHCA_ACK);
}

/* Operands and what is in memory are of the host's order, as a ConnectX has it that says so by
 * IBV_ATOMIC_HCA. */
vhca_dma uint64_t do_atomic(uint64_t *memory, const struct vhca_message *message)
{
	uint64_t original = message->compare;

	if (message->opcode == MLX5_OPCODE_ATOMIC_FA)
		return __atomic_fetch_add(memory, message->swap_add, __ATOMIC_ACQ_REL);
	__atomic_compare_exchange_n(
		memory, &original, message->swap_add, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return original;
}

static struct vhca_answer receive_atomic(struct vhca_qp *qp, const struct vhca_message *message)
{
	enum vhca_answer_kind kind;
	uint64_t original;
	uint8_t *memory;

	vhca_counters_of(&qp->object)->rx_atomic_requests++;
	if (no_resource(qp, message))
		return refused(qp, VHCA_NAK_INVALID);
	if (message->raddr % VHCA_ATOMIC) {
		vhca_rule_report(VHCA_RULE_ATOMIC_ALIGNMENT, message->qp, message->qp->sq_ci,
			"raddr", message->raddr, message->raddr & ~7ull);
		return refused(qp, VHCA_NAK_INVALID);
	}
	kind = remote_access(qp, message, IBV_ACCESS_REMOTE_ATOMIC, &memory);
	if (kind != VHCA_ACK)
		return refused(qp, kind);
	original = do_atomic((uint64_t *)(void *)memory, message);
	bring_back(message, (const uint8_t *)&original);
	return answer(VHCA_ACK);
}

/* ---- datagrams ---- */

/* The GRH, then the message. */
static void copy_datagram(const struct scatter *to, const struct vhca_message *message,
	const struct vhca_datagram *datagram)
{
	struct vhca_message whole;

	whole.n_sge = message->n_sge + 1;
	whole.sge[0] = (struct vhca_sge){(uint8_t *)(uintptr_t)datagram->grh, VHCA_GRH};
	memcpy(whole.sge + 1, message->sge, message->n_sge * sizeof(message->sge[0]));
	copy_lists(to, &whole);
}

/* What RoCE has in a CQE in the place of InfiniBand's service level: the kind of packet, by which
 * programs know where in the GRH to look. */
static uint32_t packet_kind(const uint8_t grh[VHCA_GRH])
{
	enum { GRH_OF_V1, V2_IPV6, V2_IPV4, UDP = 17 };

	if (grh[0] >> 4 != 6)
		return V2_IPV4;
	return grh[6] == UDP ? V2_IPV6 : GRH_OF_V1;
}

static cold void count_violation(struct vhca_device *device)
{
	if (device->qkey_violations < UINT16_MAX)
		device->qkey_violations++;
}

/* What does not get in is dropped, and nobody hears of it; only a receive WQE that is itself wrong,
 * or too small, fails the QP. */
static void receive_datagram(struct vhca_qp *qp, const struct vhca_message *message,
	const struct vhca_datagram *datagram)
{
	bool has_imm = message->opcode == MLX5_OPCODE_SEND_IMM;
	struct vhca_received received = {
		.opcode = has_imm ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND,
		.length = message->length + VHCA_GRH,
		.imm = has_imm ? message->imm : 0,
		.source_qpn = 1u << 28 | packet_kind(datagram->grh) << 24 | datagram->source_qpn,
		.tag = datagram->tag,
		.solicited = message->solicited,
	};
	struct vhca_receive receive;
	struct scatter scatter;
	uint8_t syndrome;

	if (datagram->qkey != qp->set.qkey) {
		vhca_counters_of(&qp->object)->port_rcv_errors++;
		count_violation(qp->object.context->device);
		return;
	}
	if ((vhca_fault_rnr && vhca_fault_not_ready()) || !receive_peek(qp, &receive)) {
		vhca_counters_of(&qp->object)->out_of_buffer++;
		return;
	}
	syndrome = scatter_build(qp, &receive, received.length, &scatter);
	if (syndrome) {
		receive_failed(qp, &receive, syndrome);
		return;
	}
	copy_datagram(&scatter, message, datagram);
	received.wqe_counter = receive.index;
	receive_take(qp, &receive);
	vhca_cqe_receive(qp, &received);
}

static force_inline struct vhca_answer respond(
	struct vhca_qp *qp, const struct vhca_message *message)
{
	switch (message->opcode) {
	case MLX5_OPCODE_SEND:
	case MLX5_OPCODE_SEND_IMM: return receive_send(qp, message);
	case MLX5_OPCODE_RDMA_WRITE: return receive_write(qp, message);
	case MLX5_OPCODE_RDMA_WRITE_IMM: return receive_write_imm(qp, message);
	case MLX5_OPCODE_RDMA_READ: return receive_read(qp, message);
	case MLX5_OPCODE_ATOMIC_CS:
	case MLX5_OPCODE_ATOMIC_FA: return receive_atomic(qp, message);
	}
	return answer(VHCA_NAK_INVALID);
}

/* ---- memory that is gone ---- */

static void report_lost(struct vhca_qp *qp, uint32_t index, uintptr_t address)
{
	vhca_rule_report(VHCA_RULE_FREED_MEMORY, qp, index,
		"an address that a message writes or reads", address, VHCA_ANOTHER);
}

/* The receive WQE that a message would have consumed. */
static struct vhca_answer receive_lost(struct vhca_qp *qp, uintptr_t address)
{
	struct vhca_receive receive;

	if (!receive_peek(qp, &receive))
		return not_ready(qp);
	report_lost(qp, receive.index, address);
	return receive_failed(qp, &receive, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
}

static cold struct vhca_answer respond_lost(
	struct vhca_qp *qp, const struct vhca_message *message, uintptr_t address)
{
	if (vhca_message_lost(message, address)) {
		report_lost(message->qp, message->qp->sq_ci, address);
		return answer(VHCA_OWN_MEMORY);
	}
	if (vhca_queue_lost(qp->object.context->device, address))
		return answer(VHCA_NAK_OPERATION);
	if (message->opcode == MLX5_OPCODE_SEND || message->opcode == MLX5_OPCODE_SEND_IMM)
		return receive_lost(qp, address);
	report_lost(qp, 0, address);
	return refused(qp, VHCA_NAK_ACCESS);
}

struct vhca_answer vhca_respond(struct vhca_qp *qp, const struct vhca_message *message)
{
	struct vhca_answer result;
	struct vhca_guard guard;

	if (likely(!vhca_guarded(&guard))) {
		result = respond(qp, message);
		vhca_unguarded(&guard);
	} else {
		vhca_unguarded(&guard);
		result = respond_lost(qp, message, guard.address);
	}
	return result;
}

void vhca_receive_datagram(struct vhca_qp *qp, const struct vhca_message *message,
	const struct vhca_datagram *datagram)
{
	struct vhca_guard guard;

	if (likely(!vhca_guarded(&guard))) {
		receive_datagram(qp, message, datagram);
		vhca_unguarded(&guard);
		return;
	}
	vhca_unguarded(&guard);
	if (vhca_message_lost(message, guard.address))
		vhca_guard_raise(guard.address); /* the sender's affair */
	if (!vhca_queue_lost(qp->object.context->device, guard.address))
		receive_lost(qp, guard.address);
}

/* ---- the flush ---- */

unsigned int vhca_responder_flush(struct vhca_qp *qp)
{
	unsigned int n = 0;

	while (n < 64 && rq_has_wqe(qp)) {
		vhca_cqe_error(
			qp, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, 0, qp->rq_ci);
		qp->rq_ci++;
		n++;
	}
	return n;
}
