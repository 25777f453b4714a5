/* raw_rx.c - packets that have arrived, and what their CQEs say of them */

#include "drv/mlx5/mini.h"
#include "drv/mlx5/raw_cqe.h"

/* ---- what a CQE says ---- */

enum { L4_NONE, L4_TCP, L4_UDP, L4_TCP_EMPTY_ACK, L4_TCP_ACK };

uint64_t vbn__raw_facts[128];

static uint64_t facts_word(uint16_t flags, uint16_t type)
{
	const struct vbn_packet packet = {.flags = flags, .type = type};
	uint64_t word;

	memcpy(&word, &packet, sizeof(word));
	return word;
}

/* Types in the low five bits, L3_OK and L4_OK above. A checksum is only looked at where there is such
 * a header; IPv6 has none of its own. */
static uint64_t describe(uint32_t bits)
{
	const uint32_t l3 = bits & 3, l4 = bits >> 2 & 7;
	const bool ipv4 = l3 == MLX5_CQE_L3_HDR_TYPE_IPV4,
		   ip = ipv4 || l3 == MLX5_CQE_L3_HDR_TYPE_IPV6;
	const bool udp = ip && l4 == L4_UDP;
	const bool tcp = ip && l4 != L4_NONE && !udp && l4 <= L4_TCP_ACK;
	uint32_t flags = 0, type = 0;

	if (ip)
		type |= ipv4 ? VBN_PACKET_IPV4 : VBN_PACKET_IPV6;
	if (udp || tcp)
		type |= udp ? VBN_PACKET_UDP : VBN_PACKET_TCP;
	if (ipv4)
		flags |= bits & 1 << 5 ? VBN_PACKET_IP_GOOD : VBN_PACKET_IP_BAD;
	if (udp || tcp)
		flags |= bits & 1 << 6 ? VBN_PACKET_L4_GOOD : VBN_PACKET_L4_BAD;
	return facts_word((uint16_t)flags, (uint16_t)type);
}

/* ---- take ---- */

/* The clock is read once a burst: by a call of libmlx5, where times are asked for. */
cold void vbn__raw_times(const struct raw_queue *raw, struct vbn_buf **bufs, int n)
{
	struct mlx5dv_clock_info clock;

	if (mlx5dv_get_clock_info(raw->context, &clock))
		return;
	for (int i = 0; i < n; i++) {
		struct vbn_packet *packet = vbn_buf_packet(bufs[i]);

		packet->time = mlx5dv_ts_to_ns(&clock, packet->time);
		packet->flags |= VBN_PACKET_TIME;
	}
}

/* Entries one behind the other, up to the end of the ring of CQEs or of that of slots: within a pass
 * the owner bit is the same. */
static force_inline uint32_t take_run(struct raw_queue *raw, struct vbn_buf **bufs, uint32_t most,
	uint64_t *bytes, const bool timed)
{
	const struct rq *rq = &raw->rq;
	const struct cq *cq = &raw->recv_cq;
	const size_t stride = (size_t)1 << cq->log2_stride;
	const uint8_t expected =
		(uint8_t)(CQE_IS(MLX5_CQE_RESP_SEND) | (cq->index >> cq->log2_count & 1));
	const uint32_t slot = rq->tail & rq->mask, offset = rq->data_offset;
	const uint64_t word = len_and_word(rq->pool, 0);
	const struct mlx5_cqe64 *cqe = cq_entry(cq, cq->index);
	struct vbn_buf *const *slots = rq->slots + slot, *const * end;
	struct last_facts last = {.kind = NO_KIND};
	uint64_t sum = 0;

	most = min(most, cq->mask + 1 - (cq->index & cq->mask));
	most = min(most, rq->mask + 1u - slot);
	for (end = slots + most; slots != end; slots++) {
		struct vbn_buf *buf;
		uint32_t len;

		if ((load_once(&cqe->op_own) & 0xfd) != expected)
			break;
		owner_before_body(); /* as cq_look() has it */
		buf = *slots;
		len = from_be32(cqe->byte_cnt);
		buf_set(buf, (uint8_t *)buf + offset, word | len);
		buf_say(buf, cqe, same_facts(cqe, &last), timed);
		*bufs++ = buf;
		sum += len;
		cqe = (const void *)((const uint8_t *)cqe + stride);
	}
	*bytes += sum;
	return most - (uint32_t)(end - slots);
}

