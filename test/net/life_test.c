/* life_test.c - the ends of a packet port: a process that is killed leaves nothing behind, an interface that
 * goes fails its queues, and between them packets of the longest MTU
 */

#include "station.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

static struct station station;
static uint8_t pattern[9000];

/* ---- killed ---- */

static void be_killed(int ready)
{
	int argc = 1;
	char name[] = "life_test", *argv[] = {name, NULL}, **args = argv;

	if (vbn_init(&argc, &args) < 0)
		_exit(1);
	station_open(&station, 1, NULL);
	if (write(ready, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

/* What the port has brought: the device itself, or the interface's program. */
static bool is_there(void)
{
	return !system(station_is_tap()
			? "ip link show dev near >/dev/null 2>&1"
			: "ip -d link show dev near | grep -q 'prog/xdp\\|xdpgeneric'");
}

static void test_killed(void **arg)
{
	const double deadline = station_seconds() + 20;
	int ready[2], status;
	char byte;
	pid_t child;

	(void)arg;
	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (!child)
		be_killed(ready[1]);
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_true(is_there());
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	while (is_there() && station_seconds() < deadline)
		usleep(10000);
	assert_false(is_there());
	close(ready[0]);
}

/* ---- the longest packets ---- */

static void test_longest(void **arg)
{
	static uint8_t reply[9000];
	const struct sockaddr_in to = station_address(7);
	uint32_t most;
	int fd;

	(void)arg;
	station_open(&station, 1, NULL);
	most = station.info.frame_mtu - IP - UDP;
	fd = linux_udp(0);
	for (uint32_t size = most; size > 1400; size -= size > most - 20 ? 1 : 333) {
		ssize_t got;

		assert_int_equal(
			sendto(fd, pattern, size, 0, (const struct sockaddr *)&to, sizeof(to)),
			size);
		station_wait(&station, (got = recv(fd, reply, sizeof(reply), 0)) >= 0);
		assert_int_equal(got, size);
		assert_memory_equal(reply, pattern, size);
	}
	assert_int_equal(station_drops(&station, "rx_too_long"), 0);
	close(fd);
	station_close(&station);
}

/* ---- gone ---- */

static void test_gone(void **arg)
{
	const double deadline = station_seconds() + 20;
	struct vbn_queue *queue;
	struct vbn_event event;
	struct vbn_buf *bufs[8];
	bool failed = false;
	int sends = 0;

	(void)arg;
	station_open(&station, 1, NULL);
	queue = station.queues[0];
	station_poll(&station);
	bufs[0] = station_udp(&station, 9, pattern, 10);
	bufs[0]->flags |= VBN_BUF_KEEP;
	assert_int_equal(system("ip link delete dev near"), 0);
	assert_int_equal(vbn_send(queue, bufs, 1), 1);
	while (!failed || !sends) {
		if (station_seconds() > deadline)
			unit_fail("the queue does not fail, or a send does not come back");
		vbn_worker_poll(station.worker);
		while (vbn_poll(station.worker, &event, 1) == 1) {
			failed |= event.op == VBN_OP_FAILED;
			sends += event.op == VBN_OP_SEND;
			if (event.buf)
				vbn_buf_free(&event.buf, 1);
		}
	}
	assert_int_equal(sends, 1);
	assert_int_equal(vbn_recv(queue, bufs, 8), -EPIPE);
	assert_has(vbn_queue_error(queue), "is gone");
	station_close(&station);
}

/* ---- reset ---- */

/* Datagrams there and back, by as many flows as reach every queue, where they are spread. */
static void echo(int rounds)
{
	const struct sockaddr_in to = station_address(7);

	for (int i = 0; i < rounds; i++) {
		const int fd = linux_udp(0);
		char reply[64];

		assert_int_equal(
			sendto(fd, pattern, 40, 0, (const struct sockaddr *)&to, sizeof(to)), 40);
		station_wait(&station, recv(fd, reply, sizeof(reply), 0) == 40);
		close(fd);
	}
}

/* What was staged comes back once, flushed, after why; then all is as it was made. */
static void test_reset(void **arg)
{
	struct vbn_queue *queue;
	struct vbn_event events[4];

	(void)arg;
	station_open(&station, 2, NULL);
	queue = station.queues[0];
	for (int round = 0; round < 3; round++) {
		struct vbn_buf *buf = station_udp(&station, 9, pattern, 10);
		struct vbn_queue_stats stats;

		echo(8);
		buf->flags |= VBN_BUF_KEEP;
		assert_int_equal(vbn_send(queue, &buf, 1), 1);
		assert_int_equal(vbn_queue_reset(queue), -EAGAIN);
		assert_false(vbn_rx_group_is_built(station.group));
		assert_has(vbn_queue_error(queue), "it was reset");
		assert_int_equal(vbn_send(queue, &buf, 1), -EPIPE);
		assert_int_equal(vbn_poll(station.worker, events, 4), 2);
		assert_int_equal(events[0].op, VBN_OP_FAILED);
		assert_int_equal(events[1].op, VBN_OP_SEND);
		assert_int_equal(events[1].status, VBN_FLUSHED);
		assert_ptr_equal(events[1].buf, buf);
		vbn_buf_free(&buf, 1);
		assert_int_equal(vbn_queue_reset(queue), 0);
		assert_string_equal(vbn_queue_error(queue), "");
		assert_int_equal(vbn_queue_outstanding(queue), 0);
		assert_int_equal(vbn_recv(queue, &buf, 1), -ENOTCONN);
		assert_int_equal(vbn_queue_reset(queue), 0);
		assert_int_equal(vbn_queue_connect(queue, NULL), 0);
		assert_true(vbn_rx_group_is_built(station.group));
		vbn_queue_stats(queue, &stats);
		assert_int_equal(stats.tx_messages, stats.tx_done + stats.tx_flushed);
	}
	echo(8);
	station_close(&station);
}

/* What is sent meanwhile waits, or is counted as refused; afterwards all goes on by itself. */
static void test_link_down(void **arg)
{
	struct vbn_queue_stats stats;

	(void)arg;
	station_open(&station, 1, NULL);
	echo(2);
	assert_int_equal(system("ip link set near down"), 0);
	for (int i = 0; i < 10; i++) {
		struct vbn_buf *buf = station_udp(&station, 9, pattern, 10);

		assert_int_equal(vbn_send(station.queues[0], &buf, 1), 1);
		station_poll(&station);
	}
	assert_int_equal(system("ip link set near up"), 0);
	echo(4);
	station_wait(&station, !vbn_queue_outstanding(station.queues[0]));
	vbn_queue_stats(station.queues[0], &stats);
	assert_int_equal(stats.tx_messages, stats.tx_done + stats.tx_refused);
	station_close(&station);
}

static bool all_failed(void)
{
	bool all = true;

	vbn_worker_poll(station.worker);
	for (uint32_t i = 0; i < station.n_queues; i++) {
		struct vbn_buf *buf;
		const int got = vbn_recv(station.queues[i], &buf, 1);

		if (got == 1) /* what Linux had to say before */
			vbn_buf_free(&buf, 1);
		all &= got == -EPIPE;
	}
	return all;
}

/* Given an interface that is deleted, when it is there again, then its queues are as new. */
static void test_back(void **arg)
{
	uint64_t drops;

	(void)arg;
	station_open(&station, 2, NULL);
	for (int round = 0; round < 2; round++) {
		const double deadline = station_seconds() + 20;

		echo(8);
		drops = station_drops(&station, "");
		assert_int_equal(system("ip link delete dev near"), 0);
		while (!all_failed())
			if (station_seconds() > deadline)
				unit_fail("the queues do not fail");
		if (station_is_tap()) {
			assert_int_equal(station_reset(&station), 0);
			station_network_again(2);
		} else {
			unit_catch_log();
			assert_int_equal(station_reset(&station), -ENODEV);
			assert_logged("no such interface");
			vbn__log_set(LOG_WARNING, NULL, NULL);
			station_network_again(2);
			assert_int_equal(station_reset(&station), 0);
		}
		assert_true(station_drops(&station, "") >= drops);
	}
	echo(8);
	station_close(&station);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest killed[] = {cmocka_unit_test(test_killed)};
	const struct CMUnitTest others[] = {
		cmocka_unit_test(test_longest),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_link_down),
		cmocka_unit_test(test_back),
		cmocka_unit_test(test_gone),
	};
	const char *kind = getenv("STATION_PORT");
	int ret = station_network(kind && strcmp(kind, "tap") != 0 ? 3498 : 9000);

	if (ret)
		return ret;
	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)(i * 7 + i / 251);
	ret = cmocka_run_group_tests_name("killed", killed, NULL, NULL);
	if (vbn_init(&argc, &argv) < 0)
		return 1;
	vbn__log_set(LOG_WARNING, NULL, NULL);
	ret += cmocka_run_group_tests_name("others", others, NULL, NULL);
	vbn_fini();
	return ret;
}
