/* pcap_test.c - capture files as ports: round trips of both formats, times kept to the nanosecond, packets
 * that the file has not whole, damaged files, names
 */

#include "unit.h"

#include <signal.h>
#include <sys/resource.h>
#include <verbena.h>

enum { COUNT = 1000, DEPTH = 64, DATA = 2000 };

static char dir[64], first[96], second[96], third[96], also_first[96];
static struct vbn_worker *worker;
static struct vbn_pool *pool;

struct end {
	struct vbn_port *port;
	struct vbn_rx_group *group;
	struct vbn_queue *queue;
};

static struct end open_end(const char *name)
{
	struct vbn_queue_conf conf = {
		.transport = VBN_RAW, .rx_pool = pool, .tx_depth = DEPTH, .rx_depth = DEPTH};
	struct end end;

	assert_int_equal(vbn_port_open(name, NULL, &end.port), 0);
	assert_int_equal(vbn_rx_group_create(end.port, NULL, &end.group), 0);
	conf.rx_group = end.group;
	assert_int_equal(vbn_queue_create(worker, end.port, &conf, &end.queue), 0);
	assert_int_equal(vbn_queue_connect(end.queue, NULL), 0);
	return end;
}

static void close_end(struct end *end)
{
	vbn_queue_destroy(end->queue);
	vbn_rx_group_destroy(end->group);
	vbn_port_close(end->port);
	assert_int_equal(vbn_pool_available(pool), vbn_pool_size(pool));
}

static const char *name_of(const char *format, const char *a, const char *b)
{
	static char name[256];

	snprintf(name, sizeof(name), format, a, b);
	return name;
}

/* Number i's length and bytes; its time where it has one. */
static uint32_t size_of(uint32_t i)
{
	return 14 + i * 7 % 1490;
}

static uint64_t time_of(uint32_t i)
{
	return 1700000000123456789ull + i * 1000000007ull;
}

static struct vbn_buf *make(uint32_t i)
{
	struct vbn_buf *buf;

	assert_int_equal(vbn_buf_alloc(pool, &buf, 1), 1);
	buf->len = size_of(i);
	memset(buf->data, (int)i, buf->len);
	*vbn_buf_packet(buf) = (struct vbn_packet){.flags = VBN_PACKET_TIME, .time = time_of(i)};
	return buf;
}

static void write_file(const char *file)
{
	struct end end = open_end(name_of("pcap:>%s%s", file, ""));
	uint32_t sent = 0;

	while (sent < COUNT) {
		struct vbn_buf *buf = make(sent);
		int ret;

		ret = vbn_send(end.queue, &buf, 1);
		if (!ret) { /* full */
			vbn_buf_free(&buf, 1);
			assert_int_equal(sent % DEPTH, 0);
			vbn_flush(end.queue);
			continue;
		}
		assert_int_equal(ret, 1);
		sent++;
	}
	close_end(&end);
}

/* As many as there are; each is what was written. */
static uint32_t read_file(struct end *end, bool forward)
{
	struct vbn_buf *bufs[32];
	uint32_t came = 0;
	int n;

	while ((n = vbn_recv(end->queue, bufs, 32)) > 0) {
		for (int i = 0; i < n; i++, came++) {
			assert_int_equal(bufs[i]->len, size_of(came));
			assert_int_equal(bufs[i]->data[0], came & 0xff);
			assert_memory_equal(bufs[i]->data, bufs[i]->data + 1, bufs[i]->len - 1);
			assert_true(vbn_buf_packet(bufs[i])->flags & VBN_PACKET_TIME);
			assert_int_equal(vbn_buf_packet(bufs[i])->time, time_of(came));
		}
		if (forward) {
			assert_int_equal(vbn_send(end->queue, bufs, n), n);
			vbn_flush(end->queue);
		} else {
			vbn_buf_free(bufs, n);
		}
	}
	return came;
}

