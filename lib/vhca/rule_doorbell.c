/* rule_doorbell.c - records and doorbells: which queue a doorbell stands for, and whether its
 * record says the same
 *
 * A register keeps one value, so that of two doorbells between two sweeps only the later is seen.
 * The records of all queues that ring there are read therefore; a queue is taken to ring where a
 * doorbell of its own was seen first. Where the UAR page is trapped (trap.c) every doorbell is seen
 * by itself, and only the queue that it names has its record read.
 */

#include "vhca/device.h"
#include "vhca/trace.h"

enum { NO_REGISTER = 0 }; /* qp->rings_at before its first doorbell */

/* ---- records ---- */

static uint32_t ahead(uint32_t record, uint16_t of)
{
	return (uint16_t)(record - of);
}

/* Whether the record would be right, 1 to `room` ahead, only with its bytes in the other order:
 * of all four, or of the two that count. */
static bool only_swapped(uint32_t record, uint16_t from, uint32_t room, uint32_t *meant)
{
	uint32_t all = __builtin_bswap32(record), low = __builtin_bswap16((uint16_t)record);

	if (ahead(record, from) && ahead(record, from) <= room)
		return false;
	*meant = record >> 16 ? all : low;
	return *meant <= UINT16_MAX && ahead(*meant, from) && ahead(*meant, from) <= room;
}

/* What is wrong with a send record that is not plain; true where the QP is to fail for it. */
static cold bool send_record_wrong(struct vhca_qp *qp, uint32_t record, bool *told)
{
	uint32_t room = qp->sq_mask + 1, meant;

	*told = true;
	if (only_swapped(record, qp->sq_ci, room, &meant))
		return vhca_rule_report(
			VHCA_RULE_RECORD_ORDER, qp, qp->sq_ci, "send record", record, meant);
	if (ahead(record, qp->sq_ci) > room)
		return vhca_rule_report(VHCA_RULE_SEND_RECORD, qp, qp->sq_ci, "record",
			(uint16_t)record, (uint16_t)(qp->sq_ci + room));
	if (ahead(record, qp->sq_done) > room)
		return vhca_rule_report(VHCA_RULE_SLOT_REUSE, qp, qp->sq_done, "record",
			(uint16_t)record, (uint16_t)(qp->sq_done + room));
	*told = false; /* a counter of more than 16 bits, of which 16 count */
	return false;
}

/* Reads the record and sets to work; true where something was wrong with it. */
static force_inline bool read_send_record(struct vhca_qp *qp)
{
	bool told = false;
	uint32_t record;

	if (!qp->attr.sq_wqe_count || qp->state < IBV_QPS_RTS)
		return false;
	record = vhca_record_read(&qp->db[1]);
	if (unlikely(record >> 16 || ahead(record, qp->sq_done) > qp->sq_mask + 1) &&
		send_record_wrong(qp, record, &told))
		vhca_qp_fail(qp);
	if ((uint16_t)record != qp->sq_pi) {
		qp->sq_pi = (uint16_t)record;
		if (unlikely(vhca_trace_on))
			vhca_trace_send_record(qp, (uint16_t)record);
		vhca_qp_activate(qp);
	}
	return told;
}

void vhca_rule_receive_record(struct vhca_qp *qp, uint32_t record)
{
	uint32_t room = qp->rq_mask + 1, meant;
	bool fails = false;

	if (only_swapped(record, qp->rq_ci, room, &meant))
		fails = vhca_rule_report(
			VHCA_RULE_RECORD_ORDER, qp, qp->rq_ci, "receive record", record, meant);
	else if (ahead(record, qp->rq_ci) > room)
		fails = vhca_rule_report(VHCA_RULE_RECEIVE_RECORD, qp, qp->rq_ci, "record",
			(uint16_t)record, (uint16_t)(qp->rq_ci + room));
	if (fails)
		vhca_qp_fail(qp);
}

