/* pcap_test.c - a capture of packets that no device has sent: its blocks, and what tshark makes of
 * it where there is one */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* ahead of what includes base.h */
#include "vhca/vhca.h"

#include "vhca/packet.h"
#include "vhca/pcap.h"

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct vhca_options options = {.wire = "udp"};
static char path[64];

const struct vhca_options *vhca_options(void)
{
	return &options;
}

static void capture_one(bool sent, const struct vhca_route *route, struct vhca_packet *packet)
{
	static const uint8_t payload[64] = "what is carried";
	uint8_t bytes[VHCA_MAX_PACKET];
	uint32_t n = vhca_packet_encode(packet, bytes);

	memcpy(bytes + n, payload, packet->length);
	n += packet->length;
	vhca_icrc_write(vhca_icrc_of_route(route, n), bytes, n);
	vhca_pcap_packet(sent, route, bytes, n + VHCA_ICRC_BYTES);
}

static void capture(void)
{
	struct vhca_route v4 = {.source = {[10] = 0xff, [11] = 0xff, 127, 0, 0, 1},
		.dest = {[10] = 0xff, [11] = 0xff, 127, 0, 0, 2},
		.source_port = 0xc123};
	struct vhca_route v6 = {
		.source = {0xfd, [15] = 1}, .dest = {0xfd, [15] = 2}, .source_port = 0xc456};
	struct vhca_packet send = {.transport = VHCA_TRANSPORT_RC,
		.operation = VHCA_SEND_ONLY,
		.pkey = 0xffff,
		.dest_qpn = 0x123,
		.psn = 7,
		.length = 64};
	struct vhca_packet ack = {.transport = VHCA_TRANSPORT_RC,
		.operation = VHCA_ACKNOWLEDGE,
		.pkey = 0xffff,
		.dest_qpn = 0x321,
		.psn = 7,
		.msn = 1};

	snprintf(path, sizeof(path), "/tmp/vhca-pcap-test.%d", getpid());
	options.pcap = "/tmp/vhca-pcap-test.%p";
	unlink(path);
	vhca_pcap_open();
	assert_true(vhca_pcap_on);
	send.parts = vhca_packet_parts(send.transport, send.operation);
	ack.parts = vhca_packet_parts(ack.transport, ack.operation);
	capture_one(true, &v4, &send);
	capture_one(false, &v6, &ack);
	vhca_pcap_open(); /* as a second process: it goes on behind what is there */
	capture_one(true, &v6, &send);
	assert_true(vhca_pcap_on);
}

static void test_blocks_fill_the_file(void **state)
{
	static const uint32_t wanted[] = {0x0a0d0d0a, 1, 6, 6, 6};
	uint32_t head[2];
	long at = 0;
	FILE *file;

	(void)state;
	capture();
	file = fopen(path, "r");
	assert_non_null(file);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		uint32_t again;

		assert_int_equal(fseek(file, at, SEEK_SET), 0);
		assert_int_equal(fread(head, sizeof(head), 1, file), 1);
		assert_int_equal(head[0], wanted[i]);
		assert_int_equal(head[1] % 4, 0);
		at += head[1];
		assert_int_equal(fseek(file, at - 4, SEEK_SET), 0);
		assert_int_equal(fread(&again, sizeof(again), 1, file), 1);
		assert_int_equal(again, head[1]);
	}
	assert_int_equal(fseek(file, 0, SEEK_END), 0);
	assert_int_equal(ftell(file), at);
	fclose(file);
}

static void test_tshark_decodes_it(void **state)
{
	static const char *const wanted[] = {
		"127.0.0.1,,49443,4,7,2\n",
		",fd00::1,50262,17,7,1\n",
		",fd00::1,50262,4,7,2\n",
	};
	char command[512], line[256];
	FILE *tshark;

	(void)state;
	if (system("command -v tshark >/dev/null"))
		skip();
	snprintf(command, sizeof(command),
		"tshark -r %s -T fields -E separator=, -e ip.src -e ipv6.src -e udp.srcport "
		"-e infiniband.bth.opcode -e infiniband.bth.psn -e frame.packet_flags_direction "
		"2>/dev/null",
		path);
	tshark = popen(command, "r");
	assert_non_null(tshark);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		char shown[256] = "";
		unsigned int values[4];
		char *at;

		assert_non_null(fgets(line, sizeof(line), tshark));
		/* numbers are shown as decimal or hexadecimal by its versions */
		at = strchr(strchr(line, ',') + 1, ',') + 1;
		for (int v = 0; v < 4; v++) {
			values[v] = (unsigned int)strtoul(at, &at, 0);
			at += *at == ',';
		}
		snprintf(shown, sizeof(shown), "%.*s%u,%u,%u,%u\n",
			(int)(strchr(strchr(line, ',') + 1, ',') + 1 - line), line, values[0],
			values[1], values[2], values[3]);
		assert_string_equal(shown, wanted[i]);
	}
	assert_null(fgets(line, sizeof(line), tshark));
	pclose(tshark);
	snprintf(command, sizeof(command), "tshark -r %s -Y _ws.malformed 2>/dev/null | grep -q .",
		path);
	assert_int_not_equal(system(command), 0);
}

static void test_another_file_is_left_alone(void **state)
{
	char there[16] = "";
	struct stat st;
	FILE *file = fopen(path, "w");

	(void)state;
	assert_non_null(file);
	fputs("a letter home", file);
	fclose(file);
	vhca_pcap_open();
	assert_false(vhca_pcap_on);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 13);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_non_null(fgets(there, sizeof(there), file));
	fclose(file);
	assert_string_equal(there, "a letter home");
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks_fill_the_file),
		cmocka_unit_test(test_tshark_decodes_it),
		cmocka_unit_test(test_another_file_is_left_alone),
	};

	return cmocka_run_group_tests_name("pcap", tests, NULL, NULL);
}
