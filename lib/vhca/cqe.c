/* cqe.c - writes CQEs of 64 and 128 bytes, compressed too; overrun, arm and events */

#include "vhca/device.h"
#include "vhca/trace.h"

#include <stdlib.h>

enum {
	CQES_AHEAD = 4, /* fetched for writing, as the program's core has them */
	MINI_CQES = 8,  /* to an array, which takes a slot */
	MAX_SESSION = 64,
	COMPRESSED = 3 << 2, /* in op_own's format */
	VLAN_PRESENT = 1,    /* in l4_hdr_type_etc */
};

/* A CQE but for its last word, which makes it the program's. */
struct body {
	union {
		struct mlx5_cqe64 cqe;
		struct mlx5_err_cqe error;
		struct vhca_raw_cqe raw;
		uint8_t bytes[64];
	};
};

static void overrun(struct vhca_cq *cq, struct vhca_qp *qp)
{
	vhca_rule_cq_overrun(cq, qp);
	cq->dead = true;
	vhca_event_async(&cq->async, IBV_EVENT_CQ_ERR);
}

/* A completion is lost, and with it its queue pair: at the end of the sweep, as whoever completes
 * something here is in the middle of its queues. */
static cold bool no_room(struct vhca_cq *cq, struct vhca_qp *qp)
{
	if (!cq->dead)
		overrun(cq, qp);
	if (qp && qp->state != IBV_QPS_ERR) {
		vhca_list_remove(&qp->in_unreported);
		vhca_list_add(&qp->tables->unreported, &qp->in_unreported);
	}
	return false;
}

/* The consumer index is read only when the ring looks full by the one read before. */
static bool has_room(struct vhca_cq *cq, struct vhca_qp *qp)
{
	uint32_t pi = cq->pi + cq->held, record;

	if (likely(pi - cq->ci <= cq->mask))
		return likely(!cq->dead) || no_room(cq, qp);
	record = vhca_record_read(&cq->db[0]);
	cq->ci = pi - ((pi - record) & 0xffffff);
	/* A device looks at as many bits as the ring has: some programs count only 16 (DPDK does). */
	if (pi - cq->ci > cq->mask && record <= UINT16_MAX && cq->mask < UINT16_MAX / 2)
		cq->ci = pi - ((pi - record) & UINT16_MAX);
	if (likely(pi - cq->ci <= cq->mask))
		return likely(!cq->dead) || no_room(cq, qp);
	return cq->ignore_overrun || no_room(cq, qp);
}

/* ---- events ---- */

static void fire(struct vhca_cq *cq)
{
	cq->fired_sn = (uint8_t)(4 | (cq->arm_seen >> 28 & 3));
	cq->arm = VHCA_UNARMED;
	cq->event_pi = cq->pi;
	cq->event_deadline = 0;
	vhca_list_remove(&cq->in_moderated);
	vhca_event_completion(cq);
}

void vhca_cq_period_over(struct vhca_cq *cq)
{
	fire(cq);
}

/* There is something to tell, at once or when moderation lets it. */
static noinline void tell(struct vhca_cq *cq)
{
	bool moderated = cq->event_count > 1 || cq->event_period;

	if (!moderated || (cq->event_count && cq->pi - cq->event_pi >= cq->event_count)) {
		fire(cq);
	} else if (cq->event_period && !cq->event_deadline) {
		cq->event_deadline = vhca_deadline(cq->event_period * 1000ull);
		vhca_list_add(&vhca_tables_of(&cq->object)->moderated, &cq->in_moderated);
	}
}

/* ---- CQEs ---- */

/* False: it is to be written all the same. */
static noinline bool unusual(struct vhca_cq *cq, const struct body *body, uint16_t wqe_counter,
	uint8_t op_own, bool solicited)
{
	struct vhca_cqe cqe = {
		.wqe_counter = wqe_counter, .op_own = op_own, .solicited = solicited};

	memcpy(cqe.body, body, sizeof(cqe.body));
	if (vhca_late_any && !cq->writing_late && vhca_late_put(cq, &cqe))
		return true;
	if (vhca_trace_on)
		vhca_trace_cqe(cq, body, op_own, wqe_counter, cq->pi);
	return false;
}

