/* done.c - what the peer has carried out, and what becomes of it: bufs freed, or returned by events */

#include "drv/shm/shm.h"

/* Whether the operation is over; a write, or what is lent, is when the peer has taken its last record. */
static fast_path bool is_over(struct shm_queue *sq, const struct shm_wqe *wqe, bool *refreshed)
{
	struct ring_writer *w = &sq->tx.ring;

	if (wqe->kind == SHM_SEND && !wqe->lent)
		return true;
	if (wqe->kind != SHM_SEND && wqe->kind != SHM_WRITE)
		return wqe->answered;
	if ((int64_t)(w->end - w->mask - 1 - wqe->end) >= 0)
		return true;
	if (*refreshed)
		return false;
	*refreshed = true;
	if (unlikely(!ring_refresh(w, sq->tx.peer))) {
		vbn__shm_fault(sq, "says that it has taken what was never sent");
		return false;
	}
	return (int64_t)(w->end - w->mask - 1 - wqe->end) >= 0;
}

fast_path void vbn__shm_follow(struct shm_queue *sq)
{
	struct shm_tx *tx = &sq->tx;
	bool refreshed = false;

	for (; tx->done != tx->rung; tx->done++) {
		const uint32_t at = tx->done & tx->mask;

		if (tx->slots[at] == SLOT_WQE && !is_over(sq, &tx->wqes[at], &refreshed))
			return;
	}
}

fast_path int vbn__shm_release(
	struct shm_queue *sq, uint32_t end, enum vbn_status status, struct vbn_event *events, int n)
{
	struct shm_tx *tx = &sq->tx;
	const uint32_t begin = tx->tail;
	int got = 0;

	for (; tx->tail != end; tx->tail++) {
		const uint32_t at = tx->tail & tx->mask;
		struct shm_wqe *wqe = &tx->wqes[at];

		if (tx->slots[at] != SLOT_WQE)
			continue;
		if (wqe->returns) {
			if (got == n)
				break;
			vbn__buf_debug_done(wqe->buf);
			event_of_buf(&sq->queue, wqe->buf, wqe->len, (enum vbn_op)wqe->op, status,
				&events[got++]);
		} else if (wqe->buf) {
			vbn__buf_debug_done(wqe->buf);
			vbn_buf_free(&wqe->buf, 1);
		}
		if (wqe->lent)
			tx->lent -= wqe->len;
		tx->n_wqes--;
	}
	count_add(status == VBN_OK ? &sq->queue.stats.tx_done : &sq->queue.stats.tx_flushed,
		tx->tail - begin);
	return got;
}

fast_path uint32_t vbn__shm_outstanding(const struct vbn_queue *queue)
{
	const struct shm_tx *tx = &shm_queue(queue)->tx;

	return tx->head - tx->tail;
}

/* ---- answers ---- */

/* Puts bytes into a chain, from `skip` on. */
static fast_path void chain_fill(
	struct vbn_buf *buf, uint32_t skip, const uint8_t *from, uint32_t len)
{
	while (len) {
		const uint32_t here = buf->len > skip ? min(buf->len - skip, len) : 0;

		if (here)
			memcpy(buf->data + skip, from, here);
		from += here;
		len -= here;
		skip -= min(skip, buf->len);
		buf = buf->next;
	}
}

/* The oldest fetch without its whole answer; NULL: there is none. */
static fast_path struct shm_wqe *oldest_fetch(struct shm_tx *tx)
{
	if ((int32_t)(tx->fetch - tx->tail) < 0)
		tx->fetch = tx->tail;
	for (; tx->fetch != tx->rung; tx->fetch++) {
		const uint32_t at = tx->fetch & tx->mask;
		struct shm_wqe *wqe = &tx->wqes[at];

		if (tx->slots[at] == SLOT_WQE && wqe->kind != SHM_SEND && wqe->kind != SHM_WRITE &&
			!wqe->answered)
			return wqe;
	}
	return NULL;
}

fast_path bool vbn__shm_answered(
	struct shm_queue *sq, const struct shm_answer *answer, const uint8_t *data, uint32_t len)
{
	struct shm_tx *tx = &sq->tx;
	struct shm_wqe *wqe = tx->n_fetches ? oldest_fetch(tx) : NULL;

	if (!wqe || answer->index != tx->fetch || answer->offset != wqe->done ||
		len > wqe->len - wqe->done || (!len && wqe->len))
		return false;
	chain_fill(wqe->buf, wqe->done, data, len);
	wqe->done += len;
	if (wqe->done < wqe->len)
		return true;
	wqe->answered = true;
	tx->n_fetches--;
	return true;
}
