/* driver_test.c - a packet port against Linux: ping, UDP both ways, full queues, wrapped rings, packets
 * that find no room and are counted, two queues, and what is refused
 */

#include "station.h"

#include <arpa/inet.h>
#include <netinet/ip_icmp.h>
#include <sys/socket.h>

static struct station station;
static uint8_t pattern[4096];

/* ---- Linux asks, the station answers ---- */

static uint16_t icmp_sum(const uint8_t *data, size_t n)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (uint32_t)data[i] << (i & 1 ? 8 : 0);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t) ~((sum & 0xffff) + (sum >> 16));
}

static void test_ping(void **arg)
{
	const int fd = linux_socket(SOCK_RAW, IPPROTO_ICMP);
	const struct sockaddr_in to = station_address(0);
	static uint8_t request[4096], reply[4096];

	(void)arg;
	for (uint32_t size = 8; size <= station.info.frame_mtu - IP; size += size < 64 ? 1 : 239) {
		uint16_t csum;
		ssize_t got = -1;

		memcpy(request, pattern, size);
		memcpy(request, "\10\0\0\0\x12\x34", 6);
		csum = icmp_sum(request, size);
		memcpy(request + 2, &csum, 2);
		assert_int_equal(
			sendto(fd, request, size, 0, (const struct sockaddr *)&to, sizeof(to)),
			size);
		while (got < 0) {
			station_wait(&station, (got = recv(fd, reply, sizeof(reply), 0)) > 0);
			if (reply[IP] != 0 || memcmp(reply + IP + 4, "\x12\x34", 2) != 0)
				got = -1; /* Linux's own requests, too */
		}
		assert_int_equal(got, IP + size);
		assert_memory_equal(reply + IP + 4, request + 4, size - 4);
	}
	close(fd);
}

static void test_udp(void **arg)
{
	const int fd = linux_udp(0);
	const struct sockaddr_in to = station_address(7);
	static uint8_t reply[4096];

	(void)arg;
	for (uint32_t size = 0; size <= station.info.frame_mtu - IP - UDP;
		size += size < 40 ? 1 : 121) {
		ssize_t got;

		assert_int_equal(
			sendto(fd, pattern, size, 0, (const struct sockaddr *)&to, sizeof(to)),
			size);
		station_wait(&station, (got = recv(fd, reply, sizeof(reply), 0)) >= 0);
		assert_int_equal(got, size);
		assert_memory_equal(reply, pattern, size);
	}
	close(fd);
}

/* ---- the station sends by itself ---- */

/* Many times round every ring: each packet arrives once, in order. */
static void test_wrap(void **arg)
{
	const int fd = linux_udp(9000);
	const uint32_t count = 9 * STATION_DEPTH + 5;
	uint32_t sent = 0, came = 0;

	(void)arg;
	while (came < count) {
		uint32_t number;

		station_wait(&station, true);
		for (int i = 0; i < 32 && sent < count && sent - came < 400; i++) {
			struct vbn_buf *buf = station_udp(&station, 9000, &sent, sizeof(sent));

			if (vbn_send(station.queues[0], &buf, 1) == 1)
				sent++;
			else
				vbn_buf_free(&buf, 1);
		}
		station_poll(&station);
		while (recv(fd, &number, sizeof(number), 0) == sizeof(number))
			assert_int_equal(number, came++);
	}
	close(fd);
}

