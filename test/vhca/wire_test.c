/* wire_test.c - two processes over UDP: every operation, exactly once and in order, with packets
 * lost, doubled, late and damaged; and what a peer sees of one that is not there
 *
 * The operations, sizes and contents follow from a message's number alone, so that each side knows
 * what the other must do.
 */

#include <errno.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

const char *vhca_present(
	void); /* asked for, so that the linker keeps the library ahead of libibverbs */

enum {
	GID_INDEX = 3,
	SLOT = 8192,  /* the largest message */
	N_SLOTS = 64, /* of each kind of memory */
	WINDOW = 24,  /* messages posted and not completed */
	AHEAD = 40,   /* messages posted and not checked by the peer */
	N_RECEIVES = 64,
	PATIENCE_S = 60,
};

/* The memory of a side: slots of each kind, then the words that atomics change. */
enum { SENT, RECEIVED, WRITTEN, READABLE, N_KINDS };

#define MEMORY (N_KINDS * N_SLOTS * SLOT + 4096)
#define WORDS  (N_KINDS * N_SLOTS * SLOT)

struct address {
	union ibv_gid gid;
	uint32_t qpn, rkey;
	uint64_t memory;
};

struct side {
	int peer; /* a socket */
	enum ibv_qp_type type;
	uint32_t n_messages;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct address remote;
	uint64_t atomics; /* of each kind, so far */
};

/* Shared by both: how far the responder has checked. */
static _Atomic uint32_t *checked;

/* ---- what a message is ---- */

static uint32_t mix(uint32_t x)
{
	x = (x ^ x >> 16) * 0x45d9f3bu;
	x = (x ^ x >> 16) * 0x45d9f3bu;
	return x ^ x >> 16;
}

static const enum ibv_wr_opcode operations[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP};

static enum ibv_wr_opcode operation_of(uint32_t i)
{
	return operations[mix(i) % 8];
}

static bool is_atomic(uint32_t i)
{
	return operation_of(i) == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		operation_of(i) == IBV_WR_ATOMIC_CMP_AND_SWP;
}

static bool is_received(uint32_t i)
{
	return operation_of(i) == IBV_WR_SEND || operation_of(i) == IBV_WR_SEND_WITH_IMM ||
		operation_of(i) == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static uint32_t length_of(uint32_t i)
{
	uint32_t r = mix(i + 0x5eed);

	if (is_atomic(i))
		return 8;
	switch (r % 4) {
	case 0: return 1 + (r >> 8) % 64;
	case 1: return (r >> 8) % 1025;
	case 2: return 1024 * ((r >> 8) % 8 + 1);
	default: return (r >> 8) % (SLOT + 1);
	}
}

static void fill(uint8_t *to, uint32_t i, uint32_t length)
{
	uint32_t x = mix(i) | 1;

	for (uint32_t k = 0; k < length; k++)
		to[k] = (uint8_t)((x += 0x9e3779b9u) >> 24);
}

static void expect_filled(const uint8_t *bytes, uint32_t i, uint32_t length, const char *what)
{
	uint8_t wanted[SLOT];

	fill(wanted, i, length);
	for (uint32_t k = 0; k < length; k++)
		if (bytes[k] != wanted[k])
			fail_msg(
				"message %u, %s of %u bytes: byte %u is 0x%02x where 0x%02x was due",
				i, what, length, k, bytes[k], wanted[k]);
}

static uint8_t *slot(struct side *side, int kind, uint32_t i)
{
	return side->memory + ((size_t)kind * N_SLOTS + i % N_SLOTS) * SLOT;
}

/* ---- a side ---- */

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void open_side(struct side *side)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = side->type,
		.cap = {.max_send_wr = 64,
			.max_recv_wr = N_RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};
	struct ibv_device **list = ibv_get_device_list(NULL);

	assert_non_null(vhca_present());
	assert_non_null(list);
	side->context = ibv_open_device(list[0]);
	assert_non_null(side->context);
	ibv_free_device_list(list);
	side->pd = ibv_alloc_pd(side->context);
	side->memory = aligned_alloc(4096, MEMORY);
	memset(side->memory, 0, MEMORY);
	side->mr = ibv_reg_mr(side->pd, side->memory, MEMORY,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC);
	assert_non_null(side->mr);
	attr.send_cq = side->send_cq = ibv_create_cq(side->context, 128, NULL, NULL, 0);
	attr.recv_cq = side->recv_cq = ibv_create_cq(side->context, 128, NULL, NULL, 0);
	side->qp = ibv_create_qp(side->pd, &attr);
	assert_non_null(side->qp);
}

