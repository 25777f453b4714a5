/* raw_wire_test.c - raw Ethernet through a packet socket, or a TAP: frames to and from the far end of a
 * veth pair or the host's end of the TAP, byte for byte, with their tags, beside the port's own ARP
 */

#include "../unit/vhca_ask.h"
#include "network.h"
#include "raw.h"

#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct raw raw;

static int open_port(void **state)
{
	(void)state;
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ, .max_wr = 64});
	network_wait("far");
	return 0;
}

static int close_port(void **state)
{
	(void)state;
	raw_close(&raw);
	return 0;
}

/* A type that nobody else sends. */
enum { TYPE_TEST = 0x88b5 };

static uint32_t write_test_frame(uint8_t *to, uint16_t tag, uint32_t size, uint8_t seed)
{
	uint8_t *at = to + 12;

	memcpy(to, raw_mac, 6);
	memcpy(to + 6, "\2\0\0\0\0\7", 6);
	if (tag) {
		put_word(at, TYPE_VLAN);
		put_word(at + 2, tag);
		at += 4;
	}
	put_word(at, TYPE_TEST);
	for (at += 2; at < to + size; at++)
		*at = (uint8_t)(seed + (at - to));
	return size;
}

static void frames_leave_as_they_are(void **state)
{
	static const uint32_t sizes[] = {60, 61, 512, 1514};

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		uint16_t tag = i % 2 ? 0x6007 : 0;
		uint32_t size = write_test_frame(raw_slot(&raw, 0), tag, sizes[i], (uint8_t)i);
		struct frame frame;

		forget_frames(true);
		raw_post_send(&raw, i, 0, size, 0);
		expect_wc(raw.side.send_cq, i, IBV_WC_SUCCESS);
		frame = wait_frame(false, TYPE_TEST, 0);
		assert_int_equal(frame.size, size);
		assert_memory_equal(frame.bytes, raw_slot(&raw, 0), size);
	}
}

/* In batches, whose order they keep. */
static void many_frames_leave(void **state)
{
	(void)state;
	forget_frames(true);
	for (uint32_t i = 0; i < 96; i++) {
		uint32_t size = write_test_frame(raw_slot(&raw, i % 32), 0, 60 + i, (uint8_t)i);

		raw_post_send(&raw, i, i % 32, size, 0);
		expect_wc(raw.side.send_cq, i, IBV_WC_SUCCESS);
	}
	for (uint32_t i = 0; i < 96; i++) {
		struct frame frame = wait_frame(false, TYPE_TEST, i);

		assert_int_equal(frame.size, 60 + i);
		assert_int_equal(frame.bytes[20], (uint8_t)(i + 20));
	}
}

static void frames_come_as_they_are(void **state)
{
	static const uint32_t sizes[] = {42, 60, 512, 1514};

	(void)state;
	forget_frames(true);
	for (uint32_t i = 0; i < 4; i++) {
		struct frame frame;
		struct mlx5_cqe64 *cqe;
		uint32_t padded = sizes[i] < RAW_PADDED ? RAW_PADDED : sizes[i];

		raw_post_plain(&raw, 1, RAW_SLOT);
		frame.size =
			write_test_frame(frame.bytes, i % 2 ? 0x6007 : 0, sizes[i], (uint8_t)i);
		inject(&frame);
		cqe = raw_wait(&raw);
		assert_int_equal(be32toh(cqe->byte_cnt), padded);
		assert_memory_equal(raw_slot(&raw, 1), frame.bytes, frame.size);
	}
}

/* The port answers ARP for its address, whatever raw queues there are. */
static void the_port_answers_arp(void **state)
{
	static const uint8_t question[] = {0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 7, 10, 0, 0, 9, 0,
		0, 0, 0, 0, 0, 10, 0, 0, 1};
	struct frame frame = {.size = 60}, answer;

	(void)state;
	forget_frames(true);
	memset(frame.bytes, 0xff, 6);
	memcpy(frame.bytes + 6, "\2\0\0\0\0\7", 6);
	put_word(frame.bytes + 12, TYPE_ARP);
	memcpy(frame.bytes + 14, question, sizeof(question));
	inject(&frame);
	answer = wait_frame(false, TYPE_ARP, 0);
	assert_int_equal(answer.bytes[21], 2);
	raw_expect_quiet(&raw); /* it was no frame of a rule's */
}

