/* flow_answer.c - RC's and UC's responder: expected PSN, duplicates, messages of several packets,
 * and what is answered
 */

#include "vhca/flow.h"

enum {
	REPLY_PACKETS = 128, /* of one flow before others have their turn */
	MAX_READ = 1u << 31,
};

/* ---- acknowledgements ---- */

static void say(struct vhca_flow *flow, uint8_t syndrome, uint32_t psn)
{
	struct vhca_packet packet = {
		.transport = VHCA_TRANSPORT_RC,
		.operation = VHCA_ACKNOWLEDGE,
		.psn = psn,
		.syndrome = syndrome,
		.msn = flow->msn,
	};

	if (vhca_wire_begin(flow, &packet))
		vhca_wire_end(flow->wire);
}

void vhca_flow_acknowledge(struct vhca_flow *flow)
{
	flow->ack_due = false;
	say(flow, VHCA_AETH_ACK | VHCA_AETH_NO_CREDITS, vhca_psn_add(flow->expected_psn, ~0u));
}

/* Once for each packet that is missed. */
static void refuse(struct vhca_flow *flow, uint8_t syndrome, uint32_t psn)
{
	if (flow->nak_sent)
		return;
	flow->nak_sent = true;
	say(flow, syndrome, psn);
}

static uint8_t syndrome_of(struct vhca_answer answer)
{
	switch (answer.kind) {
	case VHCA_RNR: return VHCA_AETH_RNR | (answer.rnr_timer & VHCA_AETH_VALUE);
	case VHCA_NAK_ACCESS: return VHCA_AETH_NAK | VHCA_NAK_CODE_ACCESS;
	case VHCA_NAK_OPERATION: return VHCA_AETH_NAK | VHCA_NAK_CODE_OPERATION;
	default: return VHCA_AETH_NAK | VHCA_NAK_CODE_INVALID;
	}
}

/* ---- replies: reads and atomics are answered in order, and acknowledgements wait for them ---- */

static uint32_t reply_packets(const struct vhca_flow *flow, uint32_t length)
{
	return length ? (uint32_t)(((uint64_t)length + flow->mtu - 1) / flow->mtu) : 1;
}

/* False: there are too many, and the request counts as lost. */
static bool owe(
	struct vhca_flow *flow, const struct vhca_packet *packet, uint64_t original, bool again)
{
	if (flow->replies_head - flow->replies_tail == VHCA_FLOW_REPLIES)
		return false;
	flow->replies[flow->replies_head++ % VHCA_FLOW_REPLIES] = (struct vhca_reply){
		.operation = packet->operation,
		.again = again,
		.psn = packet->psn,
		.msn = flow->msn,
		.rkey = packet->rkey,
		.va = packet->va,
		.length = packet->dma_length,
		.original = original,
	};
	vhca_flow_ready(flow);
	return true;
}

static void reply_atomic(struct vhca_flow *flow, const struct vhca_reply *reply)
{
	struct vhca_packet packet = {
		.transport = VHCA_TRANSPORT_RC,
		.operation = VHCA_ATOMIC_ACKNOWLEDGE,
		.psn = reply->psn,
		.syndrome = VHCA_AETH_ACK | VHCA_AETH_NO_CREDITS,
		.msn = reply->msn,
		.original = reply->original,
	};

	if (vhca_wire_begin(flow, &packet))
		vhca_wire_end(flow->wire);
}

static uint8_t read_operation(bool first, bool last)
{
	if (first)
		return last ? VHCA_READ_RESPONSE_ONLY : VHCA_READ_RESPONSE_FIRST;
	return last ? VHCA_READ_RESPONSE_LAST : VHCA_READ_RESPONSE_MIDDLE;
}

/* The memory is read as the packet is built, with the rights of that time. */
static struct vhca_answer read_part(
	struct vhca_flow *flow, const struct vhca_reply *reply, uint8_t *payload, uint32_t length)
{
	struct vhca_message message = {
		.qp = flow->qp,
		.opcode = MLX5_OPCODE_RDMA_READ,
		.raddr = reply->va + reply->sent,
		.rkey = reply->rkey,
		.length = length,
		.before = 1 + reply->sent, /* it was counted when it was accepted */
		.n_sge = 1,
		.sge = {{payload, length}},
	};

	if (!length)
		return (struct vhca_answer){.kind = VHCA_ACK};
	return vhca_respond(flow->qp, &message);
}