/* The body first, then the word with the owner bit: pairs with owner_before_body() of who polls. */
static force_inline void publish(struct vhca_cq *cq, uint8_t *slot, const struct body *body,
	uint16_t wqe_counter, uint8_t op_own, bool solicited)
{
	uint32_t owner = (cq->pi >> log2_floor((uint64_t)cq->mask + 1)) & 1;
	uint32_t last = (uint32_t)htobe16(wqe_counter) |
		htobe32((uint32_t)op_own | (solicited ? 2u : 0) | owner);

	if (unlikely(vhca_late_any | vhca_trace_on) &&
		unusual(cq, body, wqe_counter, op_own, solicited))
		return;
	vhca_memory_write(slot, body, 60);
	vhca_publish(slot + 60, last);
	cq->pi++;
	if (solicited)
		cq->solicited_pi = cq->pi;
	if (unlikely(cq->arm != VHCA_UNARMED) && (cq->arm == VHCA_ARMED || solicited))
		tell(cq);
}

/* The CQE64 part of a slot; in a CQE of 128 bytes it is the second half. */
static force_inline uint8_t *slot_at(const struct vhca_cq *cq, uint32_t index)
{
	return cq->buf + ((size_t)(index & cq->mask) << cq->log2_size) +
		(cq->log2_size == 7 ? 64 : 0);
}

static force_inline uint8_t *next_slot(const struct vhca_cq *cq)
{
	return slot_at(cq, cq->pi);
}

uint8_t *vhca_cqe_slot(const struct vhca_cq *cq, uint32_t index)
{
	return slot_at(cq, index);
}

/* One that late.c has kept. */
void vhca_cqe_write(struct vhca_cq *cq, const struct vhca_cqe *cqe)
{
	struct body body;

	if (!has_room(cq, NULL))
		return;
	memcpy(&body, cqe->body, sizeof(body));
	cq->writing_late = true;
	publish(cq, next_slot(cq), &body, cqe->wqe_counter, cqe->op_own, cqe->solicited);
	cq->writing_late = false;
}

/* ---- compression ----
 *
 * A session stands for CQEs of one queue pair: of receives that differ in nothing but length, and
 * whose WQEs follow one another; or of requests, each with its WQE, opcode and length. Its first
 * slot has the title, a CQE with the session's length where its byte count was; arrays of mini CQEs
 * lie 1, 8, 16 and so on behind it, all before the ring's end, and what lies between is not written. A session is held while
 * the device goes on finding work, and not beyond.
 */

struct mini_cqe {
	/* Of a raw frame its hash, or its sum and, if asked for, its stride; of another receive 0. Of
	 * a request its WQE's counter above its opcode. */
	__be32 info;
	__be32 byte_cnt;
};

struct vhca_session {
	struct body title;
	uint16_t wqe_counter;
	uint16_t next_counter; /* that goes on with the session */
	uint8_t opcode;        /* of the CQE: a plain receive or a request */
	struct mini_cqe mini[MAX_SESSION];
};

int vhca_session_create(struct vhca_cq *cq)
{
	cq->session = calloc(1, sizeof(*cq->session));
	return cq->session ? 0 : ENOMEM;
}

static void session_write_arrays(const struct vhca_cq *cq)
{
	for (uint32_t i = 0; i < cq->held; i += MINI_CQES)
		vhca_memory_write(slot_at(cq, cq->pi + max(i, 1u)), &cq->session->mini[i],
			MINI_CQES * sizeof(struct mini_cqe));
}

static void session_end(struct vhca_cq *cq)
{
	struct vhca_session *session = cq->session;
	uint32_t n = cq->held;

	if (!n)
		return;
	vhca_list_remove(&cq->in_sessions);
	if (n > 1) {
		session_write_arrays(cq);
		session->title.cqe.byte_cnt = be32(n);
	}
	cq->held = 0;
	publish(cq, next_slot(cq), &session->title, session->wqe_counter,
		(uint8_t)(session->opcode << 4 | (n > 1 ? COMPRESSED : 0)), false);
	cq->pi += n - 1;
}

