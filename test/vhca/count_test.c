/* count_test.c - what the port's counters say of messages, what time stamps say of completions, and
 * P_Keys */

#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { GID_INDEX = 3, MTU = 1024, STAMPS = 20 };

/* ---- counters ---- */

static uint64_t counted(const char *name)
{
	char path[256], text[32] = "";
	int fd;

	snprintf(path, sizeof(path), "/sys/class/infiniband/mlx5_0/ports/1/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strtoull(text, NULL, 10);
}

static const struct pair_conf all_rights = {.access = IBV_ACCESS_LOCAL_WRITE |
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};

static void post_atomic(struct pair *pair, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = {(uintptr_t)pair->a.memory, 8, pair->a.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = opcode,
				   .send_flags = IBV_SEND_SIGNALED,
				   .wr.atomic = {.remote_addr = (uintptr_t)pair->b.memory,
					   .rkey = pair->b.mr->rkey}},
			   *bad;

	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
}

static void expect_counted(struct pair *pair, enum ibv_wr_opcode opcode, uint32_t length,
	const char *counter, uint64_t more)
{
	uint64_t before = counted(counter);

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		post_atomic(pair, opcode);
	else
		post_send(&pair->a, 1, opcode, IBV_SEND_SIGNALED, 0, length, &pair->b, 0);
	expect_wc(pair->a.send_cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(counted(counter) - before, more);
}

static void each_kind_of_request(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &all_rights);
	expect_counted(&pair, IBV_WR_RDMA_WRITE, 64, "hw_counters/rx_write_requests", 1);
	expect_counted(&pair, IBV_WR_RDMA_READ, 64, "hw_counters/rx_read_requests", 1);
	expect_counted(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, "hw_counters/rx_atomic_requests", 1);
	expect_counted(&pair, IBV_WR_ATOMIC_CMP_AND_SWP, 8, "hw_counters/rx_atomic_requests", 1);
	expect_counted(&pair, IBV_WR_RDMA_READ, 64, "hw_counters/rx_write_requests", 0);
	pair_close(&pair);
}

/* Packets as the path MTU makes them; data in words of four octets. */
static void packets_and_data(void **state)
{
	static const char *const packets[] = {"counters/port_xmit_packets",
		"counters/port_rcv_packets", "counters/unicast_xmit_packets",
		"counters/unicast_rcv_packets"};
	uint64_t before;
	struct pair pair;

	(void)state;
	pair_open(&pair, &all_rights);
	for (size_t i = 0; i < sizeof(packets) / sizeof(packets[0]); i++) {
		before = counted(packets[i]);
		expect_counted(
			&pair, IBV_WR_RDMA_WRITE, 3 * MTU + 1, "hw_counters/rx_write_requests", 1);
		assert_true(counted(packets[i]) - before >= 4);
	}
	before = counted("counters/port_xmit_data");
	expect_counted(&pair, IBV_WR_RDMA_WRITE, 16 * MTU, "hw_counters/rx_write_requests", 1);
	assert_true(counted("counters/port_xmit_data") - before >= 16 * MTU / 4);
	assert_true(counted("counters/port_xmit_data") - before < 2 * 16 * MTU / 4);
	pair_close(&pair);
}

/* A failed request, and what is flushed behind it. */
static void errors(void **state)
{
	static const struct {
		const char *name;
		uint64_t more;
	} due[] = {
		{"hw_counters/req_cqe_error", 2},
		{"hw_counters/req_cqe_flush_error", 1},
		{"hw_counters/req_remote_access_errors", 1},
		{"hw_counters/resp_remote_access_errors", 1},
	};
	uint64_t before[sizeof(due) / sizeof(due[0])];
	struct ibv_mr wrong;
	struct side target;
	struct pair pair;

	(void)state;
	pair_open(&pair, &all_rights);
	wrong = *pair.b.mr;
	wrong.rkey ^= 0xff; /* of no registration any more */
	target = pair.b;
	target.mr = &wrong;
	for (size_t i = 0; i < sizeof(due) / sizeof(due[0]); i++)
		before[i] = counted(due[i].name);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 64, &target, 0);
	expect_wc(pair.a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	post_send(&pair.a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 64, &target, 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	for (size_t i = 0; i < sizeof(due) / sizeof(due[0]); i++)
		if (counted(due[i].name) - before[i] != due[i].more)
			fail_msg("%s went on by %llu where %llu was due", due[i].name,
				(unsigned long long)(counted(due[i].name) - before[i]),
				(unsigned long long)due[i].more);
	pair_close(&pair);
}

/* ---- time stamps ---- */

static uint64_t device_time(struct ibv_context *context)
{
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};

	assert_int_equal(ibv_query_rt_values_ex(context, &values), 0);
	return (uint64_t)values.raw_clock.tv_nsec;
}

static uint64_t wall_time(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The page that the clock is read from is written again and again: it will get there. */
static void wait_device_time(struct ibv_context *context, uint64_t stamp)
{
	uint64_t deadline = wall_time() + 10000000000u;

	while (device_time(context) < stamp)
		assert_true(wall_time() < deadline);
}

/* One send's, by a CQ that tells of time. */
static uint64_t stamp_of_a_send(struct pair *pair, struct ibv_cq_ex *cq, bool wall)
{
	struct ibv_poll_cq_attr attr = {0};
	uint64_t stamp;

	post_recv(&pair->b, 1, 0, 64);
	post_send(&pair->a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
	expect_wc(pair->a.send_cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(ibv_start_poll(cq, &attr), 0); /* it was written before the sender's */
	assert_int_equal(cq->status, IBV_WC_SUCCESS);
	stamp = wall ? ibv_wc_read_completion_wallclock_ns(cq) : ibv_wc_read_completion_ts(cq);
	ibv_end_poll(cq);
	return stamp;
}

/* A pair whose b receives into a CQ of that kind. */
static struct ibv_cq_ex *open_stamped(struct pair *base, struct pair *pair, uint64_t flag)
{
	struct ibv_cq_init_attr_ex init = {.cqe = 64, .wc_flags = flag};
	struct pair_conf conf = {0}, stamped = {.share = base};
	struct ibv_cq_ex *cq;

	pair_open(base, &conf);
	cq = ibv_create_cq_ex(base->context, &init);
	assert_non_null(cq);
	stamped.cq = ibv_cq_ex_to_cq(cq);
	pair_open(pair, &stamped);
	return cq;
}

static void close_stamped(struct pair *base, struct pair *pair, struct ibv_cq_ex *cq)
{
	pair_close(pair);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	pair_close(base);
}

/* In the order of the completions, and of the device's clock. */
static void stamps_are_of_the_device_clock(void **state)
{
	struct pair base, pair;
	struct ibv_cq_ex *cq = open_stamped(&base, &pair, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
	struct ibv_device_attr_ex attr;
	uint64_t last = 0;

	(void)state;
	assert_int_equal(ibv_query_device_ex(base.context, NULL, &attr), 0);
	assert_true(attr.hca_core_clock > 0);
	assert_true(attr.completion_timestamp_mask != 0);
	for (int i = 0; i < STAMPS; i++) {
		uint64_t before = device_time(base.context);
		uint64_t stamp = stamp_of_a_send(&pair, cq, false);

		/* a sweep of the device has one reading; it may have been kept from going on since */
		assert_true(
			stamp + attr.hca_core_clock * 1000 >= before); /* kHz: ticks of a second */
		wait_device_time(base.context, stamp);
		assert_true(stamp >= last);
		last = stamp;
	}
	close_stamped(&base, &pair, cq);
}

/* The same in nanoseconds: what passed between two is at least the pause, and no more than it took. Of
 * several, as a stamp may be from before the pause was over. */
static void stamps_go_on_in_nanoseconds(void **state)
{
	struct pair base, pair;
	struct ibv_cq_ex *cq =
		open_stamped(&base, &pair, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
	bool right = false;

	(void)state;
	for (int i = 0; i < 20 && !right; i++) {
		uint64_t begin = wall_time(), first, pause, passed;

		first = stamp_of_a_send(&pair, cq, true);
		pause = wall_time();
		while (wall_time() - pause < 20000000)
			;
		passed = stamp_of_a_send(&pair, cq, true) - first;
		right = passed > 15000000 && passed <= wall_time() - begin + 1000000;
	}
	assert_true(right);
	close_stamped(&base, &pair, cq);
}

/* ---- P_Keys ---- */

static void the_one_pkey(void **state)
{
	struct pair_conf conf = {0};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct ibv_port_attr port;
	struct pair pair;
	__be16 pkey = 0;

	(void)state;
	pair_open(&pair, &conf);
	assert_int_equal(ibv_query_port(pair.context, 1, &port), 0);
	assert_int_equal(port.pkey_tbl_len, 1);
	assert_int_equal(ibv_query_pkey(pair.context, 1, 0, &pkey), 0);
	assert_int_equal(be16toh(pkey), 0xffff);
	assert_int_not_equal(ibv_query_pkey(pair.context, 1, 1, &pkey), 0);
	assert_int_equal(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE), 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .pkey_index = 1, .port_num = 1};
	assert_int_equal(
		ibv_modify_qp(pair.a.qp, &attr,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		EINVAL);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind_of_request),
		cmocka_unit_test(packets_and_data),
		cmocka_unit_test(errors),
		cmocka_unit_test(stamps_are_of_the_device_clock),
		cmocka_unit_test(stamps_go_on_in_nanoseconds),
		cmocka_unit_test(the_one_pkey),
	};

	return cmocka_run_group_tests_name("count", tests, NULL, NULL);
}
