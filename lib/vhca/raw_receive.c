/* raw_receive.c - a frame that has come to the port: by steering to its queues, into a receive WQE or
 * its strides, and its CQE
 */

#include "vhca/raw.h"
#include "vhca/receive_wqe.h"

enum {
	L2_OK = MLX5_CQE_L2_OK,
	TYPE_VLAN = 0x8100,
	TAG_AT = 12,
	TAG_BYTES = 4,
	SHIFT_BYTES = 2, /* in front of a frame in its first stride */
	/* in l4_hdr_type_etc */
	STRIPPED = 1,
	IP_OPTIONS = 1 << 1,
	L3_SHIFT = 2,
	L4_SHIFT = 4,
	FRAGMENT = 1 << 7,
};

#define FILLER (1u << 31) /* in byte_cnt: strides that nothing lies in */

/* One frame on its way into one queue. */
struct arrival {
	const struct vhca_frame *frame;
	struct vhca_message message; /* its bytes, without what is stripped */
	struct vhca_raw_cqe cqe;
};

/* ---- what a CQE says ---- */

static void describe(
	struct arrival *arrival, const struct vhca_wq *wq, uint32_t hash, uint8_t hash_type)
{
	const struct vhca_frame *frame = arrival->frame;
	struct vhca_raw_cqe *cqe = &arrival->cqe;
	bool strip = wq->attr.strip_vlan && frame->n_tags && frame->tag_type[0] == TYPE_VLAN;
	struct vhca_message *message = &arrival->message;

	cqe->hash = be32(hash);
	cqe->hash_type = hash_type;
	cqe->sum = frame->sum;
	cqe->ok = (uint8_t)(L2_OK | (frame->l3_ok ? MLX5_CQE_L3_OK : 0) |
		(frame->l4_ok ? MLX5_CQE_L4_OK : 0));
	cqe->types = (uint8_t)((strip ? STRIPPED : 0) | (frame->options ? IP_OPTIONS : 0) |
		frame->l3 << L3_SHIFT | frame->l4 << L4_SHIFT | (frame->fragment ? FRAGMENT : 0));
	message->n_sge = 1;
	message->sge[0] = (struct vhca_sge){(uint8_t *)(uintptr_t)frame->bytes, frame->size};
	message->length = frame->size;
	if (!strip)
		return;
	cqe->vlan_info = be16(frame->tag[0]);
	message->n_sge = 2;
	message->sge[1] = (struct vhca_sge){
		message->sge[0].addr + TAG_AT + TAG_BYTES, frame->size - TAG_AT - TAG_BYTES};
	message->sge[0].length = TAG_AT;
	message->length -= TAG_BYTES;
}

/* ---- WQEs ---- */

static force_inline struct vhca_raw_counters *raw_counters(const struct vhca_wq *wq)
{
	return &wq->queue.object.context->device->raw;
}

static void out_of_buffer(struct vhca_wq *wq)
{
	wq->out_of_buffer++;
	raw_counters(wq)->out_of_buffer++;
	vhca_counters_of(&wq->queue.object)->out_of_buffer++;
}

/* The WQE completes in error, and the queue fails with it. */
static void failed(struct vhca_wq *wq, const struct vhca_receive *receive, uint8_t syndrome)
{
	raw_counters(wq)->failed++;
	receive_take(&wq->queue, receive);
	wq->strides_used = 0;
	vhca_cqe_error(&wq->queue, MLX5_CQE_RESP_ERR, syndrome, 0, 0, receive->index);
	vhca_qp_fail(&wq->queue);
}

static force_inline uint8_t fill(struct vhca_wq *wq, const struct vhca_receive *receive,
	uint32_t skip, const struct vhca_message *message)
{
	struct scatter scatter;
	struct vhca_sge sge;
	uint8_t syndrome;

	if (likely(message->n_sge == 1 &&
		    scatter_first(&wq->queue, receive, skip, message->length, &sge))) {
		vhca_memory_write(sge.addr, message->sge[0].addr, message->length);
		return 0;
	}
	syndrome = scatter_build_at(&wq->queue, receive, skip, message->length, &scatter);
	if (!syndrome)
		copy_lists(&scatter, message);
	return syndrome;
}

