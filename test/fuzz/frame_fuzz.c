/* frame_fuzz.c - any bytes as a frame whose checksums, and tag, software is to fill in
 *
 * The first byte is the flags, the second says where the frame is cut into a chain of two. What is filled
 * in sums up, and nothing else of the frame has changed.
 */

#include "base/checksum.h"
#include "drv/frame.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void demand(bool holds)
{
	if (!holds)
		abort();
}

/* Its room ends where the bytes do. */
static struct vbn_buf *make(const uint8_t *bytes, size_t size, uint32_t headroom)
{
	struct vbn_buf *buf = aligned_alloc(CACHE_LINE,
		round_up(sizeof(*buf), CACHE_LINE) + round_up(headroom + size, CACHE_LINE));

	demand(buf);
	memset(buf, 0, sizeof(*buf));
	buf->size = (uint32_t)(headroom + size);
	buf->data = vbn_buf_room(buf) + headroom;
	buf->len = (uint32_t)size;
	memcpy(buf->data, bytes, size);
	return buf;
}

static uint64_t sum_of(const struct vbn_buf *buf, const struct frame_sums *sums, uint8_t *flat)
{
	uint32_t len = 0;

	for (;; buf = buf->next) {
		memcpy(flat + len, buf->data, buf->len);
		len += buf->len;
		if (!(buf->flags & VBN_BUF_CHAIN))
			break;
	}
	demand(sums->l4 + sums->l4_len <= len);
	return csum_add(vbn__csum_bytes_plain(flat + sums->l4, sums->l4_len, 0), sums->pseudo);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static uint8_t flat[1 << 16];
	struct vbn_buf *head, *tail = NULL;
	struct vbn_packet *packet;
	struct frame_sums sums;
	size_t cut;
	uint16_t flags;
	int ret;

	if (size < 2 || size > 4096)
		return 0;
	flags = (uint16_t)((bytes[0] & 7) << 8);
	cut = min((size_t)bytes[1], size - 2);
	if (!(bytes[0] & 8))
		cut = size - 2;
	head = make(bytes + 2, cut, bytes[0] & 16 ? 4 : 0);
	if (cut < size - 2) {
		tail = make(bytes + 2 + cut, size - 2 - cut, 0);
		vbn_buf_append(head, tail);
	}
	packet = vbn_buf_packet(head);
	packet->flags = flags;
	packet->vlan = 0x2003;
	ret = vbn__frame_prepare(head, bytes[0] & 32);
	demand(ret == 0 || (ret == -EINVAL && flags & VBN_PACKET_TX_VLAN));
	if (!ret) {
		demand(vbn_buf_total(head) == size - 2 + (flags & VBN_PACKET_TX_VLAN ? 4 : 0));
		vbn__frame_sums(head->data, head->len, vbn_buf_total(head), &sums);
		if (flags & VBN_PACKET_TX_IP_CSUM && sums.ip)
			demand(csum_fold(vbn__csum_bytes_plain(
				       head->data + sums.ip, sums.ip_len, 0)) == 0xffff);
		if (flags & VBN_PACKET_TX_L4_CSUM && sums.l4 && !(bytes[0] & 32))
			demand(csum_fold(sum_of(head, &sums, flat)) == 0xffff);
	}
	free(head);
	free(tail);
	return 0;
}