static void meet(struct side *side)
{
	struct address own = {
		.qpn = side->qp->qp_num, .rkey = side->mr->rkey, .memory = (uintptr_t)side->memory};

	assert_int_equal(ibv_query_gid(side->context, 1, GID_INDEX, &own.gid), 0);
	assert_int_equal(write(side->peer, &own, sizeof(own)), sizeof(own));
	assert_int_equal(read(side->peer, &side->remote, sizeof(side->remote)), sizeof(own));
}

static void connect_qp(struct side *side, uint8_t retry_cnt, uint8_t rnr_retry)
{
	bool rc = side->type == IBV_QPT_RC;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC};

	assert_int_equal(
		ibv_modify_qp(side->qp, &attr,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = side->remote.qpn,
		.rq_psn = 0xfffff0, /* so that PSNs go round */
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = side->remote.gid,
				.sgid_index = GID_INDEX,
				.hop_limit = 64}}};
	assert_int_equal(
		ibv_modify_qp(side->qp, &attr,
			IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				IBV_QP_RQ_PSN |
				(rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
		0);
	/* Eight timeouts are a second: a peer that is there may be without a CPU for long. */
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.sq_psn = 0xfffff0,
		.timeout = 15,
		.retry_cnt = retry_cnt,
		.rnr_retry = rnr_retry,
		.max_rd_atomic = 4};
	assert_int_equal(
		ibv_modify_qp(side->qp, &attr,
			IBV_QP_STATE | IBV_QP_SQ_PSN |
				(rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
							IBV_QP_MAX_QP_RD_ATOMIC
				    : 0)),
		0);
}

static void close_side(struct side *side)
{
	assert_int_equal(ibv_destroy_qp(side->qp), 0);
	assert_int_equal(ibv_destroy_cq(side->send_cq), 0);
	assert_int_equal(ibv_destroy_cq(side->recv_cq), 0);
	assert_int_equal(ibv_dereg_mr(side->mr), 0);
	assert_int_equal(ibv_dealloc_pd(side->pd), 0);
	assert_int_equal(ibv_close_device(side->context), 0);
	free(side->memory);
}

/* Until the other side has come so far too. */
static void rendezvous(struct side *side)
{
	char byte = 0;

	assert_int_equal(write(side->peer, &byte, 1), 1);
	assert_int_equal(read(side->peer, &byte, 1), 1);
}

static bool try_wc(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(cq, 1, wc);

	assert_true(n >= 0);
	if (!n)
		sched_yield();
	return n;
}

static struct ibv_wc wait_wc(struct ibv_cq *cq)
{
	double end = now() + PATIENCE_S;
	struct ibv_wc wc;

	while (!try_wc(cq, &wc))
		if (now() > end)
			fail_msg("nothing completed in %d s", PATIENCE_S);
	return wc;
}

/* ---- the responder ---- */

static void post_receive(struct side *side, uint32_t n)
{
	struct ibv_sge sge = {(uintptr_t)slot(side, RECEIVED, n), SLOT, side->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(side->qp, &wr, &bad), 0);
}

static void expect_received(struct side *side, uint32_t i, uint32_t n, const struct ibv_wc *wc)
{
	bool write = operation_of(i) == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool imm = operation_of(i) != IBV_WR_SEND;

	if (wc->status || wc->wr_id != n || wc->byte_len != length_of(i) ||
		wc->opcode != (write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) ||
		!!(wc->wc_flags & IBV_WC_WITH_IMM) != imm || (imm && wc->imm_data != htobe32(i)))
		fail_msg("message %u, receive %u: %s, wr_id %llu, %u bytes of %u, imm %u", i, n,
			ibv_wc_status_str(wc->status), (unsigned long long)wc->wr_id, wc->byte_len,
			length_of(i), be32toh(wc->imm_data));
	expect_filled(slot(side, write ? WRITTEN : RECEIVED, write ? i : n), i, length_of(i),
		write ? "a write with immediate" : "a send");
}

