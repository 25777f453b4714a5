/* trap_store.c - what a store to a trapped UAR page means */

#include "vhca/device.h"
#include "vhca/trap.h"

enum {
	FIRST_REGISTER = 0x800,
	REGISTER_BYTES = 0x100, /* each of the two halves of a BlueFlame register */
	REGISTERS_END = 0xc00,
	DOORBELL_BYTES = 8,
};

static cold void elsewhere(uint64_t offset, uint32_t size)
{
	vhca_rule_report(VHCA_RULE_UAR_OFFSET, NULL, size, "offset of a store", offset % VHCA_PAGE,
		VHCA_ANOTHER);
}

/* A doorbell that comes in pieces rings with the last one. */
static bool assemble(
	uint8_t doorbell[DOORBELL_BYTES], uint32_t at, const uint8_t *bytes, uint32_t size)
{
	if (at + size > DOORBELL_BYTES)
		size = DOORBELL_BYTES - at;
	memcpy(doorbell + at, bytes, size);
	if (size < DOORBELL_BYTES)
		vhca_rule_report(VHCA_RULE_DOORBELL_VALUE, NULL, at, "bytes of a store", size,
			DOORBELL_BYTES);
	return at + size == DOORBELL_BYTES;
}

static uint64_t value_of(const uint8_t doorbell[DOORBELL_BYTES])
{
	uint64_t value;

	memcpy(&value, doorbell, sizeof(value));
	return value;
}

/* What follows a doorbell in its register is the rest of the WQE. */
static void compare_copy(
	struct vhca_page *page, uint32_t half, uint32_t at, const uint8_t *bytes, uint32_t size)
{
	uint32_t words[2];
	struct vhca_qp *qp;
	uint64_t in_ring;
	uint8_t due;

	memcpy(words, page->trapped[half], sizeof(words));
	qp = vhca_find_qp(page->uar.object.context->device, be32toh(words[1]) >> 8);
	if (!qp || qp->page != page || !qp->attr.sq_wqe_count || qp->state < IBV_QPS_RTS)
		return;
	in_ring = (uint64_t)(uint16_t)(be32toh(words[0]) >> 8) * MLX5_SEND_WQE_BB + at;
	for (uint32_t i = 0; i < size; i++, in_ring++) {
		vhca_memory_read(&due,
			qp->sq + (in_ring & (((uint64_t)qp->sq_mask + 1) * MLX5_SEND_WQE_BB - 1)),
			1);
		if (bytes[i] == due)
			continue;
		if (vhca_rule_report(VHCA_RULE_BLUEFLAME_COPY, qp,
			    (uint16_t)(be32toh(words[0]) >> 8), "byte of the copy", bytes[i], due))
			vhca_qp_fail(qp);
		return;
	}
}

static void store_to_register(
	struct vhca_page *page, uint32_t offset, const uint8_t *bytes, uint32_t size)
{
	uint32_t half = (offset - FIRST_REGISTER) / REGISTER_BYTES;
	uint32_t at = offset % REGISTER_BYTES;

	if (at < DOORBELL_BYTES) {
		uint32_t first = min(size, DOORBELL_BYTES - at);

		if (assemble(page->trapped[half], at, bytes, first))
			vhca_doorbell_send(page, FIRST_REGISTER + half * REGISTER_BYTES,
				value_of(page->trapped[half]));
		at += first;
		bytes += first;
		size -= first;
	}
	if (size)
		compare_copy(page, half, at, bytes, size);
}

void vhca_trap_store(
	struct vhca_context *context, uint64_t offset, const uint8_t *bytes, uint32_t size)
{
	struct vhca_page *page = vhca_page_find(context, (uint32_t)(offset / VHCA_PAGE));
	uint32_t in_page = (uint32_t)(offset % VHCA_PAGE);

	if (!page || context->device->fatal)
		return;
	if (in_page >= FIRST_REGISTER && in_page + size <= REGISTERS_END &&
		in_page % REGISTER_BYTES + size <= REGISTER_BYTES) {
		store_to_register(page, in_page, bytes, size);
	} else if (in_page >= MLX5_CQ_DOORBELL &&
		in_page + size <= MLX5_CQ_DOORBELL + DOORBELL_BYTES) {
		if (assemble(page->trapped_arm, in_page - MLX5_CQ_DOORBELL, bytes, size))
			vhca_doorbell_arm(page, value_of(page->trapped_arm));
	} else {
		elsewhere(offset, size);
	}
}
