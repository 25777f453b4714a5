/* data.c - packets to and from an AF_XDP socket's rings */

#include "drv/xdp/xdp.h"

#include <sys/socket.h>

enum { OFFSET_SHIFT = XSK_UNALIGNED_BUF_OFFSET_SHIFT, KICKS_MOST = 64, LOOK_EACH = 1 << 16 };

/* What a copy has for a cookie: its original is its `next`. */
static char copied;

/* ---- addresses and marks ---- */

static force_inline uint64_t address_of(const struct xdp_queue *xq, const struct vbn_buf *buf)
{
	return (uint64_t)((const uint8_t *)buf - xq->base) |
		(uint64_t)(buf->data - (const uint8_t *)buf) << OFFSET_SHIFT;
}

static force_inline struct vbn_buf *buf_at(const struct xdp_queue *xq, uint64_t address)
{
	return (struct vbn_buf *)(void *)(xq->base + (address & XSK_UNALIGNED_BUF_ADDR_MASK));
}

/* ---- sends that are done ---- */

/* A copy goes home, and stands for its original. */
static force_inline struct vbn_buf *original(struct vbn_buf *buf)
{
	struct vbn_buf *first;

	if (likely(!(buf->flags & VBN_BUF_COOKIE)) || buf->cookie != &copied)
		return buf;
	first = buf->next;
	buf->flags = 0;
	vbn__buf_debug_done(buf);
	vbn_buf_free(&buf, 1);
	return first;
}

static void reap(struct xdp_queue *xq)
{
	struct vbn_buf *gone[XDP_BURST];
	uint32_t at, n_gone = 0;
	const uint32_t n = (uint32_t)xsk_ring_cons__peek(&xq->done, XDP_BURST, &at);

	if (!n)
		return;
	for (uint32_t i = 0; i < n; i++) {
		struct vbn_buf *buf = buf_at(xq, *xsk_ring_cons__comp_addr(&xq->done, at + i));

		buf->peer[1] = 0;
		buf = original(buf);
		if (unlikely(buf->flags & (VBN_BUF_KEEP | VBN_BUF_COOKIE))) {
			frame_done(&xq->fq, buf);
			continue;
		}
		vbn__buf_debug_done(buf);
		gone[n_gone++] = buf;
	}
	xsk_ring_cons__release(&xq->done, n);
	vbn_buf_free(gone, (int)n_gone);
	xq->fq.n_out -= n_gone;
	count_add(&xq->fq.queue.stats.tx_done, n);
}

/* ---- stage ---- */

/* A buf of the umem with the bytes of a chain, or of a buf of elsewhere; NULL: there is none now. */
static noinline struct vbn_buf *copy_of(struct xdp_queue *xq, struct vbn_buf *from)
{
	struct vbn_buf *copy = pool_pop(xq->pool);
	struct vbn_buf *segment = from;
	uint8_t *to;

	if (!copy)
		return NULL;
	to = pool_data(xq->pool, copy);
	buf_start(xq->pool, copy, to, 0);
	for (;; segment = segment->next) {
		memcpy(to + copy->len, segment->data, segment->len);
		copy->len += segment->len;
		if (!(segment->flags & VBN_BUF_CHAIN))
			break;
	}
	vbn__buf_debug_sent(from);
	vbn_buf_set_cookie(copy, &copied);
	copy->next = from;
	return copy;
}

static noinline int check_chain(const struct xdp_queue *xq, const struct vbn_buf *buf)
{
	const uint64_t total = vbn_buf_total(buf);
	uint32_t n = 1;

	for (; buf->flags & VBN_BUF_CHAIN; buf = buf->next)
		n++;
	if (total < FRAME_HEADER || total > min(xq->longest, xq->pool->data_size))
		return -EMSGSIZE;
	return n > xq->fq.queue.conf.max_gather ? -EINVAL : 0;
}

/* The buf that is sent for this one, or NULL with what to answer: 0 where there is no room. */
static force_inline struct vbn_buf *sendable(struct xdp_queue *xq, struct vbn_buf *buf, int *answer)
{
	const bool here = (buf->pool_id == xq->ids[0] || buf->pool_id == xq->ids[1]) &&
		!(buf->flags & VBN_BUF_CHAIN);

	*answer = 0;
	if (unlikely(!here))
		*answer = check_chain(xq, buf);
	else if (unlikely(buf->len - FRAME_HEADER > xq->longest - FRAME_HEADER))
		*answer = -EMSGSIZE;
	if (unlikely(*answer))
		return NULL;
	if (unlikely(frame_wants_work(buf))) {
		*answer = vbn__frame_prepare(buf, false);
		if (*answer)
			return NULL;
	}
	return likely(here) ? buf : copy_of(xq, buf);
}