void vhca_rule_srq_record(struct vhca_qp *qp, uint32_t record)
{
	struct vhca_srq *srq = qp->srq;
	bool fails = false;
	uint32_t meant;

	if (only_swapped(record, srq->taken, srq->n_wqe, &meant))
		fails = vhca_rule_report(
			VHCA_RULE_RECORD_ORDER, qp, srq->taken, "SRQ record", record, meant);
	else if (ahead(record, srq->taken) > srq->n_wqe)
		fails = vhca_rule_report(VHCA_RULE_SRQ_RECORD, qp, srq->taken, "record",
			(uint16_t)record, (uint16_t)(srq->taken + srq->n_wqe));
	if (fails)
		vhca_qp_fail(qp);
}

void vhca_rule_srq_link(struct vhca_qp *qp, uint16_t index, uint16_t next)
{
	if (vhca_rule_report(VHCA_RULE_SRQ_LINK, qp, index, "next_wqe_index", next,
		    next & (qp->srq->n_wqe - 1)))
		vhca_qp_fail(qp);
}

void vhca_rule_cq_overrun(struct vhca_cq *cq, struct vhca_qp *qp)
{
	uint32_t record = vhca_record_read(&cq->db[0]), other = __builtin_bswap32(record);

	if (other <= 0xffffff && ((cq->pi - other) & 0xffffff) <= cq->mask)
		vhca_rule_report(
			VHCA_RULE_RECORD_ORDER, qp, cq->pi, "consumer index", record, other);
	else
		vhca_rule_report(VHCA_RULE_CQ_OVERRUN, qp, cq->pi, "consumer index", cq->ci,
			cq->pi - cq->mask);
}

/* ---- doorbells of send queues ---- */

/* The two halves of a BlueFlame register take turns; 1 and up. */
static uint8_t register_of(unsigned int at)
{
	return (uint8_t)(1 + (at - MLX5_CQ_DOORBELL) / 0x200);
}

struct doorbell {
	uint32_t number; /* of the QP */
	uint16_t index, end;
};

static struct doorbell doorbell_of(uint64_t value)
{
	uint32_t n_segments;
	struct doorbell bell;
	__be32 words[2];

	memcpy(words, &value, sizeof(words));
	n_segments = from_be32(words[1]) & 0x3f;
	bell.number = from_be32(words[1]) >> 8;
	bell.index = (uint16_t)(from_be32(words[0]) >> 8);
	bell.end = (uint16_t)(bell.index + max(1u, (n_segments + 3) / 4));
	return bell;
}

/* The QP that is named, if it may ring here. */
static struct vhca_qp *named(struct vhca_page *page, const struct doorbell *bell)
{
	struct vhca_qp *qp = vhca_find_qp(page->uar.object.context->device, bell->number);

	return qp && qp->page == page && qp->attr.sq_wqe_count ? qp : NULL;
}

/* The WQE that is rung for is not within the record. */
static cold void not_covered(struct vhca_qp *qp, const struct doorbell *bell, uint16_t record)
{
	uint16_t receive = (uint16_t)vhca_record_read(&qp->db[0]);
	enum vhca_rule rule = vhca_trapped ? VHCA_RULE_RECORD_FIRST : VHCA_RULE_DOORBELL_RECORD;

	if (receive == bell->end)
		rule = VHCA_RULE_RECORD_SLOT;
	if (vhca_rule_report(rule, qp, bell->index, "send record", record, bell->end))
		vhca_qp_fail(qp);
}

/* Where every store is seen, the WQE that is rung for is the last one of the record. */
static cold void not_the_last(struct vhca_qp *qp, const struct doorbell *bell)
{
	if (vhca_rule_report(VHCA_RULE_DOORBELL_VALUE, qp, bell->index, "end of the WQE", bell->end,
		    qp->sq_pi))
		vhca_qp_fail(qp);
}

