/* peer_test.c - what a requester sees of a peer in another process: one without receives, without
 * rights, without a core, or without a process
 */

#include "two.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LENGTH = 3000 /* three packets */ };

static void expect_status(struct side *side, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = wait_wc(side->send_cq);

	if (wc.wr_id != wr_id || wc.status != status)
		fail_msg("wr_id %llu completed with %s where %llu was due, with %s",
			(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
			(unsigned long long)wr_id, ibv_wc_status_str(status));
}

/* ---- errors that a peer answers ---- */

/* Two of them: the second one is flushed. */
static void expect_error(struct side *side, enum ibv_wr_opcode opcode, enum ibv_wc_status status)
{
	post_one(side, opcode, 0, LENGTH);
	post_one(side, opcode, 1, LENGTH);
	expect_status(side, 0, status);
	expect_status(side, 1, IBV_WC_WR_FLUSH_ERR);
}

static const struct manner one_try = {.retry_cnt = 1, .rnr_retry = 1};
static const struct manner one_rnr = {.retry_cnt = 7, .rnr_retry = 1};
static const struct manner patient = {.retry_cnt = 7, .rnr_retry = 7};

/* A peer that is there, and does nothing. */
static void be_there(struct side *side)
{
	side_open(side, &one_rnr);
	rendezvous(side);
	rendezvous(side);
	side_close(side);
}

static void expect_not_ready(struct side *side)
{
	side_open(side, &one_rnr);
	rendezvous(side);
	expect_error(side, IBV_WR_SEND, IBV_WC_RNR_RETRY_EXC_ERR);
	rendezvous(side);
	side_close(side);
}

static void without_receives(void **state)
{
	(void)state;
	run_two(expect_not_ready, be_there, IBV_QPT_RC, 0, "", false);
}

static void expect_access_error(struct side *side)
{
	side_open(side, &one_rnr);
	rendezvous(side);
	side->remote.rkey ^= 0x100;
	expect_error(side, IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
	rendezvous(side);
	side_close(side);
}

static void with_another_rkey(void **state)
{
	(void)state;
	run_two(expect_access_error, be_there, IBV_QPT_RC, 0, "", false);
}

/* ---- another version ---- */

static const struct manner version_1 = {.retry_cnt = 7, .rnr_retry = 7, .sgid_index = 2};
static const struct manner version_1_hasty = {.timeout = 12, .retry_cnt = 1, .sgid_index = 2};

/* A pair that no wire would connect: one sends RoCEv1, the other RoCEv2. Over UDP both were v2. */
static void send_version_1(struct side *side)
{
	side_open(side, &version_1_hasty);
	rendezvous(side);
	expect_error(side, IBV_WR_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR);
	rendezvous(side);
	side_close(side);
}

static void send_among_equals(struct side *side)
{
	side_open(side, &version_1);
	rendezvous(side);
	post_one(side, IBV_WR_RDMA_WRITE, 0, LENGTH);
	expect_status(side, 0, IBV_WC_SUCCESS);
	rendezvous(side);
	side_close(side);
}

static void be_there_in_version_1(struct side *side)
{
	side_open(side, &version_1);
	rendezvous(side);
	rendezvous(side);
	side_close(side);
}

static void of_another_version(void **state)
{
	(void)state;
	run_two(send_version_1, be_there, IBV_QPT_RC, 0, "", false);
	run_two(send_among_equals, be_there_in_version_1, IBV_QPT_RC, 0, "", false);
}

/* ---- a receive that comes late ---- */

/* A send found no receive, and as many reads as may be under way had been sent behind it. They were
 * to be sent again and still counted as under way: nothing was sent any more, and no timer ran. */
static void send_and_read(struct side *side)
{
	side_open(side, &patient);
	rendezvous(side);
	post_one(side, IBV_WR_SEND, 0, LENGTH);
	for (uint32_t i = 1; i < 10; i++)
		post_one(side, IBV_WR_RDMA_READ, i, LENGTH);
	for (uint32_t i = 0; i < 10; i++)
		expect_status(side, i, IBV_WC_SUCCESS);
	rendezvous(side);
	side_close(side);
}

static void receive_late(struct side *side)
{
	side_open(side, &patient);
	rendezvous(side);
	while (counter_of(side, "hw_counters/out_of_buffer") < 3)
		usleep(1000);
	post_receive(side, 0);
	assert_int_equal(wait_wc(side->recv_cq).status, IBV_WC_SUCCESS);
	rendezvous(side);
	side_close(side);
}

static void reads_behind_a_send_that_waits(void **state)
{
	(void)state;
	run_two(send_and_read, receive_late, IBV_QPT_RC, 0, "", false);
}

/* ---- a datagram, or a UC send, without a receive ---- */

/* A message without a receive was held, and its wire not looked at any more once the engine had
 * nothing to do: the port was deaf for good. It waits for some time, and is dropped and counted. */
static void send_before_and_after(struct side *side)
{
	side_open(side, &patient);
	rendezvous(side);
	for (uint32_t i = 0; i < 3; i++) {
		post_one(side, IBV_WR_SEND, i, 64);
		expect_status(side, i, IBV_WC_SUCCESS);
	}
	rendezvous(side);
	post_one(side, IBV_WR_SEND, 3, 64);
	expect_status(side, 3, IBV_WC_SUCCESS);
	rendezvous(side);
	side_close(side);
}

static void receive_afterwards(struct side *side)
{
	double end = now() + PATIENCE_S;
	struct ibv_wc wc;

	side_open(side, &patient);
	rendezvous(side);
	while (counter_of(side, "hw_counters/out_of_buffer") < 3 && now() < end)
		usleep(1000);
	assert_int_equal(counter_of(side, "hw_counters/out_of_buffer"), 3);
	post_receive(side, 0);
	rendezvous(side);
	wc = wait_wc(side->recv_cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 0);
	rendezvous(side);
	side_close(side);
}

static void datagrams_without_receives(void **state)
{
	(void)state;
	run_two(send_before_and_after, receive_afterwards, IBV_QPT_UD, 0, "", false);
}

static void unreliable_sends_without_receives(void **state)
{
	(void)state;
	run_two(send_before_and_after, receive_afterwards, IBV_QPT_UC, 0, "", false);
}

/* ---- a peer without a core ---- */

static void wait_until_stopped(pid_t pid)
{
	char path[64], state = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	for (double end = now() + PATIENCE_S; state != 'T' && now() < end; usleep(1000)) {
		FILE *file = fopen(path, "re");

		assert_non_null(file);
		assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
		fclose(file);
	}
	assert_int_equal(state, 'T');
}

/* A device answers while its host is busy. A process that had no core for a second was taken for one
 * that has gone: "transport retries exceeded", of two processes on a machine with much to do. */
static void request_of_one_that_stops(struct side *side)
{
	static const struct manner hasty = {.timeout = 12, .retry_cnt = 1};
	static const enum ibv_wr_opcode operations[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};
	struct ibv_wc wc;

	side_open(side, &hasty);
	rendezvous(side);
	for (uint32_t i = 0; i < 4; i++) {
		double end;

		assert_int_equal(kill(side->remote.process, SIGSTOP), 0);
		wait_until_stopped(side->remote.process);
		post_one(side, operations[i], i, i == 3 ? 8 : LENGTH);
		for (end = now() + 0.3; now() < end;) /* of 17 ms two tries would be over */
			if (try_wc(side->send_cq, &wc))
				fail_msg(
					"operation %u completed with %s while its peer was stopped",
					i, ibv_wc_status_str(wc.status));
		assert_int_equal(kill(side->remote.process, SIGCONT), 0);
		expect_status(side, i, IBV_WC_SUCCESS);
	}
	rendezvous(side);
	side_close(side);
}

static void be_stopped(struct side *side)
{
	side_open(side, &patient);
	post_receive(side, 0);
	rendezvous(side);
	rendezvous(side);
	side_close(side);
}

static void without_a_core(void **state)
{
	(void)state;
	run_two(request_of_one_that_stops, be_stopped, IBV_QPT_RC, 0, "", false);
}

/* A thread alone is stopped: its process goes on receiving. Datagrams for which it had posted no
 * receive, as it had no core, were dropped after 60 ms: ib_send_bw -c UD waited for them for ever. */
static void flood_one_that_is_held(struct side *side)
{
	static const struct manner none;
	int status;

	side_open(side, &none);
	rendezvous(side);
	assert_int_equal(ptrace(PTRACE_SEIZE, side->remote.process, NULL, NULL), 0);
	assert_int_equal(ptrace(PTRACE_INTERRUPT, side->remote.process, NULL, NULL), 0);
	assert_int_equal(waitpid(side->remote.process, &status, __WALL), side->remote.process);
	for (uint32_t i = 0; i < 3 * N_RECEIVES; i++) {
		post_one(side, IBV_WR_SEND, i, 1000);
		expect_status(side, i, IBV_WC_SUCCESS);
	}
	usleep(300 * 1000); /* longer than it waits in any case */
	assert_int_equal(ptrace(PTRACE_DETACH, side->remote.process, NULL, NULL), 0);
	rendezvous(side);
	side_close(side);
}

static void be_held(struct side *side)
{
	static const struct manner none;

	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	side_open(side, &none);
	for (uint32_t i = 0; i < N_RECEIVES; i++)
		post_receive(side, i);
	rendezvous(side);
	for (uint32_t i = 0; i < 3 * N_RECEIVES; i++) {
		struct ibv_wc wc = wait_wc(side->recv_cq);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
		if (i < 2 * N_RECEIVES)
			post_receive(side, i + N_RECEIVES);
	}
	assert_int_equal(counter_of(side, "hw_counters/out_of_buffer"), 0);
	rendezvous(side);
	side_close(side);
}

static void whose_thread_has_no_core(void **state)
{
	(void)state;
	run_two(flood_one_that_is_held, be_held, IBV_QPT_UD, 0, "", false);
}

/* ---- what has begun, and what is ahead of an error ---- */

static void stop_peer(struct side *side)
{
	assert_int_equal(kill(side->remote.process, SIGSTOP), 0);
	wait_until_stopped(side->remote.process);
}

static void let_peer_go(struct side *side)
{
	assert_int_equal(kill(side->remote.process, SIGCONT), 0);
}

static bool has_event(struct side *side, int ms)
{
	struct pollfd ready = {.fd = side->context->async_fd, .events = POLLIN};

	return poll(&ready, 1, ms) == 1;
}

/* The send queue is drained when what is on the wire has been answered. */
static void drain_while_it_is_stopped(struct side *side)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct ibv_qp_init_attr init;
	struct ibv_async_event event;

	side_open(side, &patient);
	rendezvous(side);
	stop_peer(side);
	for (uint32_t i = 0; i < 8; i++)
		post_one(side, i & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, i, LENGTH);
	while (!counter_of(side, "counters/port_xmit_packets"))
		usleep(1000);
	assert_int_equal(
		ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	assert_false(has_event(side, 50));
	assert_int_equal(ibv_query_qp(side->qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.sq_draining, 1);
	let_peer_go(side);
	assert_true(has_event(side, 1000 * PATIENCE_S));
	assert_int_equal(ibv_get_async_event(side->context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_SQ_DRAINED);
	ibv_ack_async_event(&event);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
	assert_int_equal(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE), 0);
	for (uint32_t i = 0; i < 8; i++)
		expect_status(side, i, IBV_WC_SUCCESS);
	rendezvous(side);
	side_close(side);
}

static void that_must_answer_first(void **state)
{
	(void)state;
	run_two(drain_while_it_is_stopped, be_there, IBV_QPT_RC, 0, "", false);
}

/* By one doorbell, so that they leave at once and come at once; the last one is a write with another
 * rkey, if there are so many. */
static void post_reads(struct side *side, uint32_t n, uint32_t wrong)
{
	struct ibv_send_wr wrs[8], *bad;
	struct ibv_sge sges[8];

	for (uint32_t i = 0; i < n; i++) {
		wrs[i] = one(side, i == wrong ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, i, LENGTH,
			&sges[i]);
		wrs[i].next = i + 1 < n ? &wrs[i + 1] : NULL;
		if (i == wrong)
			wrs[i].wr.rdma.rkey ^= 0x100;
	}
	assert_int_equal(ibv_post_send(side->qp, wrs, &bad), 0);
}

/* The reads ahead of what a peer refuses are answered, and not asked for again until the retries are
 * over. */
static void read_ahead_of_an_error(struct side *side)
{
	side_open(side, &patient);
	rendezvous(side);
	post_reads(side, 4, 3);
	for (uint32_t i = 0; i < 3; i++)
		expect_status(side, i, IBV_WC_SUCCESS);
	expect_status(side, 3, IBV_WC_REM_ACCESS_ERR);
	rendezvous(side);
	side_close(side);
}

static void that_refuses_behind_reads(void **state)
{
	(void)state;
	run_two(read_ahead_of_an_error, be_there, IBV_QPT_RC, 0, "", false);
}

/* A peer has room for so many reads and atomics at once as it was told; one more is invalid. */
static void read_too_much_at_once(struct side *side)
{
	static const struct manner greedy = {.retry_cnt = 7, .max_rd_atomic = 8};

	side_open(side, &greedy);
	rendezvous(side);
	post_reads(side, 8, 8);
	for (uint32_t i = 0; i < 2; i++)
		expect_status(side, i, IBV_WC_SUCCESS);
	expect_status(side, 2, IBV_WC_REM_INV_REQ_ERR);
	rendezvous(side);
	side_close(side);
}

static void have_room_for_two(struct side *side)
{
	static const struct manner two = {.retry_cnt = 7, .max_dest_rd_atomic = 2};

	side_open(side, &two);
	rendezvous(side);
	rendezvous(side);
	side_close(side);
}

static void that_has_less_room(void **state)
{
	(void)state;
	run_two(read_too_much_at_once, have_room_for_two, IBV_QPT_RC, 0, "", false);
}

/* ---- a peer without a process ---- */

static void leave(struct side *side)
{
	side_open(side, &one_try);
	rendezvous(side);
}

static void expect_retries_exceeded(struct side *side)
{
	char byte;

	side_open(side, &one_try);
	rendezvous(side);
	assert_int_equal(read(side->peer, &byte, 1), 0); /* it has gone */
	expect_error(side, IBV_WR_SEND, IBV_WC_RETRY_EXC_ERR);
	side_close(side);
}

/* The acknowledgement was held back in a process that ended meanwhile, and was lost. What is late
 * leaves when the last device closes, or with the process. */
static void receive_and_go(struct side *side, bool close)
{
	side_open(side, &patient);
	post_receive(side, 0);
	rendezvous(side);
	assert_int_equal(wait_wc(side->recv_cq).status, IBV_WC_SUCCESS);
	if (close)
		side_close(side);
}

static void receive_and_close(struct side *side)
{
	receive_and_go(side, true);
}

static void receive_and_end(struct side *side)
{
	receive_and_go(side, false);
}

static void expect_acknowledged(struct side *side)
{
	side_open(side, &patient);
	rendezvous(side);
	post_one(side, IBV_WR_SEND, 0, 64);
	expect_status(side, 0, IBV_WC_SUCCESS);
	side_close(side);
}

static void that_left_when_all_is_late(void **state)
{
	(void)state;
	run_two(expect_acknowledged, receive_and_close, IBV_QPT_RC, 0, "delay=20ms", false);
	run_two(expect_acknowledged, receive_and_end, IBV_QPT_RC, 0, "delay=20ms", false);
}

static void that_left(void **state)
{
	(void)state;
	run_two(expect_retries_exceeded, leave, IBV_QPT_RC, 0, "", false);
}

enum { AT_ONCE = 8, BEFORE_KILL = 200 };

/* What is under way when the peer is killed fails once the retries are over, all behind it is
 * flushed, and nothing is left open. */
static void outlive(struct side *side, enum ibv_wr_opcode opcode)
{
	const struct manner manner = {.timeout = 14, .retry_cnt = 2, .rnr_retry = 7};
	uint32_t posted = 0, done = 0, length = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : LENGTH;
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
	double killed = 0, ended;

	side_open(side, &manner);
	rendezvous(side);
	for (; !wc.status; done += !wc.status) {
		while (posted - done < AT_ONCE)
			post_one(side, opcode, posted++, length);
		if (done == BEFORE_KILL && killed == 0) {
			assert_int_equal(kill(side->remote.process, SIGKILL), 0);
			killed = now();
		}
		wc = wait_wc(side->send_cq);
	}
	ended = now();
	assert_true(killed > 0);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(wc.wr_id, done);
	for (uint32_t i = done + 1; i < posted; i++)
		expect_status(side, i, IBV_WC_WR_FLUSH_ERR);
	/* The first sending and two more, 67 ms each. */
	assert_true(counter_of(side, "hw_counters/local_ack_timeout_err") >= 3);
	print_message("%u messages, then an error %.0f ms behind the kill\n", done,
		1000 * (ended - killed));
	side_close(side);
}

static void send_to_one_that_dies(struct side *side)
{
	outlive(side, IBV_WR_SEND);
}

static void write_to_one_that_dies(struct side *side)
{
	outlive(side, IBV_WR_RDMA_WRITE);
}

static void read_of_one_that_dies(struct side *side)
{
	outlive(side, IBV_WR_RDMA_READ);
}

static void add_to_one_that_dies(struct side *side)
{
	outlive(side, IBV_WR_ATOMIC_FETCH_AND_ADD);
}

/* Datagrams go on into the void. */
static void datagrams_to_one_that_dies(struct side *side)
{
	static const struct manner none;

	side_open(side, &none);
	rendezvous(side);
	for (uint32_t i = 0; i < 2 * BEFORE_KILL; i++) {
		post_one(side, IBV_WR_SEND, i, 1000);
		expect_status(side, i, IBV_WC_SUCCESS);
		if (i == BEFORE_KILL)
			assert_int_equal(kill(side->remote.process, SIGKILL), 0);
	}
	side_close(side);
}

/* It receives what comes until then. */
static void die(struct side *side)
{
	struct ibv_wc wc;

	side_open(side, &patient);
	for (uint32_t i = 0; i < N_RECEIVES; i++)
		post_receive(side, i);
	rendezvous(side);
	for (uint32_t n = N_RECEIVES;; n++) {
		do {
			wc = wait_wc(side->recv_cq);
		} while (wc.status);
		post_receive(side, n);
	}
}

static void that_is_killed(void **state)
{
	static side_fn *const of_rc[] = {send_to_one_that_dies, write_to_one_that_dies,
		read_of_one_that_dies, add_to_one_that_dies};

	(void)state;
	for (size_t i = 0; i < sizeof(of_rc) / sizeof(of_rc[0]); i++)
		run_two(of_rc[i], die, IBV_QPT_RC, 0, "", true);
	run_two(datagrams_to_one_that_dies, die, IBV_QPT_UD, 0, "", true);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_receives),
		cmocka_unit_test(with_another_rkey),
		cmocka_unit_test(of_another_version),
		cmocka_unit_test(reads_behind_a_send_that_waits),
		cmocka_unit_test(datagrams_without_receives),
		cmocka_unit_test(unreliable_sends_without_receives),
		cmocka_unit_test(without_a_core),
		cmocka_unit_test(whose_thread_has_no_core),
		cmocka_unit_test(that_must_answer_first),
		cmocka_unit_test(that_refuses_behind_reads),
		cmocka_unit_test(that_has_less_room),
		cmocka_unit_test(that_left),
		cmocka_unit_test(that_left_when_all_is_late),
		cmocka_unit_test(that_is_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