/* What was not taken is the caller's: nothing is lost, nothing sent twice. */
static void test_full(void **arg)
{
	enum { MORE = STATION_DEPTH + 40 };
	const int fd = linux_udp(9001);
	struct vbn_buf *bufs[MORE];
	struct vbn_event event;
	uint32_t number, came = 0, events = 0;
	int taken, rest;

	(void)arg;
	for (uint32_t i = 0; i < MORE; i++) {
		bufs[i] = station_udp(&station, 9001, &i, sizeof(i));
		vbn_buf_set_cookie(bufs[i], (void *)(uintptr_t)i);
	}
	taken = vbn_send(station.queues[0], bufs, MORE);
	assert_int_equal(taken, STATION_DEPTH);
	rest = MORE - taken;
	assert_int_equal(vbn_send(station.queues[0], bufs + taken, rest), 0);
	assert_int_equal(vbn_queue_outstanding(station.queues[0]), STATION_DEPTH);
	while (events < MORE) {
		vbn_flush(station.queues[0]);
		vbn_worker_poll(station.worker);
		while (vbn_poll(station.worker, &event, 1) == 1) {
			if (event.op == VBN_OP_SEND) {
				assert_int_equal(event.status, VBN_OK);
				assert_ptr_equal(event.cookie, (void *)(uintptr_t)events);
				events++;
			}
			vbn_buf_free(&event.buf, 1);
		}
		if (rest) {
			const int more = vbn_send(station.queues[0], bufs + MORE - rest, rest);

			assert_true(more >= 0);
			rest -= more;
		}
		while (recv(fd, &number, sizeof(number), 0) == sizeof(number))
			assert_int_equal(number, came++);
	}
	station_wait(&station,
		came == MORE ||
			(recv(fd, &number, sizeof(number), 0) == sizeof(number) &&
				(came++, false)));
	assert_int_equal(vbn_queue_outstanding(station.queues[0]), 0);
	close(fd);
}

static void test_lengths(void **arg)
{
	struct vbn_buf *buf = station_udp(&station, 9, pattern, 100), *tail;

	(void)arg;
	buf->len = ETH - 1;
	assert_int_equal(vbn_send(station.queues[0], &buf, 1), -EMSGSIZE);
	buf->len = station.info.frame_mtu + ETH + 5;
	assert_int_equal(vbn_send(station.queues[0], &buf, 1), -EMSGSIZE);
	vbn_buf_free(&buf, 1);
	buf = station_udp(&station, 9, pattern, 100);
	for (uint32_t i = 0; i < station.info.max_gather; i++) {
		assert_int_equal(vbn_buf_alloc(station.pool, &tail, 1), 1);
		tail->len = 1;
		vbn_buf_append(buf, tail);
	}
	assert_int_equal(vbn_send(station.queues[0], &buf, 1), -EINVAL);
	vbn_buf_free(&buf, 1);
}

/* A chain is one frame; its checksum goes over all of it, odd segments too. */
static void test_chain(void **arg)
{
	const int fd = linux_udp(9002);
	struct vbn_buf *buf = station_udp(&station, 9002, pattern, 1001), *tail;
	static uint8_t came[2048];
	ssize_t got;

	(void)arg;
	if (station.info.max_gather < 2) {
		vbn_buf_free(&buf, 1);
		close(fd);
		return;
	}
	assert_int_equal(vbn_buf_alloc(station.pool, &tail, 1), 1);
	tail->len = 668;
	buf->len -= tail->len;
	memcpy(tail->data, buf->data + buf->len, tail->len);
	vbn_buf_append(buf, tail);
	assert_int_equal(vbn_send(station.queues[0], &buf, 1), 1);
	station_wait(&station, (got = recv(fd, came, sizeof(came), 0)) >= 0);
	assert_int_equal(got, 1001);
	assert_memory_equal(came, pattern, 1001);
	close(fd);
}

/* ---- overload ---- */

/* Nobody polls: what Linux sends meanwhile is delivered or dropped by a name. */
static void test_overload(void **arg)
{
	const int fd = linux_udp(0);
	const struct sockaddr_in to = station_address(9);
	const uint64_t before = station.received, drops_before = station_drops(&station, "");
	uint64_t sent = 0, delivered;

	(void)arg;
	for (int i = 0; i < 4000; i++)
		sent += sendto(fd, pattern, 300, 0, (const struct sockaddr *)&to, sizeof(to)) ==
			300;
	station_wait(&station,
		station.received - before + station_drops(&station, "") - drops_before >= sent);
	delivered = station.received - before;
	print_message("sent %llu, delivered %llu\n", (unsigned long long)sent,
		(unsigned long long)delivered);
	station_print_drops(&station);
	assert_true(delivered >= STATION_DEPTH && delivered < sent);
	/* Linux's own chatter comes, too, but no more than a handful of packets. */
	assert_in_range(delivered + station_drops(&station, "") - drops_before, sent, sent + 50);
	close(fd);
}

