/* send.c - work requests staged in a ring, posted as one list, and their bufs released as they
 * complete */

#include "drv/verbs/verbs.h"

#include <stdlib.h>

/* What the requests of one call have in common; arrays are NULL where the operation has none. */
struct operation {
	enum ibv_wr_opcode opcode;
	bool may_inline;
	const struct vbn_remote *remotes;
	const uint32_t *imms;
	const struct vbn_atomic *atomics;
};

/* ---- completion ---- */

enum vbn_op vbn__verbs_op(const struct verbs_sq *sq, uint32_t index)
{
	switch (sq->wrs[index & sq->mask].opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM: return VBN_OP_WRITE;
	case IBV_WR_RDMA_READ: return VBN_OP_READ;
	case IBV_WR_ATOMIC_FETCH_AND_ADD: return VBN_OP_FETCH_ADD;
	case IBV_WR_ATOMIC_CMP_AND_SWP: return VBN_OP_CMP_SWAP;
	default: return VBN_OP_SEND;
	}
}

static bool op_fetches(enum vbn_op op)
{
	return op == VBN_OP_READ || op == VBN_OP_FETCH_ADD || op == VBN_OP_CMP_SWAP;
}

int vbn__verbs_release(struct verbs_queue *vq, uint32_t end, enum vbn_status status,
	struct vbn_event *events, int n)
{
	struct verbs_sq *sq = &vq->sq;
	const uint32_t begin = sq->tail;
	int got = 0;

	for (; sq->tail != end; sq->tail++) {
		struct vbn_buf *buf = sq->bufs[sq->tail & sq->mask];
		enum vbn_op op = vbn__verbs_op(sq, sq->tail);

		if (!buf)
			continue;
		if (buf->flags & (VBN_BUF_KEEP | VBN_BUF_COOKIE) || op_fetches(op)) {
			if (got == n)
				break;
			vbn__buf_debug_done(buf);
			event_of_buf(&vq->queue, buf, (uint32_t)vbn_buf_total(buf), op, status,
				&events[got++]);
		} else {
			vbn__buf_debug_done(buf);
			vbn_buf_free(&buf, 1);
		}
	}
	count_add(status == VBN_OK ? &vq->queue.stats.tx_done : &vq->queue.stats.tx_flushed,
		sq->tail - begin);
	return got;
}

void vbn__verbs_reap(struct verbs_queue *vq)
{
	struct verbs_sq *sq = &vq->sq;
	struct ibv_wc wcs[WC_BATCH];
	int n;

	if (vq->queue.grouped) {
		vbn__verbs_group_reap(vq->group);
		return;
	}
	do {
		n = ibv_poll_cq(vq->send_cq, WC_BATCH, wcs);
		if (unlikely(n < 0)) {
			vbn__verbs_refused(vq, "ibv_poll_cq", -n);
			return;
		}
		for (int i = 0; i < n; i++) {
			if (unlikely(wcs[i].status))
				vbn__verbs_send_failed(vq, &wcs[i]);
			else
				sq->done = (uint32_t)wcs[i].wr_id + 1;
		}
	} while (n == WC_BATCH);
}

/* ---- stage ---- */

static uint32_t room(const struct verbs_sq *sq)
{
	return sq->mask + 1 - (sq->head - sq->tail);
}

/* Room for one more, once what has completed is out of the way. */
static bool reserve(struct verbs_queue *vq)
{
	if (likely(room(&vq->sq)))
		return true;
	vbn__verbs_reap(vq);
	if (!vq->queue.failed)
		vbn__verbs_release(vq, vq->sq.done, VBN_OK, NULL, 0);
	return room(&vq->sq) && !vq->queue.failed;
}

/* The gather list of a chain. How many segments, or -EINVAL: too many, or memory that the port has
 * not registered. */
