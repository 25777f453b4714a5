/* requester.c - executes send WQEs, and completes them, well or in error */

#include "vhca/device.h"
#include "vhca/raw_wqe.h"
#include "vhca/send_wqe.h"
#include "vhca/trace.h"

/* ---- completion ---- */

static void advance(struct vhca_qp *qp, const struct wqe *wqe)
{
	qp->sq_ci = (uint16_t)(qp->sq_ci + max(1u, n_blocks(wqe->n_segments)));
	qp->rnr_tries = qp->transport_tries = qp->copies = 0;
}

static force_inline void complete(struct vhca_qp *qp, const struct wqe *wqe)
{
	const uint8_t *answer =
		unlikely(!is_stream(wqe->message.opcode) && wqe->inlined) ? wqe->answer : NULL;

	if (wqe->ctrl.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE)
		vhca_cqe_request(qp, wqe->message.opcode, wqe->index, wqe->message.length, answer);
	advance(qp, wqe);
	if (wqe->ctrl.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE)
		qp->sq_done = qp->sq_ci;
}

/* A size that reaches past the record is nonsense: one block at a time, so as to end. */
static void limit_size(const struct vhca_qp *qp, struct wqe *wqe)
{
	if (n_blocks(wqe->n_segments) > (uint16_t)(qp->sq_pi - qp->sq_ci))
		wqe->n_segments = 1;
}

/* The WQE is consumed by its error CQE; the ones behind it are flushed. */
static void complete_error(struct vhca_qp *qp, struct wqe *wqe, uint8_t syndrome, uint8_t vendor)
{
	limit_size(qp, wqe);
	vhca_cqe_error(qp, MLX5_CQE_REQ_ERR, syndrome, vendor, (uint8_t)wqe->opcode, wqe->index);
	advance(qp, wqe);
	qp->sq_done = qp->sq_ci;
	vhca_qp_fail_send(qp);
}

/* ---- answers ---- */

/* min_rnr_timer's codes, in units of 10 us. */
static const uint16_t rnr_timers[32] = {65535, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128,
	192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576,
	32768, 49152};

uint64_t vhca_rnr_ns(uint8_t timer)
{
	return rnr_timers[timer & 31] * 10000ull;
}

static void answer_rnr(struct vhca_qp *qp, struct wqe *wqe, uint8_t timer)
{
	vhca_counters_of(&qp->object)->rnr_nak_retry_err++;
	if (qp->set.rnr_retry != INFINITE_RNR && qp->rnr_tries >= qp->set.rnr_retry) {
		complete_error(qp, wqe, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, VHCA_VENDOR_RNR);
		return;
	}
	qp->rnr_tries = (uint8_t)min(qp->rnr_tries + 1, INFINITE_RNR);
	vhca_qp_wait(qp, vhca_rnr_ns(timer));
}

/* The WQE is tried again after each timeout, until there have been as many as the QP allows. */
static void answer_silence(struct vhca_qp *qp, struct wqe *wqe)
{
	uint64_t ns = qp->set.timeout ? 4096ull << qp->set.timeout : 0;

	if (qp->transport_tries) /* the first time it is only sent */
		vhca_counters_of(&qp->object)->local_ack_timeout_err++;
	if (ns && qp->transport_tries++ > qp->set.retry_cnt)
		complete_error(
			qp, wqe, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, VHCA_VENDOR_RETRY);
	else
		vhca_qp_wait(qp, ns ? ns : 1000000000ull);
}

/* The wire will say when. */
static void not_now(struct vhca_qp *qp)
{
	qp->transport_tries = 1; /* it is no first try, then */
	vhca_qp_deactivate(qp);
}

static void answered(struct vhca_qp *qp, struct wqe *wqe, struct vhca_answer answer)
{
	switch (answer.kind) {
	case VHCA_ACK: complete(qp, wqe); break;
	case VHCA_RNR: answer_rnr(qp, wqe, answer.rnr_timer); break;
	case VHCA_SILENCE: answer_silence(qp, wqe); break;
	case VHCA_NAK_INVALID:
		complete_error(qp, wqe, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, VHCA_VENDOR_REMOTE);
		break;
	case VHCA_NAK_ACCESS:
		complete_error(qp, wqe, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, VHCA_VENDOR_REMOTE);
		break;
	case VHCA_NAK_OPERATION:
		complete_error(qp, wqe, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, VHCA_VENDOR_REMOTE);
		break;
	case VHCA_OWN_MEMORY:
		complete_error(qp, wqe, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, VHCA_VENDOR_LKEY);
		break;
	case VHCA_LATER: advance(qp, wqe); break;
	case VHCA_BUSY: not_now(qp); break;
	}
}