static void received(
	struct vhca_wq *wq, struct arrival *arrival, uint16_t counter, uint16_t n, uint32_t length)
{
	wq->received++;
	raw_counters(wq)->delivered++;
	wq->bytes += length;
	vhca_cqe_raw(&wq->queue, &arrival->cqe, counter, n);
}

static void into_wqe(struct vhca_wq *wq, struct arrival *arrival)
{
	struct vhca_receive receive;
	uint8_t syndrome;

	if (unlikely(!rq_peek(&wq->queue, &receive))) {
		out_of_buffer(wq);
		return;
	}
	syndrome = fill(wq, &receive, 0, &arrival->message);
	if (unlikely(syndrome)) {
		failed(wq, &receive, syndrome);
		return;
	}
	receive_take(&wq->queue, &receive);
	arrival->cqe.byte_cnt = be32(arrival->message.length);
	received(wq, arrival, receive.index, 1, arrival->message.length);
}

/* ---- strides ---- */

static uint32_t strides_of(const struct vhca_wq *wq)
{
	return 1u << wq->attr.log2_n_strides;
}

/* Where a frame does not fit what is left of a WQE, nothing goes there. */
static void fill_up(struct vhca_wq *wq, const struct vhca_receive *receive)
{
	uint32_t left = strides_of(wq) - wq->strides_used;
	struct vhca_raw_cqe cqe = {
		.wqe_id = be16(receive->index), .byte_cnt = be32(FILLER | left << 16)};

	receive_take(&wq->queue, receive);
	vhca_cqe_raw(&wq->queue, &cqe, (uint16_t)wq->strides_used, (uint16_t)left);
	wq->strides_used = 0;
}

/* A WQE that is begun is to have memory for all of its strides. */
static void check_room(struct vhca_wq *wq, const struct vhca_receive *receive)
{
	uint64_t wanted = (uint64_t)strides_of(wq) << wq->attr.log2_stride_bytes, found = 0;

	for (uint32_t i = 0; i < receive->n_segments && found < wanted; i++) {
		struct mlx5_wqe_data_seg seg;

		vhca_memory_read(&seg, receive->wqe + i * VHCA_SEGMENT, VHCA_SEGMENT);
		if (seg.lkey == be32(MLX5_INVALID_LKEY))
			break;
		found += from_be32(seg.byte_count);
	}
	if (unlikely(found < wanted) &&
		vhca_rule_report(
			VHCA_RULE_STRIDE_ROOM, &wq->queue, receive->index, "bytes", found, wanted))
		vhca_qp_fail(&wq->queue);
}

/* Zeroes in front of the frame, so that its IP header is aligned. */
static void shift(struct vhca_message *message)
{
	static uint8_t zeroes[SHIFT_BYTES];

	memmove(message->sge + 1, message->sge, message->n_sge * sizeof(message->sge[0]));
	message->sge[0] = (struct vhca_sge){zeroes, SHIFT_BYTES};
	message->n_sge++;
	message->length += SHIFT_BYTES;
}

/* The frame's strides begin at the WQE's next one, which there is. */
static uint8_t fill_strides(struct vhca_wq *wq, const struct vhca_receive *receive,
	const struct vhca_message *message, uint32_t n)
{
	uint32_t left = strides_of(wq) - wq->strides_used;

	if (likely(n <= left))
		return fill(wq, receive, wq->strides_used << wq->attr.log2_stride_bytes, message);
	vhca_rule_report(VHCA_RULE_RECEIVE_LENGTH, &wq->queue, receive->index,
		"strides without room", n - left, 0);
	return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
}

static void into_strides(struct vhca_wq *wq, struct arrival *arrival)
{
	uint32_t length = arrival->message.length, log2_stride = wq->attr.log2_stride_bytes, n;
	uint16_t first;
	struct vhca_receive receive;
	uint8_t syndrome;

	if (wq->attr.two_byte_shift)
		shift(&arrival->message);
	n = (arrival->message.length + (1u << log2_stride) - 1) >> log2_stride;
	if (wq->strides_used && wq->strides_used + n > strides_of(wq) &&
		rq_peek(&wq->queue, &receive))
		fill_up(wq, &receive);
	if (unlikely(!rq_peek(&wq->queue, &receive))) {
		out_of_buffer(wq);
		return;
	}
	if (!wq->strides_used)
		check_room(wq, &receive);
	if (unlikely(wq->queue.state != IBV_QPS_RTR)) {
		raw_counters(wq)->failed++;
		return;
	}
	syndrome = fill_strides(wq, &receive, &arrival->message, n);
	if (unlikely(syndrome)) {
		failed(wq, &receive, syndrome);
		return;
	}
	first = (uint16_t)wq->strides_used;
	wq->strides_used += n;
	if (wq->strides_used == strides_of(wq)) {
		receive_take(&wq->queue, &receive);
		wq->strides_used = 0;
	}
	arrival->cqe.wqe_id = be16(receive.index);
	arrival->cqe.byte_cnt = be32(n << 16 | length);
	received(wq, arrival, first, (uint16_t)n, length);
}

