/* data.c - packets to and from a TAP device: a write and a read each, none of which waits */

#include "drv/tap/tap.h"

#include "base/checksum.h"

#include <sys/uio.h>
#include <unistd.h>

static_assert(sizeof(struct virtio_net_hdr) == 10, "the kernel's default");

/* ---- stage ---- */

/* 0, or why it cannot be sent. */
static int check_frame(const struct tap_queue *tq, const struct vbn_buf *buf)
{
	const uint64_t total = vbn_buf_total(buf);
	uint32_t n = 1;

	for (; buf->flags & VBN_BUF_CHAIN; buf = buf->next)
		n++;
	if (total < FRAME_HEADER || total > tq->longest)
		return -EMSGSIZE;
	return n > tq->max_gather ? -EINVAL : 0;
}

static int send_bufs(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct tap_queue *tq = tap_queue(queue);
	const int room = (int)min(frame_room(&tq->fq), (uint32_t)max(n, 0));
	uint64_t bytes = 0;
	int i, ret = 0;

	for (i = 0; i < room && !ret; i++) {
		ret = check_frame(tq, bufs[i]);
		if (!ret && frame_wants_work(bufs[i]))
			ret = vbn__frame_prepare(bufs[i], tq->offload);
		if (ret)
			break;
		vbn__buf_debug_sent(bufs[i]);
		tq->staged[tq->head++ & tq->mask] = bufs[i];
		bytes += vbn_buf_total(bufs[i]);
	}
	if (!i)
		return ret;
	tq->fq.n_out += (uint32_t)i;
	count_add(&queue->stats.tx_messages, (uint64_t)i);
	count_add(&queue->stats.tx_bytes, bytes);
	queue_mark_dirty(queue);
	return i;
}

/* ---- flush ---- */

/* The kernel fills the fourth layer's checksum in, upon the pseudo header's sum. */
static void leave_checksum(struct vbn_buf *buf, struct virtio_net_hdr *header)
{
	struct frame_sums sums;
	uint16_t pseudo;

	vbn__frame_sums(buf->data, buf->len, vbn_buf_total(buf), &sums);
	if (!sums.l4)
		return;
	pseudo = csum_fold(sums.pseudo);
	memcpy(buf->data + sums.l4_field, &pseudo, sizeof(pseudo));
	header->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	header->csum_start = (uint16_t)sums.l4;
	header->csum_offset = (uint16_t)(sums.l4_field - sums.l4);
}

static ssize_t write_frame(const struct tap_queue *tq, struct vbn_buf *buf)
{
	struct virtio_net_hdr header = {0};
	struct iovec iov[1 + TAP_GATHER] = {{.iov_base = &header, .iov_len = sizeof(header)}};
	int n = 1;

	if (tq->offload && vbn_buf_packet(buf)->flags & VBN_PACKET_TX_L4_CSUM)
		leave_checksum(buf, &header);
	for (;; buf = buf->next) {
		iov[n++] = (struct iovec){.iov_base = buf->data, .iov_len = buf->len};
		if (!(buf->flags & VBN_BUF_CHAIN))
			return writev(tq->fd, iov, n);
	}
}

static cold void give_up(struct tap_queue *tq, const char *why)
{
	while (tq->tail != tq->head) {
		count_add(&tq->fq.queue.stats.tx_flushed, 1);
		frame_done(&tq->fq, tq->staged[tq->tail++ & tq->mask]);
	}
	vbn__frame_fail(&tq->fq, why);
}

static cold void device_gone(struct tap_queue *tq)
{
	give_up(tq,
		"its TAP device is gone: somebody has deleted it, or moved it; vbn_queue_reset() makes it anew");
}

cold void vbn__tap_queue_news(struct vbn_queue *queue, uint32_t news)
{
	(void)news;
	if (queue->connected && !queue->failed)
		give_up(tap_queue(queue), FRAME_RESET);
}

/* What the kernel has no room for now waits for the next flush. */
static void flush(struct vbn_queue *queue)
{
	struct tap_queue *tq = tap_queue(queue);

	if (tq->tail == tq->head)
		return;
	count_add(&queue->stats.tx_doorbells, 1);
	for (; tq->tail != tq->head; tq->tail++) {
		struct vbn_buf *buf = tq->staged[tq->tail & tq->mask];

		if (likely(write_frame(tq, buf) >= 0)) {
			count_add(&queue->stats.tx_done, 1);
		} else if (errno == EAGAIN || errno == EINTR) {
			queue_mark_dirty(queue);
			return;
		} else if (errno == EBADFD || errno == ENODEV) {
			device_gone(tq);
			return;
		} else {
			count_add(&queue->stats.tx_refused, 1);
		}
		frame_done(&tq->fq, buf);
	}
}

