/* mini_rq.c - the receive side of a queue whose completions come compressed */

#include "drv/mlx5/group.h"
#include "drv/mlx5/mini.h"
#include "drv/mlx5/rq.h"

#include <stdlib.h>

/* ---- on the control thread ---- */

/* Any format has the length, which is all that a queue pair's receives need; of strides only the last
 * one says where the packet begins. Not every device has every format, nor for CQEs of 128 bytes. 0: this
 * device has none. */
static uint8_t choose_format(struct ibv_context *context, uint32_t cqe_size, bool strided)
{
	static const uint8_t formats[] = {MLX5DV_CQE_RES_FORMAT_HASH, MLX5DV_CQE_RES_FORMAT_CSUM,
		MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX};
	struct mlx5dv_context caps = {.comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION};

	if (mlx5dv_query_device(context, &caps) || !caps.cqe_comp_caps.max_num ||
		(cqe_size == 128 && !(caps.flags & MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP)))
		return 0;
	for (size_t i = strided ? ARRAY_SIZE(formats) - 1 : 0; i < ARRAY_SIZE(formats); i++)
		if (caps.cqe_comp_caps.supported_format & formats[i])
			return formats[i];
	return 0;
}

uint8_t vbn__mini_format(struct rdma_port *port, uint32_t cqe_size, bool strided)
{
	const uint8_t format = choose_format(port->context, cqe_size, strided);

	if (!format)
		fail(ENOTSUP,
			"cqe_compression is on, and port %s does not compress CQEs of %u bytes%s: leave it to the library",
			port->port.info.name, cqe_size ? cqe_size : 64,
			strided ? " with stride indices" : "");
	return format;
}

struct session *vbn__mini_session(void)
{
	struct session *session = aligned_alloc(CACHE_LINE, round_up(sizeof(*session), CACHE_LINE));

	if (!session)
		return NULL;
	*session = (struct session){.decoder = vbn__mini_decoder()};
	session->decode = session->decoder->decode;
	return session;
}

/* ---- on the worker's thread ---- */

/* The next n messages, whose WQEs are the oldest ones and lie side by side, as bufs or as events. Of
 * a datagram the title says where it came from. */
static force_inline void hand_out(struct mlx5_queue *mq, const struct completion *completions,
	uint32_t n, struct vbn_buf **bufs, struct vbn_event *events, const bool datagrams)
{
	struct rq *rq = mq->rq;
	struct vbn_buf *const *slots = &rq->slots[rq->tail & rq->mask];
	const uint64_t word = len_and_word(rq->pool, 0), source = mq->own_recv_cq.session->source;
	const uint32_t post_offset = rq->post_offset, data_offset = rq->data_offset;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct vbn_buf *buf = slots[i];
		uint32_t len = completions[i].len;

		if (datagrams) {
			len -= min(len, (uint32_t)GRH_LEN);
			buf->peer[0] = source;
			buf->peer[1] = (uintptr_t)buf + post_offset;
		}
		buf_set(buf, (uint8_t *)buf + data_offset, word | len);
		if (events)
			recv_event(mq, buf, &(struct arrival){.len = len, .op = VBN_OP_RECV},
				&events[i]);
		else
			bufs[i] = buf;
		bytes += len;
	}
	rq->tail = (uint16_t)(rq->tail + n);
	count_add(&mq->queue.stats.rx_messages, n);
	count_add(&mq->queue.stats.rx_bytes, bytes);
}

/* Of the session under way, what is wanted and lies side by side in the receive ring. */
static force_inline uint32_t ready_in_a_row(const struct mlx5_queue *mq, uint32_t wanted)
{
	const struct rq *rq = mq->rq;
	const uint32_t until_end = rq->mask + 1u - (rq->tail & rq->mask);
	const uint32_t ready = min(session_ready(mq->own_recv_cq.session), wanted);

	return min(ready, until_end);
}

