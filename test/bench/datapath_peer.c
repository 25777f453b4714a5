/* datapath_peer.c - libmlx5's side of mlx5_datapath: ibv_post_send, ibv_wr_*, ibv_poll_cq,
 * ibv_post_recv
 *
 * The queues are what a program gets by default. MLX5_SINGLE_THREADED=1 in the environment takes
 * libmlx5's locks away.
 */
#include "datapath.h"

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

/* A CQ of libmlx5's, and how many of its CQEs have been polled: enough to see what has landed
 * without polling it. */
struct watched_cq {
	struct ibv_cq *cq;
	struct mlx5dv_cq ring;
	uint32_t polled;
};

struct loop {
	struct ibv_qp *tx, *rx;
	struct ibv_qp_ex *wr; /* of tx, where it was made for ibv_wr_* */
	struct watched_cq tx_cq, rx_cq;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint8_t *memory; /* BURST messages to send, then BURST to receive */
static int gid_index;
static union ibv_gid gid;
static enum ibv_mtu mtu;

static struct loop plain, extended;

static struct ibv_sge tx_sges[BURST], rx_sges[BURST];
static struct ibv_send_wr sends[BURST], inline_sends[BURST], signalled_sends[BURST];
static struct ibv_recv_wr recvs[BURST];
static struct ibv_wc wcs[BURST];
static int result;

/* ---- set-up ---- */

static struct ibv_context *open_by_name(const char *name)
{
	struct ibv_context *found = NULL;
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			found = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return found;
}

static void pick_gid(void)
{
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;

	if (ibv_query_port(context, 1, &port))
		die("libmlx5: cannot query port 1");
	mtu = port.active_mtu;
	for (int i = 0; i < port.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(context, 1, (uint32_t)i, &entry, 0))
			continue;
		gid = entry.gid;
		gid_index = i;
		if (entry.gid_type == IBV_GID_TYPE_ROCE_V2)
			return;
	}
}

static void watch(struct watched_cq *watched)
{
	struct mlx5dv_obj obj = {};

	watched->cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	obj.cq.in = watched->cq;
	obj.cq.out = &watched->ring;
	if (!watched->cq || mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ))
		die("libmlx5: cannot create a CQ of %d entries", DEPTH);
}

static struct ibv_qp *create_qp(struct watched_cq *cq, bool for_wr)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq->cq,
		.recv_cq = cq->cq,
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = SIZE},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp;

	if (for_wr) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
	}
	qp = ibv_create_qp_ex(context, &attr);
	if (!qp)
		die("libmlx5: cannot create an RC QP of depth %d", DEPTH);
	return qp;
}