/* What the device has counted; 0 also where that is left out. */
static uint64_t counted_in(const char *section, const char *name)
{
	static char answer[1 << 16];
	const char *section_at, *at;
	char key[64];

	vhca_ask("status", answer, sizeof(answer));
	section_at = strstr(answer, section);
	assert_non_null(section_at);
	snprintf(key, sizeof(key), "\"%s\":", name);
	at = strstr(section_at, key);
	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static uint64_t counted(const char *name)
{
	return counted_in("\"raw\":{", name);
}

/* Received is delivered, or dropped by a name; also what no WQE waits for. */
static void every_frame_is_accounted_for(void **state)
{
	struct frame frame = {.size = 100};
	uint64_t came;

	(void)state;
	write_test_frame(frame.bytes, 0, 100, 1);
	came = counted("came");
	raw_post_plain(&raw, 1, RAW_SLOT);
	for (int i = 0; i < 50; i++)
		inject(&frame);
	for (double until = seconds() + 20; counted("came") < came + 50 && seconds() < until;)
		usleep(1000);
	raw_wait(&raw);
	assert_true(counted("came") >= came + 50);
	assert_int_equal(counted("came"),
		counted("too_long") + counted("host") + counted("ruled_out") + counted("taken"));
	assert_int_equal(counted("copies"),
		counted("delivered") + counted("out_of_buffer") + counted("not_ready") +
			counted("failed"));
	assert_true(counted("out_of_buffer") >= 49);
}

static size_t frames_come(void)
{
	size_t n;

	pthread_mutex_lock(&net.lock);
	n = net.n;
	pthread_mutex_unlock(&net.lock);
	return n;
}

/* With a fault of the wire: what has not come is what the device says that it has lost. */
static void frames_are_lost(void **state)
{
	uint64_t lost;

	(void)state;
	forget_frames(true);
	for (uint32_t i = 0; i < 96; i++) {
		raw_post_send(
			&raw, i, 0, write_test_frame(raw_slot(&raw, 0), 0, 60 + i, (uint8_t)i), 0);
		expect_wc(raw.side.send_cq, i, IBV_WC_SUCCESS);
	}
	lost = counted_in("\"wire_counters\":{", "tx_fault");
	assert_in_range(lost, 1, 95);
	for (double until = seconds() + 20; frames_come() < 96 - lost && seconds() < until;)
		usleep(1000);
	assert_int_equal(frames_come(), 96 - lost);
}

/* As with a kernel's: where frames leave the process, that is a right. */
static void without_the_right(void **state)
{
	struct ibv_wq_init_attr wq = {.wq_type = IBV_WQT_RQ,
		.max_wr = 4,
		.max_sge = 1,
		.pd = raw.pd,
		.cq = raw.side.recv_cq};
	struct ibv_qp_init_attr qp = {.send_cq = raw.side.send_cq,
		.recv_cq = raw.side.recv_cq,
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap = {.max_send_wr = 4, .max_send_sge = 1}};
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct had[2], without[2];

	(void)state;
	assert_int_equal(syscall(SYS_capget, &header, had), 0);
	memcpy(without, had, sizeof(had));
	without[0].effective &= ~(1u << CAP_NET_RAW);
	assert_int_equal(syscall(SYS_capset, &header, without), 0);
	errno = 0;
	assert_null(ibv_create_qp(raw.pd, &qp));
	assert_int_equal(errno, EPERM);
	assert_null(ibv_create_wq(raw.context, &wq));
	assert_int_equal(errno, EPERM);
	assert_int_equal(syscall(SYS_capset, &header, had), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest faulty[] = {cmocka_unit_test(frames_are_lost)};
	bool tap = argc > 1 && !strcmp(argv[1], "tap");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_leave_as_they_are),
		cmocka_unit_test(many_frames_leave),
		cmocka_unit_test(frames_come_as_they_are),
		cmocka_unit_test(the_port_answers_arp),
		cmocka_unit_test(every_frame_is_accounted_for),
		cmocka_unit_test(without_the_right),
	};
	int failed = tap ? network_start_tap() : network_start();

	if (failed)
		return failed;
	setenv("VHCA_WIRE", tap ? "tap:far" : "packet:near", 1);
	setenv("VHCA_ADDRESS", "10.0.0.1/24", 1);
	failed = getenv("VHCA_FAULT")
		? cmocka_run_group_tests_name("raw_wire", faulty, open_port, close_port)
		: cmocka_run_group_tests_name("raw_wire", tests, open_port, close_port);
	network_stop();
	return failed;
}