static void test_round_trip(void **arg)
{
	struct vbn_port_info info;
	struct end end;

	(void)arg;
	write_file(first);
	end = open_end(name_of("pcap:%s>%s", first, second));
	vbn_port_info(end.port, &info);
	assert_true(info.up);
	assert_string_equal(info.driver, "pcap");
	assert_int_equal(read_file(&end, true), COUNT);
	vbn_port_info(end.port, &info);
	assert_false(info.up); /* the file has ended */
	close_end(&end);
	end = open_end(name_of("pcap:%s%s", second, ""));
	assert_int_equal(read_file(&end, false), COUNT);
	close_end(&end);
}

/* What others make of both. */
static void test_tshark(void **arg)
{
	char command[512];

	(void)arg;
	if (system("command -v tshark >/dev/null"))
		unit_skip("test_tshark_decodes_pcap", "needs tshark");
	for (int i = 0; i < 2; i++) {
		snprintf(command, sizeof(command),
			"test \"$(tshark -r %s -T fields -e frame.time_epoch -e frame.len 2>/dev/null | sed -n '2p')\" = \"1700000001.123456796\t21\"",
			i ? second : first);
		assert_int_equal(system(command), 0);
		snprintf(command, sizeof(command),
			"test \"$(tshark -r %s 2>/dev/null | wc -l)\" = %d", i ? second : first,
			COUNT);
		assert_int_equal(system(command), 0);
	}
}

/* ---- files by hand ---- */

static void put(FILE *file, const uint32_t *words, size_t n)
{
	assert_int_equal(fwrite(words, sizeof(*words), n, file), n);
}

/* Microseconds; a packet of 60 whole bytes, one of which 30 of 60 are there, one too long for a buf, and a
 * runt; then what `damage` says. */
static void write_by_hand(uint32_t link, bool damage)
{
	static const uint8_t bytes[4000];
	FILE *file = fopen(third, "we");
	const struct {
		uint32_t caught, len;
	} packets[] = {{60, 60}, {30, 60}, {DATA + 1, DATA + 1}, {13, 13}, {60, 60}};

	assert_non_null(file);
	put(file, (const uint32_t[]){0xa1b2c3d4, 2 | 4 << 16, 0, 0, 65535, link}, 6);
	for (size_t i = 0; i < ARRAY_SIZE(packets); i++) {
		put(file, (const uint32_t[]){1700000000, 7, packets[i].caught, packets[i].len}, 4);
		assert_int_equal(fwrite(bytes, packets[i].caught, 1, file), 1);
	}
	if (damage)
		put(file, (const uint32_t[]){1700000000, 7, 60, 60, 1}, 5);
	fclose(file);
}

static uint64_t drops_of(const struct vbn_queue *queue, const char *name)
{
	struct vbn_drop drops[8];
	const int n = vbn_queue_drops(queue, drops, 8);

	assert_in_range(n, 1, 8);
	for (int i = 0; i < n; i++)
		if (!strcmp(drops[i].name, name))
			return drops[i].count;
	unit_fail("no drop is called %s", name);
	return 0;
}

static void check_drops(const struct vbn_queue *queue, uint64_t malformed)
{
	assert_int_equal(drops_of(queue, "rx_cut"), 1);
	assert_int_equal(drops_of(queue, "rx_too_long"), 1);
	assert_int_equal(drops_of(queue, "rx_malformed"), malformed);
}

/* Every packet of the file is delivered or dropped by a name. */
static void test_cut(void **arg)
{
	struct vbn_buf *bufs[32];
	struct end end;

	(void)arg;
	write_by_hand(1, false);
	end = open_end(name_of("pcap:%s%s", third, ""));
	assert_int_equal(vbn_recv(end.queue, bufs, 32), 2);
	assert_int_equal(vbn_buf_packet(bufs[0])->time, 1700000000000007000ull);
	assert_int_equal(vbn_send(end.queue, bufs, 2), -EOPNOTSUPP);
	vbn_buf_free(bufs, 2);
	assert_int_equal(vbn_recv(end.queue, bufs, 32), 0);
	check_drops(end.queue, 1);
	close_end(&end);
}