static int gather(struct verbs_queue *vq, const struct vbn_buf *buf, struct ibv_sge *sges)
{
	uint32_t n = 0;

	for (;; buf = buf->next) {
		const struct zone_registration *zone = &vq->queue.port->zones[buf->pool->zone_id];

		if (buf->len) {
			if (n == vq->sq.max_gather || !zone->region)
				return -EINVAL;
			sges[n++] = (struct ibv_sge){.addr = (uintptr_t)buf->data,
				.length = buf->len,
				.lkey = zone->key};
		}
		if (!(buf->flags & VBN_BUF_CHAIN))
			return (int)n;
	}
}

/* The request at head, but for its gather list. */
static struct ibv_send_wr *begin(struct verbs_queue *vq, const struct operation *operation, int i)
{
	struct verbs_sq *sq = &vq->sq;
	struct ibv_send_wr *wr = &sq->wrs[sq->head & sq->mask];

	wr->wr_id = sq->head;
	wr->opcode = operation->opcode;
	wr->send_flags = vq->sq.fence;
	if (operation->imms)
		wr->imm_data = (be_force __be32)htobe32(operation->imms[i]);
	if (operation->atomics) {
		wr->wr.atomic.remote_addr = operation->remotes[i].addr;
		wr->wr.atomic.rkey = operation->remotes[i].rkey;
		wr->wr.atomic.compare_add = operation->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD
			? operation->atomics[i].value
			: operation->atomics[i].compare;
		wr->wr.atomic.swap = operation->atomics[i].value;
	} else if (operation->remotes) {
		wr->wr.rdma.remote_addr = operation->remotes[i].addr;
		wr->wr.rdma.rkey = operation->remotes[i].rkey;
	}
	return wr;
}

/* A datagram's way. */
static void direct(struct ibv_send_wr *wr, uint64_t handle)
{
	const struct verbs_way *way = (const struct verbs_way *)(uintptr_t)handle;

	wr->wr.ud.ah = way->ah;
	wr->wr.ud.remote_qpn = way->qpn;
	wr->wr.ud.remote_qkey = way->qkey;
}

static void end(struct verbs_queue *vq, struct ibv_send_wr *wr, struct vbn_buf *buf, uint64_t bytes)
{
	struct verbs_sq *sq = &vq->sq;

	sq->bufs[sq->head & sq->mask] = buf;
	if (++sq->since_signal >= sq->cq_mod) {
		wr->send_flags |= IBV_SEND_SIGNALED;
		sq->since_signal = 0;
		count_add(&vq->queue.stats.tx_signalled, 1);
	}
	sq->head++;
	count_add(&vq->queue.stats.tx_messages, 1);
	count_add(&vq->queue.stats.tx_bytes, bytes);
	if (unlikely(vq->ring_each))
		vq->queue.ops->flush(&vq->queue);
}

/* 1, 0 where the ring has no room for it, or why it cannot be sent. */
static int stage_one(
	struct verbs_queue *vq, struct vbn_buf *buf, const struct operation *operation, int i)
{
	const bool datagram = vq->queue.conf.transport == VBN_UD;
	const uint64_t total = vbn_buf_total(buf);
	struct ibv_send_wr *wr;
	int n;

	if (operation->atomics && (buf->len != 8 || buf->flags & VBN_BUF_CHAIN))
		return -EMSGSIZE;
	if (total > vq->sq.max_message)
		return -EMSGSIZE;
	if (datagram && !is_handle(buf->peer[0]))
		return -EINVAL;
	if (!reserve(vq))
		return vq->queue.failed ? -EPIPE : 0;
	wr = begin(vq, operation, i);
	n = gather(vq, buf, wr->sg_list);
	if (n < 0)
		return n;
	wr->num_sge = n;
	if (operation->may_inline && total <= vq->sq.inline_size)
		wr->send_flags |= IBV_SEND_INLINE;
	if (datagram)
		direct(wr, buf->peer[0]);
	vbn__buf_debug_sent(buf);
	end(vq, wr, buf, total);
	return 1;
}

static int stage(
	struct vbn_queue *queue, struct vbn_buf **bufs, int n, const struct operation *operation)
{
	struct verbs_queue *vq = verbs_queue(queue);

