/* tx.c - sends copied into the peer's ring and shown by one store a burst; what finds no room, or is
 * not over with the copy, waits in a table (wait.c) */

#include "drv/shm/box.h"

/* What the operations of one call have in common; arrays are NULL where there is none. */
struct operation {
	enum shm_kind kind;
	enum vbn_op op;
	const struct vbn_remote *remotes;
	const uint32_t *imms;
	const struct vbn_atomic *atomics;
};

enum {
	/* Bytes that wait for room before no more plain sends are taken: who sends more than its peer takes would
	 * else go through bufs by the thousand, none of which is still in the cache when it is copied. */
	WAITING_MAX = 64 << 10,
	/* Bytes that are lent, likewise: with half as many the receiver waits, with twice as many messages of
	 * 8 KiB leave the cache. */
	LENT_MAX = 256 << 10,
};

/* ---- room and publishing ---- */

/* What was kept for the box goes by the ring after all. */
static noinline fast_path void box_to_ring(struct shm_queue *sq)
{
	struct ring_writer *w = &sq->tx.ring;
	const uint32_t len = sq->talk.len, size = record_size(0, len);
	uint8_t *at = ring_room(w, size); /* there is some: box_takes() */

	sq->talk.staged = false;
	copy_few(at + SHM_WORD, sq->talk.data, len);
	ring_put(w, size, record_header(SHM_SEND, len));
}

fast_path uint8_t *vbn__shm_room(struct shm_queue *sq, uint32_t size)
{
	struct ring_writer *w = &sq->tx.ring;
	uint8_t *at;

	if (unlikely(sq->talk.staged))
		box_to_ring(sq);
	at = ring_room(w, size);
	if (likely(at))
		return at;
	if (unlikely(!ring_refresh(w, sq->tx.peer))) {
		vbn__shm_fault(sq, "says that it has taken what was never sent");
		return NULL;
	}
	return ring_pad(w, size) ? ring_room(w, size) : NULL;
}

/* Behind what shows a burst: sleep.c says what keeps the CPU from looking before. */
static force_inline bool peer_is_awake(const struct shm_tx *tx)
{
	compiler_barrier();
	return head_is_awake(tx->peer);
}

/* By itself, so that who publishes needs no stack for it. */
static cold bool rang_asleep(struct shm_queue *sq)
{
	if (!vbn__shm_wake(sq))
		return false;
	tx_rang(sq);
	return true;
}

fast_path bool vbn__shm_publish(struct shm_queue *sq)
{
	struct shm_tx *tx = &sq->tx;

	ring_publish(&tx->ring);
	if (unlikely(!peer_is_awake(tx)))
		return rang_asleep(sq);
	tx_rang(sq);
	return true;
}

static force_inline void publish_box(struct shm_queue *sq)
{
	box_send(sq);
	if (unlikely(!peer_is_awake(&sq->tx)))
		rang_asleep(sq);
	else
		tx_rang(sq);
}

/* ---- stage: what waits or comes back ---- */

fast_path int vbn__shm_check_chain(const struct shm_queue *sq, const struct vbn_buf *buf)
{
	uint32_t n = 0;

	for (;; buf = buf->next) {
		n += buf->len != 0;
		if (!(buf->flags & VBN_BUF_CHAIN))
			return n > sq->queue.conf.max_gather ? -EINVAL : 0;
	}
}

/* Releases what has been carried out, as far as it needs no event. */
static fast_path void take_back(struct shm_queue *sq)
{
	vbn__shm_progress(sq);
	if (!sq->queue.failed)
		vbn__shm_release(sq, sq->tx.done, VBN_OK, NULL, 0);
}

/* A slot for one more. False: there is none, or the queue has failed meanwhile. */
static fast_path bool reserve(struct shm_queue *sq)
{
	if (likely(tx_slots_free(&sq->tx)))
		return true;
	take_back(sq);
	return tx_slots_free(&sq->tx) && !sq->queue.failed;
}

static fast_path struct shm_wqe *begin_wqe(
	struct shm_queue *sq, const struct operation *operation, int i, struct vbn_buf *buf)
{
	struct shm_tx *tx = &sq->tx;
	const uint32_t at = tx->head & tx->mask;
	struct shm_wqe *wqe = &tx->wqes[at];

	*wqe = (struct shm_wqe){
		.buf = buf, .kind = (uint8_t)operation->kind, .op = (uint8_t)operation->op};
	if (operation->remotes) {
		wqe->addr = operation->remotes[i].addr;
		wqe->rkey = operation->remotes[i].rkey;
	}
	if (operation->imms) {
		wqe->imm = operation->imms[i];
		wqe->has_imm = true;
	}
	if (operation->atomics) {
		wqe->value = operation->atomics[i].value;
		wqe->compare = operation->atomics[i].compare;
	}
	tx->slots[at] = SLOT_WQE;
	tx->n_wqes++;
	return wqe;
}

