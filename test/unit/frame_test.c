/* frame_test.c - checksums and tags of frames in software: each protocol, tags, options, extensions,
 * chains; frames that are cut short
 */

#include "base/checksum.h"
#include "drv/frame.h"
#include "unit.h"

enum { DATA = 101, ROOM = 512 };

struct shape {
	int tags, version, protocol, options; /* words of IPv4 options, or IPv6 extensions */
};

struct frame {
	uint8_t bytes[ROOM];
	uint32_t len, ip, l4;
};

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static uint32_t header_of(int protocol)
{
	return protocol == 6 ? 20 : protocol == 17 ? 8 : 4;
}

static uint32_t field_of(int protocol)
{
	return protocol == 6 ? 16 : protocol == 17 ? 6 : 2;
}

static uint32_t put_ip4(uint8_t *ip, const struct shape *shape, uint32_t l4_len)
{
	const uint32_t len = 20 + 4 * (uint32_t)shape->options;

	ip[0] = (uint8_t)(0x40 | len / 4);
	put16(ip + 2, len + l4_len);
	ip[9] = (uint8_t)shape->protocol;
	memset(ip + 12, 0x5a, len - 12);
	return len;
}

static uint32_t put_ip6(uint8_t *ip, const struct shape *shape, uint32_t l4_len)
{
	uint32_t len = 40;

	ip[0] = 0x60;
	put16(ip + 4, l4_len + 8 * (uint32_t)shape->options);
	ip[6] = (uint8_t)(shape->options ? 60 : shape->protocol);
	memset(ip + 8, 0xa7, 32);
	for (int i = 0; i < shape->options; i++, len += 8) {
		ip[len] = (uint8_t)(i + 1 < shape->options ? 60 : shape->protocol);
		ip[len + 1] = 0;
	}
	return len;
}

/* What is in the checksums' fields does not matter. */
static void build(const struct shape *shape, struct frame *frame)
{
	const uint32_t l4_len = header_of(shape->protocol) + DATA;
	uint8_t *at = frame->bytes;
	uint32_t end = FRAME_HEADER;

	memset(at, 0xc3, sizeof(frame->bytes));
	for (int i = 0; i < shape->tags; i++, end += FRAME_TAG)
		put16(at + end - 2, i ? 0x8100 : 0x88a8);
	put16(at + end - 2, shape->version == 4 ? 0x0800 : 0x86dd);
	frame->ip = end;
	memset(at + end, 0, 60);
	end += shape->version == 4 ? put_ip4(at + end, shape, l4_len)
				   : put_ip6(at + end, shape, l4_len);
	frame->l4 = end;
	for (uint32_t i = 0; i < l4_len; i++)
		at[end + i] = (uint8_t)(i * 37 + 11);
	frame->len = end + l4_len;
}

static struct vbn_buf *make_buf(const uint8_t *bytes, uint32_t len, uint32_t headroom)
{
	struct vbn_buf *buf =
		aligned_alloc(CACHE_LINE, sizeof(*buf) + round_up(headroom + len, CACHE_LINE));

	assert_non_null(buf);
	memset(buf, 0, sizeof(*buf));
	buf->size = headroom + len;
	buf->data = vbn_buf_room(buf) + headroom;
	buf->len = len;
	memcpy(buf->data, bytes, len);
	return buf;
}

