/* port_test.c - what each device has of its own, and what changes while a program runs: GIDs, the
 * port's state, a device's death; told by events, seen by queries, asked for through the status
 * socket */

#include "../unit/vhca_ask.h"
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define IBDEV "/sys/class/infiniband/"

static void expect_answer(const char *line, const char *wanted)
{
	char answer[256];

	vhca_ask(line, answer, sizeof(answer));
	assert_string_equal(answer, wanted);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	assert_non_null(list);
	for (int i = 0; list[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	assert_non_null(context);
	return context;
}

static void read_file(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	n = read(fd, text, size - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	close(fd);
}

static void expect_file(const char *path, const char *wanted)
{
	char text[256];

	read_file(path, text, sizeof(text));
	assert_string_equal(text, wanted);
}

static bool has_event(struct ibv_context *context, int ms)
{
	struct pollfd fd = {.fd = context->async_fd, .events = POLLIN};

	return poll(&fd, 1, ms) == 1;
}

static void expect_event(struct ibv_context *context, enum ibv_event_type type, int port)
{
	struct ibv_async_event event;

	if (!has_event(context, 5000))
		fail_msg("no event \"%s\" came", ibv_event_type_str(type));
	assert_int_equal(ibv_get_async_event(context, &event), 0);
	assert_string_equal(ibv_event_type_str(event.event_type), ibv_event_type_str(type));
	if (port)
		assert_int_equal(event.element.port_num, port);
	ibv_ack_async_event(&event);
}

/* ---- devices that differ ---- */

static void expect_port(
	const char *device, enum ibv_mtu mtu, uint8_t width, uint8_t speed, uint32_t part)
{
	struct ibv_context *context = open_device(device);
	struct ibv_device_attr attr;
	struct ibv_port_attr port;

	assert_int_equal(ibv_query_device(context, &attr), 0);
	assert_int_equal(attr.vendor_part_id, part);
	assert_int_equal(ibv_query_port(context, 1, &port), 0);
	assert_int_equal(port.active_mtu, mtu);
	assert_int_equal(port.active_width, width);
	assert_int_equal(port.active_speed, speed);
	assert_int_equal(ibv_close_device(context), 0);
}

static void test_each_device_is_of_its_own_kind(void **state)
{
	(void)state;
	expect_port("mlx5_0", IBV_MTU_1024, 2, 32, 0x1017);
	expect_port("mlx5_1", IBV_MTU_4096, 1, 4, 0x1015);
	expect_port("mlx5_2", IBV_MTU_4096, 16, 32, 0x1015);
	expect_file(IBDEV "mlx5_0/device/numa_node", "0\n");
	expect_file(IBDEV "mlx5_1/device/numa_node", "-1\n");
	expect_file(IBDEV "mlx5_2/device/numa_node", "-1\n");
	expect_file(IBDEV "mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n");
	expect_file(IBDEV "mlx5_1/ports/1/rate", "10 Gb/sec (1X QDR)\n");
	expect_file(IBDEV "mlx5_2/ports/1/rate", "50 Gb/sec (2X EDR)\n");
	expect_file(IBDEV "mlx5_0/fw_ver", "16.35.2000\n");
	expect_file(IBDEV "mlx5_1/fw_ver", "14.32.1010\n");
}

/* ---- GIDs ---- */

static void test_a_gid_comes_and_goes(void **state)
{
	struct ibv_context *first = open_device("mlx5_0"), *second = open_device("mlx5_0");
	struct ibv_context *other = open_device("mlx5_1");
	struct ibv_gid_entry entry;
	union ibv_gid gid;

	(void)state;
	expect_answer("gid mlx5_0 add 10.1.2.3 v2", "ok 4\n");
	expect_event(first, IBV_EVENT_GID_CHANGE, 1);
	expect_event(second, IBV_EVENT_GID_CHANGE, 1);
	assert_false(has_event(other, 20));
	assert_int_equal(ibv_query_gid_ex(first, 1, 4, &entry, 0), 0);
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_memory_equal(entry.gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\x01\x02\x03", 16);
	assert_int_equal(ibv_query_gid(first, 1, 4, &gid), 0);
	assert_memory_equal(gid.raw, entry.gid.raw, 16);
	expect_file(IBDEV "mlx5_0/ports/1/gids/4", "0000:0000:0000:0000:0000:ffff:0a01:0203\n");
	expect_file(IBDEV "mlx5_0/ports/1/gid_attrs/types/4", "RoCE v2\n");
	expect_answer("gid mlx5_0 add 10.1.2.3 v2", "error: the table has that GID\n");

	expect_answer("gid mlx5_0 add fd00::7 v1", "ok 5\n");
	expect_event(first, IBV_EVENT_GID_CHANGE, 1);
	expect_answer("gid mlx5_0 del 4", "ok\n");
	expect_event(first, IBV_EVENT_GID_CHANGE, 1);
	assert_int_equal(ibv_query_gid_ex(first, 1, 4, &entry, 0), ENODATA);
	expect_file(IBDEV "mlx5_0/ports/1/gid_attrs/types/4", "");
	assert_int_equal(ibv_query_gid_ex(first, 1, 5, &entry, 0), 0);
	expect_answer("gid mlx5_0 del 4", "error: there is no such GID to delete\n");
	expect_answer("gid mlx5_0 del 5", "ok\n");
	expect_answer("gid mlx5_0 add nonsense v1",
		"error: a GID is an IPv4 or IPv6 address, v1 or v2, and perhaps a VLAN from 1 to 4094\n");
	expect_answer("gid mlx5_0 add 10.1.2.3 v2 5", "ok 4\n"); /* the same address on two VLANs */
	expect_answer("gid mlx5_0 add 10.1.2.3 v2 6", "ok 5\n");
	expect_answer("gid mlx5_0 add 10.1.2.3 v2 5", "error: the table has that GID\n");
	expect_answer("gid mlx5_0 del 4", "ok\n");
	expect_answer("gid mlx5_0 del 5", "ok\n");
	assert_int_equal(ibv_close_device(first), 0);
	assert_int_equal(ibv_close_device(second), 0);
	assert_int_equal(ibv_close_device(other), 0);
}

/* ---- the port ---- */

static void test_the_port_goes_down_and_up(void **state)
{
	struct pair pair;
	struct pair_conf conf = {.device = 0};
	struct ibv_port_attr port;
	char before[32], after[32];

	(void)state;
	pair_open(&pair, &conf);
	read_file(IBDEV "mlx5_0/ports/1/counters/link_downed", before, sizeof(before));
	expect_answer("port mlx5_0 down", "ok\n");
	expect_event(pair.context, IBV_EVENT_PORT_ERR, 1);
	assert_int_equal(ibv_query_port(pair.context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_DOWN);
	expect_file(IBDEV "mlx5_0/ports/1/state", "1: DOWN\n");
	read_file(IBDEV "mlx5_0/ports/1/counters/link_downed", after, sizeof(after));
	assert_int_equal(atoi(after), atoi(before) + 1);

	/* what is sent meanwhile waits for the port, as long as its retries last */
	post_recv(&pair.b, 1, 0, 64);
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
	expect_quiet(pair.a.send_cq);
	expect_answer("port mlx5_0 down", "ok\n"); /* it is: nobody is told again */
	expect_answer("port mlx5_0 up", "ok\n");
	expect_event(pair.context, IBV_EVENT_PORT_ACTIVE, 1);
	expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
	expect_wc(pair.b.recv_cq, 1, IBV_WC_SUCCESS);
	assert_false(has_event(pair.context, 20));
	pair_close(&pair);
}

static void test_retries_end_while_the_port_is_down(void **state)
{
	struct pair pair;
	struct pair_conf conf = {.device = 0, .timeout = 8, .retry_cnt = 1};

	(void)state;
	pair_open(&pair, &conf);
	expect_answer("port mlx5_0 down", "ok\n");
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_RETRY_EXC_ERR);
	expect_answer("port mlx5_0 up", "ok\n");
	pair_close(&pair);
}

/* ---- both at once ---- */

static void *change_gids(void *arg)
{
	bool *stop = arg;

	do { /* once at least, however fast the traffic is */
		static char answer[1 << 16];
		char text[256];

		expect_answer("gid mlx5_0 add 10.9.9.9 v2", "ok 4\n");
		read_file(IBDEV "mlx5_0/ports/1/gids/4", text, sizeof(text));
		read_file(IBDEV "mlx5_0/ports/1/hw_counters/out_of_buffer", text, sizeof(text));
		vhca_ask("status", answer, sizeof(answer));
		expect_answer("gid mlx5_0 del 4", "ok\n");
	} while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE));
	return NULL;
}

static void test_changes_under_traffic(void **state)
{
	struct pair pair;
	struct pair_conf conf = {.device = 0};
	struct ibv_async_event event;
	bool stop = false;
	pthread_t thread;

	(void)state;
	pair_open(&pair, &conf);
	assert_int_equal(pthread_create(&thread, NULL, change_gids, &stop), 0);
	for (int i = 0; i < 2000; i++) {
		post_recv(&pair.b, 1, 0, 64);
		post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
		expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
		expect_wc(pair.b.recv_cq, 1, IBV_WC_SUCCESS);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	assert_true(has_event(pair.context, 0));
	while (has_event(pair.context, 0)) {
		assert_int_equal(ibv_get_async_event(pair.context, &event), 0);
		assert_int_equal(event.event_type, IBV_EVENT_GID_CHANGE);
		ibv_ack_async_event(&event);
	}
	pair_close(&pair);
}

/* ---- status ---- */

/* The data counters were in bytes here, and there under the same name in words of four. */
static void expect_counter_as_in_sysfs(const char *answer, const char *name)
{
	unsigned long long told, shown;
	char text[128];
	FILE *file;

	snprintf(text, sizeof(text), "\"%s\":", name);
	assert_non_null(strstr(answer, text));
	told = strtoull(strstr(answer, text) + strlen(text), NULL, 10);
	snprintf(text, sizeof(text), "/sys/class/infiniband/mlx5_0/ports/1/counters/%s", name);
	file = fopen(text, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%llu", &shown), 1);
	fclose(file);
	assert_true(told > 0);
	assert_int_equal(told, shown);
}

static void test_status_says_what_there_is(void **state)
{
	static char answer[1 << 16];
	struct pair pair;
	struct pair_conf conf = {.device = 0};
	char wanted[128];

	(void)state;
	pair_open(&pair, &conf);
	vhca_ask("status", answer, sizeof(answer));
	snprintf(wanted, sizeof(wanted), "{\"pid\":%d,", getpid());
	assert_non_null(strstr(answer, wanted));
	snprintf(wanted, sizeof(wanted),
		"{\"number\":%u,\"type\":\"RC\",\"state\":\"RTS\",\"peer\":%u,", pair.a.qp->qp_num,
		pair.b.qp->qp_num);
	assert_non_null(strstr(answer, wanted));
	snprintf(wanted, sizeof(wanted), "{\"key\":%u,", pair.a.mr->lkey);
	assert_non_null(strstr(answer, wanted));
	expect_counter_as_in_sysfs(answer, "port_xmit_data");
	expect_counter_as_in_sysfs(answer, "port_xmit_packets");
	pair_close(&pair);
}

static void test_requests_without_sense(void **state)
{
	struct ibv_context *context = open_device("mlx5_0");

	(void)state;
	expect_answer("", "error: there is no such request or device\n");
	expect_answer("port", "error: there is no such request or device\n");
	expect_answer("port mlx5_9 up", "error: there is no such request or device\n");
	expect_answer("port mlx5_0 sideways", "error: a port is set up or down\n");
	expect_answer("a b c d e f g h i j k l m n", "error: there is no such request or device\n");
	assert_int_equal(ibv_close_device(context), 0);
}

/* ---- death ---- */

static void test_a_device_dies(void **state)
{
	struct pair pair;
	struct pair_conf conf = {.device = 2};
	struct ibv_pd *pd;

	(void)state;
	pair_open(&pair, &conf);
	expect_answer("fatal mlx5_2", "ok\n");
	expect_event(pair.context, IBV_EVENT_DEVICE_FATAL, 0);
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
	expect_quiet(pair.a.send_cq);
	errno = 0;
	pd = ibv_alloc_pd(pair.context);
	assert_null(pd);
	assert_int_equal(errno, EIO);
	pair_close(&pair); /* what takes away still works */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_device_is_of_its_own_kind),
		cmocka_unit_test(test_a_gid_comes_and_goes),
		cmocka_unit_test(test_the_port_goes_down_and_up),
		cmocka_unit_test(test_retries_end_while_the_port_is_down),
		cmocka_unit_test(test_changes_under_traffic),
		cmocka_unit_test(test_status_says_what_there_is),
		cmocka_unit_test(test_requests_without_sense),
		cmocka_unit_test(test_a_device_dies),
	};

	setenv("VHCA_DEVICES", "3", 1);
	setenv("VHCA_MTU", "1024,4096", 1);
	setenv("VHCA_NODE", "0,-1", 1);
	setenv("VHCA_PROFILE", "connectx5,connectx4lx", 1);
	setenv("VHCA_SPEED", "100,10,50", 1);
	return cmocka_run_group_tests_name("port", tests, NULL, NULL);
}