void vhca_sessions_end(struct vhca_tables *tables)
{
	while (!vhca_list_empty(&tables->sessions))
		session_end(container_of(tables->sessions.next, struct vhca_cq, in_sessions));
}

/* What a receive's mini CQE does not say is the title's: from where it came, its kind, its tag, its
 * queue, and, of a striding queue, its WQE. */
static bool same_kind(const struct body *body, const struct body *title)
{
	const struct vhca_raw_cqe *a = &body->raw, *b = &title->raw;

	return a->wqe_id == b->wqe_id && a->hash_type == b->hash_type &&
		body->cqe.flags_rqpn == title->cqe.flags_rqpn && a->ok == b->ok &&
		a->types == b->types && a->vlan_info == b->vlan_info && a->uidx == b->uidx;
}

static bool session_fits(
	const struct vhca_cq *cq, const struct body *body, uint8_t opcode, uint16_t wqe_counter)
{
	const struct vhca_session *session = cq->session;
	const struct mlx5_cqe64 *title = &session->title.cqe, *cqe = &body->cqe;

	if (cq->held == MAX_SESSION || !((cq->pi + cq->held) & cq->mask) ||
		opcode != session->opcode ||
		((cqe->sop_drop_qpn ^ title->sop_drop_qpn) & be32(0xffffff)))
		return false;
	return opcode == MLX5_CQE_REQ ||
		(wqe_counter == session->next_counter && same_kind(body, &session->title));
}

static __be32 mini_info(
	const struct vhca_cq *cq, const struct body *body, uint8_t opcode, uint16_t wqe_counter)
{
	bool has_stride = cq->attr.compress_format == MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX;

	if (opcode == MLX5_CQE_REQ)
		return be32((uint32_t)wqe_counter << 16 |
			(from_be32(body->cqe.sop_drop_qpn) >> 24) << 8);
	if (cq->attr.compress_format == MLX5DV_CQE_RES_FORMAT_HASH)
		return body->raw.hash;
	return be32((uint32_t)from_be16(body->raw.sum) << 16 | (has_stride ? wqe_counter : 0u));
}

/* Takes a CQE into the session, or ends it and says false. An armed CQ tells of each CQE as it
 * comes, and one that comes late comes alone. */
static noinline bool session_take(struct vhca_cq *cq, const struct body *body, uint8_t opcode,
	uint16_t wqe_counter, uint16_t n_counted, bool plain)
{
	struct vhca_session *session = cq->session;
	struct mini_cqe *mini;

	plain = plain && cq->arm == VHCA_UNARMED && !vhca_late_any;
	if (!plain || (cq->held && !session_fits(cq, body, opcode, wqe_counter)))
		session_end(cq);
	if (!plain)
		return false;
	if (!cq->held) {
		memset(session->mini, 0, sizeof(session->mini));
		session->title = *body;
		session->wqe_counter = wqe_counter;
		session->opcode = opcode;
		vhca_list_add(&vhca_tables_of(&cq->object)->sessions, &cq->in_sessions);
	}
	mini = &session->mini[cq->held++];
	mini->byte_cnt = body->cqe.byte_cnt;
	mini->info = mini_info(cq, body, opcode, wqe_counter);
	session->next_counter = (uint16_t)(wqe_counter + n_counted);
	return true;
}

/* ---- each kind ---- */