static void connect_qp(struct ibv_qp *qp, uint32_t peer_qpn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.path_mtu = mtu,
		.dest_qp_num = peer_qpn,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64}},
	};

	if (ibv_modify_qp(qp, &attr,
		    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("libmlx5: cannot take a QP to INIT");
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr,
		    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("libmlx5: cannot take a QP to RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &attr,
		    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("libmlx5: cannot take a QP to RTS");
}

static void post_recvs(struct loop *loop)
{
	struct ibv_recv_wr *bad;

	if (ibv_post_recv(loop->rx, recvs, &bad))
		die("libmlx5: ibv_post_recv failed");
}

static void open_loop(struct loop *loop, bool for_wr)
{
	watch(&loop->tx_cq);
	watch(&loop->rx_cq);
	loop->tx = create_qp(&loop->tx_cq, for_wr);
	loop->rx = create_qp(&loop->rx_cq, false);
	loop->wr = for_wr ? ibv_qp_to_qp_ex(loop->tx) : NULL;
	connect_qp(loop->tx, loop->rx->qp_num);
	connect_qp(loop->rx, loop->tx->qp_num);
	for (int i = 0; i < DEPTH / BURST; i++)
		post_recvs(loop);
}

static void close_loop(struct loop *loop)
{
	ibv_destroy_qp(loop->tx);
	ibv_destroy_qp(loop->rx);
	ibv_destroy_cq(loop->tx_cq.cq);
	ibv_destroy_cq(loop->rx_cq.cq);
}

/* Lists of BURST sends; `flags` for all, `last` for the last one in addition. */
static void fill_sends(struct ibv_send_wr *wrs, unsigned int flags, unsigned int last)
{
	for (int i = 0; i < BURST; i++)
		wrs[i] = (struct ibv_send_wr){
			.wr_id = (uint64_t)i,
			.next = i + 1 < BURST ? &wrs[i + 1] : NULL,
			.sg_list = &tx_sges[i],
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = flags | (i + 1 < BURST ? 0 : last),
		};
}

static void fill_lists(void)
{
	for (int i = 0; i < BURST; i++) {
		uintptr_t at = (uintptr_t)memory + (uintptr_t)i * SIZE;

		tx_sges[i] = (struct ibv_sge){at, SIZE, mr->lkey};
		rx_sges[i] = (struct ibv_sge){at + BURST * SIZE, SIZE, mr->lkey};
		recvs[i] = (struct ibv_recv_wr){
			.wr_id = (uint64_t)i,
			.next = i + 1 < BURST ? &recvs[i + 1] : NULL,
			.sg_list = &rx_sges[i],
			.num_sge = 1,
		};
	}
	fill_sends(sends, 0, IBV_SEND_SIGNALED);
	fill_sends(inline_sends, IBV_SEND_INLINE, IBV_SEND_SIGNALED);
	fill_sends(signalled_sends, IBV_SEND_SIGNALED, 0);
}

void peer_open(const char *device)
{
	context = open_by_name(device);
	if (!context)
		die("libmlx5: cannot open device %s; see that it exists (ibv_devices) and may be opened",
			device);
	pd = ibv_alloc_pd(context);
	memory = aligned_alloc(4096, 2 * BURST * SIZE);
	if (!pd || !memory)
		die("libmlx5: no protection domain or no memory");
	memset(memory, 0x5a, 2 * BURST * SIZE);
	mr = ibv_reg_mr(pd, memory, 2 * BURST * SIZE, IBV_ACCESS_LOCAL_WRITE);
	if (!mr)
		die("libmlx5: cannot register %d bytes", 2 * BURST * SIZE);
	pick_gid();
	fill_lists();
	open_loop(&plain, false);
	open_loop(&extended, true);
}

void peer_close(void)
{
	close_loop(&plain);
	close_loop(&extended);
	ibv_dereg_mr(mr);
	free(memory);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
}

/* ---- seeing and taking what has landed ---- */

/* Whether the CQE that is `ahead` of the next one to be polled belongs to software. */
static bool landed(const struct watched_cq *cq, uint32_t ahead)
{
	uint32_t index = cq->polled + ahead;
	const uint8_t *cqe = (const uint8_t *)cq->ring.buf +
		(index & (cq->ring.cqe_cnt - 1)) * cq->ring.cqe_size;
	uint8_t op_own = __atomic_load_n(cqe + cq->ring.cqe_size - 1, __ATOMIC_ACQUIRE);

	return op_own >> 4 != MLX5_CQE_INVALID && (op_own & 1) == !!(index & cq->ring.cqe_cnt);
}

static void wait_landed(const struct watched_cq *cq, int n, const char *what)
{
	struct patience patience = patience_start();

	while (!landed(cq, (uint32_t)n - 1))
		patience_wait(&patience, what);
}

static void check_polled(struct watched_cq *cq, int n)
{
	if (n < 0)
		die("libmlx5: ibv_poll_cq failed");
	for (int i = 0; i < n; i++)
		if (wcs[i].status != IBV_WC_SUCCESS)
			die("libmlx5: a completion says: %s", ibv_wc_status_str(wcs[i].status));
	cq->polled += (uint32_t)n;
}

static void take(struct watched_cq *cq, int n, const char *what)
{
	wait_landed(cq, n, what);
	for (int got = 0; got < n;) {
		int polled = ibv_poll_cq(cq->cq, n - got, wcs);

		check_polled(cq, polled);
		got += polled;
	}
}

static void take_received(struct loop *loop)
{
	take(&loop->rx_cq, BURST, "64 receives of libmlx5's");
	post_recvs(loop);
}

/* ---- the acts ---- */

static void nothing(void)
{
}

static bool settle_plain(void)
{
	if (result)
		die("libmlx5: posting 64 sends failed: %s", strerror(result));
	take(&plain.tx_cq, 1, "a send completion of libmlx5's");
	take_received(&plain);
	return true;
}

static bool settle_extended(void)
{
	if (result)
		die("libmlx5: ibv_wr_complete failed: %s", strerror(result));
	take(&extended.tx_cq, 1, "a send completion of libmlx5's");
	take_received(&extended);
	return true;
}

static __attribute__((noinline)) void measure_post_send(void)
{
	struct ibv_send_wr *bad;

	result = ibv_post_send(plain.tx, sends, &bad);
}

static __attribute__((noinline)) void measure_post_send_inline(void)
{
	struct ibv_send_wr *bad;

	result = ibv_post_send(plain.tx, inline_sends, &bad);
}

/* The caller's own part is kept to the least: one signalled send at the end, addresses one behind
 * the other. */
static __attribute__((noinline)) void measure_wr(void)
{
	struct ibv_qp_ex *qp = extended.wr;
	uint32_t lkey = tx_sges[0].lkey;
	uint64_t at = tx_sges[0].addr, last = at + (BURST - 1) * SIZE;

	ibv_wr_start(qp);
	qp->wr_flags = 0;
	for (; at < last; at += SIZE) {
		ibv_wr_send(qp);
		ibv_wr_set_sge(qp, lkey, at, SIZE);
	}
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, lkey, at, SIZE);
	result = ibv_wr_complete(qp);
}

static __attribute__((noinline)) void measure_wr_inline(void)
{
	struct ibv_qp_ex *qp = extended.wr;
	uint8_t *at = memory, *last = at + (BURST - 1) * SIZE;

	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_INLINE;
	for (; at < last; at += SIZE) {
		ibv_wr_send(qp);
		ibv_wr_set_inline_data(qp, at, SIZE);
	}
	qp->wr_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, at, SIZE);
	result = ibv_wr_complete(qp);
}