	if (n <= 0)
		return 0;
	queue_mark_dirty(queue);
	for (int i = 0; i < n; i++) {
		int ret = stage_one(vq, bufs[i], operation, i);

		if (ret <= 0)
			return i ? i : ret;
		if (unlikely(queue->failed))
			return i + 1; /* taken, and reported as flushed */
	}
	return n;
}

int vbn__verbs_send(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return stage(
		queue, bufs, n, &(struct operation){.opcode = IBV_WR_SEND, .may_inline = true});
}

int vbn__verbs_send_imm(struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)
{
	return stage(queue, bufs, n,
		&(struct operation){
			.opcode = IBV_WR_SEND_WITH_IMM, .may_inline = true, .imms = imms});
}

int vbn__verbs_write(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return stage(queue, bufs, n,
		&(struct operation){
			.opcode = IBV_WR_RDMA_WRITE, .may_inline = true, .remotes = remotes});
}

int vbn__verbs_write_imm(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const uint32_t *imms, int n)
{
	return stage(queue, bufs, n,
		&(struct operation){.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
			.may_inline = true,
			.remotes = remotes,
			.imms = imms});
}

int vbn__verbs_read(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	return stage(queue, bufs, n,
		&(struct operation){.opcode = IBV_WR_RDMA_READ, .remotes = remotes});
}

/* 1, 0 where the ring has no room, or why it cannot be read. */
static int stage_whole_read(
	struct verbs_queue *vq, struct vbn_buf *buf, const struct operation *operation, int i)
{
	const struct zone_registration *zone = &vq->queue.port->zones[buf->pool->zone_id];
	struct ibv_send_wr *wr;

	if (buf->flags & VBN_BUF_CHAIN || !zone->region)
		return -EINVAL;
	if (buf->len > vq->sq.max_message)
		return -EMSGSIZE;
	if (!reserve(vq))
		return vq->queue.failed ? -EPIPE : 0;
	wr = begin(vq, operation, i);
	wr->send_flags = 0; /* reads complete in order, and cannot be fenced */
	wr->sg_list[0] = (struct ibv_sge){
		.addr = (uintptr_t)buf->data, .length = buf->len, .lkey = zone->key};
	wr->num_sge = 1; /* of no bytes, too: some providers take what a request before it had */
	vq->sq.fence = IBV_SEND_FENCE;
	vbn__buf_debug_sent(buf);
	end(vq, wr, buf, buf->len);
	return 1;
}

int vbn__verbs_read_whole(
	struct vbn_queue *queue, struct vbn_buf **bufs, const struct vbn_remote *remotes, int n)
{
	struct verbs_queue *vq = verbs_queue(queue);
	const struct operation operation = {.opcode = IBV_WR_RDMA_READ, .remotes = remotes};

	for (int i = 0; i < n; i++) {
		int ret = stage_whole_read(vq, bufs[i], &operation, i);

		if (ret <= 0)
			return i ? i : ret;
		queue_mark_dirty(queue);
		if (unlikely(queue->failed))
			return i + 1; /* taken, and reported as flushed */
	}
	return max(n, 0);
}

int vbn__verbs_fetch_add(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	return stage(queue, bufs, n,
		&(struct operation){.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.remotes = remotes,
			.atomics = atomics});
}

int vbn__verbs_cmp_swap(struct vbn_queue *queue, struct vbn_buf **bufs,
	const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)
{
	return stage(queue, bufs, n,
		&(struct operation){.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
			.remotes = remotes,
			.atomics = atomics});
}

/* ---- copies ---- */

/* A device without inline sends gets a buf of the queue's pool. */
static struct vbn_buf *copy_in_buf(struct verbs_queue *vq, const void *data, uint32_t len)
{
	struct vbn_pool *pool = vq->sq.pool;
	struct vbn_buf *buf = pool_pop(pool);

	if (!buf)
		return NULL;
	buf_start(pool, buf, pool_data(pool, buf), len);
	memcpy(buf->data, data, len);
	return buf;
}