/* ---- delivery ---- */

static void deliver(struct vhca_wq *wq, struct arrival *arrival)
{
	if (unlikely(wq->queue.state != IBV_QPS_RTR))
		raw_counters(wq)->not_ready++;
	else if (wq->attr.striding)
		into_strides(wq, arrival);
	else
		into_wqe(wq, arrival);
}

/* The WQE that the frame would have gone to, or the queue itself, has lost its memory. */
static cold void lost(struct vhca_wq *wq, uintptr_t address)
{
	struct vhca_receive receive;

	if (vhca_queue_lost(wq->queue.object.context->device, address) ||
		!rq_peek(&wq->queue, &receive)) {
		raw_counters(wq)->failed++;
		return;
	}
	vhca_rule_report(VHCA_RULE_FREED_MEMORY, &wq->queue, receive.index,
		"an address that a frame is written to", address, VHCA_ANOTHER);
	failed(wq, &receive, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
}

static void deliver_guarded(struct vhca_wq *wq, struct arrival *arrival)
{
	struct vhca_guard guard;

	if (likely(!vhca_guarded(&guard))) {
		deliver(wq, arrival);
		vhca_unguarded(&guard);
		return;
	}
	vhca_unguarded(&guard);
	lost(wq, guard.address);
}

static void to_tir(const struct vhca_tir *tir, const struct vhca_frame *frame, uint32_t flow_tag)
{
	struct arrival arrival;
	uint8_t hash_type;
	uint32_t hash = vhca_tir_hash(tir, frame, &hash_type);
	struct vhca_wq *wq =
		tir->attr.rqt ? tir->attr.rqt->wq[hash & (tir->attr.rqt->n - 1)] : tir->attr.wq;

	memset(&arrival.cqe, 0, sizeof(arrival.cqe));
	arrival.frame = frame;
	arrival.cqe.flow_tag = be32(flow_tag & 0xffffff);
	describe(&arrival, wq, hash, hash_type);
	deliver_guarded(wq, &arrival);
}

static void count_received(struct vhca_device *device, const struct vhca_frame *frame)
{
	struct vhca_counters *counters = &device->counters;

	counters->port_rcv_packets++;
	counters->port_rcv_data += frame->size;
	if (frame->multicast)
		counters->multicast_rcv_packets++;
	else
		counters->unicast_rcv_packets++;
}

bool vhca_raw_wanted(const struct vhca_device *device)
{
	return device->tables->tirs.used;
}

bool vhca_raw_receive(struct vhca_device *device, const uint8_t *bytes, uint32_t size)
{
	struct vhca_raw_counters *counters = &device->raw;
	struct vhca_steered steered;
	struct vhca_frame frame;

	if (!vhca_raw_wanted(device) || size < VHCA_MIN_FRAME || !device->port_up)
		return false;
	counters->came++;
	if (unlikely(size > VHCA_MAX_FRAME)) {
		counters->too_long++;
		device->counters.port_rcv_errors++;
		return true;
	}
	vhca_frame_parse(&frame, bytes, size);
	vhca_steer(device, &frame, &steered);
	if (!steered.n && !steered.dropped) {
		counters->host++;
		return false;
	}
	count_received(device, &frame);
	if (steered.dropped) {
		counters->ruled_out++;
		return true;
	}
	counters->taken++;
	counters->copies += steered.n;
	vhca_frame_sums(&frame);
	for (uint32_t i = 0; i < steered.n; i++)
		to_tir(steered.to[i].tir, &frame, steered.to[i].flow_tag);
	return true;
}
