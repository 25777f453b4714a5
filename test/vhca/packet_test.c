/* packet_test.c - RoCEv2 packets: CRC, ICRC and layout against vectors made elsewhere, and what a
 * decoder must refuse
 */

#include "vhca/crc.h"
#include "vhca/packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- CRC ---- */

/* One bit at a time, as the polynomial is defined. */
static uint32_t crc_by_bits(uint32_t state, const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		state ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			state = state >> 1 ^ (state & 1 ? 0xedb88320u : 0);
	}
	return state;
}

static void crc_has_the_standard_check_value(void **state)
{
	(void)state;
	assert_int_equal(~vhca_crc32(VHCA_CRC_START, "123456789", 9), 0xcbf43926u);
}

static void crc_is_the_same_by_all_ways(void **state)
{
	uint8_t bytes[700];
	uint32_t seed = 7;

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)((seed = seed * 1103515245u + 12345u) >> 16);
	for (size_t n = 0; n < 600; n++) {
		size_t start = n % 19;
		uint32_t wanted = crc_by_bits(seed ^ (uint32_t)n, bytes + start, n);

		assert_int_equal(vhca_crc32_portable(seed ^ (uint32_t)n, bytes + start, n), wanted);
		assert_int_equal(vhca_crc32(seed ^ (uint32_t)n, bytes + start, n), wanted);
	}
}

/* ---- vectors: the first two by scapy's RoCE layer, the others by the annexes' rules and zlib ---- */

static const char send_frame[] = "45000034000040004011ab65c0a80701c0a8070212b712b70020d647"
				 "0460ffff000001238000045668656c6c6f2100007ec72810";
static const char ack_frame[] = "45000030000040004011ab69c0a80701c0a8070212b712b7001c701c"
				"1140ffff0000001100789abc1f000005ff660fe6";
static const char write_frame[] =
	"60000000008c1140fd000000000000000000000000000001fd000000000000000000000000000002"
	"c00112b7008c8d2a0a40ffff00abcdef80ffffff00000000deadbe000000123400000064"
	"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252627"
	"28292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f"
	"505152535455565758595a5b5c5d5e5f60616263406389ee";

/* RoCEv1's: a GRH with a traffic class and a flow label. */
static const char grh_frame[] = "6441234500181b40fe800000000000000200fffe0a000001"
				"fe8000000000000002000afffe000002"
				"0420ffff000001238000045668656c6c6f2100009efb9c33";

struct frame {
	uint8_t bytes[256];
	size_t size, ip_size;
	uint8_t *packet; /* its BTH */
	size_t packet_size;
};

static struct frame *frame_of(struct frame *frame, const char *hex, size_t ip_size)
{
	frame->size = strlen(hex) / 2;
	frame->ip_size = ip_size;
	for (size_t i = 0; i < frame->size; i++) {
		char byte[3] = {hex[2 * i], hex[2 * i + 1], 0};

		frame->bytes[i] = (uint8_t)strtoul(byte, NULL, 16);
	}
	frame->packet = frame->bytes + ip_size + 8;
	frame->packet_size = frame->size - ip_size - 8;
	return frame;
}

static void expect_decoded(const struct frame *frame, struct vhca_packet *packet)
{
	memset(packet, 0, sizeof(*packet));
	assert_int_equal(
		vhca_packet_decode(frame->packet, frame->packet_size, packet), VHCA_DROP_NONE);
}

/* Encoding what was decoded gives the same bytes. */
static void expect_encoded(const struct frame *frame, const struct vhca_packet *packet)
{
	uint8_t again[256] = {0};
	uint32_t headers = vhca_packet_encode(packet, again);

	memcpy(again + headers, packet->payload, packet->length);
	assert_int_equal(vhca_packet_size(packet->parts, packet->length) + 4, frame->packet_size);
	assert_memory_equal(again, frame->packet, frame->packet_size - 4);
}

/* By the headers as they are, and by the route as a UDP socket knows it. */
static void expect_icrc(const struct frame *frame)
{
	size_t size = frame->packet_size - VHCA_ICRC_BYTES;
	const uint8_t *ip = frame->bytes;
	struct vhca_route route = {.source = {[10] = 0xff, [11] = 0xff},
		.dest = {[10] = 0xff, [11] = 0xff},
		.source_port = (uint16_t)(ip[frame->ip_size] << 8 | ip[frame->ip_size + 1])};

	if (frame->ip_size == 20) {
		memcpy(route.source + 12, ip + 12, 4);
		memcpy(route.dest + 12, ip + 16, 4);
	} else {
		memcpy(route.source, ip + 8, 16);
		memcpy(route.dest, ip + 24, 16);
	}
	assert_true(
		vhca_icrc_right(vhca_icrc_of_headers(ip, frame->ip_size + 8), frame->packet, size));
	assert_true(
		vhca_icrc_right(vhca_icrc_of_route(&route, (uint32_t)size), frame->packet, size));
}

