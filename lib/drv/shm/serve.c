/* serve.c - what the peer asks for: writes, reads and atomics on exports, and the answers; and what it
 * answers to this end's */

#include "drv/shm/lend.h"

static struct shm_port *port_of(const struct shm_queue *sq)
{
	return shm_port(sq->queue.port);
}

/* ---- the peer asks for what may not be ---- */

static cold enum shm_served refuse(struct shm_queue *sq, uint32_t index, enum vbn_status status,
	const char *what, uint32_t rkey)
{
	const uint32_t size = record_size(sizeof(struct shm_refused), 0);
	const struct shm_refused refused = {.index = index, .status = status};
	uint8_t *at = vbn__shm_room(sq, size);

	if (at) {
		memcpy(at + SHM_WORD, &refused, sizeof(refused));
		ring_put(&sq->tx.ring, size, record_header(SHM_REFUSED, 0));
		vbn__shm_publish(sq);
	}
	if (!sq->queue.failed)
		vbn__shm_fail(sq, VBN_LOCAL_ACCESS,
			"the peer asked for a %s with rkey %#x that %s: see what is exported, with which access, and the queue's remote_access",
			what, rkey,
			status == VBN_REMOTE_INVALID ? "is not of 8 aligned bytes"
						     : "no export of this port allows");
	return SERVED_FAULT;
}

static fast_path uint8_t *find(
	const struct shm_queue *sq, uint32_t rkey, uint64_t addr, uint64_t len, uint32_t access)
{
	if (!(sq->queue.conf.remote_access & access))
		return NULL;
	return vbn__shm_export_find(port_of(sq), rkey, addr, len, access);
}

/* ---- writes ---- */

/* With immediate data it takes a receive, which must be there first. */
static fast_path enum shm_served write_arrives(
	struct shm_queue *sq, uint32_t len, struct vbn_event *event)
{
	struct vbn_buf *buf = vbn__shm_buf(sq->rx.bufs);

	if (!buf)
		return SERVED_NOT_YET;
	buf_start(sq->rx.bufs->pool, buf, pool_data(sq->rx.bufs->pool, buf), 0);
	*event = (struct vbn_event){.queue = &sq->queue,
		.buf = buf,
		.len = len,
		.op = VBN_OP_RECV_WRITE,
		.has_imm = true};
	return SERVED_EVENT;
}

/* The receive of a write that was not to be. */
static cold void give_back(struct shm_queue *sq, enum shm_served served, struct vbn_event *event)
{
	if (served == SERVED_EVENT)
		pool_push(sq->rx.bufs->pool, event->buf);
}

static fast_path enum shm_served serve_write(struct shm_queue *sq, uint32_t kind, const uint8_t *at,
	uint32_t size, struct vbn_event *event)
{
	enum shm_served served = SERVED;
	struct shm_borrowed borrowed;
	struct shm_write write;
	uint32_t len = size;
	uint8_t *to = NULL;

	memcpy(&write, at, sizeof(write));
	if (kind == SHM_WRITE_REF) {
		if (!vbn__shm_borrow(sq, at + sizeof(write), size, &borrowed))
			return SERVED_FAULT;
		len = borrowed.total;
	}
	if (len)
		to = find(sq, write.rkey, write.addr, len, VBN_REMOTE_WRITE);
	if (len && !to)
		return refuse(sq, write.index, VBN_REMOTE_ACCESS, "write", write.rkey);
	if (write.flags & SHM_LAST && write.flags & SHM_HAS_IMM) {
		served = write_arrives(sq, sq->rx.write_len + len, event);
		if (served != SERVED_EVENT)
			return served;
		event->imm = event->buf->mark = write.imm;
	}
	if (kind == SHM_WRITE_REF) {
		sq->rx.fetched += len;
		if (!vbn__shm_fetch(sq, &borrowed, to)) {
			give_back(sq, served, event);
			vbn__shm_unlent(sq);
			return SERVED_FAULT;
		}
	} else if (len) {
		memcpy(to, at + sizeof(write), len);
	}
	sq->rx.write_len = write.flags & SHM_LAST ? 0 : sq->rx.write_len + len;
	return served;
}

/* ---- reads and atomics ---- */

static fast_path void pend(
	struct shm_queue *sq, const struct shm_fetch *fetch, bool is_value, uint64_t value)
{
	struct shm_rx *rx = &sq->rx;

	rx->pending[rx->pending_head++ & rx->pending_mask] =
		(struct shm_pending){.addr = fetch->addr,
			.rkey = fetch->rkey,
			.index = fetch->index,
			.len = is_value ? sizeof(uint64_t) : (uint32_t)fetch->len,
			.is_value = is_value,
			.value = value};
}