/* One packet of the answer to a read; false: it may not be read. */
static bool reply_read_packet(struct vhca_flow *flow, struct vhca_reply *reply)
{
	uint32_t length = min(reply->length - reply->sent, flow->mtu);
	struct vhca_packet packet = {
		.transport = VHCA_TRANSPORT_RC,
		.operation = read_operation(!reply->sent, reply->sent + length == reply->length),
		.psn = vhca_psn_add(reply->psn, reply->sent / flow->mtu),
		.syndrome = VHCA_AETH_ACK | VHCA_AETH_NO_CREDITS,
		.msn = reply->msn,
		.length = length,
	};
	uint8_t *payload = vhca_wire_begin(flow, &packet);
	struct vhca_answer answer;

	if (payload) {
		answer = read_part(flow, reply, payload, length);
		if (answer.kind != VHCA_ACK) {
			say(flow, syndrome_of(answer), packet.psn);
			return false;
		}
		vhca_wire_end(flow->wire);
	}
	reply->sent += length;
	return true;
}

/* True when all of it has left. */
static bool reply_read(struct vhca_flow *flow, struct vhca_reply *reply, uint32_t *budget)
{
	do {
		if (!reply_read_packet(flow, reply)) {
			flow->replies_tail = flow->replies_head - 1;
			return true;
		}
	} while (--*budget && reply->sent < reply->length);
	return reply->sent >= reply->length;
}

static uint32_t reply_psns(const struct vhca_flow *flow, const struct vhca_reply *reply)
{
	return reply->operation == VHCA_READ_REQUEST ? reply_packets(flow, reply->length) : 1;
}

void vhca_flow_reply(struct vhca_flow *flow)
{
	uint32_t budget = REPLY_PACKETS;
	const struct vhca_reply *last = NULL;

	while (flow->replies_tail != flow->replies_head && budget) {
		struct vhca_reply *reply = &flow->replies[flow->replies_tail % VHCA_FLOW_REPLIES];

		if (reply->operation != VHCA_READ_REQUEST)
			reply_atomic(flow, reply);
		else if (!reply_read(flow, reply, &budget))
			break;
		last = reply;
		flow->replies_tail++;
	}
	if (flow->replies_tail != flow->replies_head)
		vhca_flow_ready(flow);
	else if (last && vhca_psn_add(last->psn, reply_psns(flow, last)) == flow->expected_psn)
		vhca_flow_ack_said(flow); /* by the reply */
}

/* ---- requests ---- */

static struct vhca_answer answer(enum vhca_answer_kind kind)
{
	return (struct vhca_answer){.kind = kind};
}

/* Whether the packet may come where it comes, and is as long as it must be. */
static bool in_order(const struct vhca_flow *flow, const struct vhca_packet *packet)
{
	uint16_t kind = packet->parts & (VHCA_IS_SEND | VHCA_IS_WRITE);

	if (packet->parts & VHCA_BEGINS ? flow->current : flow->current != kind)
		return false;
	if (!(packet->parts & VHCA_HAS_PAYLOAD))
		return true;
	if (!(packet->parts & VHCA_ENDS))
		return packet->length == flow->mtu;
	return packet->length <= flow->mtu && (packet->parts & VHCA_BEGINS || packet->length);
}

static struct vhca_message message_of(
	const struct vhca_flow *flow, const struct vhca_packet *packet)
{
	return (struct vhca_message){
		.qp = flow->qp,
		.solicited = packet->solicited,
		.imm = packet->imm,
		.length = packet->length,
		.before = flow->received,
		.more = !(packet->parts & VHCA_ENDS),
		.n_sge = 1,
		.sge = {{(uint8_t *)(uintptr_t)packet->payload, packet->length}},
	};
}

static struct vhca_answer take_send(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	struct vhca_message message = message_of(flow, packet);

	if (packet->parts & VHCA_HAS_IETH)
		return answer(VHCA_NAK_INVALID);
	message.opcode = packet->parts & VHCA_HAS_IMM ? MLX5_OPCODE_SEND_IMM : MLX5_OPCODE_SEND;
	return vhca_respond(flow->qp, &message);
}