/* Each message that consumes a receive proves those before it, which do not. */
static void respond(struct side *side)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < N_SLOTS; i++)
		fill(slot(side, READABLE, i), i + 77, SLOT);
	for (uint32_t i = 0; i < N_RECEIVES; i++)
		post_receive(side, i);
	rendezvous(side);
	for (uint32_t i = 0; i < side->n_messages; i++) {
		if (is_received(i)) {
			struct ibv_wc wc = wait_wc(side->recv_cq);

			for (uint32_t k = *checked; k < i; k++)
				if (operation_of(k) == IBV_WR_RDMA_WRITE)
					expect_filled(
						slot(side, WRITTEN, k), k, length_of(k), "a write");
			expect_received(side, i, n, &wc);
			post_receive(side, n + N_RECEIVES);
			n++;
			*checked = i + 1;
		}
	}
	rendezvous(side);
}

/* ---- the requester ---- */

static void post(struct side *side, uint32_t i)
{
	enum ibv_wr_opcode opcode = operation_of(i);
	bool read = opcode == IBV_WR_RDMA_READ;
	struct ibv_sge sge = {(uintptr_t)slot(side, SENT, i), length_of(i), side->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = i,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htobe32(i),
		.sg_list = &sge,
		.num_sge = length_of(i) ? 1 : 0};
	struct ibv_send_wr *bad;

	if (is_atomic(i)) {
		bool swap = opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

		wr.wr.atomic.remote_addr = side->remote.memory + WORDS + (swap ? 8 : 0);
		wr.wr.atomic.rkey = side->remote.rkey;
		wr.wr.atomic.compare_add = swap ? side->atomics >> 32 : 1;
		wr.wr.atomic.swap = (side->atomics >> 32) + 1;
		side->atomics += swap ? 1ull << 32 : 1;
	} else {
		wr.wr.rdma.remote_addr = side->remote.memory +
			((size_t)(read ? READABLE : WRITTEN) * N_SLOTS + i % N_SLOTS) * SLOT;
		wr.wr.rdma.rkey = side->remote.rkey;
		fill(slot(side, SENT, i), i, length_of(i));
	}
	assert_int_equal(ibv_post_send(side->qp, &wr, &bad), 0);
}

static void expect_completed(struct side *side, uint32_t i, uint64_t *atomics)
{
	struct ibv_wc wc = wait_wc(side->send_cq);
	bool swap = operation_of(i) == IBV_WR_ATOMIC_CMP_AND_SWP;
	uint64_t value;

	if (wc.status || wc.wr_id != i)
		fail_msg("message %u: wr_id %llu completed with %s", i,
			(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
	if (operation_of(i) == IBV_WR_RDMA_READ)
		expect_filled(slot(side, SENT, i), i % N_SLOTS + 77, length_of(i), "a read");
	if (!is_atomic(i))
		return;
	memcpy(&value, slot(side, SENT, i), sizeof(value));
	if (value != (swap ? *atomics >> 32 : *atomics & 0xffffffff))
		fail_msg("message %u: an atomic brought %llu", i, (unsigned long long)value);
	*atomics += swap ? 1ull << 32 : 1;
}

/* The peer must have checked what a slot holds before it is used again. */
static uint32_t may_post(uint32_t done, uint32_t n_messages)
{
	uint32_t limit = done + WINDOW, checked_limit = *checked + AHEAD;

	limit = limit < checked_limit ? limit : checked_limit;
	return limit < n_messages ? limit : n_messages;
}

static void request(struct side *side)
{
	uint32_t posted = 0;
	uint64_t atomics = 0;

	rendezvous(side);
	for (uint32_t done = 0; done < side->n_messages; done++) {
		do {
			while (posted < may_post(done, side->n_messages))
				post(side, posted++);
		} while (posted == done);
		expect_completed(side, done, &atomics);
	}
	rendezvous(side);
}

static void request_reliably(struct side *side)
{
	open_side(side);
	meet(side);
	connect_qp(side, 7, 7);
	request(side);
	close_side(side);
}

static void respond_reliably(struct side *side)
{
	open_side(side);
	meet(side);
	connect_qp(side, 7, 7);
	respond(side);
	close_side(side);
}

/* ---- two processes ---- */

typedef void side_fn(struct side *side);

static pid_t start(side_fn *fn, int peer, int other, enum ibv_qp_type type, uint32_t n)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		struct side side = {.peer = peer, .type = type, .n_messages = n};

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(other);
		alarm(2 * PATIENCE_S);
		fn(&side);
		exit(0);
	}
	return pid;
}

static void expect_success(pid_t pid, const char *who)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status)
		fail_msg("the %s ended with status 0x%x", who, status);
}