static void a_send_is_understood(void **state)
{
	struct frame frame;
	struct vhca_packet packet;

	(void)state;
	frame_of(&frame, send_frame, 20);
	expect_decoded(&frame, &packet);
	assert_int_equal(packet.transport, VHCA_TRANSPORT_RC);
	assert_int_equal(packet.operation, VHCA_SEND_ONLY);
	assert_int_equal(packet.dest_qpn, 0x123);
	assert_int_equal(packet.psn, 0x456);
	assert_true(packet.ack_request);
	assert_int_equal(packet.length, 6);
	assert_memory_equal(packet.payload, "hello!", 6);
	expect_encoded(&frame, &packet);
	expect_icrc(&frame);
}

static void an_acknowledgement_is_understood(void **state)
{
	struct frame frame;
	struct vhca_packet packet;

	(void)state;
	frame_of(&frame, ack_frame, 20);
	expect_decoded(&frame, &packet);
	assert_int_equal(packet.operation, VHCA_ACKNOWLEDGE);
	assert_int_equal(packet.syndrome, VHCA_AETH_ACK | VHCA_AETH_NO_CREDITS);
	assert_int_equal(packet.msn, 5);
	assert_int_equal(packet.psn, 0x789abc);
	expect_encoded(&frame, &packet);
	expect_icrc(&frame);
}

static void a_write_over_ipv6_is_understood(void **state)
{
	struct frame frame;
	struct vhca_packet packet;

	(void)state;
	frame_of(&frame, write_frame, 40);
	expect_decoded(&frame, &packet);
	assert_int_equal(packet.operation, VHCA_WRITE_ONLY);
	assert_int_equal(packet.va, 0xdeadbe00);
	assert_int_equal(packet.rkey, 0x1234);
	assert_int_equal(packet.dma_length, 100);
	assert_int_equal(packet.length, 100);
	expect_encoded(&frame, &packet);
	expect_icrc(&frame);
}

/* The route that is read off it makes the same headers but for what the ICRC leaves out. */
static void a_grh_is_understood(void **state)
{
	struct vhca_packet packet = {.length = 0};
	struct vhca_route route;
	size_t size = 0, n;
	uint8_t grh[40];
	struct frame frame;

	(void)state;
	frame_of(&frame, grh_frame, 32); /* and no UDP's 8 bytes */
	n = vhca_route_parse(VHCA_TYPE_ROCE, frame.bytes, frame.size, &route, &size);
	assert_int_equal(n, 40);
	assert_int_equal(size, frame.packet_size);
	assert_true(route.v1);
	assert_int_equal(route.traffic_class, 0x44);
	assert_int_equal(route.source[15], 1);
	assert_int_equal(route.dest[15], 2);
	expect_decoded(&frame, &packet);
	assert_memory_equal(packet.payload, "hello!", 6);
	size -= VHCA_ICRC_BYTES;
	assert_true(vhca_icrc_right(vhca_icrc_of_headers(frame.bytes, 40), frame.packet, size));
	assert_true(
		vhca_icrc_right(vhca_icrc_of_route(&route, (uint32_t)size), frame.packet, size));
	vhca_route_grh(&route, (uint32_t)size, grh);
	frame.bytes[1] &= 0xf0; /* the flow label is not kept */
	frame.bytes[2] = frame.bytes[3] = 0;
	assert_memory_equal(grh, frame.bytes, 40);
	/* what ends too early, or is of another type, is none */
	assert_int_equal(vhca_route_parse(VHCA_TYPE_ROCE, frame.bytes, 63, &route, &size), 0);
	assert_int_equal(vhca_route_parse(VHCA_TYPE_IPV6, frame.bytes, 64, &route, &size), 0);
	assert_int_equal(vhca_route_parse(VHCA_TYPE_IPV4, frame.bytes, 64, &route, &size), 0);
}