/* Whether all of a read or write may be done, before any of it is: with nowhere to copy. */
static struct vhca_answer may_access(
	struct vhca_flow *flow, const struct vhca_packet *packet, uint8_t opcode)
{
	struct vhca_message message = {
		.qp = flow->qp,
		.opcode = opcode,
		.raddr = packet->va,
		.rkey = packet->rkey,
		.length = packet->dma_length,
		.before = opcode == MLX5_OPCODE_RDMA_WRITE, /* its packets count it */
	};

	return vhca_respond(flow->qp, &message);
}

static struct vhca_answer take_write(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	struct vhca_message message = message_of(flow, packet);
	bool ends = packet->parts & VHCA_ENDS;
	uint32_t behind;

	if (packet->parts & VHCA_BEGINS) {
		flow->va = packet->va;
		flow->rkey = packet->rkey;
		flow->dma_length = packet->dma_length;
	}
	behind = flow->received + packet->length;
	if (behind > flow->dma_length || ends != (behind == flow->dma_length))
		return answer(VHCA_NAK_INVALID);
	if (packet->parts & VHCA_BEGINS && !ends) {
		struct vhca_answer may = may_access(flow, packet, MLX5_OPCODE_RDMA_WRITE);

		if (may.kind != VHCA_ACK)
			return may;
	}
	message.opcode =
		packet->parts & VHCA_HAS_IMM ? MLX5_OPCODE_RDMA_WRITE_IMM : MLX5_OPCODE_RDMA_WRITE;
	message.raddr = flow->va + flow->received;
	message.rkey = flow->rkey;
	return vhca_respond(flow->qp, &message);
}

static struct vhca_answer take_read(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	struct vhca_answer may;

	if (packet->dma_length > MAX_READ)
		return answer(VHCA_NAK_INVALID);
	may = may_access(flow, packet, MLX5_OPCODE_RDMA_READ);
	if (may.kind != VHCA_ACK)
		return may;
	flow->msn = vhca_psn_add(flow->msn, 1);
	if (owe(flow, packet, 0, false))
		return answer(VHCA_ACK);
	flow->msn = vhca_psn_add(flow->msn, ~0u);
	return answer(VHCA_SILENCE);
}

static struct vhca_answer take_atomic(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	uint64_t original = 0;
	struct vhca_message message = {
		.qp = flow->qp,
		.opcode = packet->operation == VHCA_COMPARE_SWAP ? MLX5_OPCODE_ATOMIC_CS
								 : MLX5_OPCODE_ATOMIC_FA,
		.raddr = packet->va,
		.rkey = packet->rkey,
		.length = sizeof(original),
		.swap_add = packet->swap_add,
		.compare = packet->compare,
		.n_sge = 1,
		.sge = {{(uint8_t *)&original, sizeof(original)}},
	};
	struct vhca_answer result;

	if (flow->replies_head - flow->replies_tail == VHCA_FLOW_REPLIES)
		return answer(VHCA_SILENCE);
	result = vhca_respond(flow->qp, &message);
	if (result.kind != VHCA_ACK)
		return result;
	flow->msn = vhca_psn_add(flow->msn, 1);
	owe(flow, packet, original, false);
	flow->results[flow->results_next++ % VHCA_MAX_RD_ATOMIC] =
		(struct vhca_atomic_result){true, packet->psn, original};
	return result;
}

/* A send or write moves on within its message, or to its end. */
static void moved_on(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	uint16_t kind = packet->parts & (VHCA_IS_SEND | VHCA_IS_WRITE);

	if (packet->parts & VHCA_ENDS) {
		flow->current = 0;
		flow->received = 0;
		flow->msn = vhca_psn_add(flow->msn, 1);
	} else {
		flow->current = kind;
		flow->received += packet->length;
	}
}

static struct vhca_answer take_data(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	struct vhca_answer result =
		packet->parts & VHCA_IS_WRITE ? take_write(flow, packet) : take_send(flow, packet);

	if (result.kind == VHCA_ACK)
		moved_on(flow, packet);
	return result;
}

/* One more read or atomic than may be open at once, not counting those that came again. With none
 * allowed the responder says why. */
static bool too_many(const struct vhca_flow *flow)
{
	uint32_t n = 0;

	for (uint32_t i = flow->replies_tail; i != flow->replies_head; i++)
		n += !flow->replies[i % VHCA_FLOW_REPLIES].again;
	return n && n >= flow->qp->set.max_dest_rd_atomic;
}

