/* two.c - two processes with a QP each, connected over UDP */

#include "two.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const char *vhca_present(
	void); /* asked for, so that the linker keeps the library ahead of libibverbs */

enum {
	GID_INDEX = 3,
	FIRST_PSN = 0xfffff0, /* so that PSNs go round */
	ACCESS = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

/* ---- a side ---- */

double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void make_objects(struct side *side)
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
	side->mr = ibv_reg_mr(side->pd, side->memory, MEMORY, IBV_ACCESS_LOCAL_WRITE | ACCESS);
	assert_non_null(side->mr);
	attr.send_cq = side->send_cq = ibv_create_cq(side->context, 128, NULL, NULL, 0);
	attr.recv_cq = side->recv_cq = ibv_create_cq(side->context, 128, NULL, NULL, 0);
	side->qp = ibv_create_qp(side->pd, &attr);
	assert_non_null(side->qp);
}

static void meet(struct side *side)
{
	struct address own = {.qpn = side->qp->qp_num,
		.rkey = side->mr->rkey,
		.memory = (uintptr_t)side->memory,
		.process = getpid()};

	assert_int_equal(ibv_query_gid(side->context, 1, GID_INDEX, &own.gid), 0);
	assert_int_equal(write(side->peer, &own, sizeof(own)), sizeof(own));
	assert_int_equal(read(side->peer, &side->remote, sizeof(side->remote)), sizeof(own));
}

static struct ibv_ah_attr to_peer(const struct side *side)
{
	return (struct ibv_ah_attr){.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = side->remote.gid, .sgid_index = side->sgid_index, .hop_limit = 64}};
}

static uint8_t or (uint8_t value, uint8_t otherwise)
{
	return value ? value : otherwise;
}

static void connect_qp(struct side *side, const struct manner *manner)
{
	bool rc = side->type == IBV_QPT_RC, ud = side->type == IBV_QPT_UD;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = ACCESS,
		.qkey = TWO_QKEY};

	assert_int_equal(ibv_modify_qp(side->qp, &attr,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					 (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
		0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = side->remote.qpn,
		.rq_psn = FIRST_PSN,
		.max_dest_rd_atomic = or (manner->max_dest_rd_atomic, 4),
		.min_rnr_timer = 1,
		.ah_attr = to_peer(side)};
	assert_int_equal(
		ibv_modify_qp(side->qp, &attr,
			IBV_QP_STATE |
				(ud ? 0
				    : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
							IBV_QP_RQ_PSN) |
				(rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
		0);
	/* Eight timeouts are a second: a peer that is there may be without a CPU for long. */
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.sq_psn = FIRST_PSN,
		.timeout = or (manner->timeout, 15),
		.retry_cnt = manner->retry_cnt,
		.rnr_retry = manner->rnr_retry,
		.max_rd_atomic = or (manner->max_rd_atomic, 4)};
	assert_int_equal(
		ibv_modify_qp(side->qp, &attr,
			IBV_QP_STATE | IBV_QP_SQ_PSN |
				(rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
							IBV_QP_MAX_QP_RD_ATOMIC
				    : 0)),
		0);
}

void side_open(struct side *side, const struct manner *manner)
{
	side->sgid_index = or (manner->sgid_index, GID_INDEX);
	make_objects(side);
	meet(side);
	connect_qp(side, manner);
	if (side->type == IBV_QPT_UD) {
		struct ibv_ah_attr attr = to_peer(side);

		side->ah = ibv_create_ah(side->pd, &attr);
		assert_non_null(side->ah);
	}
}

void side_close(struct side *side)
{
	if (side->ah)
		assert_int_equal(ibv_destroy_ah(side->ah), 0);
	assert_int_equal(ibv_destroy_qp(side->qp), 0);
	assert_int_equal(ibv_destroy_cq(side->send_cq), 0);
	assert_int_equal(ibv_destroy_cq(side->recv_cq), 0);
	assert_int_equal(ibv_dereg_mr(side->mr), 0);
	assert_int_equal(ibv_dealloc_pd(side->pd), 0);
	assert_int_equal(ibv_close_device(side->context), 0);
	free(side->memory);
}

void rendezvous(struct side *side)
{
	char byte = 0;

	assert_int_equal(write(side->peer, &byte, 1), 1);
	assert_int_equal(read(side->peer, &byte, 1), 1);
}

bool try_wc(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(cq, 1, wc);

	assert_true(n >= 0);
	if (!n)
		sched_yield();
	return n;
}

struct ibv_wc wait_wc(struct ibv_cq *cq)
{
	double end = now() + PATIENCE_S;
	struct ibv_wc wc;

	while (!try_wc(cq, &wc))
		if (now() > end)
			fail_msg("nothing completed in %d s", PATIENCE_S);
	return wc;
}

uint64_t counter_of(struct side *side, const char *name)
{
	unsigned long long value;
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/%s",
		ibv_get_device_name(side->context->device), name);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%llu", &value), 1);
	fclose(file);
	return value;
}

/* ---- messages ---- */

uint8_t *slot(struct side *side, int kind, uint32_t i)
{
	return side->memory + ((size_t)kind * N_SLOTS + i % N_SLOTS) * SLOT;
}

void post_receive(struct side *side, uint32_t n)
{
	struct ibv_sge sge = {(uintptr_t)slot(side, RECEIVED, n), SLOT, side->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(side->qp, &wr, &bad), 0);
}

static void aim(const struct side *side, struct ibv_send_wr *wr)
{
	uint32_t i = (uint32_t)wr->wr_id % N_SLOTS;
	uint32_t kind = wr->opcode == IBV_WR_RDMA_READ ? READABLE : WRITTEN;

	if (side->type == IBV_QPT_UD) {
		wr->wr.ud.ah = side->ah;
		wr->wr.ud.remote_qpn = side->remote.qpn;
		wr->wr.ud.remote_qkey = TWO_QKEY;
	} else if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr->wr.atomic.remote_addr = side->remote.memory + WORDS;
		wr->wr.atomic.rkey = side->remote.rkey;
	} else {
		wr->wr.rdma.remote_addr = side->remote.memory + ((size_t)kind * N_SLOTS + i) * SLOT;
		wr->wr.rdma.rkey = side->remote.rkey;
	}
}

struct ibv_send_wr one(struct side *side, enum ibv_wr_opcode opcode, uint32_t i, uint32_t length,
	struct ibv_sge *sge)
{
	struct ibv_send_wr wr = {.wr_id = i,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = sge,
		.num_sge = length ? 1 : 0};

	*sge = (struct ibv_sge){(uintptr_t)slot(side, SENT, i), length, side->mr->lkey};
	aim(side, &wr);
	return wr;
}

void post_one(struct side *side, enum ibv_wr_opcode opcode, uint32_t i, uint32_t length)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = one(side, opcode, i, length, &sge), *bad;

	assert_int_equal(ibv_post_send(side->qp, &wr, &bad), 0);
}

/* ---- two processes ---- */

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

static void expect_end(pid_t pid, const char *who, bool killed)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (killed ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status)
		fail_msg("the %s ended with status 0x%x", who, status);
}

void run_two(
	side_fn *a, side_fn *b, enum ibv_qp_type type, uint32_t n, const char *fault, bool killed)
{
	int pair[2];
	pid_t first, second;

	setenv("VHCA_WIRE", "udp", 1);
	setenv("VHCA_FAULT", fault, 1);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	first = start(a, pair[0], pair[1], type, n);
	second = start(b, pair[1], pair[0], type, n);
	close(pair[0]);
	close(pair[1]);
	expect_end(first, "requester", false);
	expect_end(second, "responder", killed);
}