/* ---- refusals ---- */

static void test_refused(void **arg)
{
	struct vbn_queue_conf conf = {.rx_pool = station.pool};
	struct vbn_rx_rule rule = {.kind = VBN_RULE_EVERYTHING};
	struct vbn_address address;
	struct vbn_export *exported;
	struct vbn_queue *queue;
	uint64_t packets, bytes;
	uint32_t id;

	(void)arg;
	unit_catch_log();
	for (int transport = VBN_RC; transport <= VBN_UD; transport++) {
		conf.transport = (enum vbn_transport)transport;
		assert_int_equal(
			vbn_queue_create(station.worker, station.port, &conf, &queue), -EOPNOTSUPP);
		assert_logged("has raw Ethernet alone: take VBN_RAW");
	}
	conf.transport = VBN_RAW;
	conf.rx_pool = NULL;
	assert_int_equal(vbn_queue_create(station.worker, station.port, &conf, &queue), -EINVAL);
	assert_logged("has neither an rx_group nor a tx_pool");
	conf.rx_pool = station.pool;
	conf.rx_group = station.group;
	assert_int_equal(vbn_queue_create(station.worker, station.port, &conf, &queue), -EINVAL);
	assert_logged("queues that it was made for");
	assert_int_equal(
		vbn_export_create(station.port, &(struct vbn_export_conf){.size = 4096}, &exported),
		-EOPNOTSUPP);
	vbn_queue_address(station.queues[0], &address);
	assert_int_equal(vbn_queue_connect(station.queues[0], &address), -EISCONN);
	assert_int_equal(vbn_send_inline(station.queues[0], "x", 1), -EOPNOTSUPP);

	assert_int_equal(vbn_rx_rule_add(station.group, &rule, &id), 0);
	assert_int_equal(vbn_rx_rule_count(station.group, id, &packets, &bytes), -EOPNOTSUPP);
	assert_int_equal(vbn_rx_rule_remove(station.group, id), 0);
	assert_int_equal(vbn_rx_rule_remove(station.group, id), -ENOENT);
	rule = (struct vbn_rx_rule){.kind = VBN_RULE_MATCH, .ethertype = 0x0800};
	if (station_is_tap()) {
		assert_int_equal(vbn_rx_rule_add(station.group, &rule, &id), -EOPNOTSUPP);
		assert_logged("to itself and gets everything");
	} else {
		rule.mark = 1;
		assert_int_equal(vbn_rx_rule_add(station.group, &rule, &id), -EOPNOTSUPP);
		assert_logged("has no marks");
	}
	rule = (struct vbn_rx_rule){
		.kind = VBN_RULE_MATCH, .ip_version = 4, .dst_port = VBN_NUM(7)};
	assert_int_equal(vbn_rx_rule_add(station.group, &rule, &id), -EINVAL);
	assert_logged("names a port and not its protocol");
	vbn__log_set(LOG_WARNING, NULL, NULL);
}

/* By another port, as by another process: the device is not shared, and not disturbed. */
static void test_taken(void **arg)
{
	struct vbn_port *port;

	(void)arg;
	unit_catch_log();
	assert_int_equal(vbn_port_open(station.info.name, NULL, &port), -EBUSY);
	assert_logged(station_is_tap() ? "another program" : "an XDP program already");
	vbn__log_set(LOG_WARNING, NULL, NULL);
}