static fast_path void end_stage(struct shm_queue *sq, uint64_t bytes)
{
	sq->tx.head++;
	count_add(&sq->queue.stats.tx_messages, 1);
	count_add(&sq->queue.stats.tx_bytes, bytes);
}

static force_inline bool too_much(const struct shm_tx *tx)
{
	return tx->waiting > WAITING_MAX || tx->lent > LENT_MAX;
}

/* Whether one more may wait: of what its sender wants back as many as there are slots. */
static fast_path bool may_wait(
	struct shm_queue *sq, const struct vbn_buf *buf, const struct operation *operation)
{
	if (!too_much(&sq->tx) || operation->kind != SHM_SEND ||
		buf->flags & (VBN_BUF_KEEP | VBN_BUF_COOKIE))
		return true;
	vbn__shm_tx_go_on(sq);
	take_back(sq);
	return !too_much(&sq->tx) && !sq->queue.failed;
}

/* 1, 0 where there is no slot for it or too much waits, or why it cannot be sent. */
static fast_path int stage_any(
	struct shm_queue *sq, struct vbn_buf *buf, const struct operation *operation, int i)
{
	const uint64_t total = vbn_buf_total(buf);
	struct shm_wqe *wqe;
	int ret;

	if (total > SHM_MAX_MESSAGE)
		return -EMSGSIZE;
	if (operation->atomics && (buf->len != 8 || buf->flags & VBN_BUF_CHAIN))
		return -EMSGSIZE;
	ret = vbn__shm_check_chain(sq, buf);
	if (ret)
		return ret;
	if (!reserve(sq) || !may_wait(sq, buf, operation))
		return sq->queue.failed ? -EPIPE : 0;
	wqe = begin_wqe(sq, operation, i, buf);
	wqe->len = (uint32_t)total;
	wqe->returns = buf->flags & (VBN_BUF_KEEP | VBN_BUF_COOKIE) || is_fetch(operation->kind);
	vbn__buf_debug_sent(buf);
	end_stage(sq, total);
	if (!is_fetch(operation->kind))
		sq->tx.waiting += total;
	vbn__shm_put_waiting(sq);
	return 1;
}

/* ---- stage: plain sends ---- */

/* A plain buf by itself. */
static noinline fast_path bool send_lone(struct shm_queue *sq, struct vbn_buf *buf)
{
	struct shm_tx *tx = &sq->tx;
	const uint32_t len = buf->len;

	if (buf_word(buf) != tx->plain || !box_takes(sq, len))
		return false;
	box_stage(sq, buf->data, len);
	vbn__buf_debug_sent(buf);
	vbn__buf_debug_done(buf);
	pool_push(tx->pool, buf);
	count_add(&sq->queue.stats.tx_messages, 1);
	count_add(&sq->queue.stats.tx_bytes, len);
	return true;
}

/* Copies plain bufs that find room; they go home at once. */
static force_inline int send_run(struct shm_queue *sq, struct vbn_buf **bufs, const uint32_t *imms,
	int n, const bool has_imm)
{
	struct shm_tx *tx = &sq->tx;
	struct ring_writer w;
	struct pool_homecoming home;
	const uint32_t plain = tx->plain, longest = tx->longest, extra = has_imm ? SHM_WORD : 0;
	const uint32_t head = tx->head;
	uint64_t bytes = 0;
	int i;

	if (unlikely(tx->put != head))
		return 0;
	if (unlikely(sq->talk.staged))
		box_to_ring(sq);
	w = tx->ring;
	home = pool_open(tx->pool);
	n = min(n, (int)tx_slots_free(tx));
	for (i = 0; i < n; i++) {
		struct vbn_buf *buf = bufs[i];
		const uint32_t len = buf->len, size = record_size(extra, len);
		uint8_t *at;

		if (unlikely(buf_word(buf) != plain || len > longest))
			break;
		at = ring_room(&w, size);
		if (unlikely(!at))
			break;
		if (has_imm)
			*(uint64_t *)(void *)(at + SHM_WORD) = imms[i];
		copy_message(at + SHM_WORD + extra, buf->data, len);
		ring_put(&w, size, record_header(has_imm ? SHM_SEND_IMM : SHM_SEND, len));
		tx->slots[(head + (uint32_t)i) & tx->mask] = SLOT_PLAIN;
		vbn__buf_debug_sent(buf);
		vbn__buf_debug_done(buf);
		pool_take_home(&home, buf);
		bytes += len;
		if (unlikely(len > COPY_FEW && ring_is_much(&w))) {
			i++;
			break;
		}
	}
	pool_close(&home);
	tx->ring = w;
	tx->head = tx->put = head + (uint32_t)i;
	count_add(&sq->queue.stats.tx_messages, (uint64_t)i);
	count_add(&sq->queue.stats.tx_bytes, bytes);
	return i;
}

