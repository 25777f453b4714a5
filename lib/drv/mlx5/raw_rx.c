/* raw_rx.c - packets that have arrived, and what their CQEs say of them */

#include "drv/mlx5/mini.h"
#include "drv/mlx5/raw.h"

/* ---- what a CQE says ---- */

/* Bytes of a CQE that mlx5dv.h has no names for: struct mlx5_cqe64 of the kernel's
 * include/linux/mlx5/device.h. */
enum { CQE_HASH_AT = 12, CQE_HASH_TYPE_AT = 16, CQE_VLAN_STRIPPED = 1 };
enum { L4_NONE, L4_TCP, L4_UDP, L4_TCP_EMPTY_ACK, L4_TCP_ACK };

static force_inline uint32_t cqe_hash(const struct mlx5_cqe64 *cqe)
{
	__be32 hash;

	memcpy(&hash, (const uint8_t *)cqe + CQE_HASH_AT, sizeof(hash));
	return from_be32(hash);
}

/* By the bits of both headers' types and of what was found of their checksums: the first half of a
 * struct vbn_packet. */
static uint64_t facts_of[128];

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

/* Of a queue that does not look at checksums, only the types hold. */
static force_inline uint64_t cqe_facts(const struct mlx5_cqe64 *cqe)
{
	static_assert(MLX5_CQE_L3_OK == 2 && MLX5_CQE_L4_OK == 4, "four bits up are 5 and 6");
	uint64_t facts = facts_of[(cqe->l4_hdr_type_etc >> 2 & 31) | (cqe->hds_ip_ext & 6) << 4];

	if (unlikely(cqe->l4_hdr_type_etc & CQE_VLAN_STRIPPED)) {
		struct vbn_packet packet;

		memcpy(&packet, &facts, sizeof(facts));
		packet.flags |= VBN_PACKET_VLAN;
		packet.vlan = from_be16(cqe->vlan_info);
		memcpy(&facts, &packet, sizeof(facts));
	}
	return facts;
}

static force_inline uint64_t facts_flag(uint16_t flag)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return flag;
#else
	return (uint64_t)flag << 48;
#endif
}

/* A rule's mark, else the hash. */
static force_inline void buf_describe(
	struct vbn_buf *buf, uint64_t facts, uint32_t tag, uint32_t hash, bool hashed)
{
	facts |= tag ? facts_flag(VBN_PACKET_MARK) : hashed ? facts_flag(VBN_PACKET_HASH) : 0;
	buf->mark = tag ? tag : hash;
	buf->peer[0] = facts;
}

/* ---- take ---- */

/* The device's clock in ns, read once a burst: by a call of libmlx5, where times are asked for. */
static cold noinline void buf_times(
	struct raw_queue *raw, struct vbn_buf **bufs, int n, uint32_t index)
{
	struct mlx5dv_clock_info clock;

	if (mlx5dv_get_clock_info(raw->context, &clock))
		return;
	for (int i = 0; i < n; i++) {
		const struct mlx5_cqe64 *cqe = cq_entry(&raw->recv_cq, index + (uint32_t)i);
		struct vbn_packet *packet = vbn_buf_packet(bufs[i]);

		packet->time = mlx5dv_ts_to_ns(&clock, from_be64(cqe->timestamp));
		packet->flags |= VBN_PACKET_TIME;
	}
}

/* What the entry before has said: most are of the same kind. */
struct last_facts {
	uint32_t kind; /* both bytes that cqe_facts() looks at; NO_KIND: none */
	uint8_t hash_type;
	uint64_t facts;
};
enum { NO_KIND = 1 << 16 };

static force_inline uint64_t same_facts(const struct mlx5_cqe64 *cqe, struct last_facts *last)
{
	const uint8_t hash_type = ((const uint8_t *)cqe)[CQE_HASH_TYPE_AT];
	uint16_t kind;

	static_assert(offsetof(struct mlx5_cqe64, l4_hdr_type_etc) ==
			offsetof(struct mlx5_cqe64, hds_ip_ext) + 1,
		"both are read at once");
	memcpy(&kind, &cqe->hds_ip_ext, sizeof(kind));
	if (unlikely(kind != last->kind || hash_type != last->hash_type)) {
		last->facts = cqe_facts(cqe) | (hash_type ? facts_flag(VBN_PACKET_HASH) : 0);
		last->kind = cqe->l4_hdr_type_etc & CQE_VLAN_STRIPPED ? NO_KIND : kind;
		last->hash_type = hash_type;
	}
	return last->facts;
}

/* What one entry says, into the buf that it is about. */
static force_inline void buf_arrived(struct vbn_buf *buf, const struct mlx5_cqe64 *cqe,
	uint64_t facts, uint32_t offset, uint64_t word)
{
	buf_set(buf, (uint8_t *)buf + offset, word);
	buf->mark = cqe_hash(cqe);
	if (unlikely(cqe->sop_drop_qpn) && cqe_qpn(cqe)) {
		buf->mark = cqe_qpn(cqe);
		facts = (facts & ~facts_flag(VBN_PACKET_HASH)) | facts_flag(VBN_PACKET_MARK);
	}
	buf->peer[0] = facts;
}

/* Entries one behind the other, up to the end of the ring of CQEs or of that of slots: within a pass
 * the owner bit is the same. */
static force_inline uint32_t take_run(
	struct raw_queue *raw, struct vbn_buf **bufs, uint32_t most, uint64_t *bytes)
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
		buf_arrived(buf, cqe, same_facts(cqe, &last), offset, word | len);
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
	const uint32_t first = cq->index;
	uint64_t bytes = 0;
	int got = 0;

	while (got < n) {
		const uint32_t run = take_run(raw, bufs + got, (uint32_t)(n - got), &bytes);

		got += (int)run;
		cq->index += run;
		raw->rq.tail = (uint16_t)(raw->rq.tail + run);
		if (!run)
			break;
	}
	if (got) {
		if (timed)
			buf_times(raw, bufs, got, first);
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
	return take_any(raw, bufs, n);
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

static force_inline int receive(struct raw_queue *raw, struct vbn_buf **bufs, int n)
{
	const int got = take_any(raw, bufs, n);

	if (got < n)
		see_error(raw);
	if (ring_is_short(&raw->rq))
		rq_refill(&raw->rq, &raw->queue.stats);
	return got;
}

static fast_path int recv_packets(struct vbn_queue *queue, struct vbn_buf **bufs, int n)
{
	struct raw_queue *raw = raw_queue(queue);
	const int got = receive(raw, bufs, n);
	struct vbn_event none;

	if (raw->sq.tail != raw->sq.head)
		vbn__raw_reap(raw, &none, 0);
	return got;
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

static force_inline int poll_queue(
	struct vbn_queue *queue, struct vbn_event *events, int n, const bool receives)
{
	struct raw_queue *raw = raw_queue(queue);
	struct vbn_buf *bufs[EVENT_BURST];
	int got = 0;

	if (receives && n > 0)
		got = receive(raw, bufs, min(n, (int)EVENT_BURST));
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
	return poll_queue(queue, events, n, true);
}

static fast_path int poll_sends(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	return poll_queue(queue, events, n, false);
}

void vbn__raw_rx_ops(struct raw_queue *raw)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(facts_of); i++)
		facts_of[i] = describe(i);
	raw->ops.recv = raw->wq ? recv_packets : recv_nothing;
	raw->ops.poll = raw->wq ? poll_both : poll_sends;
}