void vhca_cqe_request(struct vhca_qp *qp, uint8_t opcode, uint16_t wqe_counter, uint32_t length,
	const uint8_t *answer)
{
	struct vhca_cq *cq = qp->send_cq;
	struct body body = {.bytes = {0}};
	uint8_t op_own = MLX5_CQE_REQ << 4;

	if (unlikely(!has_room(cq, qp)))
		return;
	body.cqe.srqn_uidx = be32(qp->uidx);
	body.cqe.byte_cnt = be32(length);
	body.cqe.timestamp = be64(vhca_ticks);
	body.cqe.sop_drop_qpn = be32((uint32_t)opcode << 24 | qp->number);
	if (unlikely(cq->session != NULL) &&
		session_take(cq, &body, MLX5_CQE_REQ, wqe_counter, 1, !answer))
		return;
	if (unlikely(answer != NULL)) {
		memcpy(body.bytes, answer, length);
		op_own |= MLX5_INLINE_SCATTER_32;
	}
	publish(cq, next_slot(cq), &body, wqe_counter, op_own, false);
}

void vhca_gather(uint8_t *to, const struct vhca_message *message)
{
	for (uint32_t i = 0; i < message->n_sge; i++) {
		vhca_memory_read(to, message->sge[i].addr, message->sge[i].length);
		to += message->sge[i].length;
	}
}

/* `n` bytes of the message from `offset` on. */
void vhca_gather_part(uint8_t *to, const struct vhca_message *message, uint32_t offset, uint32_t n)
{
	for (uint32_t i = 0; n; i++) {
		const struct vhca_sge *sge = &message->sge[i];
		uint32_t part;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		part = min(sge->length - offset, n);
		vhca_memory_read(to, sge->addr + offset, part);
		to += part;
		n -= part;
		offset = 0;
	}
}

void vhca_scatter_part(
	const struct vhca_message *message, uint32_t offset, const uint8_t *from, uint32_t n)
{
	for (uint32_t i = 0; n; i++) {
		const struct vhca_sge *sge = &message->sge[i];
		uint32_t part;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		part = min(sge->length - offset, n);
		vhca_memory_write(sge->addr + offset, from, part);
		from += part;
		n -= part;
		offset = 0;
	}
}

/* The first half of a CQE of 64 bytes, or of one of 128. */
static uint8_t scatter_inline(const struct vhca_cq *cq, uint8_t *slot, struct body *body,
	const struct vhca_message *message)
{
	if (cq->log2_size == 6) {
		vhca_gather(body->bytes, message);
		return MLX5_INLINE_SCATTER_32;
	}
	vhca_gather(slot - 64, message);
	return MLX5_INLINE_SCATTER_64;
}

void vhca_cqe_receive(struct vhca_qp *qp, const struct vhca_received *received)
{
	struct vhca_cq *cq = qp->recv_cq;
	struct body body = {.bytes = {0}};
	uint8_t op_own = (uint8_t)(received->opcode << 4);
	uint8_t *slot;

	if (unlikely(!has_room(cq, qp)))
		return;
	__builtin_prefetch(
		cq->buf + ((size_t)((cq->pi + CQES_AHEAD) & cq->mask) << cq->log2_size), 1);
	body.cqe.flags_rqpn = be32(received->source_qpn);
	body.cqe.l4_hdr_type_etc = received->tag ? VLAN_PRESENT : 0;
	body.cqe.vlan_info = be16(received->tag);
	body.cqe.srqn_uidx = be32(qp->uidx);
	body.cqe.imm_inval_pkey = received->imm;
	body.cqe.byte_cnt = be32(received->length);
	body.cqe.timestamp = be64(vhca_ticks);
	body.cqe.sop_drop_qpn = be32(qp->number);
	if (unlikely(cq->session != NULL) &&
		session_take(cq, &body, received->opcode, received->wqe_counter, 1,
			received->opcode == MLX5_CQE_RESP_SEND && !received->inlined &&
				!received->solicited))
		return;
	slot = next_slot(cq);
	if (received->inlined)
		op_own |= scatter_inline(cq, slot, &body, received->inlined);
	publish(cq, slot, &body, received->wqe_counter, op_own, received->solicited);
}

void vhca_cqe_raw(
	struct vhca_qp *queue, struct vhca_raw_cqe *cqe, uint16_t wqe_counter, uint16_t n_counted)
{
	struct vhca_cq *cq = queue->recv_cq;
	struct body body;