static int send_bufs(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct xdp_queue *xq = xdp_queue(queue);
	uint64_t bytes = 0;
	uint32_t at, room;
	int i = 0, ret = 0;

	if (unlikely(n <= 0))
		return 0;
	if (unlikely(frame_room(&xq->fq) < (uint32_t)n))
		reap(xq);
	room = min((uint32_t)n, frame_room(&xq->fq));
	room = min(room, xsk_prod_nb_free(&xq->tx, room));
	if (!room || xsk_ring_prod__reserve(&xq->tx, room, &at) != room)
		return 0;
	for (; i < (int)room; i++) {
		struct vbn_buf *buf = sendable(xq, bufs[i], &ret);
		struct xdp_desc *desc;

		if (unlikely(!buf))
			break;
		desc = xsk_ring_prod__tx_desc(&xq->tx, at + (uint32_t)i);
		desc->addr = address_of(xq, buf);
		desc->len = buf->len;
		desc->options = 0;
		bytes += buf->len;
		buf->peer[1] = xq->sent;
		vbn__buf_debug_sent(buf);
	}
	xq->tx.cached_prod -= room - (uint32_t)i; /* what was not used */
	if (unlikely(!i))
		return ret;
	xq->staged += (uint32_t)i;
	xq->fq.n_out += (uint32_t)i;
	count_add(&queue->stats.tx_messages, (uint64_t)i);
	count_add(&queue->stats.tx_bytes, bytes);
	queue_mark_dirty(queue);
	return i;
}

/* ---- flush ---- */

static cold void interface_gone(struct xdp_queue *xq)
{
	vbn__xdp_reclaim(xq);
	vbn__frame_fail(&xq->fq,
		"its interface is gone: somebody has deleted it, or moved it to another namespace; when it is back, vbn_queue_reset()");
}

static bool all_taken(const struct xdp_queue *xq)
{
	return load_acquire(xq->tx.consumer) == *xq->tx.producer;
}

