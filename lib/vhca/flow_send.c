/* flow_send.c - RC's requester: messages cut along the path MTU, the window, what acknowledgements
 * complete, and going back where something was lost
 */

#include "vhca/flow.h"

enum {
	LEAST_WINDOW = 4,
	ACK_EVERY = 16,     /* packets within a message */
	LEAST_TIMEOUT = 12, /* the code of 17 ms: a ConnectX-5 takes none shorter */
	INFINITE_RNR = 7,
	HELD_NS = 1000 * 1000, /* while what has come waits for a receiver */
};

/* ---- requests ---- */

static struct vhca_request *request_at(const struct vhca_flow *flow, uint32_t i)
{
	return &flow->requests[i % VHCA_FLOW_REQUESTS];
}

static bool is_atomic(const struct vhca_request *request)
{
	return request->opcode == MLX5_OPCODE_ATOMIC_CS || request->opcode == MLX5_OPCODE_ATOMIC_FA;
}

/* An acknowledgement alone does not complete it. */
static bool wants_data(const struct vhca_request *request)
{
	return request->n_psn && (request->opcode == MLX5_OPCODE_RDMA_READ || is_atomic(request));
}

static uint32_t psn_behind(const struct vhca_request *request)
{
	return vhca_psn_add(request->psn, request->n_psn);
}

static uint8_t fault_of(const struct vhca_message *message)
{
	return unlikely(vhca_fault_any) ? message->fault : (uint8_t)VHCA_FAULT_NONE;
}

static uint32_t n_packets(const struct vhca_flow *flow, const struct vhca_message *message)
{
	if (message->opcode == MLX5_OPCODE_NOP || message->syndrome ||
		fault_of(message) == VHCA_FAULT_DROP)
		return 0;
	return message->length ? (message->length + flow->mtu - 1) / flow->mtu : 1;
}

static void append(struct vhca_flow *flow, const struct vhca_message *message, bool signalled)
{
	struct vhca_request *request = request_at(flow, flow->head++);

	*request = (struct vhca_request){
		.index = message->index,
		.opcode = message->opcode,
		.n_segments = message->n_segments,
		.signalled = signalled,
		.altered = fault_of(message) == VHCA_FAULT_ALTER,
		.syndrome = message->syndrome,
		.length = message->length,
		.psn = flow->next_psn,
		.n_psn = n_packets(flow, message),
	};
	flow->next_psn = psn_behind(request);
	flow->failing |= message->syndrome != 0;
}

/* All before it is done: it completes in error, what is behind it is flushed. */
static void fail_request(
	struct vhca_flow *flow, struct vhca_request *request, uint8_t syndrome, uint8_t vendor)
{
	struct vhca_request failed = *request;

	flow->tail = flow->head;
	vhca_requester_error(flow->qp, &failed, syndrome, vendor);
}

/* Completes what is done, in order. */
static void retire_all(struct vhca_flow *flow)
{
	while (flow->tail != flow->head) {
		struct vhca_request *request = request_at(flow, flow->tail);

		if (unlikely(request->syndrome)) {
			fail_request(flow, request, request->syndrome,
				vhca_vendor_of(request->syndrome));
			return;
		}
		if (vhca_psn_ahead(flow->done_psn, psn_behind(request)) < 0)
			return;
		if (flow->cursor == flow->tail)
			flow->cursor++;
		flow->tail++;
		vhca_requester_complete(flow->qp, request);
	}
}

static void retire(struct vhca_flow *flow)
{
	retire_all(flow);
	if (unlikely(flow->qp->draining))
		vhca_qp_drain(flow->qp);
}

/* ---- sending ---- */

static bool room(const struct vhca_flow *flow, const struct vhca_request *request)
{
	if (vhca_psn_ahead(flow->sent_psn, flow->done_psn) >= (int32_t)flow->window)
		return false;
	return !wants_data(request) ||
		flow->reads_head - flow->reads_tail < max(1u, flow->qp->set.max_rd_atomic);
}

static void note_read(struct vhca_flow *flow, uint32_t behind)
{
	flow->reads[flow->reads_head++ % VHCA_MAX_RD_ATOMIC] = behind;
}

static struct vhca_packet packet_of(const struct vhca_flow *flow, uint8_t operation)
{
	return (struct vhca_packet){
		.transport = VHCA_TRANSPORT_RC,
		.operation = operation,
		.psn = flow->sent_psn,
	};
}

/* Where SEND_FIRST and WRITE_FIRST stand, the others follow in the same order. */
static uint8_t place_in_message(bool first, bool last, bool imm)
{
	uint8_t place = first && last ? VHCA_SEND_ONLY
		: first               ? VHCA_SEND_FIRST
		: last                ? VHCA_SEND_LAST
				      : VHCA_SEND_MIDDLE;

	return (uint8_t)(place + (last && imm));
}