static void test_damaged(void **arg)
{
	struct vbn_event events[8];
	struct vbn_buf *bufs[32];
	struct end end;

	(void)arg;
	write_by_hand(1, true);
	end = open_end(name_of("pcap:%s%s", third, ""));
	assert_int_equal(vbn_recv(end.queue, bufs, 32), 2);
	vbn_buf_free(bufs, 2);
	assert_int_equal(vbn_recv(end.queue, bufs, 32), -EPIPE);
	assert_has(vbn_queue_error(end.queue), "the file it reads is damaged");
	assert_int_equal(vbn_poll(worker, events, 8), 1);
	assert_int_equal(events[0].op, VBN_OP_FAILED);
	check_drops(end.queue, 2);
	close_end(&end);
}

static void expect_refusal(int error, const char *name, const char *sentence)
{
	struct vbn_port *port;

	unit_catch_log();
	assert_int_equal(vbn_port_open(name, NULL, &port), error);
	assert_logged(sentence);
	vbn__log_set(LOG_WARNING, NULL, NULL);
}

static void test_names(void **arg)
{
	(void)arg;
	write_by_hand(113, false);
	expect_refusal(-EINVAL, name_of("pcap:%s%s", third, ""), "are not Ethernet's");
	expect_refusal(-EINVAL, "pcap:/etc/passwd", "it is no capture file");
	expect_refusal(-ENOENT, "pcap:/no/such/file", "No such file");
	expect_refusal(-ENOENT, "pcap:>/no/such/file", "cannot be written");
	expect_refusal(-EINVAL, name_of("pcap:%s>%s", first, first), "take two");
	assert_int_equal(symlink(first, also_first), 0);
	expect_refusal(-EINVAL, name_of("pcap:%s>%s", first, also_first), "take two");
	assert_int_equal(unlink(also_first), 0);
	expect_refusal(-EINVAL, name_of("pcap:%s>%s", first, ""), "stands one file");
	expect_refusal(-ENODEV, "pcap:", "does not exist");
}

/* A full disk fails the queue, with a sentence; every buf comes back. */
static void test_full_disk(void **arg)
{
	struct vbn_event event;
	uint32_t events = 0, sent = 0;
	struct end end;

	(void)arg;
	if (access("/dev/full", W_OK))
		unit_skip("net_pcap_full", "needs /dev/full");
	end = open_end("pcap:>/dev/full");
	while (!*vbn_queue_error(end.queue)) {
		struct vbn_buf *buf;

		assert_true(sent < 100000);
		assert_int_equal(vbn_buf_alloc(pool, &buf, 1), 1);
		buf->len = 1400;
		memset(buf->data, 0, buf->len);
		vbn_buf_packet(buf)->flags = 0;
		buf->flags |= VBN_BUF_KEEP;
		assert_int_equal(vbn_send(end.queue, &buf, 1), 1);
		sent++;
		vbn_flush(end.queue);
		while (vbn_poll(worker, &event, 1) == 1) {
			if (event.op == VBN_OP_SEND) {
				vbn_buf_free(&event.buf, 1);
				events++;
			}
		}
	}
	assert_has(vbn_queue_error(end.queue), "cannot be written: No space");
	assert_int_equal(events, sent);
	close_end(&end);
}

/* ---- reset ---- */

static void take_failure(void)
{
	struct vbn_event event;

	assert_int_equal(vbn_poll(worker, &event, 1), 1);
	assert_int_equal(event.op, VBN_OP_FAILED);
}

static void reset(struct end *end)
{
	assert_int_equal(vbn_queue_reset(end->queue), 0);
	assert_int_equal(vbn_queue_connect(end->queue, NULL), 0);
}

