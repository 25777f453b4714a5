/* lost.c - what becomes of queues and messages whose memory the program has taken away
 *
 * What is registered is pinned, so a device would go on in memory that nobody sees. Here the access
 * has faulted (guard.h), and the one to blame fails: the WQE of a gather or scatter list by a
 * protection error, a queue whose own ring or record is gone by its fatal event.
 */

#include "vhca/device.h"
#include "vhca/guard.h"
#include "vhca/raw.h"

#include <stdlib.h>

/* What queues without memory point to: nothing is ever posted there. */
static const __be32 no_record[2];

static bool lies_in(uintptr_t address, const void *start, uint64_t size)
{
	return address - (uintptr_t)start < size;
}

/* ---- queues ---- */

static void report(struct vhca_qp *qp, uint32_t index, const char *field, uintptr_t address)
{
	vhca_rule_report(VHCA_RULE_FREED_MEMORY, qp, index, field, address, VHCA_ANOTHER);
}

static bool queue_lost(struct vhca_qp *qp, uintptr_t address)
{
	uint64_t sq = (uint64_t)qp->attr.sq_wqe_count * MLX5_SEND_WQE_BB;
	uint64_t rq = (uint64_t)qp->attr.rq_wqe_count << qp->attr.rq_wqe_shift;

	if (!lies_in(address, qp->db, 8) && !lies_in(address, qp->sq, sq) &&
		!lies_in(address, qp->rq, rq))
		return false;
	report(qp, qp->sq_ci, "an address of its ring or record", address);
	qp->db = no_record;
	qp->sq_ci = qp->sq_pi = qp->sq_done = 0;
	qp->rq_ci = qp->rq_pi = 0;
	vhca_qp_fatal(qp);
	return true;
}

/* A raw one's receive ring is its receive queue's; their record is one. */
static bool qp_lost(struct vhca_qp *qp, uintptr_t address)
{
	bool found = queue_lost(qp, address);

	return (qp->wq && queue_lost(&qp->wq->queue, address)) || found;
}

static bool cq_lost(struct vhca_cq *cq, uintptr_t address)
{
	if (!lies_in(address, cq->db, 8) &&
		!lies_in(address, cq->buf, ((uint64_t)cq->mask + 1) << cq->log2_size))
		return false;
	report(NULL, cq->pi, "an address of a CQ's ring or record", address);
	cq->db = no_record;
	cq->arm = VHCA_UNARMED;
	cq->arm_seen = 0;
	if (!cq->dead)
		vhca_event_async(&cq->async, IBV_EVENT_CQ_ERR);
	cq->dead = true;
	return true;
}

static bool srq_lost(struct vhca_srq *srq, uintptr_t address)
{
	if (!lies_in(address, srq->db, 8) &&
		!lies_in(address, srq->buf, (uint64_t)srq->n_wqe << srq->log2_stride))
		return false;
	report(NULL, srq->head, "an address of an SRQ's ring or record", address);
	srq->db = no_record;
	srq->taken = srq->posted = 0;
	srq->limit = 0;
	vhca_event_async(&srq->async, IBV_EVENT_SRQ_ERR);
	return true;
}

static bool object_lost(struct vhca_object *object, uintptr_t address)
{
	switch (object->kind) {
	case VHCA_QP:
	case VHCA_WQ: return qp_lost(container_of(object, struct vhca_qp, object), address);
	case VHCA_CQ: return cq_lost(container_of(object, struct vhca_cq, object), address);
	case VHCA_SRQ: return srq_lost(container_of(object, struct vhca_srq, object), address);
	default: return false;
	}
}

bool vhca_queue_lost(struct vhca_device *device, uintptr_t address)
{
	bool found = false;

	for (struct vhca_context *context = device->contexts; context; context = context->next)
		for (struct vhca_object *object = context->objects; object; object = object->next)
			found |= object_lost(object, address);
	return found;
}

/* ---- messages ---- */

bool vhca_message_lost(const struct vhca_message *message, uintptr_t address)
{
	for (uint32_t i = 0; i < message->n_sge; i++)
		if (lies_in(address, message->sge[i].addr, message->sge[i].length))
			return true;
	return false;
}

void vhca_engine_fault(int n_devices, uintptr_t address)
{
	bool found = vhca_requester_lost(address);

	for (int i = 0; i < n_devices; i++)
		found |= vhca_queue_lost(vhca_device(i), address);
	if (found)
		return;
	log_error(
		"vhca: the emulated device touched 0x%llx, which is no memory of a queue or a "
		"registration: this is an error of the emulator, and the process ends; please report it",
		(unsigned long long)address);
	abort();
}