/* ---- receive ---- */

/* The rest of a checksum whose pseudo header's sum is there. False: it lies outside of the frame. */
static bool finish_checksum(
	const struct virtio_net_hdr *header, uint8_t *data, uint32_t len, uint16_t *flags)
{
	const uint32_t start = header->csum_start, field = start + header->csum_offset;
	uint16_t csum;

	if (header->flags & VIRTIO_NET_HDR_F_DATA_VALID)
		*flags = VBN_PACKET_L4_GOOD;
	if (!(header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM))
		return true;
	if (start > len || field + sizeof(csum) > len)
		return false;
	csum = csum_finish_udp(vbn__csum_bytes(data + start, len - start, 0));
	memcpy(data + field, &csum, sizeof(csum));
	*flags = VBN_PACKET_L4_GOOD;
	return true;
}

/* What is known of it; false: it is dropped, and counted. */
static bool take(struct tap_queue *tq, const struct virtio_net_hdr *header, ssize_t bytes,
	struct vbn_buf *buf)
{
	struct vbn_queue_stats *stats = &tq->fq.queue.stats;
	const uint32_t len = (uint32_t)bytes - (uint32_t)sizeof(*header);
	uint8_t *data = pool_data(tq->pool, buf);
	uint16_t flags = 0;

	if ((size_t)bytes < sizeof(*header) + FRAME_HEADER || header->gso_type) {
		count_add(&stats->rx_malformed, 1);
		return false;
	}
	if (len > tq->data_size) {
		count_add(&stats->rx_too_long, 1);
		return false;
	}
	if (!finish_checksum(header, data, len, &flags)) {
		count_add(&stats->rx_malformed, 1);
		return false;
	}
	buf_start(tq->pool, buf, data, len);
	*vbn_buf_packet(buf) = (struct vbn_packet){.flags = flags};
	return true;
}

static int recv_bufs(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct tap_queue *tq = tap_queue(queue);
	struct virtio_net_hdr header;
	struct vbn_buf *buf = NULL;
	uint64_t bytes = 0;
	uint8_t beyond;
	int got = 0, tries = n;
	bool gone = false;

	while (got < n && tries-- > 0) {
		ssize_t ret;

		if (!buf)
			buf = pool_pop(tq->pool);
		if (unlikely(!buf)) {
			count_add(&queue->stats.rx_no_buf, 1);
			break;
		}
		ret = readv(tq->fd,
			(struct iovec[]){{&header, sizeof(header)},
				{pool_data(tq->pool, buf), tq->data_size}, {&beyond, 1}},
			3);
		if (ret < 0) {
			if (unlikely(errno == EBADFD))
				gone = true;
			break;
		}
		if (!take(tq, &header, ret, buf))
			continue;
		bytes += buf->len;
		bufs[got++] = buf;
		buf = NULL;
	}
	if (buf)
		pool_push(tq->pool, buf);
	count_add(&queue->stats.rx_messages, (uint64_t)got);
	count_add(&queue->stats.rx_bytes, bytes);
	if (unlikely(gone))
		device_gone(tq);
	return got;
}

static int recv_nothing(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	(void)queue, (void)bufs, (void)n;
	return 0;
}

static int poll_both(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	return vbn__frame_poll(queue, events, n, recv_bufs);
}

static int poll_sends(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	return vbn__frame_poll(queue, events, n, recv_nothing);
}

void vbn__tap_ops(struct tap_queue *tq)
{
	struct queue_ops *ops = &tq->fq.ops;
	const bool receives = tq->fq.queue.conf.rx_group != NULL;

	*ops = vbn__lacking_ops;
	ops->send = send_bufs;
	ops->flush = flush;
	ops->recv = receives ? recv_bufs : recv_nothing;
	ops->poll = receives ? poll_both : poll_sends;
	ops->outstanding = vbn__frame_outstanding;
	tq->fq.queue.connected_ops = ops;
}