/* No plain one in front, or no room that is known of. */
static noinline fast_path int send_other(
	struct shm_queue *sq, struct vbn_buf *buf, const struct operation *operation, int i)
{
	struct shm_tx *tx = &sq->tx;
	const uint32_t size = record_size(SHM_WORD, buf->len);

	if (ring_is_much(&tx->ring) && !vbn__shm_publish(sq))
		return -EPIPE;
	if (tx->put == tx->head && buf_word(buf) == tx->plain && buf->len <= tx->longest &&
		tx_slots_free(tx) && vbn__shm_room(sq, size))
		return -EAGAIN; /* there is room now */
	if (unlikely(sq->queue.failed))
		return -EPIPE;
	return stage_any(sq, buf, operation, i);
}

static force_inline int send_all(struct vbn_queue *queue, struct vbn_buf **bufs,
	const uint32_t *imms, int n, const bool has_imm)
{
	struct shm_queue *sq = shm_queue(queue);
	const struct operation operation = {
		.kind = SHM_SEND, .op = VBN_OP_SEND, .imms = has_imm ? imms : NULL};
	int taken = 0;

	if (unlikely(n <= 0))
		return 0;
	queue_mark_dirty(queue);
	if (!has_imm && n == 1 && sq->talk.turn && send_lone(sq, bufs[0]))
		return 1;
	for (;;) {
		int ret;

		taken += send_run(
			sq, bufs + taken, has_imm ? imms + taken : NULL, n - taken, has_imm);
		if (likely(taken == n))
			return n;
		ret = send_other(sq, bufs[taken], &operation, taken);
		if (ret == -EAGAIN)
			continue;
		if (ret <= 0)
			return taken ? taken : ret;
		taken++;
		if (taken == n || unlikely(queue->failed))
			return taken;
	}
}

static fast_path int send_bufs(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return send_all(queue, bufs, NULL, n, false);
}

static fast_path int send_imm_bufs(
	struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)
{
	return send_all(queue, bufs, imms, n, true);
}

/* ---- stage: one-sided ---- */

static fast_path int stage_all(
	struct vbn_queue *queue, struct vbn_buf **bufs, int n, const struct operation *operation)
{
	struct shm_queue *sq = shm_queue(queue);

	if (n <= 0)
		return 0;
	queue_mark_dirty(queue);
	for (int i = 0; i < n; i++) {
		int ret = stage_any(sq, bufs[i], operation, i);

		if (ret <= 0)
			return i ? i : ret;
		if (unlikely(queue->failed))
			return i + 1;
		if (ring_is_much(&sq->tx.ring) && !vbn__shm_publish(sq))
			return i + 1;
	}
	return n;
}

static fast_path int write_bufs(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return stage_all(queue, bufs, n,
		&(struct operation){.kind = SHM_WRITE, .op = VBN_OP_WRITE, .remotes = remotes});
}

static fast_path int write_imm_bufs(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const uint32_t *imms, int n)
{
	return stage_all(queue, bufs, n,
		&(struct operation){
			.kind = SHM_WRITE, .op = VBN_OP_WRITE, .remotes = remotes, .imms = imms});
}

static fast_path int read_bufs(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return stage_all(queue, bufs, n,
		&(struct operation){.kind = SHM_READ, .op = VBN_OP_READ, .remotes = remotes});
}

static fast_path int fetch_add_bufs(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	return stage_all(queue, bufs, n,
		&(struct operation){.kind = SHM_FETCH_ADD,
			.op = VBN_OP_FETCH_ADD,
			.remotes = remotes,
			.atomics = atomics});
}

static fast_path int cmp_swap_bufs(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	return stage_all(queue, bufs, n,
		&(struct operation){.kind = SHM_CMP_SWAP,
			.op = VBN_OP_CMP_SWAP,
			.remotes = remotes,
			.atomics = atomics});
}

/* ---- stage: copies of bytes, which go into the ring or not at all ---- */

/* Room for a record at once; NULL with what to answer. */
static force_inline uint8_t *inline_room(
	struct shm_queue *sq, size_t len, uint32_t size, int *answer)
{
	struct shm_tx *tx = &sq->tx;
	uint8_t *at = NULL;