/* ---- misbehaviour ---- */

/* What reads and atomics bring back is altered when it has come. */
static bool brings_back(const struct vhca_message *message)
{
	return message->opcode == MLX5_OPCODE_RDMA_READ ||
		message->opcode == MLX5_OPCODE_ATOMIC_CS ||
		message->opcode == MLX5_OPCODE_ATOMIC_FA;
}

static struct vhca_answer send_once(struct vhca_wire *wire, const struct vhca_message *message)
{
	if (message->qp->type != IBV_QPT_UD)
		return wire->ops->request(wire, message);
	return (struct vhca_answer){
		.kind = wire->ops->datagram(wire, message) ? VHCA_ACK : VHCA_BUSY};
}

static enum vhca_fault_kind begin_with_fault(struct vhca_message *message)
{
	enum vhca_fault_kind kind = vhca_fault_message(message);

	if (kind == VHCA_FAULT_ALTER && !brings_back(message))
		vhca_fault_alter(message);
	return kind;
}

/* A wire that completes later does to it by itself what message->fault says. */
static noinline struct vhca_answer request_with_fault(
	struct vhca_wire *wire, struct vhca_message *message)
{
	enum vhca_fault_kind kind = begin_with_fault(message);
	uint8_t copies = kind == VHCA_FAULT_DROP ? 0 : kind == VHCA_FAULT_DOUBLE ? 2 : 1;
	struct vhca_answer answer = {.kind = VHCA_ACK};
	struct vhca_qp *qp = message->qp;

	while (qp->copies < copies && answer.kind == VHCA_ACK) {
		answer = send_once(wire, message);
		qp->copies = (uint8_t)(qp->copies + (answer.kind == VHCA_ACK));
	}
	if (answer.kind == VHCA_ACK && kind == VHCA_FAULT_ALTER && brings_back(message))
		vhca_fault_alter_brought(message);
	if (answer.kind == VHCA_ACK || answer.kind == VHCA_LATER)
		vhca_fault_delivered(message);
	return answer;
}

/* Once for each WQE, however often it is tried. */
static uint8_t planted_syndrome(const struct vhca_qp *qp)
{
	return qp->rnr_tries || qp->transport_tries ? 0 : vhca_fault_syndrome();
}

/* ---- the ring ---- */

/* UC knows no answer: the message has left, that is all. */
static force_inline struct vhca_answer request(struct vhca_qp *qp, struct wqe *wqe)
{
	struct vhca_wire *wire = qp->object.context->device->wire;
	struct vhca_answer answer = unlikely(vhca_fault_any)
		? request_with_fault(wire, &wqe->message)
		: wire->ops->request(wire, &wqe->message);

	if (unlikely(qp->type == IBV_QPT_UC) && answer.kind != VHCA_OWN_MEMORY &&
		answer.kind != VHCA_BUSY)
		answer.kind = VHCA_ACK;
	return answer;
}

static void send_datagram(struct vhca_qp *qp, struct wqe *wqe)
{
	struct vhca_wire *wire = qp->object.context->device->wire;

	bool sent = unlikely(vhca_fault_any)
		? request_with_fault(wire, &wqe->message).kind == VHCA_ACK
		: wire->ops->datagram(wire, &wqe->message);

	if (sent)
		complete(qp, wqe);
	else
		not_now(qp);
}

/* What is ahead may not have completed yet: a NOP or an error, too, has its turn behind it. */
static void hand_over(struct vhca_qp *qp, struct wqe *wqe, uint8_t syndrome)
{
	struct vhca_wire *wire = qp->object.context->device->wire;
	struct vhca_answer answer;

	if (syndrome) { /* so that not all of the message may have been decoded */
		limit_size(qp, wqe);
		wqe->message.qp = qp;
		wqe->message.opcode = (uint8_t)wqe->opcode;
		wqe->message.index = wqe->index;
		wqe->message.n_segments = (uint8_t)wqe->n_segments;
		wqe->message.fence = false;
	}
	wqe->message.syndrome = syndrome;
	wqe->message.fault = VHCA_FAULT_NONE;
	if (vhca_fault_any && !syndrome && wqe->message.opcode != MLX5_OPCODE_NOP)
		begin_with_fault(&wqe->message);
	answer = wire->ops->request(wire, &wqe->message);
	if (vhca_fault_any && answer.kind == VHCA_LATER && !syndrome)
		vhca_fault_delivered(&wqe->message);
	wqe->message.syndrome = 0;
	answered(qp, wqe, answer);
}

static force_inline bool completes_later(const struct vhca_qp *qp)
{
	return qp->flow && qp->type == IBV_QPT_RC;
}