static int copy_one(struct vbn_queue *queue, const void *data, size_t len,
	const struct operation *operation, const struct vbn_peer *peer)
{
	struct verbs_queue *vq = verbs_queue(queue);
	struct verbs_sq *sq = &vq->sq;
	struct vbn_buf *buf = NULL;
	struct ibv_send_wr *wr;

	if (len > sq->max_inline)
		return -EMSGSIZE;
	if (!reserve(vq))
		return queue->failed ? -EPIPE : 0;
	wr = begin(vq, operation, 0);
	if (sq->copies) {
		uint8_t *copy = sq->copies + (size_t)(sq->head & sq->mask) * sq->max_inline;

		memcpy(copy, data, len);
		wr->sg_list[0] = (struct ibv_sge){.addr = (uintptr_t)copy, .length = (uint32_t)len};
		wr->num_sge = len != 0;
		wr->send_flags |= IBV_SEND_INLINE;
	} else {
		buf = copy_in_buf(vq, data, (uint32_t)len);
		if (!buf)
			return 0;
		wr->num_sge = gather(vq, buf, wr->sg_list);
		vbn__buf_debug_sent(buf);
	}
	if (peer)
		direct(wr, peer->handle);
	queue_mark_dirty(queue);
	end(vq, wr, buf, len);
	return 1;
}

int vbn__verbs_send_inline(struct vbn_queue *queue, const void *data, size_t len)
{
	return copy_one(queue, data, len, &(struct operation){.opcode = IBV_WR_SEND}, NULL);
}

int vbn__verbs_send_inline_imm(struct vbn_queue *queue, const void *data, size_t len, uint32_t imm)
{
	return copy_one(queue, data, len,
		&(struct operation){.opcode = IBV_WR_SEND_WITH_IMM, .imms = &imm}, NULL);
}

int vbn__verbs_send_inline_to(
	struct vbn_queue *queue, const struct vbn_peer *peer, const void *data, size_t len)
{
	return copy_one(queue, data, len, &(struct operation){.opcode = IBV_WR_SEND}, peer);
}

int vbn__verbs_write_inline(
	struct vbn_queue *queue, const void *data, size_t len, const struct vbn_remote *remote)
{
	return copy_one(queue, data, len,
		&(struct operation){.opcode = IBV_WR_RDMA_WRITE, .remotes = remote}, NULL);
}

/* ---- flush ---- */

/* A provider that has no room just now takes the rest with the next poll's flush. */
static bool passing(int error)
{
	return error == ENOMEM || error == EAGAIN || error == ENOSPC;
}

/* What a verb returned, as errno's values: some providers return them negated, or -1 and errno. */
static int error_of(int returned)
{
	return returned == -1 ? errno : abs(returned);
}

static cold void post_failed(struct verbs_queue *vq, int error)
{
	if (passing(error))
		return;
	if (vq->link && error == ENOTCONN)
		vbn__verbs_cut_off(vq);
	else
		vbn__verbs_refused(vq, "ibv_post_send", error);
}

/* The last request of a list asks for a completion, so that none is left without. */
void vbn__verbs_flush(struct vbn_queue *queue)
{
	struct verbs_queue *vq = verbs_queue(queue);
	struct verbs_sq *sq = &vq->sq;
	struct ibv_send_wr *last = &sq->wrs[(sq->head - 1) & sq->mask], *next = last->next,
			   *bad = NULL;
	int error;

	if (sq->head == sq->rung)
		return;
	if (!(last->send_flags & IBV_SEND_SIGNALED)) {
		last->send_flags |= IBV_SEND_SIGNALED;
		sq->since_signal = 0;
		count_add(&queue->stats.tx_signalled, 1);
	}
	last->next = NULL;
	error = ibv_post_send(vq->qp, &sq->wrs[sq->rung & sq->mask], &bad);
	last->next = next;
	count_add(&queue->stats.tx_doorbells, 1);
	sq->rung = error && bad ? (uint32_t)bad->wr_id : sq->head;
	if (unlikely(error))
		post_failed(vq, error_of(error));
}

uint32_t vbn__verbs_outstanding(const struct vbn_queue *queue)
{
	const struct verbs_sq *sq = &verbs_queue(queue)->sq;

	return sq->head - sq->tail;
}