/* Its sum with the pseudo header, 16 bits at a time. */
static uint32_t sum_l4(const struct shape *shape, const uint8_t *frame, uint32_t ip, uint32_t l4)
{
	const uint32_t len = header_of(shape->protocol) + DATA;
	const uint32_t at = ip + (shape->version == 4 ? 12 : 8), n = shape->version == 4 ? 8 : 32;
	uint32_t sum = len + (uint32_t)shape->protocol;

	for (uint32_t i = 0; i < n; i += 2)
		sum += (uint32_t)frame[at + i] << 8 | frame[at + i + 1];
	for (uint32_t i = 0; i < len; i += 2)
		sum += (uint32_t)frame[l4 + i] << 8 | (i + 1 < len ? frame[l4 + i + 1] : 0u);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void check(const struct shape *shape, const struct frame *frame, uint32_t cut)
{
	struct vbn_buf *buf = make_buf(frame->bytes, cut, 0), *tail = NULL;
	uint8_t flat[ROOM];
	uint32_t field = frame->l4 + field_of(shape->protocol);

	if (cut < frame->len) {
		tail = make_buf(frame->bytes + cut, frame->len - cut, 0);
		vbn_buf_append(buf, tail);
	}
	vbn_buf_packet(buf)->flags = VBN_PACKET_TX_IP_CSUM | VBN_PACKET_TX_L4_CSUM;
	assert_int_equal(vbn__frame_prepare(buf, false), 0);
	memcpy(flat, buf->data, buf->len);
	if (tail)
		memcpy(flat + buf->len, tail->data, tail->len);
	assert_int_equal(sum_l4(shape, flat, frame->ip, frame->l4), 0xffff);
	if (shape->version == 4)
		assert_int_equal(csum_fold(vbn__csum_bytes_plain(
					 flat + frame->ip, frame->l4 - frame->ip, 0)),
			0xffff);
	/* Nothing else has changed. */
	put16(flat + field, (uint32_t)frame->bytes[field] << 8 | frame->bytes[field + 1]);
	if (shape->version == 4)
		memset(flat + frame->ip + 10, 0, 2);
	assert_memory_equal(flat, frame->bytes, frame->len);
	free(buf);
	free(tail);
}

static const int protocols[] = {6, 17, 58};

/* Every protocol, with and without tags and options; whole, and as a chain that is cut anywhere behind the
 * fourth layer's header. */
static void test_each(void **arg)
{
	(void)arg;
	for (int version = 4; version <= 6; version += 2)
		for (int tags = 0; tags <= 2; tags++)
			for (int options = 0; options <= 3; options += 3)
				for (size_t p = 0; p < ARRAY_SIZE(protocols) - (version == 4);
					p++) {
					const struct shape shape = {
						tags, version, protocols[p], options};
					struct frame frame;
					uint32_t cut;

					build(&shape, &frame);
					cut = frame.l4 + header_of(shape.protocol);
					for (; cut <= frame.len; cut += 7)
						check(&shape, &frame, cut);
					check(&shape, &frame, frame.len);
				}
}

/* Cut at every byte, or every byte of its headers another: it goes as it is, or is filled in, and nothing
 * beyond its end is touched. */
static void test_cut(void **arg)
{
	(void)arg;
	for (int version = 4; version <= 6; version += 2) {
		const struct shape shape = {1, version, 17, 2};
		struct frame frame;

		build(&shape, &frame);
		for (uint32_t len = 0; len <= frame.len; len++) {
			struct vbn_buf *buf = make_buf(frame.bytes, len, 0);

			vbn_buf_packet(buf)->flags = VBN_PACKET_TX_L4_CSUM;
			assert_int_equal(vbn__frame_prepare(buf, false), 0);
			if (len < frame.len)
				assert_memory_equal(buf->data, frame.bytes, len);
			free(buf);
		}
		for (uint32_t at = 12; at < frame.l4 + 8; at++)
			for (int value = 0; value < 256; value++) {
				struct vbn_buf *buf = make_buf(frame.bytes, frame.len, 0);

				buf->data[at] = (uint8_t)value;
				vbn_buf_packet(buf)->flags =
					VBN_PACKET_TX_IP_CSUM | VBN_PACKET_TX_L4_CSUM;
				assert_int_equal(vbn__frame_prepare(buf, false), 0);
				assert_int_equal(buf->len, frame.len);
				free(buf);
			}
	}
}

/* A fragment has not all that its checksum covers: it goes as it is, but for the header's. */
static void test_fragment(void **arg)
{
	const struct shape shape = {0, 4, 17, 0};
	struct vbn_buf *buf;
	struct frame frame;

	(void)arg;
	build(&shape, &frame);
	frame.bytes[frame.ip + 6] = 0x20;
	buf = make_buf(frame.bytes, frame.len, 0);
	vbn_buf_packet(buf)->flags = VBN_PACKET_TX_IP_CSUM | VBN_PACKET_TX_L4_CSUM;
	assert_int_equal(vbn__frame_prepare(buf, false), 0);
	assert_int_equal(csum_fold(vbn__csum_bytes_plain(buf->data + frame.ip, 20, 0)), 0xffff);
	assert_memory_equal(buf->data + frame.l4, frame.bytes + frame.l4, frame.len - frame.l4);
	free(buf);
}

/* Into the headroom, or else into what is behind; where there is neither, it is refused. */
static void test_tag(void **arg)
{
	const struct shape shape = {0, 4, 17, 0};
	struct frame frame;

	(void)arg;
	build(&shape, &frame);
	for (int place = 0; place < 3; place++) {
		struct vbn_buf *buf = make_buf(frame.bytes, frame.len, place == 0 ? 4 : 0);

		if (place == 1) { /* its last bytes are room */
			buf->len -= 4;
			put16(buf->data + frame.ip + 2, frame.len - frame.ip - 4);
		}
		vbn_buf_packet(buf)->flags = VBN_PACKET_TX_VLAN;
		vbn_buf_packet(buf)->vlan = 0x6123;
		assert_int_equal(vbn__frame_prepare(buf, false), place == 2 ? -EINVAL : 0);
		if (place < 2) {
			const uint32_t kept = frame.len - (place == 1 ? 4 : 0);

			assert_int_equal(buf->len, kept + 4);
			assert_memory_equal(buf->data, frame.bytes, 12);
			assert_memory_equal(buf->data + 12, "\x81\x00\x61\x23", 4);
			assert_memory_equal(buf->data + 16, "\x08\x00\x45", 3);
			assert_memory_equal(
				buf->data + 4 + frame.l4, frame.bytes + frame.l4, kept - frame.l4);
			/* Sent once more, it does not get another one. */
			assert_int_equal(vbn__frame_prepare(buf, false), 0);
			assert_int_equal(buf->len, kept + 4);
		}
		free(buf);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_fragment),
		cmocka_unit_test(test_tag),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