/* The kernel takes 32 or so with a call. What it has no room for now waits for the next flush. */
static void kick(struct xdp_queue *xq)
{
	for (int i = 0; i < KICKS_MOST; i++) {
		const uint32_t before = load_once(xq->tx.consumer);

		if (sendto(xq->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno == ENXIO) {
			interface_gone(xq);
			return;
		}
		reap(xq);
		if (all_taken(xq))
			return;
		if (load_once(xq->tx.consumer) == before)
			break;
	}
	queue_mark_dirty(&xq->fq.queue);
}

static void flush(struct vbn_queue *queue)
{
	struct xdp_queue *xq = xdp_queue(queue);

	if (xq->staged) {
		xsk_ring_prod__submit(&xq->tx, xq->staged);
		xq->staged = 0;
		count_add(&queue->stats.tx_doorbells, 1);
	}
	if (xsk_ring_prod__needs_wakeup(&xq->tx) && !all_taken(xq))
		kick(xq);
}

/* ---- receive ---- */

uint32_t vbn__xdp_refill(struct xdp_queue *xq)
{
	const uint32_t wanted = xq->fq.queue.conf.rx_depth - xq->posted;
	const uint32_t n = pool_ready(xq->pool, wanted);
	uint32_t at;

	if (!n || xsk_ring_prod__reserve(&xq->fill, n, &at) != n)
		return wanted;
	for (uint32_t i = 0; i < n; i++) {
		struct vbn_buf *buf = pool_pop(xq->pool);

		buf->peer[1] = xq->received;
		*xsk_ring_prod__fill_addr(&xq->fill, at + i) =
			(uint64_t)((uint8_t *)buf - xq->base);
	}
	xsk_ring_prod__submit(&xq->fill, n);
	xq->posted += n;
	return wanted - n;
}

/* Nothing has come: what is missing is posted, sends that are done are reaped, and the kernel is called
 * where it waits for that; and now and then anyhow, since it does not say that the interface is gone. */
static noinline void idle(struct xdp_queue *xq)
{
	if (xq->posted < xq->fq.queue.conf.rx_depth)
		vbn__xdp_refill(xq);
	if (xq->fq.n_out)
		reap(xq);
	if (likely(!xsk_ring_prod__needs_wakeup(&xq->fill)) && ++xq->idle % LOOK_EACH)
		return;
	if (recvfrom(xq->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL) < 0 && errno == ENXIO)
		interface_gone(xq);
}

static int recv_bufs(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct xdp_queue *xq = xdp_queue(queue);
	uint64_t bytes = 0;
	uint32_t at, got, missing;

	if (unlikely(n <= 0))
		return 0;
	got = (uint32_t)xsk_ring_cons__peek(&xq->rx, (uint32_t)n, &at);
	if (!got) {
		idle(xq);
		return 0;
	}
	for (uint32_t i = 0; i < got; i++)
		__builtin_prefetch(buf_at(xq, xsk_ring_cons__rx_desc(&xq->rx, at + i)->addr), 1);
	for (uint32_t i = 0; i < got; i++) {
		const struct xdp_desc *desc = xsk_ring_cons__rx_desc(&xq->rx, at + i);
		struct vbn_buf *buf = buf_at(xq, desc->addr);

		buf_start(xq->pool, buf, (uint8_t *)buf + (desc->addr >> OFFSET_SHIFT), desc->len);
		buf->peer[0] = buf->peer[1] = 0;
		bytes += desc->len;
		bufs[i] = buf;
	}
	xsk_ring_cons__release(&xq->rx, got);
	xq->posted -= got;
	missing = vbn__xdp_refill(xq);
	if (unlikely(missing))
		count_add(&queue->stats.rx_no_buf, missing);
	count_add(&queue->stats.rx_messages, got);
	count_add(&queue->stats.rx_bytes, bytes);
	return (int)got;
}

static int recv_nothing(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	(void)bufs, (void)n;
	reap(xdp_queue(queue));
	return 0;
}

static int poll_both(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	reap(xdp_queue(queue));
	return vbn__frame_poll(queue, events, n, recv_bufs);
}

static int poll_sends(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	reap(xdp_queue(queue));
	return vbn__frame_poll(queue, events, n, recv_nothing);
}

/* ---- end ---- */

static void reclaim_pool(struct xdp_queue *xq, const struct vbn_pool *pool)
{
	for (uint32_t i = 0; i < pool->n_bufs; i++) {
		struct vbn_buf *buf =
			(struct vbn_buf *)(void *)(pool->first + (size_t)i * pool->stride);
		const uint64_t mark = buf->peer[1];

		if (mark != xq->received && mark != xq->sent)
			continue;
		buf->peer[1] = 0;
		if (mark == xq->received) {
			buf_start(pool, buf, pool_data(pool, buf), 0);
			vbn_buf_free(&buf, 1);
			xq->posted--;
			count_add(&xq->fq.queue.stats.rx_flushed, 1);
		} else {
			frame_done(&xq->fq, original(buf));
			count_add(&xq->fq.queue.stats.tx_flushed, 1);
		}
	}
}

void vbn__xdp_reclaim(struct xdp_queue *xq)
{
	reclaim_pool(xq, xq->pool);
	if (xq->ids[1] != xq->ids[0])
		reclaim_pool(xq, vbn__pools[xq->ids[1]]);
}

/* Its socket is closed. */
cold void vbn__xdp_queue_news(struct vbn_queue *queue, uint32_t news)
{
	struct xdp_queue *xq = xdp_queue(queue);

	(void)news;
	if (!queue->connected || queue->failed)
		return;
	vbn__xdp_reclaim(xq);
	vbn__frame_fail(&xq->fq, FRAME_RESET);
}

void vbn__xdp_ops(struct xdp_queue *xq)
{
	struct queue_ops *ops = &xq->fq.ops;
	const bool receives = xq->fq.queue.conf.rx_group != NULL;

	*ops = vbn__lacking_ops;
	ops->send = send_bufs;
	ops->flush = flush;
	ops->recv = receives ? recv_bufs : recv_nothing;
	ops->poll = receives ? poll_both : poll_sends;
	ops->outstanding = vbn__frame_outstanding;
	xq->fq.queue.connected_ops = ops;
}
