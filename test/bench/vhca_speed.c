/* vhca_speed.c - how fast the emulated ConnectX is within a process: vhca_speed [SECONDS], preloaded with or linked to it
 *
 * Two RC QPs of one thread, driven by libmlx5. 64-byte sends, posted 64 at a time, by windows of messages received: the best
 * window is what two free cores do, the median what they did. Then RDMA writes of 1 MiB, each beside a memcpy of as much.
 * Prints one JSON object.
 */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	LIST = 64,
	DEPTH = 1024,
	SIZE = 64,
	WINDOW = 32 *
		1024, /* much more than is ever under way, so that no window is made of those before */
	MAX_WINDOWS = 20000,
	LARGE = 1 << 20,
	PAIRS = 64,
};

struct end {
	struct ibv_qp *qp;
	struct ibv_cq *send_cq, *recv_cq;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint8_t *memory; /* two buffers of LARGE */
static struct end ends[2];

static void check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "vhca_speed: %s failed\n", what);
	exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* ---- set-up ---- */

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	check(list && list[0], "finding a device");
	context = ibv_open_device(list[0]);
	check(context != NULL, "opening the device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	memory = aligned_alloc(LARGE, 2 * LARGE);
	check(pd && memory, "allocating");
	memset(memory, 1, 2 * LARGE);
	mr = ibv_reg_mr(pd, memory, 2 * LARGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	check(mr != NULL, "registering memory");
}

static void make_end(struct end *end)
{
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = DEPTH,
						.max_recv_wr = DEPTH,
						.max_send_sge = 1,
						.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	end->send_cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	end->recv_cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	check(end->send_cq && end->recv_cq, "creating CQs");
	init.send_cq = end->send_cq;
	init.recv_cq = end->recv_cq;
	end->qp = ibv_create_qp(pd, &init);
	check(end->qp &&
			!ibv_modify_qp(end->qp, &attr,
				IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					IBV_QP_ACCESS_FLAGS),
		"creating a QP");
}

static void connect_end(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1, .port_num = 1, .grh = {.sgid_index = 3, .hop_limit = 64}}};

	check(!ibv_query_gid(context, 1, 3, &attr.ah_attr.grh.dgid) &&
			!ibv_modify_qp(end->qp, &attr,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					IBV_QP_MIN_RNR_TIMER),
		"connecting");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	check(!ibv_modify_qp(end->qp, &attr,
		      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		"connecting");
}

/* ---- 64-byte sends ---- */

static struct ibv_sge small;
static struct ibv_recv_wr recvs[LIST];
static struct ibv_send_wr sends[LIST];

static void make_lists(void)
{
	small = (struct ibv_sge){(uintptr_t)memory, SIZE, mr->lkey};
	for (int i = 0; i < LIST; i++) {
		bool last = i == LIST - 1;

		recvs[i] = (struct ibv_recv_wr){
			.sg_list = &small, .num_sge = 1, .next = last ? NULL : &recvs[i + 1]};
		sends[i] = (struct ibv_send_wr){.sg_list = &small,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = last ? IBV_SEND_SIGNALED : 0,
			.next = last ? NULL : &sends[i + 1]};
	}
}

static void post_receives(void)
{
	struct ibv_recv_wr *bad;

	check(!ibv_post_recv(ends[1].qp, recvs, &bad), "posting receives");
}

static int reap(struct ibv_cq *cq)
{
	struct ibv_wc wc[LIST];
	int n = ibv_poll_cq(cq, LIST, wc);

	for (int i = 0; i < n; i++)
		check(wc[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(wc[i].status));
	check(n >= 0, "polling");
	return n;
}

/* Sends for so long, never more than there are receives for; the time of each window. */
static size_t send_small(double seconds, double *windows)
{
	double begin = now(), last = begin;
	uint64_t sent = 0, completed = 0, received = 0, reposted = 0, next = WINDOW;
	size_t n = 0;

	for (int i = 0; i < DEPTH / LIST; i++)
		post_receives();
	while (n < MAX_WINDOWS && last - begin < seconds) {
		struct ibv_send_wr *bad;

		for (; sent - received <= DEPTH - 2 * LIST && sent - completed <= DEPTH - LIST;
			sent += LIST)
			check(!ibv_post_send(ends[0].qp, sends, &bad), "posting sends");
		received += (uint64_t)reap(ends[1].recv_cq);
		for (; received - reposted >= LIST; reposted += LIST)
			post_receives();
		completed += LIST * (uint64_t)reap(ends[0].send_cq);
		if (received < next)
			continue;
		next += WINDOW;
		windows[n] = now() - last;
		last += windows[n++];
	}
	while (completed < sent)
		completed += LIST * (uint64_t)reap(ends[0].send_cq);
	return n;
}

/* ---- 1 MiB writes ---- */

static double write_large(void)
{
	struct ibv_sge sge = {(uintptr_t)memory, LARGE, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_RDMA_WRITE,
				   .send_flags = IBV_SEND_SIGNALED,
				   .wr.rdma = {(uintptr_t)memory + LARGE, mr->rkey}},
			   *bad;
	double begin = now();

	check(!ibv_post_send(ends[0].qp, &wr, &bad), "posting a write");
	while (!reap(ends[0].send_cq))
		;
	return now() - begin;
}

static double copy_large(void)
{
	double begin = now();

	memcpy(memory + LARGE, memory, LARGE);
	__asm__ volatile("" ::: "memory");
	return now() - begin;
}

/* ---- figures ---- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static double windows[MAX_WINDOWS], writes[PAIRS], copies[PAIRS];
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	size_t n;

	open_device();
	make_end(&ends[0]);
	make_end(&ends[1]);
	connect_end(&ends[0], &ends[1]);
	connect_end(&ends[1], &ends[0]);
	make_lists();
	n = send_small(seconds, windows);
	check(n > 0, "sending a window of messages in the time");
	for (int i = 0; i < PAIRS; i++) {
		copies[i] = copy_large();
		writes[i] = write_large();
	}
	qsort(windows, n, sizeof(windows[0]), compare);
	qsort(copies, PAIRS, sizeof(copies[0]), compare);
	qsort(writes, PAIRS, sizeof(writes[0]), compare);
	printf("{\"windows\": %zu, \"best_msg_rate\": %.0f, \"msg_rate\": %.0f, \"memcpy_us\": %.1f, "
	       "\"write_us\": %.1f}\n",
		n, WINDOW / windows[0], WINDOW / windows[n / 2], copies[PAIRS / 2] * 1e6,
		writes[PAIRS / 2] * 1e6);
	return 0;
}