static void one_wrong_bit_breaks_the_icrc(void **state)
{
	struct frame frame;
	uint32_t seed;

	(void)state;
	frame_of(&frame, write_frame, 40);
	seed = vhca_icrc_of_headers(frame.bytes, 48);
	for (size_t bit = 0; bit < frame.packet_size * 8; bit++) {
		bool masked = bit / 8 == 4; /* congestion marks may change on the way */

		frame.packet[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(
			vhca_icrc_right(seed, frame.packet, frame.packet_size - 4), masked);
		frame.packet[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

/* ---- every opcode ---- */

static void fill_packet(struct vhca_packet *packet, uint8_t transport, uint8_t operation)
{
	*packet = (struct vhca_packet){
		.transport = transport,
		.operation = operation,
		.parts = vhca_packet_parts(transport, operation),
		.solicited = true,
		.pkey = 0xffff,
		.dest_qpn = 0x654321,
		.psn = 0xfedcba,
	};
	if (packet->parts & VHCA_HAS_RETH)
		packet->dma_length = 0x40302010;
	if (packet->parts & (VHCA_HAS_RETH | VHCA_HAS_ATOMIC)) {
		packet->va = 0x1122334455667788;
		packet->rkey = 0x99aabbcc;
	}
	if (packet->parts & VHCA_HAS_ATOMIC) {
		packet->swap_add = 0x0102030405060708;
		packet->compare = 0x1112131415161718;
	}
	if (packet->parts & VHCA_HAS_AETH) {
		packet->syndrome = VHCA_AETH_RNR | 14;
		packet->msn = 0x777777;
	}
	if (packet->parts & VHCA_HAS_ATOMIC_ACK)
		packet->original = 0x2122232425262728;
	if (packet->parts & (VHCA_HAS_IMM | VHCA_HAS_IETH))
		packet->imm = be32(0x31323334);
	if (packet->parts & VHCA_HAS_DETH) {
		packet->qkey = 0x80000001;
		packet->source_qpn = 0x424242;
	}
}

static void every_opcode_goes_there_and_back(void **state)
{
	int n = 0;

	(void)state;
	for (unsigned int opcode = 0; opcode < 256; opcode++) {
		uint8_t bytes[VHCA_MAX_PACKET] = {0};
		struct vhca_packet in, out;
		uint32_t headers;

		fill_packet(&in, (uint8_t)(opcode >> 5), opcode & 31);
		if (!in.parts)
			continue;
		n++;
		in.length = in.parts & VHCA_HAS_PAYLOAD ? 33 : 0;
		headers = vhca_packet_encode(&in, bytes);
		assert_int_equal(headers, vhca_packet_headers(in.parts));
		assert_true(headers <= VHCA_MAX_HEADERS);
		memset(&out, 0, sizeof(out));
		assert_int_equal(
			vhca_packet_decode(bytes, vhca_packet_size(in.parts, in.length) + 4, &out),
			VHCA_DROP_NONE);
		assert_ptr_equal(out.payload, bytes + headers);
		in.payload = out.payload;
		assert_memory_equal(&in, &out, sizeof(in));
	}
	assert_int_equal(n, 23 + 12 + 2);
}

/* ---- what is refused ---- */

static void hostile_packets_are_dropped_by_name(void **state)
{
	struct frame frame;
	struct vhca_packet packet;
	uint8_t *bth;

	(void)state;
	frame_of(&frame, send_frame, 20);
	bth = frame.packet;
	for (size_t size = 0; size < 16; size++)
		assert_int_equal(vhca_packet_decode(bth, size, &packet), VHCA_DROP_LENGTH);
	assert_int_equal(vhca_packet_decode(bth, frame.packet_size - 1, &packet), VHCA_DROP_LENGTH);
	assert_int_equal(vhca_packet_decode(bth, VHCA_MAX_PACKET + 4, &packet), VHCA_DROP_LENGTH);
	bth[1] |= 1;
	assert_int_equal(vhca_packet_decode(bth, frame.packet_size, &packet), VHCA_DROP_VERSION);
	bth[1] &= 0xf0;
	bth[0] = 0x55; /* a reliable datagram */
	assert_int_equal(vhca_packet_decode(bth, frame.packet_size, &packet), VHCA_DROP_OPCODE);
	bth[0] = VHCA_FETCH_ADD; /* whose header is longer than the packet */
	assert_int_equal(vhca_packet_decode(bth, frame.packet_size, &packet), VHCA_DROP_LENGTH);
	bth[0] = VHCA_ACKNOWLEDGE; /* which has no payload */
	assert_int_equal(vhca_packet_decode(bth, frame.packet_size, &packet), VHCA_DROP_LENGTH);
	bth[0] = VHCA_SEND_ONLY;
	bth[1] |= 0x30; /* three bytes of pad, and no payload */
	assert_int_equal(vhca_packet_decode(bth, 16, &packet), VHCA_DROP_PAD);
}

static void psns_go_round(void **state)
{
	(void)state;
	assert_int_equal(vhca_psn_ahead(2, 0xfffffe), 4);
	assert_int_equal(vhca_psn_ahead(0xfffffe, 2), -4);
	assert_int_equal(vhca_psn_ahead(0x123, 0x123), 0);
	assert_int_equal(vhca_psn_add(0xffffff, 1), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc_has_the_standard_check_value),
		cmocka_unit_test(crc_is_the_same_by_all_ways),
		cmocka_unit_test(a_send_is_understood),
		cmocka_unit_test(an_acknowledgement_is_understood),
		cmocka_unit_test(a_write_over_ipv6_is_understood),
		cmocka_unit_test(a_grh_is_understood),
		cmocka_unit_test(one_wrong_bit_breaks_the_icrc),
		cmocka_unit_test(every_opcode_goes_there_and_back),
		cmocka_unit_test(hostile_packets_are_dropped_by_name),
		cmocka_unit_test(psns_go_round),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