/* A pool whose bufs hold no frame. */
static void test_tiny_bufs(void **arg)
{
	struct vbn_pool_conf few = {.n_bufs = 4096, .data_size = 8, .headroom = VBN_NUM(4096)};
	struct vbn_rx_group_conf group_conf = {.n_queues = 1};
	struct vbn_queue_conf conf = {.transport = VBN_RAW};
	struct vbn_queue *queue;
	struct vbn_pool *pool;

	(void)arg;
	unit_catch_log();
	assert_int_equal(vbn_pool_create(&few, &pool), 0);
	assert_int_equal(vbn_rx_group_create(station.port, &group_conf, &conf.rx_group), 0);
	conf.rx_pool = pool;
	assert_int_equal(vbn_queue_create(station.worker, station.port, &conf, &queue), -EINVAL);
	assert_logged("hold 8 bytes, and the shortest frame has 60");
	vbn_rx_group_destroy(conf.rx_group);
	vbn_pool_destroy(pool);
	vbn__log_set(LOG_WARNING, NULL, NULL);
}

static void test_modes(void **arg)
{
	struct vbn_mode modes[32];
	const int n = vbn_port_modes(station.port, modes, 32);
	int more;

	(void)arg;
	assert_in_range(n, 2, 30);
	for (int i = 0; i < n; i++)
		print_message(
			"port %s: %s (%s)\n", modes[i].name, modes[i].effective, modes[i].why);
	more = vbn_queue_modes(station.queues[0], modes, 32);
	assert_in_range(more, 2, 30);
	for (int i = 0; i < more; i++)
		print_message(
			"queue %s: %s (%s)\n", modes[i].name, modes[i].effective, modes[i].why);
	more = vbn_rx_group_modes(station.group, modes, 32);
	assert_string_equal(modes[0].name, "rss");
	assert_string_equal(modes[0].effective, "built");
}

/* ---- further stations: one at a time ---- */

static int open_one(void **arg)
{
	(void)arg;
	station_open(&station, 1, NULL);
	return 0;
}

static int close_one(void **arg)
{
	(void)arg;
	station_close(&station);
	return 0;
}

/* What a device has not is refused with a sentence where it is insisted on. */
static void test_insisted(void **arg)
{
	struct vbn_queue_conf conf = {.transport = VBN_RAW, .zero_copy = VBN_ON};
	struct vbn_pool *small;
	struct vbn_queue *queue;

	(void)arg;
	station_channels(2);
	station_open(&station, 1, NULL);
	station_channels(0);
	conf.tx_pool = station.pool;
	unit_catch_log();
	assert_int_equal(vbn_queue_create(station.worker, station.port, &conf, &queue), -ENOTSUP);
	assert_logged(station_is_tap() ? "have no zero_copy" : "has no zero-copy for this pool");
	conf.zero_copy = VBN_AUTO;
	conf.striding = VBN_ON;
	assert_int_equal(vbn_queue_create(station.worker, station.port, &conf, &queue), -ENOTSUP);
	assert_logged("no ConnectX and has no striding");
	conf.striding = VBN_AUTO;
	assert_int_equal(
		vbn_pool_create(&(struct vbn_pool_conf){.n_bufs = 512, .data_size = 1024}, &small),
		0);
	conf.tx_pool = small;
	if (!station_is_tap()) {
		assert_int_equal(
			vbn_queue_create(station.worker, station.port, &conf, &queue), -EINVAL);
		assert_logged("make its data_size 1984 or more");
	}
	vbn__log_set(LOG_WARNING, NULL, NULL);
	vbn_pool_destroy(small);
	station_close(&station);
}

/* Flows are spread; each stays where it is. Where the program runs behind a veth, that gives it all by one
 * queue. */