/* It is read from the beginning, whether it has ended well or not. */
static void test_read_again(void **arg)
{
	struct vbn_port_info info;
	struct vbn_buf *bufs[32];
	struct end end;

	(void)arg;
	write_file(first);
	end = open_end(name_of("pcap:%s%s", first, ""));
	for (int round = 0; round < 3; round++) {
		vbn_port_info(end.port, &info);
		assert_true(info.up);
		assert_int_equal(read_file(&end, false), COUNT);
		vbn_port_info(end.port, &info);
		assert_false(info.up);
		assert_int_equal(vbn_queue_reset(end.queue), -EAGAIN);
		take_failure();
		reset(&end);
	}
	close_end(&end);
	write_by_hand(1, true);
	end = open_end(name_of("pcap:%s%s", third, ""));
	for (int round = 0; round < 3; round++) {
		assert_int_equal(vbn_recv(end.queue, bufs, 32), 2);
		vbn_buf_free(bufs, 2);
		assert_int_equal(vbn_recv(end.queue, bufs, 32), -EPIPE);
		assert_int_equal(vbn_queue_reset(end.queue), -EAGAIN);
		take_failure();
		reset(&end);
	}
	close_end(&end);
}

/* Writes number `i`; true: it failed, and has come back. */
static bool write_one(struct end *end, uint32_t i)
{
	struct vbn_buf *buf = make(i);
	struct vbn_event event;
	bool failed = false;

	buf->flags |= VBN_BUF_KEEP;
	assert_int_equal(vbn_send(end->queue, &buf, 1), 1);
	vbn_flush(end->queue);
	if (*vbn_queue_error(end->queue)) {
		assert_has(vbn_queue_error(end->queue), "cannot be written: File too large");
		assert_int_equal(vbn_queue_reset(end->queue), -EAGAIN);
		take_failure();
		failed = true;
	}
	assert_int_equal(vbn_poll(worker, &event, 1), 1);
	assert_int_equal(event.op, VBN_OP_SEND);
	assert_int_equal(event.status, failed ? VBN_FLUSHED : VBN_OK);
	vbn_buf_free(&event.buf, 1);
	return failed;
}

/* Given a file that may not grow, when there is room again, then it goes on with no record lost, nor cut. */
static void test_write_on(void **arg)
{
	struct rlimit limit, small;
	const char *files[] = {first, second};
	struct end end;

	(void)arg;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	for (int i = 0; i < 2; i++) {
		uint32_t failures = 0;

		end = open_end(name_of("pcap:>%s%s", files[i], ""));
		small = (struct rlimit){.rlim_cur = 99999, .rlim_max = limit.rlim_max};
		for (uint32_t sent = 0; sent < COUNT; sent++) {
			setrlimit(RLIMIT_FSIZE, &small);
			if (!write_one(&end, sent))
				continue;
			failures++;
			sent--;
			small.rlim_cur += 99999;
			if (failures == 3)
				small = limit;
			reset(&end);
		}
		setrlimit(RLIMIT_FSIZE, &limit);
		assert_int_equal(failures, 3);
		close_end(&end);
		end = open_end(name_of("pcap:%s%s", files[i], ""));
		assert_int_equal(read_file(&end, false), COUNT);
		close_end(&end);
	}
}

static int set_up(void **arg)
{
	(void)arg;
	strcpy(dir, "/tmp/verbena-pcap-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(first, sizeof(first), "%s/first.pcap", dir);
	snprintf(also_first, sizeof(also_first), "%s/also_first.pcap", dir);
	snprintf(second, sizeof(second), "%s/second.pcapng", dir);
	snprintf(third, sizeof(third), "%s/third.pcap", dir);
	assert_int_equal(vbn_worker_attach(&(struct vbn_worker_conf){0}, &worker), 0);
	return vbn_pool_create(&(struct vbn_pool_conf){.n_bufs = 256, .data_size = DATA}, &pool);
}

static int tear_down(void **arg)
{
	(void)arg;
	vbn_pool_destroy(pool);
	vbn_worker_detach(worker);
	unlink(first);
	unlink(second);
	unlink(third);
	rmdir(dir);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_tshark),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_read_again),
		cmocka_unit_test(test_write_on),
	};
	int ret;

	if (vbn_init(&argc, &argv) < 0)
		return 1;
	vbn__log_set(LOG_WARNING, NULL, NULL);
	ret = cmocka_run_group_tests(tests, set_up, tear_down);
	vbn_fini();
	return ret;
}
