/* checksum_test.c - the internet checksum: known ones, vectors against words, parts, changes */

#include "base/checksum.h"
#include "unit.h"

/* 16 bits at a time, as RFC 1071 has it. */
static uint16_t reference(const uint8_t *data, size_t n)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < n; i += 2) {
		sum += (uint32_t)data[i] << 8 | (i + 1 < n ? data[i + 1] : 0u);
		sum = (sum & 0xffff) + (sum >> 16);
	}
	return htobe16((uint16_t)~sum);
}

static uint32_t state = 1;

static uint32_t next_random(void)
{
	state = state * 1664525 + 1013904223;
	return state >> 8;
}

static void test_known(void **arg)
{
	/* RFC 1071's example, and an IPv4 header whose checksum is 0xb861. */
	static const uint8_t rfc[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
	uint8_t header[20] = {0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8,
		0, 1, 0xc0, 0xa8, 0, 0xc7};

	(void)arg;
	assert_int_equal(be16toh(csum_fold(vbn__csum_bytes(rfc, sizeof(rfc), 0))), 0xddf2);
	assert_int_equal(csum_fold(csum_ip4_header(header)), 0xffff);
	header[10] = header[11] = 0;
	assert_int_equal(be16toh(csum_finish(csum_ip4_header(header))), 0xb861);
	assert_int_equal(csum_finish_udp(0xffff), 0xffff);
	assert_int_equal(vbn__csum_bytes(rfc, 0, 7), 7);
}

/* Every length up to a jumbo frame's, at every alignment of a vector, random and all ones. */
static void test_vector(void **arg)
{
	static uint8_t room[9100];

	(void)arg;
	for (int ones = 0; ones < 2; ones++) {
		for (size_t i = 0; i < sizeof(room); i++)
			room[i] = ones ? 0xff : (uint8_t)next_random();
		for (size_t n = 0; n < 9018; n += n < 600 ? 1 : 61) {
			const uint8_t *data = room + n % 32 + (n & 1);
			const uint64_t sum = next_random();
			const uint64_t plain = vbn__csum_bytes_plain(data, n, 0);

			assert_int_equal(csum_finish(plain), n ? reference(data, n) : 0xffff);
			assert_int_equal(csum_fold(vbn__csum_bytes(data, n, 0)), csum_fold(plain));
			assert_int_equal(csum_fold(vbn__csum_bytes(data, n, sum)),
				csum_fold(vbn__csum_bytes_plain(data, n, sum)));
			assert_true(vbn__csum_bytes(data, n, sum) < 1ull << 33);
		}
	}
}

static void test_parts(void **arg)
{
	uint8_t room[2000];

	(void)arg;
	for (size_t i = 0; i < sizeof(room); i++)
		room[i] = (uint8_t)next_random();
	for (size_t cut = 0; cut < sizeof(room); cut += 7) {
		const uint64_t a = vbn__csum_bytes(room, cut, 0);
		uint64_t b = vbn__csum_bytes(room + cut, sizeof(room) - cut, 0);

		if (cut & 1)
			b = csum_at_odd(b);
		assert_int_equal(csum_finish(csum_add(a, b)), reference(room, sizeof(room)));
	}
}

/* A field that covers what is changed comes to what it would be if summed anew. */
static void test_replace(void **arg)
{
	uint8_t room[64];

	(void)arg;
	for (int round = 0; round < 10000; round++) {
		const size_t at = next_random() % 15 * 4;
		uint32_t from, to = next_random() << 8 | next_random();
		uint16_t csum, half;

		for (size_t i = 0; i < sizeof(room); i++)
			room[i] = round % 16 ? (uint8_t)next_random() : 0;
		room[63] |= 1; /* a sum of nothing has two zeros */
		csum = csum_finish(vbn__csum_bytes(room, sizeof(room), 0));
		memcpy(&from, room + at, 4);
		memcpy(room + at, &to, 4);
		csum = csum_replace4(csum, from, to);
		assert_int_equal(csum, csum_finish(vbn__csum_bytes(room, sizeof(room), 0)));
		memcpy(&half, room + at, 2);
		memset(room + at, 0, 2);
		csum = csum_replace2(csum, half, 0);
		assert_int_equal(csum, csum_finish(vbn__csum_bytes(room, sizeof(room), 0)));
	}
}

/* As built byte by byte and summed. */
static void test_pseudo(void **arg)
{
	uint8_t src[16], dst[16], six[40] = {0}, four[12];

	(void)arg;
	for (int i = 0; i < 16; i++) {
		src[i] = (uint8_t)next_random();
		dst[i] = (uint8_t)next_random();
	}
	memcpy(four, src, 4);
	memcpy(four + 4, dst, 4);
	four[8] = 0, four[9] = 17, four[10] = 0x12, four[11] = 0x34;
	assert_int_equal(csum_finish(csum_pseudo4(src, dst, 17, 0x1234)), reference(four, 12));
	memcpy(six, src, 16);
	memcpy(six + 16, dst, 16);
	six[33] = 1, six[34] = 0x12, six[35] = 0x34, six[39] = 58;
	assert_int_equal(csum_finish(csum_pseudo6(src, dst, 58, 0x11234)), reference(six, 40));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known),
		cmocka_unit_test(test_vector),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_replace),
		cmocka_unit_test(test_pseudo),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