static force_inline int take(struct raw_queue *raw, struct vbn_buf **bufs, int n, const bool timed)
{
	struct cq *cq = &raw->recv_cq;
	uint64_t bytes = 0;
	int got = 0;

	while (got < n) {
		const uint32_t run = take_run(raw, bufs + got, (uint32_t)(n - got), &bytes, timed);

		got += (int)run;
		cq->index += run;
		raw->rq.tail = (uint16_t)(raw->rq.tail + run);
		if (!run)
			break;
	}
	if (got) {
		if (timed)
			vbn__raw_times(raw, bufs, got);
		count_add(&raw->queue.stats.rx_messages, (uint64_t)got);
		count_add(&raw->queue.stats.rx_bytes, bytes);
		cq_consume(cq, cq->index);
	}
	return got;
}

/* ---- compressed ---- */

/* What the title says holds for all of its session. */
static fast_path bool begin(struct raw_queue *raw, uint8_t seen, const struct mlx5_cqe64 *cqe)
{
	const uint32_t posted = (uint16_t)(raw->rq.head - raw->rq.tail);
	struct cq *cq = &raw->recv_cq;

	if (unlikely(!session_open(cq, cq->index, cqe, seen, posted))) {
		vbn__raw_failed(raw, cqe);
		return false;
	}
	raw->title_facts = cqe_facts(cqe);
	raw->title_tag = cqe_qpn(cqe);
	raw->title_hashed = ((const uint8_t *)cqe)[CQE_HASH_TYPE_AT] != 0;
	cq->index += cq->session->n;
	return true;
}

static fast_path void hand_out(struct raw_queue *raw, uint32_t n, struct vbn_buf **bufs)
{
	struct session *session = raw->recv_cq.session;
	const struct completion *completions = session_next(session);
	struct rq *rq = &raw->rq;
	const uint64_t word = len_and_word(rq->pool, 0);
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct vbn_buf *buf = rq->slots[(rq->tail + i) & rq->mask];

		buf_set(buf, (uint8_t *)buf + rq->data_offset, word | completions[i].len);
		buf_describe(buf, raw->title_facts, raw->title_tag,
			completion_hash(&completions[i]), raw->title_hashed);
		bufs[i] = buf;
		bytes += completions[i].len;
	}
	rq->tail = (uint16_t)(rq->tail + n);
	session_take(session, &raw->recv_cq, n);
	count_add(&raw->queue.stats.rx_messages, n);
	count_add(&raw->queue.stats.rx_bytes, bytes);
	count_add(&raw->queue.stats.rx_compressed, n);
}

static noinline fast_path int take_compressed(struct raw_queue *raw, struct vbn_buf **bufs, int n)
{
	struct cq *cq = &raw->recv_cq;
	int got = 0;

	while (got < n && !raw->queue.failed) {
		const uint32_t ready = min(session_ready(cq->session), (uint32_t)(n - got));
		const struct mlx5_cqe64 *cqe;
		uint8_t seen;

		if (ready) {
			hand_out(raw, ready, bufs + got);
			got += (int)ready;
			continue;
		}
		seen = cq_look(cq, cq->index, &cqe);
		if (cqe_absent(seen))
			break;
		if (cqe_is_title(seen)) {
			begin(raw, seen, cqe);
			continue;
		}
		if (take(raw, bufs + got, 1, false) != 1)
			break;
		got++;
	}
	if (got) {
		cqes_before_record();
		store_once(cq->record, be32(session_consumed(cq->session, cq->index) & 0xffffff));
	}
	return got;
}