void vhca_packet_of_message(const struct vhca_message *message, uint32_t k, uint32_t n_psn,
	uint32_t mtu, struct vhca_packet *packet)
{
	bool write = message->opcode == MLX5_OPCODE_RDMA_WRITE ||
		message->opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
	bool imm = message->opcode == MLX5_OPCODE_SEND_IMM ||
		message->opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
	bool last = k + 1 == n_psn;

	packet->operation = (uint8_t)((write ? VHCA_WRITE_FIRST : VHCA_SEND_FIRST) +
		place_in_message(!k, last, imm));
	packet->length = last ? message->length - k * mtu : mtu;
	packet->solicited = last && message->solicited;
	packet->imm = message->imm;
	packet->va = message->raddr;
	packet->rkey = message->rkey;
	packet->dma_length = message->length;
}

/* One packet of a send or write. */
static uint32_t send_data(struct vhca_flow *flow, const struct vhca_request *request,
	const struct vhca_message *message, uint32_t k)
{
	struct vhca_packet packet = packet_of(flow, 0);
	uint8_t *payload;

	vhca_packet_of_message(message, k, request->n_psn, flow->mtu, &packet);
	packet.ack_request = k + 1 == request->n_psn || k % ACK_EVERY == ACK_EVERY - 1;
	payload = vhca_wire_begin(flow, &packet);
	if (likely(payload != NULL)) {
		vhca_gather_part(payload, message, k * flow->mtu, packet.length);
		vhca_wire_end(flow->wire);
	}
	return 1;
}

/* A read as long as the answer may be; a longer one goes out as several, of which the responder
 * knows no better. Returns how many PSNs the answer has. */
static uint32_t send_read(struct vhca_flow *flow, const struct vhca_request *request,
	const struct vhca_message *message, uint32_t k)
{
	struct vhca_packet packet = packet_of(flow, VHCA_READ_REQUEST);
	/* Asked again from the middle, it ends where it did: the responder knows nothing beyond. */
	uint32_t n = min(request->n_psn - k, VHCA_READ_PACKETS - k % VHCA_READ_PACKETS);

	packet.ack_request = true;
	packet.va = message->raddr + (uint64_t)k * flow->mtu;
	packet.rkey = message->rkey;
	packet.dma_length = min(message->length - k * flow->mtu, n * flow->mtu);
	if (vhca_wire_begin(flow, &packet))
		vhca_wire_end(flow->wire);
	note_read(flow, vhca_psn_add(flow->sent_psn, n));
	return n;
}

static uint32_t send_atomic(struct vhca_flow *flow, const struct vhca_message *message)
{
	struct vhca_packet packet = packet_of(flow,
		message->opcode == MLX5_OPCODE_ATOMIC_CS ? VHCA_COMPARE_SWAP : VHCA_FETCH_ADD);

	packet.ack_request = true;
	packet.va = message->raddr;
	packet.rkey = message->rkey;
	packet.swap_add = message->swap_add;
	packet.compare = message->compare;
	if (vhca_wire_begin(flow, &packet))
		vhca_wire_end(flow->wire);
	note_read(flow, vhca_psn_add(flow->sent_psn, 1));
	return 1;
}

/* As many packets as there is room for; true: all of the request has been sent. */
static bool send_request(struct vhca_flow *flow, const struct vhca_request *request,
	const struct vhca_message *message)
{
	uint32_t k = vhca_psn_add(flow->sent_psn, -request->psn);

	while (k < request->n_psn) {
		uint32_t n;

		if (!room(flow, request))
			return false;
		if (request->opcode == MLX5_OPCODE_RDMA_READ)
			n = send_read(flow, request, message, k);
		else if (is_atomic(request))
			n = send_atomic(flow, message);
		else
			n = send_data(flow, request, message, k);
		if (vhca_psn_ahead(flow->high_psn, flow->sent_psn) > 0)
			flow->wire->retransmitted++;
		k += n;
		flow->sent_psn = vhca_psn_add(flow->sent_psn, n);
		if (vhca_psn_ahead(flow->sent_psn, flow->high_psn) > 0)
			flow->high_psn = flow->sent_psn;
	}
	return true;
}