static force_inline void answer_now(struct vhca_qp *qp, struct wqe *wqe, struct vhca_answer answer)
{
	if (likely(answer.kind == VHCA_ACK))
		complete(qp, wqe);
	else
		answered(qp, wqe, answer);
}

static force_inline void execute(struct vhca_qp *qp, struct wqe *wqe)
{
	uint8_t syndrome;

	fetch(qp, wqe);
	if (unlikely(vhca_trace_on))
		vhca_trace_wqe(qp, wqe->bytes, wqe->n_segments, wqe->index);
	syndrome = decode(qp, wqe);
	if (unlikely(completes_later(qp))) {
		if (vhca_fault_any && !syndrome)
			syndrome = planted_syndrome(qp);
		hand_over(qp, wqe, syndrome);
		return;
	}
	if (unlikely(vhca_fault_any) && !syndrome) {
		syndrome = planted_syndrome(qp);
		if (syndrome) {
			complete_error(qp, wqe, syndrome, VHCA_VENDOR_FAULT);
			return;
		}
	}
	if (unlikely(syndrome))
		complete_error(qp, wqe, syndrome, vhca_vendor_of(syndrome));
	else if (unlikely(wqe->message.opcode == MLX5_OPCODE_NOP))
		complete(qp, wqe);
	else if (unlikely(qp->type == IBV_QPT_UD))
		send_datagram(qp, wqe);
	else
		answer_now(qp, wqe, request(qp, wqe));
}

/* ---- raw frames ---- */

static force_inline void send_frame(struct vhca_qp *qp, const struct vhca_sge *sge, uint32_t n_sge,
	uint32_t length, const struct vhca_raw_offload *offload)
{
	if (unlikely(!vhca_raw_send(qp->object.context->device, sge, n_sge, offload)) &&
		vhca_rule_report(VHCA_RULE_FRAME_SIZE, qp, qp->sq_ci, "bytes of a frame", length,
			VHCA_ANOTHER))
		vhca_qp_fail(qp);
}

static void send_frames(struct vhca_qp *qp, const struct vhca_message *message,
	const struct vhca_raw_offload *offload)
{
	if (message->opcode == MLX5_OPCODE_SEND) {
		send_frame(qp, message->sge, message->n_sge, message->length, offload);
		return;
	}
	for (uint32_t i = 0; i < message->n_sge && qp->state == IBV_QPS_RTS; i++)
		send_frame(qp, &message->sge[i], 1, message->sge[i].length, offload);
}

static cold void send_with_fault(
	struct vhca_qp *qp, struct vhca_message *message, const struct vhca_raw_offload *offload)
{
	enum vhca_fault_kind kind = vhca_fault_message(message);

	if (kind == VHCA_FAULT_ALTER && message->opcode == MLX5_OPCODE_SEND)
		vhca_fault_alter(message);
	for (int n = kind == VHCA_FAULT_DROP ? 0 : kind == VHCA_FAULT_DOUBLE ? 2 : 1; n; n--)
		send_frames(qp, message, offload);
	vhca_fault_delivered(message);
}

static void execute_raw(struct vhca_qp *qp, struct wqe *wqe)
{
	struct vhca_raw_offload offload;
	uint8_t syndrome, vendor;

	fetch(qp, wqe);
	if (unlikely(vhca_trace_on))
		vhca_trace_wqe(qp, wqe->bytes, wqe->n_segments, wqe->index);
	syndrome = decode_raw(qp, wqe, &offload);
	vendor = vhca_vendor_of(syndrome);
	if (unlikely(vhca_fault_any) && !syndrome) {
		syndrome = planted_syndrome(qp);
		vendor = VHCA_VENDOR_FAULT;
	}
	if (unlikely(syndrome)) {
		complete_error(qp, wqe, syndrome, vendor);
		return;
	}
	if (likely(wqe->message.opcode != MLX5_OPCODE_NOP)) {
		if (unlikely(vhca_fault_any))
			send_with_fault(qp, &wqe->message, &offload);
		else
			send_frames(qp, &wqe->message, &offload);
	}
	if (likely(qp->state == IBV_QPS_RTS))
		complete(qp, wqe);
}

static unsigned int run_raw(struct vhca_qp *qp)
{
	unsigned int n = 0;
	uint32_t bytes = 0, next_tick = CLOCK_BYTES;

	while (n < RUN_WQES && bytes < RUN_BYTES && qp->sq_ci != qp->sq_pi) {
		engine_wqe.message.length = 0;
		execute_raw(qp, &engine_wqe);
		bytes += engine_wqe.message.length;
		if (unlikely(++n % CLOCK_WQES == 0 || bytes >= next_tick)) {
			vhca_clock_tick();
			next_tick = bytes + CLOCK_BYTES;
		}
		if (unlikely(qp->state != IBV_QPS_RTS))
			break;
	}
	return n;
}