static force_inline int take_any(struct raw_queue *raw, struct vbn_buf **bufs, int n)
{
	if (raw->recv_cq.session)
		return take_compressed(raw, bufs, n);
	return raw->queue.conf.timestamps == VBN_ON ? take(raw, bufs, n, true)
						    : take(raw, bufs, n, false);
}

fast_path int vbn__raw_take(struct raw_queue *raw, struct vbn_buf **bufs, int n)
{
	return raw->strides.n ? vbn__raw_stride_take(raw, bufs, n) : take_any(raw, bufs, n);
}

/* ---- what a queue does ---- */

/* After fewer packets than were asked for: is the next entry an error? */
static force_inline void see_error(struct raw_queue *raw)
{
	const struct mlx5_cqe64 *cqe;
	const uint8_t seen = cq_look(&raw->recv_cq, raw->recv_cq.index, &cqe);

	if (unlikely(
		    !cqe_absent(seen) && seen != CQE_IS(MLX5_CQE_RESP_SEND) && !cqe_is_title(seen)))
		vbn__raw_failed(raw, cqe);
}

static force_inline int receive(
	struct raw_queue *raw, struct vbn_buf **bufs, int n, const bool strided)
{
	const int got = strided ? vbn__raw_stride_take(raw, bufs, n) : take_any(raw, bufs, n);

	if (got < n)
		see_error(raw);
	if (!strided && ring_is_short(&raw->rq))
		rq_refill(&raw->rq, &raw->queue.stats);
	return got;
}

static force_inline int recv_any(
	struct vbn_queue *queue, struct vbn_buf **bufs, int n, const bool strided)
{
	struct raw_queue *raw = raw_queue(queue);
	const int got = receive(raw, bufs, n, strided);
	struct vbn_event none;

	if (raw->sq.tail != raw->sq.head)
		vbn__raw_reap(raw, &none, 0);
	return got;
}

static fast_path int recv_packets(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return recv_any(queue, bufs, n, false);
}

static fast_path int recv_strided(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	return recv_any(queue, bufs, n, true);
}

static int recv_nothing(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct raw_queue *raw = raw_queue(queue);
	struct vbn_event none;

	(void)bufs, (void)n;
	if (raw->sq.tail != raw->sq.head)
		vbn__raw_reap(raw, &none, 0);
	return 0;
}

enum { EVENT_BURST = 64 };

static force_inline int poll_queue(struct vbn_queue *queue, struct vbn_event *events, int n,
	const bool receives, const bool strided)
{
	struct raw_queue *raw = raw_queue(queue);
	struct vbn_buf *bufs[EVENT_BURST];
	int got = 0;

	if (receives && n > 0)
		got = receive(raw, bufs, min(n, (int)EVENT_BURST), strided);
	for (int i = 0; i < got; i++)
		events[i] = (struct vbn_event){
			.queue = queue, .buf = bufs[i], .len = bufs[i]->len, .op = VBN_OP_RECV};
	if (raw->sq.released != raw->sq.staged && !queue->failed)
		got += vbn__raw_reap(raw, events + got, n - got);
	if (unlikely(queue->failed))
		got += queue->ops->poll(queue, events + got, n - got); /* says so at once */
	return got;
}

static fast_path int poll_both(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	return poll_queue(queue, events, n, true, false);
}

static fast_path int poll_strided(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	return poll_queue(queue, events, n, true, true);
}

static fast_path int poll_sends(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	return poll_queue(queue, events, n, false, false);
}

void vbn__raw_rx_ops(struct raw_queue *raw)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(vbn__raw_facts); i++)
		vbn__raw_facts[i] = describe(i);
	raw->ops.recv = !raw->wq ? recv_nothing : raw->strides.n ? recv_strided : recv_packets;
	raw->ops.poll = !raw->wq ? poll_sends : raw->strides.n ? poll_strided : poll_both;
}