/* What its WQE says by now: a registration may have gone since it was accepted. */
static const struct vhca_message *load(struct vhca_flow *flow, struct vhca_request *request)
{
	struct vhca_message *message;

	if (request->syndrome)
		return NULL;
	request->syndrome = vhca_requester_load(flow->qp, request->index, &message);
	message->fault = VHCA_FAULT_NONE;
	if (unlikely(request->altered) && !request->syndrome && !wants_data(request))
		vhca_fault_alter(message);
	if (!request->syndrome && n_packets(flow, message) != request->n_psn)
		request->syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	if (request->syndrome) {
		flow->failing = true;
		vhca_flow_ready(flow);
		return NULL;
	}
	return message;
}

static void arm(struct vhca_flow *flow)
{
	int code = max((int)flow->qp->set.timeout, (int)LEAST_TIMEOUT);

	if (flow->sent_psn == flow->done_psn || !flow->qp->set.timeout)
		vhca_flow_timer_stop(flow);
	else
		vhca_flow_timer_start(flow, VHCA_TIMER_ACK, 4096ull << code);
	flow->armed = flow->wire->last_poll;
}

void vhca_flow_send(struct vhca_flow *flow, const struct vhca_message *in_hand)
{
	if (flow->timer == VHCA_TIMER_RNR)
		return;
	while (flow->cursor != flow->head) {
		struct vhca_request *request = request_at(flow, flow->cursor);

		if (request->n_psn) {
			if (request->syndrome || !room(flow, request))
				break;
			if (!in_hand)
				in_hand = load(flow, request);
			if (!in_hand || !send_request(flow, request, in_hand))
				break;
		}
		in_hand = NULL;
		flow->cursor++;
	}
	if (flow->timer == VHCA_TIMER_NONE)
		arm(flow);
}

struct vhca_answer vhca_flow_request(struct vhca_flow *flow, const struct vhca_message *message)
{
	bool waits = message->fence && flow->reads_head != flow->reads_tail;

	if (flow->failing || flow->cursor != flow->head || waits ||
		flow->head - flow->tail >= VHCA_FLOW_REQUESTS - 1) { /* a fault may double it */
		flow->blocked = true;
		return (struct vhca_answer){.kind = VHCA_BUSY};
	}
	vhca_flow_start(flow);
	if (fault_of(message) == VHCA_FAULT_DOUBLE)
		append(flow, message, false);
	append(flow, message, message->signalled);
	vhca_flow_send(flow, message);
	if (request_at(flow, flow->head - 1)->n_psn == 0)
		vhca_flow_ready(flow); /* it may be done already */
	return (struct vhca_answer){.kind = VHCA_LATER};
}

/* The flow has been given something to do: it goes on, and so does a requester that waits. */
void vhca_flow_go_on(struct vhca_flow *flow)
{
	retire(flow);
	if (flow->qp->state != IBV_QPS_RTS && flow->qp->state != IBV_QPS_SQD)
		return;
	vhca_flow_send(flow, NULL);
	if (flow->blocked && !flow->failing && flow->cursor == flow->head) {
		flow->blocked = false;
		vhca_qp_activate(flow->qp);
	}
}

/* ---- answers ---- */

/* The next packet to send is `psn`, wherever it belongs. */
static void seek(struct vhca_flow *flow, uint32_t psn)
{
	flow->sent_psn = psn;
	flow->cursor = flow->tail;
	while (flow->cursor != flow->head &&
		vhca_psn_ahead(psn_behind(request_at(flow, flow->cursor)), psn) <= 0)
		flow->cursor++;
}

/* From there on all is sent again; reads and atomics there are not under way any more. */
static void send_again(struct vhca_flow *flow, uint32_t psn)
{
	seek(flow, psn);
	while (flow->reads_head != flow->reads_tail &&
		vhca_psn_ahead(flow->reads[(flow->reads_head - 1) % VHCA_MAX_RD_ATOMIC], psn) > 0)
		flow->reads_head--;
}

/* What was there has been lost: less at once from now on. */
static void go_back(struct vhca_flow *flow, uint32_t psn)
{
	send_again(flow, psn);
	flow->window = max(flow->window / 2, (uint32_t)LEAST_WINDOW);
	vhca_flow_ready(flow);
}

static void progress(struct vhca_flow *flow, uint32_t done)
{
	uint32_t n = vhca_psn_add(done, -flow->done_psn);

	flow->done_psn = done;
	if (vhca_psn_ahead(flow->sent_psn, done) < 0)
		seek(flow, done);
	while (flow->reads_tail != flow->reads_head &&
		vhca_psn_ahead(done, flow->reads[flow->reads_tail % VHCA_MAX_RD_ATOMIC]) >= 0)
		flow->reads_tail++;
	flow->window = min(flow->window + n, VHCA_MAX_WINDOW);
	flow->tries = flow->rnr_tries = 0;
	flow->since = 0;
	flow->gone_back = false;
	if (flow->timer != VHCA_TIMER_RNR)
		arm(flow);
	retire(flow); /* ahead of what the next packet brings: programs count on it */
	vhca_flow_ready(flow);
}

