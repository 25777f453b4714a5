/* clock_test.c - faults that come by the clock: a port that flaps, a device that dies; and counters
 * of what happens meanwhile */

#include "pair.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

static enum ibv_event_type next_event(struct ibv_context *context)
{
	struct pollfd fd = {.fd = context->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	assert_int_equal(poll(&fd, 1, 10000), 1);
	assert_int_equal(ibv_get_async_event(context, &event), 0);
	ibv_ack_async_event(&event);
	return event.event_type;
}

static uint64_t counter(const char *name)
{
	unsigned long long value;
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/mlx5_0/ports/1/%s", name);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%llu", &value), 1);
	fclose(file);
	return value;
}

static void test_flaps_and_death(void **state)
{
	struct pair_conf conf = {.device = 0, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	struct pair pair;
	int flaps = 0;

	(void)state;
	pair_open(&pair, &conf);
	for (enum ibv_event_type type; (type = next_event(pair.context)) != IBV_EVENT_DEVICE_FATAL;
		flaps++) {
		assert_int_equal(type, flaps % 2 ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
		if (type != IBV_EVENT_PORT_ACTIVE)
			continue;
		post_send(&pair.a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 64, &pair.b, 0);
		expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
	}
	assert_true(flaps >= 2);
	assert_int_equal(counter("counters/link_downed"), (flaps + 1) / 2);
	assert_true(counter("hw_counters/rx_write_requests") >= (uint64_t)flaps / 2);
	assert_int_equal(counter("hw_counters/rx_read_requests"), 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_flaps_and_death)};

	setenv("VHCA_WIRE", "loopback", 1);
	setenv("VHCA_FAULT", "port-flap=150ms,device-fatal=1s", 1);
	return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