	if (unlikely(!has_room(cq, queue)))
		return;
	__builtin_prefetch(
		cq->buf + ((size_t)((cq->pi + CQES_AHEAD) & cq->mask) << cq->log2_size), 1);
	cqe->uidx = be32(queue->uidx);
	cqe->timestamp = be64(vhca_ticks);
	body.raw = *cqe;
	if (unlikely(cq->session != NULL) &&
		session_take(cq, &body, MLX5_CQE_RESP_SEND, wqe_counter, n_counted, true))
		return;
	publish(cq, next_slot(cq), &body, wqe_counter, MLX5_CQE_RESP_SEND << 4, false);
}

static void count_error(const struct vhca_qp *qp, uint8_t opcode, uint8_t syndrome)
{
	struct vhca_counters *counters = vhca_counters_of(&qp->object);
	bool flushed = syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR;

	if (opcode == MLX5_CQE_REQ_ERR) {
		counters->req_cqe_error++;
		counters->req_cqe_flush_error += flushed;
		counters->req_remote_access_errors +=
			syndrome == MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
		counters->req_remote_invalid_request +=
			syndrome == MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
	} else {
		counters->resp_cqe_error++;
		counters->resp_cqe_flush_error += flushed;
		counters->resp_local_length_error += syndrome == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
	}
}

void vhca_cqe_error(struct vhca_qp *qp, uint8_t opcode, uint8_t syndrome, uint8_t vendor,
	uint8_t wqe_opcode, uint16_t wqe_counter)
{
	struct vhca_cq *cq = opcode == MLX5_CQE_REQ_ERR ? qp->send_cq : qp->recv_cq;
	struct body body = {.bytes = {0}};

	count_error(qp, opcode, syndrome);
	if (unlikely(!has_room(cq, qp)))
		return;
	session_end(cq);
	body.error.srqn = htobe32(qp->uidx);
	body.error.vendor_err_synd = vendor;
	body.error.syndrome = syndrome;
	body.error.s_wqe_opcode_qpn = htobe32((uint32_t)wqe_opcode << 24 | qp->number);
	publish(cq, next_slot(cq), &body, wqe_counter, (uint8_t)(opcode << 4), true);
}

/* The last CQE of the old ring; it counts, so that the new ring goes on one further. */
void vhca_cqe_resize(struct vhca_cq *cq)
{
	struct body body = {.bytes = {0}};

	session_end(cq);
	publish(cq, next_slot(cq), &body, 0, MLX5_CQE_RESIZE_CQ << 4, false);
}

/* The number moves on when the program has read the event. Until then it may well arm again, with the
 * old one; and so may a record that it wrote before, and that is seen only now. */
static cold void armed_as_before(struct vhca_cq *cq, uint32_t record)
{
	if (vhca_events_unread(&cq->completions))
		return;
	if (cq->arm_behind)
		vhca_rule_report(VHCA_RULE_ARM_SEQUENCE, NULL, cq->number, "cmd_sn",
			record >> 28 & 3, ((record >> 28) + 1) & 3);
	cq->arm_behind = true;
}

/* The record says sequence number, kind and consumer index. One that was acted upon arms no second
 * time: the sequence number moves on when the program takes the event. */
void vhca_cq_arm(struct vhca_cq *cq)
{
	uint32_t record = vhca_record_read(&cq->db[1]);
	uint32_t latest;

	if (record == cq->arm_seen)
		return;
	cq->arm_seen = record;
	if (unlikely(vhca_trace_on))
		vhca_trace_arm(cq, record);
	if (unlikely(cq->fired_sn && (record >> 28 & 3) == (cq->fired_sn & 3)))
		armed_as_before(cq, record);
	else
		cq->arm_behind = false;
	cq->arm = record & MLX5_CQ_DB_REQ_NOT_SOL ? VHCA_ARMED_SOLICITED : VHCA_ARMED;
	latest = cq->arm == VHCA_ARMED ? cq->pi : cq->solicited_pi;
	if (((latest - record) & 0xffffff) - 1 < 0x7fffff &&
		latest - cq->event_pi - 1 < 0x7fffffff) /* and it has not been told */
		tell(cq);
}
