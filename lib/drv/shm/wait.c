/* wait.c - operations that wait in their table: moved into the ring as there is room, whole, in pieces or
 * by reference */

#include "drv/shm/lend.h"

fast_path void vbn__shm_chain_copy(
	uint8_t *to, const struct vbn_buf *buf, uint32_t skip, uint32_t len)
{
	while (len) {
		const uint32_t here = buf->len > skip ? min(buf->len - skip, len) : 0;

		if (here)
			memcpy(to, buf->data + skip, here);
		to += here;
		len -= here;
		skip -= min(skip, buf->len);
		buf = buf->next;
	}
}

cold void vbn__shm_too_long(struct shm_queue *sq, uint32_t index, uint32_t total)
{
	const uint32_t size = record_size(sizeof(struct shm_part), 0);
	uint8_t *at = vbn__shm_room(sq, size);
	struct shm_part part = {.total = total};

	if (at) {
		memcpy(at + SHM_WORD, &part, sizeof(part));
		ring_put(&sq->tx.ring, size, record_header(SHM_PART, 0));
		if (!vbn__shm_publish(sq))
			return;
	}
	vbn__shm_fail_op(sq, VBN_REMOTE_INVALID, index, "the message is longer than its receive");
}

/* One record with up to a piece of the operation. False: there is no room. */
static fast_path bool put_piece(struct shm_queue *sq, struct shm_wqe *wqe, enum shm_kind kind,
	const void *extra, uint32_t extra_size, uint32_t len)
{
	const uint32_t size = record_size(extra_size, len);
	uint8_t *at = vbn__shm_room(sq, size);

	if (!at)
		return false;
	memcpy(at + SHM_WORD, extra, extra_size);
	if (len)
		vbn__shm_chain_copy(at + SHM_WORD + extra_size, wqe->buf, wqe->done, len);
	ring_put(&sq->tx.ring, size, record_header(kind, len));
	wqe->done += len;
	return true;
}

/* The same by reference. */
static fast_path bool put_ref(struct shm_queue *sq, struct shm_wqe *wqe, enum shm_kind kind,
	const void *extra, uint32_t extra_size, uint32_t len)
{
	struct shm_ref refs[SHM_REFS];
	const uint32_t n = vbn__shm_name(sq->tx.loans, wqe->buf, wqe->done, len, refs);
	const uint32_t data = n * (uint32_t)sizeof(refs[0]), size = record_size(extra_size, data);
	uint8_t *at = vbn__shm_room(sq, size);

	if (!at)
		return false;
	memcpy(at + SHM_WORD, extra, extra_size);
	memcpy(at + SHM_WORD + extra_size, refs, data);
	ring_put(&sq->tx.ring, size, record_header(kind, data));
	wqe->done += len;
	return true;
}

/* Whether it goes by reference, which is so for all of it or nothing. */
static fast_path bool is_lent(struct shm_queue *sq, struct shm_wqe *wqe)
{
	struct shm_tx *tx = &sq->tx;

	if (!wqe->done && wqe->len >= tx->ref_min && !wqe->lent &&
		vbn__shm_is_lent(tx->loans, wqe->buf)) {
		wqe->lent = true;
		tx->lent += wqe->len;
		tx->by_reference++;
	}
	return wqe->lent;
}

static fast_path bool put_whole(struct shm_queue *sq, struct shm_wqe *wqe)
{
	const struct shm_imm imm = {.imm = wqe->imm};

	return put_piece(sq, wqe, wqe->has_imm ? SHM_SEND_IMM : SHM_SEND, &imm,
		wqe->has_imm ? sizeof(imm) : 0, wqe->len);
}

static fast_path bool put_send(struct shm_queue *sq, struct shm_wqe *wqe)
{
	bool lent;

	if (wqe->len > sq->tx.max_message) {
		vbn__shm_too_long(sq, sq->tx.put, wqe->len);
		return false;
	}
	lent = is_lent(sq, wqe);
	if (!lent && wqe->len <= sq->tx.whole)
		return put_whole(sq, wqe);
	while (wqe->done < wqe->len) {
		const struct shm_part part = {.total = wqe->len,
			.offset = wqe->done,
			.imm = wqe->imm,
			.has_imm = wqe->has_imm};
		const uint32_t len = min(
			wqe->len - wqe->done, lent ? (uint32_t)SHM_REF_PIECE : sq->tx.ring.piece);

		if (!(lent ? put_ref(sq, wqe, SHM_PART_REF, &part, sizeof(part), len)
			   : put_piece(sq, wqe, SHM_PART, &part, sizeof(part), len)))
			return false;
	}
	return true;
}

static fast_path bool put_write(struct shm_queue *sq, struct shm_wqe *wqe, uint32_t index)
{
	const bool lent = is_lent(sq, wqe);

	do {
		const uint32_t len = min(
			wqe->len - wqe->done, lent ? (uint32_t)SHM_REF_PIECE : sq->tx.ring.piece);
		const bool last = wqe->done + len == wqe->len;
		const struct shm_write write = {.addr = wqe->addr + wqe->done,
			.rkey = wqe->rkey,
			.index = index,
			.imm = wqe->imm,
			.flags = last ? SHM_LAST | (wqe->has_imm ? SHM_HAS_IMM : 0) : 0};

		if (!(lent ? put_ref(sq, wqe, SHM_WRITE_REF, &write, sizeof(write), len)
			   : put_piece(sq, wqe, SHM_WRITE, &write, sizeof(write), len)))
			return false;
	} while (wqe->done < wqe->len);
	return true;
}

static fast_path bool put_fetch(struct shm_queue *sq, struct shm_wqe *wqe, uint32_t index)
{
	const struct shm_fetch fetch = {.addr = wqe->addr,
		.rkey = wqe->rkey,
		.index = index,
		.len = wqe->len,
		.value = wqe->value,
		.compare = wqe->compare};

	if (sq->tx.n_fetches == sq->tx.max_fetches)
		return false;
	if (!put_piece(sq, wqe, (enum shm_kind)wqe->kind, &fetch, sizeof(fetch), 0))
		return false;
	sq->tx.n_fetches++;
	return true;
}

/* What is copied and has no event is the pool's again. */
static fast_path void let_go(struct shm_wqe *wqe)
{
	if (wqe->returns || !wqe->buf)
		return;
	vbn__buf_debug_done(wqe->buf);
	vbn_buf_free(&wqe->buf, 1);
	wqe->buf = NULL;
}

fast_path void vbn__shm_put_waiting(struct shm_queue *sq)
{
	struct shm_tx *tx = &sq->tx;

	for (; tx->put != tx->head; tx->put++) {
		struct shm_wqe *wqe = &tx->wqes[tx->put & tx->mask];
		bool put;

		if (wqe->kind == SHM_SEND)
			put = put_send(sq, wqe);
		else if (wqe->kind == SHM_WRITE)
			put = put_write(sq, wqe, tx->put);
		else
			put = put_fetch(sq, wqe, tx->put);
		if (!put || sq->queue.failed)
			return;
		wqe->put = true;
		wqe->end = tx->ring.pos;
		if (is_fetch((enum shm_kind)wqe->kind))
			continue;
		tx->waiting -= wqe->len;
		if (!wqe->lent)
			let_go(wqe);
	}
}

fast_path void vbn__shm_tx_go_on(struct shm_queue *sq)
{
	struct shm_tx *tx = &sq->tx;

	while (tx->put != tx->head && !sq->queue.failed) {
		vbn__shm_put_waiting(sq);
		if (sq->queue.failed || !ring_unpublished(&tx->ring) || !vbn__shm_publish(sq))
			return;
	}
}