static void ring_named(struct vhca_qp *qp, const struct doorbell *bell)
{
	uint16_t before = qp->sq_pi;

	if (unlikely(qp->state < IBV_QPS_RTS)) {
		if (qp->state != IBV_QPS_RESET &&
			vhca_rule_report(VHCA_RULE_SEND_STATE, qp, bell->index, "state", qp->state,
				IBV_QPS_RTS))
			vhca_qp_fail(qp);
		return;
	}
	if (unlikely(read_send_record(qp)))
		return;
	if (unlikely(vhca_trapped && bell->end != qp->sq_pi &&
		    ahead(qp->sq_pi, bell->index) - 1 <= qp->sq_mask))
		not_the_last(qp, bell);
	/* Where the record has moved, it is the WQE that is wrong about its index. */
	else if (unlikely(ahead(qp->sq_pi, bell->index) - 1 > qp->sq_mask) && qp->sq_pi == before)
		not_covered(qp, bell, qp->sq_pi);
}

/* The others that may have rung on the same register meanwhile. A doorbell that names none of them
 * is none of theirs, unless it is known that they ring there. */
static void read_others(struct vhca_page *page, const struct vhca_qp *rung, uint8_t at)
{
	for (struct vhca_link *link = page->qps.next; link != &page->qps; link = link->next) {
		struct vhca_qp *qp = container_of(link, struct vhca_qp, on_page);

		if (qp != rung && (qp->rings_at == at || (rung && qp->rings_at == NO_REGISTER)))
			read_send_record(qp);
	}
}

/* Nobody's: a device drops it. */
static cold void ring_nobody(struct vhca_page *page, const struct doorbell *bell)
{
	if (!vhca_rule_report(VHCA_RULE_DOORBELL_VALUE, NULL, bell->index, "QP number",
		    bell->number, VHCA_ANOTHER))
		return;
	for (struct vhca_link *link = page->qps.next; link != &page->qps; link = link->next) {
		struct vhca_qp *qp = container_of(link, struct vhca_qp, on_page);

		if (qp->attr.sq_wqe_count && qp->state >= IBV_QPS_RTS &&
			(uint16_t)vhca_record_read(&qp->db[1]) != qp->sq_pi)
			vhca_qp_fail(qp); /* whose it must have been */
	}
}

void vhca_doorbell_send(struct vhca_page *page, unsigned int at, uint64_t value)
{
	struct doorbell bell = doorbell_of(value);
	struct vhca_qp *qp = named(page, &bell);

	if (unlikely(vhca_trace_on))
		vhca_trace_doorbell(page, at, bell.number, bell.index);
	if (likely(qp != NULL)) {
		qp->rings_at = register_of(at);
		ring_named(qp, &bell);
	} else {
		ring_nobody(page, &bell);
	}
	if (!vhca_trapped)
		read_others(page, qp, register_of(at));
}

/* ---- doorbells of CQs ---- */

static cold void arm_wrong(struct vhca_cq *cq, uint32_t number, uint32_t found, uint64_t wanted)
{
	if (vhca_rule_report(VHCA_RULE_ARM_DOORBELL, NULL, number,
		    cq ? "arm doorbell" : "CQ number", cq ? found : number, wanted) &&
		cq && !cq->dead) {
		cq->dead = true;
		vhca_event_async(&cq->async, IBV_EVENT_CQ_ERR);
	}
}

void vhca_doorbell_arm(struct vhca_page *page, uint64_t value)
{
	uint32_t number = (uint32_t)be64toh(value), found = (uint32_t)(be64toh(value) >> 32);
	struct vhca_cq *cq = vhca_find_cq(page->uar.object.context->device, number);
	uint32_t record;

	if (unlikely(vhca_trace_on))
		vhca_trace_doorbell(page, MLX5_CQ_DOORBELL, number, found & 0xffffff);
	if (unlikely(!cq || cq->page != page)) {
		arm_wrong(NULL, number, found, VHCA_ANOTHER);
	} else {
		/* The record may be the next one's already, which moves the sequence on by one. */
		record = vhca_record_read(&cq->db[1]);
		if (unlikely(((record >> 28) - (found >> 28)) & 2))
			arm_wrong(cq, number, found, record);
	}
	if (vhca_trapped && cq && cq->page == page) {
		vhca_cq_arm(cq);
		return;
	}
	for (struct vhca_link *link = page->cqs.next; link != &page->cqs; link = link->next)
		vhca_cq_arm(container_of(link, struct vhca_cq, on_page));
}