static void test_queues(void **arg)
{
	const struct sockaddr_in to = station_address(7);
	uint64_t received = 0;
	int fds[64];

	(void)arg;
	station_open(&station, MOST_QUEUES, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = linux_udp(0);
	for (int round = 0; round < 4; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
			char reply[64];

			assert_int_equal(sendto(fds[i], pattern, 40, 0,
						 (const struct sockaddr *)&to, sizeof(to)),
				40);
			station_wait(&station, recv(fds[i], reply, sizeof(reply), 0) == 40);
		}
	}
	for (int i = 0; i < MOST_QUEUES; i++) {
		print_message("queue %d: %llu\n", i, (unsigned long long)station.by_queue[i]);
		assert_true(station_is_generic() || station.by_queue[i]);
		received += station.by_queue[i];
	}
	assert_true(received >= 4 * ARRAY_SIZE(fds));
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	station_close(&station);
}

/* A queue with no group sends, and receives nothing. */
static void test_transmit_only(void **arg)
{
	struct vbn_queue_conf conf = {.transport = VBN_RAW, .tx_depth = 16};
	struct vbn_queue *queue;
	struct vbn_buf *buf;
	uint32_t number = 0;
	int fd;

	(void)arg;
	station_channels(2);
	station_open(&station, 1, NULL);
	fd = linux_udp(9003);
	conf.tx_pool = station.pool;
	assert_int_equal(vbn_queue_create(station.worker, station.port, &conf, &queue), 0);
	assert_int_equal(vbn_queue_connect(queue, NULL), 0);
	for (uint32_t i = 1; i < 40; i++) {
		buf = station_udp(&station, 9003, &i, sizeof(i));
		station_wait(&station, vbn_send(queue, &buf, 1) == 1);
		station_wait(&station, recv(fd, &number, sizeof(number), 0) == sizeof(number));
		assert_int_equal(number, i);
		assert_int_equal(vbn_recv(queue, &buf, 1), 0);
	}
	vbn_queue_destroy(queue);
	close(fd);
	station_close(&station);
	station_channels(0);
}

/* A queue's place in its group is taken by another one; what is sent comes from a pool, and a zone, that
 * the port has not seen before. */
static void test_again(void **arg)
{
	struct vbn_queue_conf conf = {
		.transport = VBN_RAW, .tx_depth = STATION_DEPTH, .rx_depth = STATION_DEPTH};
	struct vbn_pool *other, *kept;

	(void)arg;
	station_open(&station, 1, NULL);
	kept = station.pool;
	assert_int_equal(
		vbn_pool_create(&(struct vbn_pool_conf){.n_bufs = 512, .data_size = 4032}, &other),
		0);
	vbn_queue_destroy(station.queues[0]);
	assert_false(vbn_rx_group_is_built(station.group));
	conf.rx_group = station.group;
	conf.rx_pool = station.pool;
	assert_int_equal(
		vbn_queue_create(station.worker, station.port, &conf, &station.queues[0]), 0);
	assert_int_equal(vbn_queue_connect(station.queues[0], NULL), 0);
	assert_true(vbn_rx_group_is_built(station.group));
	test_udp(NULL);
	station.pool = other;
	test_wrap(NULL);
	test_full(NULL);
	station.pool = kept;
	vbn_queue_destroy(station.queues[0]);
	station.n_queues = 0;
	assert_int_equal(vbn_pool_available(other), 512);
	vbn_pool_destroy(other);
	station_close(&station);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest one[] = {
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_ping),
		cmocka_unit_test(test_udp),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_chain),
		cmocka_unit_test(test_wrap),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_overload),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_tiny_bufs),
	};
	const struct CMUnitTest others[] = {
		cmocka_unit_test(test_queues),
		cmocka_unit_test(test_transmit_only),
		cmocka_unit_test(test_insisted),
		cmocka_unit_test(test_again),
	};
	int ret = station_network(1500);

	if (ret)
		return ret;
	if (vbn_init(&argc, &argv) < 0)
		return 1;
	vbn__log_set(LOG_WARNING, NULL, NULL);
	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)(i * 7 + i / 251);
	ret = cmocka_run_group_tests_name("one queue", one, open_one, close_one);
	ret += cmocka_run_group_tests_name("others", others, NULL, NULL);
	vbn_fini();
	return ret;
}