/* ---- what a wire completes later ---- */

uint8_t vhca_requester_load(struct vhca_qp *qp, uint16_t index, struct vhca_message **message)
{
	struct wqe *wqe = &engine_wqe;
	uint16_t next = qp->sq_ci;
	uint8_t syndrome;

	qp->sq_ci = index;
	fetch(qp, wqe);
	syndrome = decode(qp, wqe);
	qp->sq_ci = next;
	*message = &wqe->message;
	wqe->message.answer = !is_stream(wqe->message.opcode) && wqe->inlined ? wqe->answer : NULL;
	return syndrome;
}

static uint16_t behind(const struct vhca_request *request)
{
	return (uint16_t)(request->index + max(1u, n_blocks(request->n_segments)));
}

void vhca_requester_complete(struct vhca_qp *qp, const struct vhca_request *request)
{
	if (!request->signalled)
		return;
	vhca_cqe_request(qp, request->opcode, request->index, request->length,
		request->answered ? request->answer : NULL);
	qp->sq_done = behind(request);
}

void vhca_requester_error(
	struct vhca_qp *qp, const struct vhca_request *request, uint8_t syndrome, uint8_t vendor)
{
	vhca_cqe_error(qp, MLX5_CQE_REQ_ERR, syndrome, vendor, request->opcode, request->index);
	qp->sq_ci = qp->sq_done = behind(request);
	vhca_qp_fail(qp);
}

static unsigned int flush(struct vhca_qp *qp, struct wqe *wqe)
{
	unsigned int n = 0;

	for (; n < RUN_WQES && qp->sq_ci != qp->sq_pi; n++) {
		fetch(qp, wqe);
		limit_size(qp, wqe);
		vhca_cqe_error(qp, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
			VHCA_VENDOR_FLUSH, (uint8_t)wqe->opcode, wqe->index);
		advance(qp, wqe);
		qp->sq_done = qp->sq_ci;
	}
	return n;
}

/* A wire that completes later has taken what has begun out of the ring. */
bool vhca_requester_has_begun(const struct vhca_qp *qp)
{
	return qp->type == IBV_QPT_RC && !qp->flow && (qp->rnr_tries || qp->transport_tries);
}

/* In SQD: the one WQE that has begun. */
static unsigned int finish(struct vhca_qp *qp)
{
	if (!vhca_requester_has_begun(qp) && !(qp->type == IBV_QPT_UC && vhca_flow_under_way(qp))) {
		vhca_qp_deactivate(qp);
		return 0;
	}
	execute(qp, &engine_wqe);
	engine_wqe.message.qp = NULL;
	vhca_qp_drain(qp);
	return 1;
}

unsigned int vhca_requester_run(struct vhca_qp *qp)
{
	unsigned int n = 0;
	uint32_t bytes = 0, next_tick = CLOCK_BYTES;

	if (unlikely(qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE)) {
		n = flush(qp, &engine_wqe);
	} else if (qp->type == IBV_QPT_RAW_PACKET && qp->state == IBV_QPS_RTS) {
		n = run_raw(qp);
	} else if (likely(qp->state == IBV_QPS_RTS)) {
		while (n < RUN_WQES && bytes < RUN_BYTES && qp->sq_ci != qp->sq_pi) {
			engine_wqe.message.length = 0;
			execute(qp, &engine_wqe);
			bytes += engine_wqe.message.length;
			if (unlikely(++n % CLOCK_WQES == 0 || bytes >= next_tick)) {
				vhca_clock_tick();
				next_tick = bytes + CLOCK_BYTES;
			}
			if (unlikely(!qp->active || qp->state != IBV_QPS_RTS))
				break;
		}
	} else {
		return finish(qp);
	}
	engine_wqe.message.qp = NULL;
	if (qp->sq_ci == qp->sq_pi)
		vhca_qp_deactivate(qp);
	return n;
}

bool vhca_requester_lost(uintptr_t address)
{
	struct vhca_qp *qp = engine_wqe.message.qp;

	if (!qp || !vhca_message_lost(&engine_wqe.message, address))
		return false;
	vhca_rule_report(VHCA_RULE_FREED_MEMORY, qp, qp->sq_ci, "an address of its gather list",
		address, VHCA_ANOTHER);
	if (completes_later(qp))
		vhca_flow_lost(qp, engine_wqe.index);
	else
		complete_error(qp, &engine_wqe, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, VHCA_VENDOR_LKEY);
	engine_wqe.message.qp = NULL;
	return true;
}
