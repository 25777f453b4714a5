/* queue.c - a capture file's queue: what comes from it, what goes into it */

#include "drv/pcap/pcap.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- stage and flush ---- */

static int check_frame(const struct pcap_queue *pq, const struct vbn_buf *buf)
{
	const uint64_t total = vbn_buf_total(buf);
	uint32_t n = 1;

	for (; buf->flags & VBN_BUF_CHAIN; buf = buf->next)
		n++;
	if (total < FRAME_HEADER || total > pq->port->port.info.max_message)
		return -EMSGSIZE;
	return n > pq->fq.queue.conf.max_gather ? -EINVAL : 0;
}

static int send_bufs(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct pcap_queue *pq = pcap_queue(queue);
	const int room = (int)min(frame_room(&pq->fq), (uint32_t)max(n, 0));
	uint64_t bytes = 0;
	int i, ret = 0;

	for (i = 0; i < room; i++) {
		ret = check_frame(pq, bufs[i]);
		if (!ret && frame_wants_work(bufs[i]))
			ret = vbn__frame_prepare(bufs[i], false);
		if (ret)
			break;
		vbn__buf_debug_sent(bufs[i]);
		pq->staged[pq->head++ & pq->mask] = bufs[i];
		bytes += vbn_buf_total(bufs[i]);
	}
	if (!i)
		return ret;
	pq->fq.n_out += (uint32_t)i;
	count_add(&queue->stats.tx_messages, (uint64_t)i);
	count_add(&queue->stats.tx_bytes, bytes);
	queue_mark_dirty(queue);
	return i;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static cold void give_up(struct pcap_queue *pq, const char *why)
{
	while (pq->tail != pq->head) {
		count_add(&pq->fq.queue.stats.tx_flushed, 1);
		frame_done(&pq->fq, pq->staged[pq->tail++ & pq->mask]);
	}
	vbn__frame_fail(&pq->fq, why);
}

static cold void cannot_write(struct pcap_queue *pq, int error)
{
	char why[160];

	snprintf(why, sizeof(why),
		"its file cannot be written: %s; make room and vbn_queue_reset() it, or take another",
		strerror(-error));
	give_up(pq, why);
}

/* What was received with its time keeps it. */
static void flush(struct vbn_queue *queue)
{
	struct pcap_queue *pq = pcap_queue(queue);
	const uint64_t now = pq->tail != pq->head ? now_ns() : 0;

	for (; pq->tail != pq->head; pq->tail++) {
		struct vbn_buf *buf = pq->staged[pq->tail & pq->mask];
		const struct vbn_packet *packet = vbn_buf_packet(buf);
		const int ret = vbn__pcap_writer_put(pq->port->writer, buf,
			packet->flags & VBN_PACKET_TIME ? packet->time : now);

		if (unlikely(ret)) {
			cannot_write(pq, ret);
			return;
		}
		count_add(&queue->stats.tx_done, 1);
		frame_done(&pq->fq, buf);
	}
}

/* ---- receive ---- */

static cold void end_of_file(struct pcap_queue *pq, int ret, const char *damage)
{
	char why[200];

	pq->ended = true;
	store_once(&pq->port->port.info.up, false);
	if (!ret)
		return;
	count_add(&pq->fq.queue.stats.rx_malformed, 1);
	snprintf(why, sizeof(why), "the file it reads is damaged: %.120s; what came before is good",
		damage);
	give_up(pq, why);
}

/* The packet in a buf; NULL: it is dropped, and counted. */
static struct vbn_buf *take(struct pcap_queue *pq, const struct pcap_packet *packet)
{
	struct vbn_queue_stats *stats = &pq->fq.queue.stats;
	struct vbn_buf *buf;

	if (packet->cut) {
		count_add(&pq->cut, 1);
		return NULL;
	}
	if (packet->len < FRAME_HEADER || packet->len > pq->pool->data_size) {
		count_add(
			packet->len < FRAME_HEADER ? &stats->rx_malformed : &stats->rx_too_long, 1);
		return NULL;
	}
	buf = pool_pop(pq->pool);
	buf_start(pq->pool, buf, pool_data(pq->pool, buf), packet->len);
	memcpy(buf->data, packet->data, packet->len);
	*vbn_buf_packet(buf) = (struct vbn_packet){.flags = VBN_PACKET_TIME, .time = packet->time};
	return buf;
}

/* Reads no more than there are bufs for: what is in the file waits. */
static int recv_bufs(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct pcap_queue *pq = pcap_queue(queue);
	const int room = (int)pool_ready(pq->pool, (uint32_t)max(n, 0));
	uint64_t bytes = 0;
	int got = 0;

	if (room < n)
		count_add(&queue->stats.rx_no_buf, 1);
	while (got < room && !pq->ended) {
		struct pcap_packet packet;
		const char *why = "";
		const int ret = vbn__pcap_reader_next(pq->port->reader, &packet, &why);
		struct vbn_buf *buf;

		if (ret <= 0) {
			end_of_file(pq, ret, why);
			break;
		}
		buf = take(pq, &packet);
		if (!buf)
			continue;
		bytes += buf->len;
		bufs[got++] = buf;
	}
	count_add(&queue->stats.rx_messages, (uint64_t)got);
	count_add(&queue->stats.rx_bytes, bytes);
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

/* ---- life ---- */

static int check_conf(const struct pcap_port *port, const struct vbn_queue_conf *conf)
{
	int ret = vbn__frame_conf_check(&port->port, conf);

	if (!ret && (conf->checksum_offload == VBN_ON || conf->zero_copy == VBN_ON))
		ret = fail(ENOTSUP,
			"queue cannot be created: a capture file has no %s: leave it to the library",
			conf->zero_copy == VBN_ON ? "zero_copy" : "checksum_offload");
	if (!ret && port->port.n_queues)
		ret = fail(EBUSY,
			"queue cannot be created: port %s is a file, and has its one queue: open another port for another queue",
			port->port.info.name);
	return ret;
}

static int free_call(void *arg)
{
	struct pcap_queue *pq = arg;

	free(pq->staged);
	free(pq->fq.back);
	free(pq);
	return 0;
}

int vbn__pcap_queue_create(struct vbn_port *base, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue)
{
	struct pcap_port *port = pcap_port(base);
	struct pcap_queue *pq;
	int ret = check_conf(port, conf);

	(void)list;
	if (ret)
		return ret;
	pq = aligned_alloc(CACHE_LINE, round_up(sizeof(*pq), CACHE_LINE));
	if (!pq)
		return -ENOMEM;
	memset(pq, 0, sizeof(*pq));
	pq->fq.queue.port = base;
	pq->port = port;
	pq->pool = conf->rx_pool;
	pq->mask = conf->tx_depth - 1;
	pq->staged = calloc(conf->tx_depth, sizeof(struct vbn_buf *));
	ret = pq->staged ? vbn__frame_queue_make(&pq->fq, conf) : -ENOMEM;
	if (ret) {
		free_call(pq);
		return ret;
	}
	*queue = &pq->fq.queue;
	return 0;
}

/* Where nothing is written, sends are what the port has not. */
int vbn__pcap_queue_connect(struct vbn_queue *queue, const struct address *peer)
{
	struct pcap_queue *pq = pcap_queue(queue);
	const bool receives = pq->port->reader && queue->conf.rx_group;
	struct queue_ops *ops = &pq->fq.ops;

	(void)peer;
	*ops = vbn__lacking_ops;
	if (pq->port->writer)
		ops->send = send_bufs;
	ops->flush = flush;
	ops->recv = receives ? recv_bufs : recv_nothing;
	ops->poll = receives ? poll_both : poll_sends;
	ops->outstanding = vbn__frame_outstanding;
	queue->connected_ops = ops;
	return 0;
}

cold void vbn__pcap_queue_news(struct vbn_queue *queue, uint32_t news)
{
	(void)news;
	if (queue->connected && !queue->failed)
		give_up(pcap_queue(queue), FRAME_RESET);
}

/* It reads from the file's beginning, and writes on where it was. */
int vbn__pcap_queue_reset(struct vbn_queue *queue)
{
	struct pcap_queue *pq = pcap_queue(queue);
	struct pcap_port *port = pq->port;
	struct pcap_reader *reader = NULL;
	int ret = port->reader ? vbn__pcap_reader_open(port->from, &reader) : 0;

	if (ret)
		return ret;
	vbn__pcap_reader_close(port->reader);
	port->reader = reader;
	pq->ended = false;
	store_once(&port->port.info.up, true);
	vbn__frame_renew(&pq->fq);
	return 0;
}

/* What was staged goes into the file still, as with a device that has been told of it. */
void vbn__pcap_queue_free(struct vbn_queue *queue)
{
	struct pcap_queue *pq = pcap_queue(queue);

	flush(queue);
	vbn__frame_queue_end(&pq->fq);
	vbn__control_call(-1, free_call, pq);
}

void vbn__pcap_queue_modes(const struct vbn_queue *queue, struct mode_report *report)
{
	vbn__mode_add(report, "timestamps", vbn__mode_switch(queue->asked.timestamps), "the file's",
		"nanoseconds since 1970");
	vbn__mode_add(report, "tx_checksum", vbn__mode_switch(queue->asked.checksum_offload),
		"software", "filled in before the packet is written");
	vbn__mode_add(report, "rx_checksum", vbn__mode_switch(queue->asked.checksum_offload), "off",
		"the receiver looks itself");
}

void vbn__pcap_queue_drops(const struct vbn_queue *queue, struct drop_list *list)
{
	vbn__drop_add(list, "rx_cut", "the file has not all of its bytes (snaplen)",
		load_once(&pcap_queue(queue)->cut));
}
