/* raw_send.c - frames on their way out: put together, their tag and checksums, and the switch on which
 * the ports of the process stand where the wire carries no frames
 */

#include "vhca/pcap.h"
#include "vhca/raw.h"

enum {
	TAG_AT = 12,
	TAG_BYTES = 4,
	IPV4_SUM_AT = 10,
	TCP_SUM_AT = 16,
	UDP_SUM_AT = 6,
};

/* The frame that is being sent, with room for a tag in front. */
static uint8_t out[TAG_BYTES + VHCA_MAX_FRAME] cache_aligned;

/* ---- offloads ---- */

static void put16(uint8_t *to, uint32_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
}

static uint8_t *insert_tag(uint8_t *frame, const struct vhca_raw_offload *offload)
{
	memmove(frame - TAG_BYTES, frame, TAG_AT);
	frame -= TAG_BYTES;
	put16(frame + TAG_AT, offload->tag_type);
	put16(frame + TAG_AT + 2, offload->tag);
	return frame;
}

static void write_sum(uint8_t *at, uint64_t sum, bool zero_means_none)
{
	uint16_t folded = (uint16_t)~vhca_sum_fold(sum);

	if (!folded && zero_means_none)
		folded = 0xffff;
	memcpy(at, &folded, sizeof(folded));
}

static void write_l4_sum(const struct vhca_frame *frame, uint8_t *bytes)
{
	bool udp = frame->l4 == VHCA_L4_UDP;
	uint8_t *header = bytes + frame->l4_at, *at = header + (udp ? UDP_SUM_AT : TCP_SUM_AT);

	put16(at, 0);
	write_sum(at, vhca_sum(header, frame->l4_end - frame->l4_at) + vhca_sum_pseudo(frame), udp);
}

/* What has no such header leaves as it is. */
static void fill_sums(uint8_t *bytes, uint32_t size, uint8_t checksums)
{
	struct vhca_frame frame;

	vhca_frame_parse(&frame, bytes, size);
	if (checksums & MLX5_ETH_WQE_L3_CSUM && frame.l3 == VHCA_L3_IPV4) {
		uint8_t *header = bytes + frame.l3_at;

		put16(header + IPV4_SUM_AT, 0);
		write_sum(header + IPV4_SUM_AT, vhca_sum(header, (header[0] & 15) * 4u), false);
	}
	if (checksums & MLX5_ETH_WQE_L4_CSUM && frame.l4 && !frame.fragment)
		write_l4_sum(&frame, bytes);
}

void vhca_frame_complete_sum(uint8_t *bytes, uint32_t size)
{
	if (size >= VHCA_MIN_FRAME && size <= VHCA_MAX_FRAME)
		fill_sums(bytes, size, MLX5_ETH_WQE_L4_CSUM);
}

bool vhca_raw_send(struct vhca_device *device, const struct vhca_sge *sge, uint32_t n_sge,
	const struct vhca_raw_offload *offload)
{
	uint32_t limit = VHCA_MAX_FRAME - (offload->tag_type ? TAG_BYTES : 0);
	uint8_t *frame = out + TAG_BYTES;
	uint32_t size = 0;

	for (uint32_t i = 0; i < n_sge; i++) {
		if (unlikely(sge[i].length > limit - size))
			return false;
		vhca_memory_read(frame + size, sge[i].addr, sge[i].length);
		size += sge[i].length;
	}
	if (unlikely(size < VHCA_MIN_FRAME))
		return false;
	if (offload->tag_type) {
		frame = insert_tag(frame, offload);
		size += TAG_BYTES;
	}
	if (offload->checksums)
		fill_sums(frame, size, offload->checksums);
	vhca_raw_transmit(device, frame, vhca_frame_pad(frame, size));
	return true;
}

uint32_t vhca_frame_pad(uint8_t *frame, uint32_t size)
{
	if (size >= VHCA_PADDED_FRAME)
		return size;
	memset(frame + size, 0, VHCA_PADDED_FRAME - size);
	return VHCA_PADDED_FRAME;
}

/* ---- the port ---- */

static void count_sent(struct vhca_device *device, const uint8_t *frame, uint32_t size)
{
	struct vhca_counters *counters = &device->counters;

	counters->port_xmit_packets++;
	counters->port_xmit_data += size;
	if (frame[0] & 1)
		counters->multicast_xmit_packets++;
	else
		counters->unicast_xmit_packets++;
}

/* A port whose wire carries no frames stands on the switch of the process. */
bool vhca_raw_leaves(const struct vhca_device *device)
{
	return device->wire->ops->carries_frames;
}

void vhca_raw_flood(struct vhca_device *device, const uint8_t *frame, uint32_t size)
{
	int n = vhca_n_devices_made();
	bool alone = true;

	for (int i = 0; i < n; i++) {
		struct vhca_device *other = vhca_device(i);

		if (other == device || vhca_raw_leaves(other))
			continue;
		alone = false;
		vhca_raw_receive(other, frame, size);
	}
	if (alone)
		vhca_raw_receive(device, frame, size);
}

void vhca_raw_transmit(struct vhca_device *device, const uint8_t *frame, uint32_t size)
{
	count_sent(device, frame, size);
	if (unlikely(!device->port_up))
		return;
	if (unlikely(vhca_pcap_on))
		vhca_pcap_frame(true, frame, size);
	if (device->wire->ops->frame)
		device->wire->ops->frame(device->wire, frame, size);
	else
		vhca_raw_flood(device, frame, size);
}