/* Workers of this process may be at the same word. */
static cold uint64_t carry_out(uint32_t kind, uint64_t *word, const struct shm_fetch *fetch)
{
	uint64_t before = fetch->compare;

	if (kind == SHM_FETCH_ADD)
		return __atomic_fetch_add(word, fetch->value, __ATOMIC_ACQ_REL);
	__atomic_compare_exchange_n(
		word, &before, fetch->value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return before;
}

static fast_path enum shm_served serve_fetch(struct shm_queue *sq, uint32_t kind, const uint8_t *at)
{
	struct shm_rx *rx = &sq->rx;
	struct shm_fetch fetch;
	uint8_t *word;

	memcpy(&fetch, at, sizeof(fetch));
	if (rx->pending_head - rx->pending_tail >= sq->queue.conf.max_peer_reads.value ||
		fetch.len > SHM_MAX_MESSAGE)
		return SERVED_FAULT; /* more than it was told it may */
	if (kind == SHM_READ) {
		if (fetch.len && !find(sq, fetch.rkey, fetch.addr, fetch.len, VBN_REMOTE_READ))
			return refuse(sq, fetch.index, VBN_REMOTE_ACCESS, "read", fetch.rkey);
		pend(sq, &fetch, false, 0);
		return SERVED;
	}
	if (fetch.addr % sizeof(uint64_t))
		return refuse(sq, fetch.index, VBN_REMOTE_INVALID, "atomic", fetch.rkey);
	word = find(sq, fetch.rkey, fetch.addr, sizeof(uint64_t), VBN_REMOTE_ATOMIC);
	if (!word)
		return refuse(sq, fetch.index, VBN_REMOTE_ACCESS, "atomic", fetch.rkey);
	pend(sq, &fetch, true, carry_out(kind, (uint64_t *)(void *)word, &fetch));
	return SERVED;
}

/* ---- answers of this end: what there is room for ---- */

enum answered { ANSWERED, NO_ROOM, NOT_ALLOWED };

/* The export may have gone since it was asked for. */
static fast_path enum answered answer(struct shm_queue *sq, struct shm_pending *pending)
{
	do {
		const uint32_t len = min(pending->len - pending->done, sq->tx.ring.piece);
		const uint32_t size = record_size(sizeof(struct shm_answer), len);
		const struct shm_answer extra = {.index = pending->index, .offset = pending->done};
		uint8_t *at = vbn__shm_room(sq, size);
		const uint8_t *from = (const uint8_t *)&pending->value;

		if (!at)
			return NO_ROOM;
		if (!pending->is_value && len)
			from = find(sq, pending->rkey, pending->addr + pending->done, len,
				VBN_REMOTE_READ);
		if (!from)
			return NOT_ALLOWED;
		memcpy(at + SHM_WORD, &extra, sizeof(extra));
		memcpy(at + SHM_WORD + sizeof(extra), from, len);
		ring_put(&sq->tx.ring, size, record_header(SHM_ANSWER, len));
		pending->done += len;
	} while (pending->done < pending->len);
	return ANSWERED;
}

fast_path void vbn__shm_serve_pending(struct shm_queue *sq)
{
	struct shm_rx *rx = &sq->rx;
	enum answered answered = ANSWERED;

	while (rx->pending_tail != rx->pending_head && answered == ANSWERED) {
		struct shm_pending *pending = &rx->pending[rx->pending_tail & rx->pending_mask];

		answered = answer(sq, pending);
		rx->pending_tail += answered == ANSWERED;
		if (answered == NOT_ALLOWED && !sq->queue.failed)
			refuse(sq, pending->index, VBN_REMOTE_ACCESS, "read", pending->rkey);
	}
	if (!sq->queue.failed && ring_unpublished(&sq->tx.ring))
		vbn__shm_publish(sq);
}

/* ---- answers of the peer ---- */

static fast_path enum shm_served serve_refused(struct shm_queue *sq, const uint8_t *at)
{
	const struct shm_tx *tx = &sq->tx;
	struct shm_refused refused;
	const struct shm_wqe *wqe;

	memcpy(&refused, at, sizeof(refused));
	wqe = &tx->wqes[refused.index & tx->mask];
	if (refused.index - tx->tail >= tx->rung - tx->tail ||
		tx->slots[refused.index & tx->mask] != SLOT_WQE || wqe->kind == SHM_SEND ||
		(refused.status != VBN_REMOTE_ACCESS && refused.status != VBN_REMOTE_INVALID))
		return SERVED_FAULT;
	vbn__shm_fail_op(sq, (enum vbn_status)refused.status, refused.index,
		refused.status == VBN_REMOTE_ACCESS
			? "the peer exports no such memory, or not for this: check the remote address, the rkey and both ends' access"
			: "an atomic is on 8 bytes at a multiple of 8");
	return SERVED_FAULT;
}

static fast_path enum shm_served serve_answer(struct shm_queue *sq, const uint8_t *at, uint32_t len)
{
	struct shm_answer answer;

	memcpy(&answer, at, sizeof(answer));
	return vbn__shm_answered(sq, &answer, at + sizeof(answer), len) ? SERVED : SERVED_FAULT;
}

fast_path enum shm_served vbn__shm_serve(struct shm_queue *sq, uint32_t kind, const uint8_t *at,
	uint32_t len, struct vbn_event *event)
{
	switch (kind) {
	case SHM_WRITE:
	case SHM_WRITE_REF: return serve_write(sq, kind, at, len, event);
	case SHM_READ:
	case SHM_FETCH_ADD:
	case SHM_CMP_SWAP: return serve_fetch(sq, kind, at);
	case SHM_ANSWER: return serve_answer(sq, at, len);
	case SHM_REFUSED: return serve_refused(sq, at);
	default: return SERVED_FAULT;
	}
}