void vhca_doorbells_slipped(struct vhca_page *page)
{
	for (struct vhca_link *link = page->qps.next; link != &page->qps; link = link->next)
		read_send_record(container_of(link, struct vhca_qp, on_page));
	for (struct vhca_link *link = page->cqs.next; link != &page->cqs; link = link->next)
		vhca_cq_arm(container_of(link, struct vhca_cq, on_page));
}

/* ---- a doorbell that does not come ---- */

/* What the record says to be posted may not be a WQE at all. */
static bool wqe_is_there(const struct vhca_qp *qp)
{
	const struct mlx5_wqe_ctrl_seg *ctrl =
		(const void *)(qp->sq + ((size_t)(qp->sq_pi & qp->sq_mask) << MLX5_SEND_WQE_SHIFT));
	__be32 words[2];

	vhca_memory_read(words, ctrl, sizeof(words));
	return (uint16_t)(from_be32(words[0]) >> 8) == qp->sq_pi &&
		from_be32(words[1]) >> 8 == qp->number;
}

/* In the round of looks that is under way. */
static struct {
	bool asked, went_on; /* the threads, since the last round */
	bool unrung;         /* some QP is */
} around;

/* A thread that has been kept from running may still be about to ring: asked once, and only where
 * there is something to tell. */
static bool threads_went_on(void)
{
	if (!around.asked)
		around.went_on = vhca_threads_went_on();
	around.asked = true;
	return around.went_on;
}

/* It may have gone on just now, and its doorbell not been seen yet. */
static bool is_ringing(const struct vhca_qp *qp)
{
	return vhca_page_rung(qp->page) || load_once(&vhca_stores_waiting);
}

static void tell_unrung(struct vhca_qp *qp, uint16_t record)
{
	qp->unrung_told = true;
	if (vhca_rule_report(wqe_is_there(qp) ? VHCA_RULE_RECORD_DOORBELL : VHCA_RULE_RECORD_SLOT,
		    qp, qp->sq_pi, "send record", record, qp->sq_pi))
		vhca_qp_fail(qp);
}

static void watch(struct vhca_qp *qp)
{
	uint16_t record;

	if (!qp->attr.sq_wqe_count || qp->state != IBV_QPS_RTS)
		return;
	record = (uint16_t)vhca_record_read(&qp->db[1]);
	if (likely(record == qp->sq_pi) || load_once(&vhca_stores_waiting)) {
		qp->unrung = false;
		return;
	}
	if (qp->unrung && qp->unrung_record == record) {
		if (!qp->unrung_told && threads_went_on() && !is_ringing(qp))
			tell_unrung(qp, record);
	} else {
		qp->unrung_told &= qp->unrung_record == record;
		qp->unrung = true;
		qp->unrung_record = record;
	}
	around.unrung |= !qp->unrung_told;
}

void vhca_rules_watch(struct vhca_device *device)
{
	struct vhca_link *pages = &device->tables->pages;

	for (struct vhca_link *page = pages->next; page != pages; page = page->next) {
		struct vhca_link *qps = &container_of(page, struct vhca_page, link)->qps;

		for (struct vhca_link *link = qps->next; link != qps; link = link->next)
			watch(container_of(link, struct vhca_qp, on_page));
	}
}

void vhca_rules_watched(void)
{
	if (around.unrung)
		vhca_threads_look();
	around.asked = around.unrung = false;
}