/* The oldest read or atomic that lacks data; NULL: there is none. */
static struct vhca_request *awaited(struct vhca_flow *flow)
{
	for (uint32_t i = flow->tail; i != flow->head; i++) {
		struct vhca_request *request = request_at(flow, i);

		if (wants_data(request) && vhca_psn_ahead(psn_behind(request), flow->done_psn) > 0)
			return request;
	}
	return NULL;
}

/* All before `end` has been answered, or the answer was lost: then it is asked for again, once
 * until something moves. */
static void acknowledge(struct vhca_flow *flow, uint32_t end)
{
	const struct vhca_request *request = awaited(flow);
	uint32_t limit = end;

	if (request && vhca_psn_ahead(end, request->psn) > 0)
		limit = vhca_psn_ahead(flow->done_psn, request->psn) > 0 ? flow->done_psn
									 : request->psn;
	if (vhca_psn_ahead(limit, flow->done_psn) > 0)
		progress(flow, limit);
	if (limit == end || flow->gone_back)
		return;
	vhca_counters_of(&flow->qp->object)->implied_nak_seq_err++;
	go_back(flow, flow->done_psn);
	flow->gone_back = true;
}

/* What is at the head of the line fails: all before it has completed. */
static void fail_head(struct vhca_flow *flow, uint8_t syndrome, uint8_t vendor)
{
	if (flow->tail != flow->head)
		fail_request(flow, request_at(flow, flow->tail), syndrome, vendor);
}

static void not_ready(struct vhca_flow *flow, uint32_t psn, uint8_t timer)
{
	const struct ibv_qp_attr *set = &flow->qp->set;

	vhca_counters_of(&flow->qp->object)->rnr_nak_retry_err++;
	if (set->rnr_retry != INFINITE_RNR && flow->rnr_tries >= set->rnr_retry) {
		fail_head(flow, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, VHCA_VENDOR_RNR);
		return;
	}
	flow->rnr_tries = (uint8_t)min(flow->rnr_tries + 1, INFINITE_RNR);
	send_again(flow, psn);
	vhca_flow_timer_start(flow, VHCA_TIMER_RNR, vhca_rnr_ns(timer));
}

static void refused(struct vhca_flow *flow, uint8_t code)
{
	struct vhca_counters *counters = vhca_counters_of(&flow->qp->object);

	switch (code) {
	case VHCA_NAK_CODE_SEQUENCE:
		counters->packet_seq_err++;
		go_back(flow, flow->done_psn);
		break;
	case VHCA_NAK_CODE_INVALID:
		fail_head(flow, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, VHCA_VENDOR_REMOTE);
		break;
	case VHCA_NAK_CODE_ACCESS:
		fail_head(flow, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, VHCA_VENDOR_REMOTE);
		break;
	default: fail_head(flow, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, VHCA_VENDOR_REMOTE);
	}
}

static void acknowledged(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	uint8_t value = packet->syndrome & VHCA_AETH_VALUE;

	switch (packet->syndrome & VHCA_AETH_KIND) {
	case VHCA_AETH_ACK: acknowledge(flow, vhca_psn_add(packet->psn, 1)); break;
	case VHCA_AETH_RNR:
		acknowledge(flow, packet->psn);
		if (flow->done_psn == packet->psn && flow->tail != flow->head)
			not_ready(flow, packet->psn, value);
		break;
	case VHCA_AETH_NAK:
		acknowledge(flow, packet->psn);
		if (flow->done_psn == packet->psn)
			refused(flow, value);
		break;
	default: vhca_wire_drop(flow->wire, VHCA_DROP_STALE_ANSWER);
	}
}

/* The request whose data a response brings, when it is the very next of it. */
static struct vhca_request *answers(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	struct vhca_request *request;

	acknowledge(flow, packet->psn);
	request = awaited(flow);
	if (flow->done_psn != packet->psn || !request ||
		vhca_psn_ahead(request->psn, packet->psn) > 0)
		return NULL;
	return is_atomic(request) == (packet->operation == VHCA_ATOMIC_ACKNOWLEDGE) ? request
										    : NULL;
}

/* What goes into the CQE waits for it. */
static void keep_answer(struct vhca_request *request, const struct vhca_message *message)
{
	request->answered = message->answer != NULL;
	if (request->answered)
		memcpy(request->answer, message->answer, sizeof(request->answer));
}