	*answer = -EMSGSIZE;
	if (unlikely(len > SHM_MAX_INLINE))
		return NULL;
	if (unlikely(tx->put != tx->head))
		vbn__shm_tx_go_on(sq);
	if (unlikely(sq->talk.staged))
		box_to_ring(sq);
	if (likely(reserve(sq)) && likely(tx->put == tx->head))
		at = vbn__shm_room(sq, size);
	*answer = sq->queue.failed ? -EPIPE : 0;
	return at;
}

static force_inline int send_copy(
	struct vbn_queue *queue, const void *data, size_t len, uint32_t imm, const bool has_imm)
{
	struct shm_queue *sq = shm_queue(queue);
	struct shm_tx *tx = &sq->tx;
	const uint32_t extra = has_imm ? SHM_WORD : 0, size = record_size(extra, (uint32_t)len);
	int answer;
	uint8_t *at;

	if (!has_imm && box_takes(sq, len)) {
		queue_mark_dirty(queue);
		box_stage(sq, data, len);
		count_add(&queue->stats.tx_messages, 1);
		count_add(&queue->stats.tx_bytes, len);
		return 1;
	}
	at = inline_room(sq, len, size, &answer);
	if (unlikely(!at))
		return answer;
	queue_mark_dirty(queue);
	tx->slots[tx->head & tx->mask] = SLOT_PLAIN;
	if (unlikely(len > tx->longest)) {
		end_stage(sq, len);
		vbn__shm_too_long(sq, tx->put, (uint32_t)len);
		return 1;
	}
	if (has_imm)
		*(uint64_t *)(void *)(at + SHM_WORD) = imm;
	copy_few(at + SHM_WORD + extra, data, len);
	ring_put(&tx->ring, size, record_header(has_imm ? SHM_SEND_IMM : SHM_SEND, (uint32_t)len));
	end_stage(sq, len);
	tx->put++;
	return 1;
}

static fast_path int send_bytes(struct vbn_queue *queue, const void *data, size_t len)
{
	return send_copy(queue, data, len, 0, false);
}

static fast_path int send_bytes_imm(
	struct vbn_queue *queue, const void *data, size_t len, uint32_t imm)
{
	return send_copy(queue, data, len, imm, true);
}

static fast_path int write_bytes(
	struct vbn_queue *queue, const void *data, size_t len, const struct vbn_remote *remote)
{
	struct shm_queue *sq = shm_queue(queue);
	const struct operation operation = {
		.kind = SHM_WRITE, .op = VBN_OP_WRITE, .remotes = remote};
	const uint32_t size = record_size(sizeof(struct shm_write), (uint32_t)len);
	struct shm_write write = {.addr = remote->addr,
		.rkey = remote->rkey,
		.index = sq->tx.head,
		.flags = SHM_LAST};
	struct shm_wqe *wqe;
	int answer;
	uint8_t *at = inline_room(sq, len, size, &answer);

	if (!at)
		return answer;
	queue_mark_dirty(queue);
	memcpy(at + SHM_WORD, &write, sizeof(write));
	memcpy(at + SHM_WORD + sizeof(write), data, len);
	ring_put(&sq->tx.ring, size, record_header(SHM_WRITE, (uint32_t)len));
	wqe = begin_wqe(sq, &operation, 0, NULL);
	wqe->len = wqe->done = (uint32_t)len;
	wqe->put = true;
	wqe->end = sq->tx.ring.pos;
	end_stage(sq, len);
	sq->tx.put++;
	return 1;
}

/* ---- flush ---- */

fast_path void vbn__shm_flush(struct vbn_queue *queue)
{
	struct shm_queue *sq = shm_queue(queue);

	if (sq->talk.staged)
		publish_box(sq);
	else if (likely(ring_unpublished(&sq->tx.ring)) && unlikely(!vbn__shm_publish(sq)))
		return;
	if (unlikely(sq->tx.put != sq->tx.head))
		vbn__shm_tx_go_on(sq);
}

void vbn__shm_tx_ops(struct queue_ops *ops, bool fetches)
{
	ops->send = send_bufs;
	ops->send_imm = send_imm_bufs;
	ops->send_inline = send_bytes;
	ops->send_inline_imm = send_bytes_imm;
	ops->write = write_bufs;
	ops->write_imm = write_imm_bufs;
	ops->write_inline = write_bytes;
	ops->flush = vbn__shm_flush;
	ops->outstanding = vbn__shm_outstanding;
	if (!fetches)
		return;
	ops->read = read_bufs;
	ops->fetch_add = fetch_add_bufs;
	ops->cmp_swap = cmp_swap_bufs;
}