static struct vhca_answer take(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	if (!in_order(flow, packet))
		return answer(VHCA_NAK_INVALID);
	switch (packet->operation) {
	case VHCA_READ_REQUEST:
		return too_many(flow) ? answer(VHCA_NAK_INVALID) : take_read(flow, packet);
	case VHCA_COMPARE_SWAP:
	case VHCA_FETCH_ADD:
		return too_many(flow) ? answer(VHCA_NAK_INVALID) : take_atomic(flow, packet);
	default: return take_data(flow, packet);
	}
}

/* ---- RC ---- */

/* PSNs that a request takes: a read's are those of its answer. */
static uint32_t psns_of(const struct vhca_flow *flow, const struct vhca_packet *packet)
{
	return packet->operation == VHCA_READ_REQUEST ? reply_packets(flow, packet->dma_length) : 1;
}

/* A request that cannot be: the responder's QP fails as well. */
static void fail_invalid(struct vhca_flow *flow)
{
	struct vhca_qp *qp = flow->qp;

	if (qp->state == IBV_QPS_ERR)
		return; /* and the program has been told why */
	vhca_event_async(&qp->async, IBV_EVENT_QP_REQ_ERR);
	vhca_qp_fail(qp);
}

static void expected(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	struct vhca_answer result;

	flow->answering = true;
	result = take(flow, packet);
	flow->answering = false;
	if (likely(result.kind == VHCA_ACK)) {
		flow->nak_sent = false;
		flow->expected_psn = vhca_psn_add(flow->expected_psn, psns_of(flow, packet));
		if (packet->ack_request && packet->parts & VHCA_HAS_PAYLOAD)
			vhca_flow_ack_due(flow);
		return;
	}
	if (result.kind == VHCA_SILENCE)
		return;
	flow->nak_sent = false;
	while (flow->replies_tail != flow->replies_head)
		vhca_flow_reply(flow); /* what is ahead is answered first */
	refuse(flow, syndrome_of(result), packet->psn);
	if (result.kind == VHCA_NAK_INVALID)
		fail_invalid(flow);
}

static void duplicate_atomic(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	for (uint32_t i = 0; i < VHCA_MAX_RD_ATOMIC; i++)
		if (flow->results[i].valid && flow->results[i].psn == packet->psn)
			owe(flow, packet, flow->results[i].original, true);
}

/* It was done before: sends and writes are acknowledged again, reads read again, and atomics
 * answered from memory. */
static void duplicate(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	uint32_t behind = vhca_psn_add(packet->psn, psns_of(flow, packet));

	vhca_counters_of(&flow->qp->object)->duplicate_request++;
	switch (packet->operation) {
	case VHCA_READ_REQUEST:
		if (packet->dma_length <= MAX_READ &&
			vhca_psn_ahead(behind, flow->expected_psn) <= 0)
			owe(flow, packet, 0, true);
		break;
	case VHCA_COMPARE_SWAP:
	case VHCA_FETCH_ADD: duplicate_atomic(flow, packet); break;
	default: vhca_flow_ack_due(flow);
	}
}

static void arrived_rc(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	int32_t ahead = vhca_psn_ahead(packet->psn, flow->expected_psn);

	if (likely(!ahead)) {
		expected(flow, packet);
		return;
	}
	if (ahead < 0) {
		duplicate(flow, packet);
		return;
	}
	vhca_counters_of(&flow->qp->object)->out_of_sequence++;
	refuse(flow, VHCA_AETH_NAK | VHCA_NAK_CODE_SEQUENCE, flow->expected_psn);
}

/* ---- UC ---- */

/* A message of which a packet is missing is dropped to its end; its receive WQE serves the next. */
static void arrived_uc(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	bool begins = packet->parts & VHCA_BEGINS;
	bool gap = packet->psn != flow->expected_psn;

	flow->expected_psn = vhca_psn_add(packet->psn, 1);
	if (gap)
		vhca_counters_of(&flow->qp->object)->out_of_sequence++;
	if (begins) {
		flow->broken = false;
		flow->current = 0;
		flow->received = 0;
	} else if (gap) {
		flow->broken = true;
	}
	if (flow->broken)
		return;
	if (take(flow, packet).kind != VHCA_ACK)
		flow->broken = true;
}

void vhca_flow_arrived(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	if (likely(flow->qp->type == IBV_QPT_RC))
		arrived_rc(flow, packet);
	else
		arrived_uc(flow, packet);
}