static void read_data(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	struct vhca_request *request = answers(flow, packet);
	uint32_t offset = request ? vhca_psn_add(packet->psn, -request->psn) * flow->mtu : 0;
	const struct vhca_message *message;

	if (!request || packet->length != min(request->length - offset, flow->mtu)) {
		vhca_wire_drop(flow->wire, VHCA_DROP_STALE_ANSWER);
		return;
	}
	message = load(flow, request);
	if (!message)
		return;
	vhca_scatter_part(message, offset, packet->payload, packet->length);
	if (unlikely(request->altered) && !offset)
		vhca_fault_alter_brought(message);
	keep_answer(request, message);
	progress(flow, vhca_psn_add(packet->psn, 1));
}

static void atomic_data(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	struct vhca_request *request = answers(flow, packet);
	const struct vhca_message *message = request ? load(flow, request) : NULL;

	if (!message) {
		vhca_wire_drop(flow->wire, VHCA_DROP_STALE_ANSWER);
		return;
	}
	vhca_scatter_part(message, 0, (const uint8_t *)&packet->original, sizeof(packet->original));
	if (unlikely(request->altered))
		vhca_fault_alter_brought(message);
	keep_answer(request, message);
	progress(flow, vhca_psn_add(packet->psn, 1));
}

/* An answer is to something that has been sent and not answered before. */
static bool plausible(const struct vhca_flow *flow, const struct vhca_packet *packet)
{
	return flow->tail != flow->head && vhca_psn_ahead(packet->psn, flow->done_psn) >= 0 &&
		vhca_psn_ahead(packet->psn, flow->high_psn) < 0;
}

void vhca_flow_answered(struct vhca_flow *flow, const struct vhca_packet *packet)
{
	if (!plausible(flow, packet)) {
		if (packet->operation != VHCA_ACKNOWLEDGE) /* which may come twice, or late */
			vhca_wire_drop(flow->wire, VHCA_DROP_STALE_ANSWER);
		return;
	}
	switch (packet->operation) {
	case VHCA_ACKNOWLEDGE: acknowledged(flow, packet); break;
	case VHCA_ATOMIC_ACKNOWLEDGE: atomic_data(flow, packet); break;
	default: read_data(flow, packet);
	}
}

/* ---- timers ---- */

/* Whether the peer's process has read what came to it since the timer runs: it has answered other
 * flows. */
static bool peer_runs(const struct vhca_flow *flow)
{
	const struct vhca_link *flows = &flow->wire->flows;

	for (const struct vhca_link *link = flows->next; link != flows; link = link->next) {
		const struct vhca_flow *other =
			container_of(link, const struct vhca_flow, in_flows);

		if (other->heard > flow->armed && !memcmp(other->route.dest, flow->route.dest, 16))
			return true;
	}
	return false;
}

/* A device answers whatever its host's processors do. Here a process without a core does not, so
 * that as long as its packets wait in its socket they are not lost. No process waits for ever: one
 * that is stopped for too long counts as gone. */
static enum vhca_backlog waits_at_peer(struct vhca_flow *flow)
{
	struct vhca_carrier *carrier = flow->wire->carrier;

	if (!flow->since)
		flow->since = flow->armed;
	if (!carrier->ops->backlog || peer_runs(flow) ||
		clock_cycles() - flow->since > flow->wire->stopped_cycles)
		return VHCA_BACKLOG_NONE;
	return carrier->ops->backlog(carrier, &flow->route);
}

/* The answer may have come before the deadline, and this process not have had a core to read it. */
static bool look_once_more(struct vhca_flow *flow)
{
	if (flow->overdue && !flow->wire->wire.held)
		return false;
	vhca_flow_timer_start(flow, VHCA_TIMER_ACK, flow->overdue ? HELD_NS : 0);
	flow->overdue = true;
	return true;
}

void vhca_flow_timeout(struct vhca_flow *flow)
{
	enum vhca_backlog backlog;

	if (flow->timer == VHCA_TIMER_RNR) {
		vhca_flow_timer_stop(flow);
		vhca_flow_ready(flow);
		return;
	}
	if (look_once_more(flow))
		return;
	vhca_flow_timer_stop(flow);
	backlog = waits_at_peer(flow);
	if (backlog == VHCA_BACKLOG_FULL) {
		arm(flow);
		return;
	}
	vhca_counters_of(&flow->qp->object)->local_ack_timeout_err++;
	if (backlog == VHCA_BACKLOG_NONE && flow->tries++ >= flow->qp->set.retry_cnt) {
		fail_head(flow, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, VHCA_VENDOR_RETRY);
		return;
	}
	go_back(flow, flow->done_psn);
	flow->gone_back = false;
}