static void prepare_poll_cq(void)
{
	struct ibv_send_wr *bad;

	if (ibv_post_send(plain.tx, signalled_sends, &bad))
		die("libmlx5: posting 64 sends failed");
	wait_landed(&plain.tx_cq, BURST, "64 send completions of libmlx5's");
	take_received(&plain);
}

static __attribute__((noinline)) void measure_poll_cq(void)
{
	result = ibv_poll_cq(plain.tx_cq.cq, BURST, wcs);
}

static bool settle_poll_cq(void)
{
	check_polled(&plain.tx_cq, result);
	if (result < BURST)
		take(&plain.tx_cq, BURST - result, "the rest of 64 send completions");
	return result == BURST;
}

static void prepare_receive(void)
{
	struct ibv_send_wr *bad;

	if (ibv_post_send(plain.tx, sends, &bad))
		die("libmlx5: posting 64 sends failed");
	wait_landed(&plain.rx_cq, BURST, "64 receives of libmlx5's");
	take(&plain.tx_cq, 1, "a send completion of libmlx5's");
}

static __attribute__((noinline)) void measure_poll_and_post_recv(void)
{
	struct ibv_recv_wr *bad;

	result = ibv_poll_cq(plain.rx_cq.cq, BURST, wcs);
	if (ibv_post_recv(plain.rx, recvs, &bad))
		result = -1;
}

static bool settle_receive(void)
{
	check_polled(&plain.rx_cq, result);
	if (result < BURST)
		die("libmlx5: ibv_poll_cq gave %d of 64 receives that had landed", result);
	return true;
}

const struct act peer_post_send = {nothing, measure_post_send, settle_plain};
const struct act peer_post_send_inline = {nothing, measure_post_send_inline, settle_plain};
const struct act peer_wr = {nothing, measure_wr, settle_extended};
const struct act peer_wr_inline = {nothing, measure_wr_inline, settle_extended};
const struct act peer_poll_cq = {prepare_poll_cq, measure_poll_cq, settle_poll_cq};
const struct act peer_poll_and_post_recv = {
	prepare_receive, measure_poll_and_post_recv, settle_receive};