/* Begins the session whose title is next. A queue has no more completions than receives posted. */
static force_inline bool begin(struct mlx5_queue *mq, uint8_t seen, const struct mlx5_cqe64 *cqe)
{
	const uint32_t posted = (uint16_t)(mq->rq->head - mq->rq->tail);
	struct cq *cq = &mq->own_recv_cq;

	if (unlikely(!session_open(cq, cq->index, cqe, seen, posted))) {
		vbn__mlx5_failed(mq, false, cqe);
		return false;
	}
	cq->index += cq->session->n;
	return true;
}

static force_inline int take(struct mlx5_queue *mq, struct vbn_buf **bufs, struct vbn_event *events,
	int n, const bool datagrams)
{
	struct cq *cq = &mq->own_recv_cq;
	struct session *session = cq->session;
	uint32_t compressed = 0;
	int got = 0;

	while (got < n) {
		const uint32_t ready = ready_in_a_row(mq, (uint32_t)(n - got));
		struct vbn_buf **more_bufs = events ? NULL : bufs + got;
		struct vbn_event *more_events = events ? events + got : NULL;
		const struct mlx5_cqe64 *cqe;
		uint8_t seen;

		if (likely(ready)) {
			hand_out(mq, session_next(session), ready, more_bufs, more_events,
				datagrams);
			session_take(session, cq, ready);
			got += (int)ready;
			compressed += ready;
			continue;
		}
		seen = cq_look(cq, cq->index, &cqe);
		if (cqe_absent(seen))
			break;
		if (cqe_is_title(seen)) {
			if (!begin(mq, seen, cqe))
				break;
		} else if (!vbn__rq_take_plain(mq, more_bufs, more_events, 1)) {
			break; /* it has failed */
		} else {
			got++;
		}
	}
	if (got) {
		count_add(&mq->queue.stats.rx_compressed, compressed);
		cqes_before_record();
		store_once(cq->record, be32(session_consumed(session, cq->index) & 0xffffff));
	}
	return got;
}

fast_path int vbn__mini_take(
	struct mlx5_queue *mq, struct vbn_buf **bufs, struct vbn_event *events, int n)
{
	if (mq->rq->datagrams)
		return events ? take(mq, NULL, events, n, true) : take(mq, bufs, NULL, n, true);
	return events ? take(mq, NULL, events, n, false) : take(mq, bufs, NULL, n, false);
}

/* ---- what a queue does ---- */

static force_inline int recv_bufs(
	struct vbn_queue *queue, struct vbn_buf **bufs, int n, const bool datagrams)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	int got = take(mq, bufs, NULL, n, datagrams);

	if (ring_is_short(mq->rq))
		vbn__rq_refill(mq);
	if (mq->sq.tail != mq->sq.head)
		vbn__mini_reap(mq, NULL, 0);
	return got;
}

static force_inline int poll_events(
	struct vbn_queue *queue, struct vbn_event *events, int n, const bool datagrams)
{
	struct mlx5_queue *mq = mlx5_queue(queue);
	int got = 0;

	if (likely(n > 0)) {
		got = take(mq, NULL, events, n, datagrams);
		if (ring_is_short(mq->rq))
			vbn__rq_refill(mq);
	}
	if (mq->sq.tail != mq->sq.head && !queue->failed)
		got += vbn__mini_reap(mq, events + got, n - got);
	if (unlikely(queue->failed))
		got += queue->ops->poll(queue, events + got, n - got); /* says so at once */
	return got;
}

static fast_path int recv_messages(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return recv_bufs(queue, bufs, n, false);
}

static fast_path int recv_datagrams(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return recv_bufs(queue, bufs, n, true);
}

static fast_path int poll_messages(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	return poll_events(queue, events, n, false);
}

static fast_path int poll_datagrams(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	return poll_events(queue, events, n, true);
}

void vbn__mini_ops(struct queue_ops *ops, bool datagrams)
{
	ops->recv = datagrams ? recv_datagrams : recv_messages;
	ops->poll = datagrams ? poll_datagrams : poll_messages;
}