static void run(side_fn *a, side_fn *b, enum ibv_qp_type type, uint32_t n, const char *fault)
{
	int pair[2];
	pid_t first, second;

	setenv("VHCA_FAULT", fault, 1);
	*checked = 0;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	first = start(a, pair[0], pair[1], type, n);
	second = start(b, pair[1], pair[0], type, n);
	close(pair[0]);
	close(pair[1]);
	expect_success(first, "requester");
	expect_success(second, "responder");
}

/* How many, unless by hand VHCA_TEST_MESSAGES asks for more. */
static uint32_t messages(uint32_t n)
{
	const char *text = getenv("VHCA_TEST_MESSAGES");

	return text ? (uint32_t)strtoul(text, NULL, 0) : n;
}

static void all_operations(void **state)
{
	(void)state;
	run(request_reliably, respond_reliably, IBV_QPT_RC, messages(10000), "");
}

static void with_loss(void **state)
{
	(void)state;
	run(request_reliably, respond_reliably, IBV_QPT_RC, messages(2000), "loss=0.01");
}

static void with_reordering_and_duplicates(void **state)
{
	(void)state;
	run(request_reliably, respond_reliably, IBV_QPT_RC, messages(3000),
		"reorder=0.01,duplicate=0.01");
}

static void with_everything(void **state)
{
	(void)state;
	run(request_reliably, respond_reliably, IBV_QPT_RC, messages(2000),
		"loss=0.01,reorder=0.01,duplicate=0.01,corrupt=0.01");
}

static void with_delay(void **state)
{
	(void)state;
	run(request_reliably, respond_reliably, IBV_QPT_RC, messages(300), "delay=1ms");
}

/* ---- a peer that is not there, or not ready ---- */

static void expect_error(struct side *side, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	post(side, 0);
	post(side, 1);
	wc = wait_wc(side->send_cq);
	if (wc.wr_id || wc.status != status)
		fail_msg("wr_id %llu completed with %s where %s was due",
			(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
			ibv_wc_status_str(status));
	wc = wait_wc(side->send_cq);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
}

static void leave(struct side *side)
{
	open_side(side);
	meet(side);
	connect_qp(side, 1, 1);
	rendezvous(side);
}

static void expect_retries_exceeded(struct side *side)
{
	char byte;

	open_side(side);
	meet(side);
	connect_qp(side, 1, 1);
	rendezvous(side);
	assert_int_equal(read(side->peer, &byte, 1), 0); /* it has gone */
	expect_error(side, IBV_WC_RETRY_EXC_ERR);
	close_side(side);
}

static void a_peer_that_left(void **state)
{
	(void)state;
	run(expect_retries_exceeded, leave, IBV_QPT_RC, 0, "");
}

static void post_no_receives(struct side *side)
{
	open_side(side);
	meet(side);
	connect_qp(side, 7, 1);
	rendezvous(side);
	rendezvous(side);
	close_side(side);
}

static void expect_not_ready(struct side *side)
{
	open_side(side);
	meet(side);
	connect_qp(side, 7, 1);
	rendezvous(side);
	assert_true(is_received(0));
	expect_error(side, IBV_WC_RNR_RETRY_EXC_ERR);
	rendezvous(side);
	close_side(side);
}

static void a_peer_without_receives(void **state)
{
	(void)state;
	run(expect_not_ready, post_no_receives, IBV_QPT_RC, 0, "");
}

static void expect_access_error(struct side *side)
{
	open_side(side);
	meet(side);
	connect_qp(side, 7, 1);
	rendezvous(side);
	side->remote.rkey ^= 0x100;
	assert_int_equal(operation_of(5), IBV_WR_RDMA_WRITE);
	post(side, 5);
	assert_int_equal(wait_wc(side->send_cq).status, IBV_WC_REM_ACCESS_ERR);
	rendezvous(side);
	close_side(side);
}

static void a_wrong_rkey(void **state)
{
	(void)state;
	run(expect_access_error, post_no_receives, IBV_QPT_RC, 0, "");
}

/* An argument is the one test to run, or a pattern of some. */
int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_operations),
		cmocka_unit_test(with_loss),
		cmocka_unit_test(with_reordering_and_duplicates),
		cmocka_unit_test(with_everything),
		cmocka_unit_test(with_delay),
		cmocka_unit_test(a_peer_that_left),
		cmocka_unit_test(a_peer_without_receives),
		cmocka_unit_test(a_wrong_rkey),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	setenv("VHCA_WIRE", "udp", 1);
	checked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(checked != MAP_FAILED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
