/* raw_datapath.c - raw Ethernet on mlx5 rings against libmlx5's own calls on the same kind of raw
 * queues, each technique on against off, and forwarding: instructions and time per packet
 *
 * 64-byte frames in bursts of 32, from one port to another on the switch of the emulated device, two
 * bursts a round. Only the calls are counted, after what they take has landed.
 */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <infiniband/mlx5dv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <verbena.h>
#include <verbena/packet.h>
#include <verbena/rx_group.h>

/* Linked ahead of libibverbs; naming it keeps the linker from leaving it out. */
extern const char *vhca_present(void);

enum { SIZE = 64, DEPTH = 256, PACKETS = 32, PEER_LOOP = 200 };

static const char *names[2] = {"mlx5_0", "mlx5_1"};

static void must(int error, const char *what)
{
	if (error < 0)
		die("%s failed: %s", what, strerror(-error));
}

/* Of a loop: what tells its frames apart is the last byte of the MAC that they go to. */
static void fill_frame(uint8_t *at, uint8_t loop)
{
	static const uint8_t headers[] = {2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 8, 0, 0x45, 0, 0, 50,
		0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 3, 232, 7, 208, 0, 30, 0, 0};

	memset(at, 0x5a, SIZE);
	memcpy(at, headers, sizeof(headers));
	at[5] = loop;
}

/* ---- Verbena's side ---- */

struct loop {
	struct vbn_rx_group *group;
	struct vbn_queue *tx, *rx;
};

enum {
	L_PLAIN,
	L_SINGLE,
	L_SOFTWARE,
	L_COMPRESSED,
	L_STRIDED,
	L_STRIDED_COMPRESSED,
	L_FORWARD,
	N_LOOPS
};

static struct vbn_worker *worker;
static struct vbn_port *ports[2];
static struct vbn_pool *pool;
static struct loop loops[N_LOOPS], *in_use;
static struct vbn_buf *bufs[BURST], *received[BURST];
static uint16_t flags;
static int result;

static void ours_open_loop(uint8_t i)
{
	struct vbn_queue_conf conf = {.transport = VBN_RAW,
		.tx_depth = DEPTH,
		.rx_depth = DEPTH,
		.cq_mod = PACKETS,
		.tx_pool = pool,
		.rx_pool = pool,
		.multi_packet = i == L_SINGLE ? VBN_OFF : VBN_AUTO,
		.checksum_offload = i == L_SOFTWARE ? VBN_OFF : VBN_AUTO,
		.striding = i == L_STRIDED || i == L_STRIDED_COMPRESSED ? VBN_ON : VBN_OFF,
		.cqe_compression =
			i == L_COMPRESSED || i == L_STRIDED_COMPRESSED ? VBN_ON : VBN_OFF};
	struct vbn_rx_rule rule = {.kind = VBN_RULE_MATCH,
		.dst_mac = {2, 0, 0, 0, 0, i},
		.dst_mac_mask = {255, 255, 255, 255, 255, 255}};
	struct loop *loop = &loops[i];
	uint32_t id;
	int ret;

	must(vbn_queue_create(worker, ports[0], &conf, &loop->tx), "vbn_queue_create");
	must(vbn_queue_connect(loop->tx, NULL), "vbn_queue_connect");
	must(vbn_rx_group_create(ports[1], NULL, &loop->group), "vbn_rx_group_create");
	conf.rx_group = loop->group;
	ret = vbn_queue_create(worker, ports[1], &conf, &loop->rx);
	if (ret == -ENOTSUP && i == L_STRIDED_COMPRESSED) { /* the library has said so */
		conf.cqe_compression = VBN_OFF;
		ret = vbn_queue_create(worker, ports[1], &conf, &loop->rx);
	}
	must(ret, "vbn_queue_create");
	must(vbn_queue_connect(loop->rx, NULL), "vbn_queue_connect");
	must(vbn_rx_rule_add(loop->group, &rule, &id), "vbn_rx_rule_add");
}

static void ours_open(void)
{
	struct vbn_pool_conf conf = {
		.n_bufs = 4 * N_LOOPS * DEPTH, .data_size = 2048, .headroom = VBN_NUM(64)};

	must(vbn_init(NULL, NULL), "vbn_init");
	must(vbn_worker_attach(&(struct vbn_worker_conf){0}, &worker), "vbn_worker_attach");
	for (int i = 0; i < 2; i++)
		must(vbn_port_open(names[i], NULL, &ports[i]), "vbn_port_open");
	must(vbn_pool_create(&conf, &pool), "vbn_pool_create");
	for (uint8_t i = 0; i < N_LOOPS; i++)
		ours_open_loop(i);
}

static void ours_close(void)
{
	for (int i = 0; i < N_LOOPS; i++) {
		vbn_queue_destroy(loops[i].tx);
		vbn_queue_destroy(loops[i].rx);
		vbn_rx_group_destroy(loops[i].group);
	}
	vbn_worker_detach(worker);
	vbn_pool_destroy(pool);
	for (int i = 0; i < 2; i++)
		vbn_port_close(ports[i]);
	vbn_fini();
}

static void make_frames(void)
{
	if (vbn_buf_alloc(pool, bufs, BURST) != BURST)
		die("the pool has no %d bufs left: something was not freed", BURST);
	for (int i = 0; i < BURST; i++) {
		fill_frame(bufs[i]->data, (uint8_t)(in_use - loops));
		bufs[i]->len = SIZE;
		vbn_buf_packet(bufs[i])->flags = flags;
	}
}

static void take_received(int n)
{
	struct patience patience = patience_start();

	while (n > 0) {
		const int got = vbn_recv(in_use->rx, received, n);

		must(got, "vbn_recv");
		vbn_buf_free(received, got);
		n -= got;
		if (!got)
			patience_wait(&patience, "64 frames of Verbena's");
	}
}

static void take_completed(struct vbn_queue *queue)
{
	struct patience patience = patience_start();

	while (vbn_queue_outstanding(queue)) {
		must(vbn_recv(queue, received, 0), "vbn_recv");
		if (vbn_queue_outstanding(queue))
			patience_wait(&patience, "the send completions of Verbena's");
	}
}

static void begin(int loop, uint16_t asked)
{
	in_use = &loops[loop];
	flags = asked;
	make_frames();
}

/* The frames are in the receive ring when the sends have completed. */
static void land(int loop, uint16_t asked)
{
	begin(loop, asked);
	if (vbn_send(in_use->tx, bufs, BURST) != BURST)
		die("vbn_send took fewer than %d frames of an empty ring", BURST);
	vbn_flush(in_use->tx);
	take_completed(in_use->tx);
	result = 0;
}

#define SUMS (VBN_PACKET_TX_IP_CSUM | VBN_PACKET_TX_L4_CSUM)

static void prepare_send(void)
{
	begin(L_PLAIN, 0);
}

static void prepare_send_single(void)
{
	begin(L_SINGLE, 0);
}

static void prepare_send_sums(void)
{
	begin(L_PLAIN, SUMS);
}

static void prepare_send_software(void)
{
	begin(L_SOFTWARE, SUMS);
}

static void prepare_receive(void)
{
	land(L_PLAIN, 0);
}

static void prepare_receive_compressed(void)
{
	land(L_COMPRESSED, 0);
}

static void prepare_receive_strided(void)
{
	land(L_STRIDED, 0);
}

static void prepare_receive_strided_compressed(void)
{
	land(L_STRIDED_COMPRESSED, 0);
}

static void prepare_forward(void)
{
	land(L_FORWARD, SUMS);
}

static __attribute__((noinline)) void measure_send(void)
{
	int taken = 0;

	for (int i = 0; i < BURST; i += PACKETS) {
		taken += vbn_send(in_use->tx, bufs + i, PACKETS);
		vbn_flush(in_use->tx);
	}
	result = taken;
}

static __attribute__((noinline)) void measure_receive(void)
{
	int got = 0;

	for (int i = 0; i < BURST; i += PACKETS)
		got += vbn_recv(in_use->rx, received + got, PACKETS);
	result = got;
}

/* As `verbena fwd macswap` does it: one shuffle, of any x86 since 2006. */
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef bytes16 unaligned16 __attribute__((aligned(1), __may_alias__));

#ifdef __x86_64__
#define WITH_SHUFFLE __attribute__((target("ssse3")))
#else
#define WITH_SHUFFLE
#endif

static inline void swap_macs(uint8_t *frame)
{
	unaligned16 *head = (unaligned16 *)(void *)frame;
	const bytes16 is = *head;

	*head = __builtin_shufflevector(
		is, is, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, 14, 15);
}

/* What has been forwarded before is reaped on the way, and the receive ring filled again. */
static WITH_SHUFFLE __attribute__((noinline)) void measure_forward(void)
{
	struct vbn_queue *queue = in_use->rx;
	int sent = 0;

	for (int i = 0; i < BURST; i += PACKETS) {
		const int got = vbn_recv(queue, received, PACKETS);

		for (int k = 0; k < got; k++) {
			swap_macs(received[k]->data);
			vbn_buf_packet(received[k])->flags = SUMS;
		}
		sent += vbn_send(queue, received, got);
		vbn_flush(queue);
	}
	result = sent;
}

static bool settle_send(void)
{
	if (result != BURST)
		die("%d of %d frames were taken", result, BURST);
	take_received(BURST);
	take_completed(in_use->tx);
	return true;
}

static bool settle_receive(void)
{
	const bool all = result == BURST;

	vbn_buf_free(received, result);
	take_received(BURST - result);
	return all;
}

/* The completions are left for the next round, so that it reaps them. */
static bool settle_forward(void)
{
	const bool all = result == BURST;

	take_received(BURST - result);
	rest_us(200);
	return all;
}

/* ---- libmlx5's side ---- */

struct watched_cq {
	struct ibv_cq *cq;
	struct mlx5dv_cq ring;
	uint32_t polled;
};

static struct ibv_context *contexts[2];
static struct ibv_pd *pds[2];
static struct ibv_mr *mrs[2];
static uint8_t *memory; /* BURST frames to send, then DEPTH to receive */
static struct watched_cq tx_cq, rx_cq;
static struct ibv_qp *tx, *hash;
static struct ibv_wq *wq;
static struct ibv_rwq_ind_table *table;
static struct ibv_flow *rule;
static struct ibv_sge tx_sges[BURST], rx_sges[BURST];
static struct ibv_send_wr sends[BURST];
static struct ibv_recv_wr recvs[BURST];
static struct ibv_wc wcs[BURST];

static struct ibv_context *open_by_name(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *found = NULL;

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			found = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return found;
}

static void watch(struct ibv_context *context, struct watched_cq *watched)
{
	struct mlx5dv_obj obj = {};

	watched->cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
	obj.cq.in = watched->cq;
	obj.cq.out = &watched->ring;
	if (!watched->cq || mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ))
		die("libmlx5: cannot create a CQ");
}

static void peer_open_tx(void)
{
	struct ibv_qp_init_attr attr = {.send_cq = tx_cq.cq,
		.recv_cq = tx_cq.cq,
		.cap = {.max_send_wr = DEPTH, .max_send_sge = 1},
		.qp_type = IBV_QPT_RAW_PACKET};
	struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	tx = ibv_create_qp(pds[0], &attr);
	if (!tx || ibv_modify_qp(tx, &to, IBV_QP_STATE | IBV_QP_PORT))
		die("libmlx5: cannot create a raw QP");
	to.qp_state = IBV_QPS_RTR;
	must(-ibv_modify_qp(tx, &to, IBV_QP_STATE), "libmlx5: a raw QP to RTR");
	to.qp_state = IBV_QPS_RTS;
	must(-ibv_modify_qp(tx, &to, IBV_QP_STATE), "libmlx5: a raw QP to RTS");
}

static void peer_add_rule(void)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} flow = {.attr = {.type = IBV_FLOW_ATTR_NORMAL,
			  .size = sizeof(flow),
			  .num_of_specs = 1,
			  .port = 1},
		.eth = {.type = IBV_FLOW_SPEC_ETH,
			.size = sizeof(flow.eth),
			.val = {.dst_mac = {2, 0, 0, 0, 0, PEER_LOOP}},
			.mask = {.dst_mac = {255, 255, 255, 255, 255, 255}}}};

	rule = ibv_create_flow(hash, &flow.attr);
	if (!rule)
		die("libmlx5: cannot create a flow rule: %s", strerror(errno));
}

static void peer_open_rx(void)
{
	static uint8_t key[40] = {1};
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = DEPTH, .max_sge = 1, .pd = pds[1], .cq = rx_cq.cq};
	struct ibv_wq_attr to = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
	struct ibv_rwq_ind_table_init_attr one = {.ind_tbl = &wq};
	struct ibv_qp_init_attr_ex qp = {.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = pds[1],
		.rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
			.rx_hash_key_len = sizeof(key),
			.rx_hash_key = key}};

	wq = ibv_create_wq(contexts[1], &attr);
	if (!wq || ibv_modify_wq(wq, &to))
		die("libmlx5: cannot create a WQ");
	table = ibv_create_rwq_ind_table(contexts[1], &one);
	qp.rwq_ind_tbl = table;
	hash = table ? ibv_create_qp_ex(contexts[1], &qp) : NULL;
	if (!hash)
		die("libmlx5: cannot create a hash QP");
	peer_add_rule();
}

static void fill_lists(void)
{
	for (int i = 0; i < BURST; i++) {
		const bool last = i % PACKETS == PACKETS - 1;
		uint8_t *at = memory + (size_t)i * 2048;

		fill_frame(at, PEER_LOOP);
		tx_sges[i] = (struct ibv_sge){(uintptr_t)at, SIZE, mrs[0]->lkey};
		rx_sges[i] = (struct ibv_sge){
			(uintptr_t)at + (uintptr_t)BURST * 2048, 2048, mrs[1]->lkey};
		sends[i] = (struct ibv_send_wr){.wr_id = (uint64_t)i,
			.next = last ? NULL : &sends[i + 1],
			.sg_list = &tx_sges[i],
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = last ? IBV_SEND_SIGNALED : 0};
		recvs[i] = (struct ibv_recv_wr){.wr_id = (uint64_t)i,
			.next = last ? NULL : &recvs[i + 1],
			.sg_list = &rx_sges[i],
			.num_sge = 1};
	}
}

static void post_receives(void)
{
	struct ibv_recv_wr *bad;

	for (int i = 0; i < BURST; i += PACKETS)
		if (ibv_post_wq_recv(wq, &recvs[i], &bad))
			die("libmlx5: ibv_post_wq_recv failed");
}

static void peer_open(void)
{
	memory = aligned_alloc(4096, (size_t)2 * BURST * 2048);
	for (int i = 0; i < 2; i++) {
		contexts[i] = open_by_name(names[i]);
		pds[i] = contexts[i] ? ibv_alloc_pd(contexts[i]) : NULL;
		mrs[i] = pds[i] && memory ? ibv_reg_mr(pds[i], memory, (size_t)2 * BURST * 2048,
						    IBV_ACCESS_LOCAL_WRITE)
					  : NULL;
		if (!mrs[i])
			die("libmlx5: cannot open %s and register memory", names[i]);
	}
	watch(contexts[0], &tx_cq);
	watch(contexts[1], &rx_cq);
	peer_open_tx();
	peer_open_rx();
	fill_lists();
	for (int i = 0; i < DEPTH; i += BURST)
		post_receives();
}

static void peer_close(void)
{
	ibv_destroy_flow(rule);
	ibv_destroy_qp(hash);
	ibv_destroy_rwq_ind_table(table);
	ibv_destroy_wq(wq);
	ibv_destroy_qp(tx);
	ibv_destroy_cq(tx_cq.cq);
	ibv_destroy_cq(rx_cq.cq);
	for (int i = 0; i < 2; i++) {
		ibv_dereg_mr(mrs[i]);
		ibv_dealloc_pd(pds[i]);
		ibv_close_device(contexts[i]);
	}
	free(memory);
}

static bool landed(const struct watched_cq *cq, uint32_t ahead)
{
	const uint32_t index = cq->polled + ahead;
	const uint8_t *cqe = (const uint8_t *)cq->ring.buf +
		(index & (cq->ring.cqe_cnt - 1)) * cq->ring.cqe_size;
	const uint8_t op_own = __atomic_load_n(cqe + cq->ring.cqe_size - 1, __ATOMIC_ACQUIRE);

	return op_own >> 4 != MLX5_CQE_INVALID && (op_own & 1) == !!(index & cq->ring.cqe_cnt);
}

static void take(struct watched_cq *cq, int n)
{
	struct patience patience = patience_start();

	while (n > 0) {
		const int got = ibv_poll_cq(cq->cq, n, wcs);

		for (int i = 0; i < got; i++)
			if (wcs[i].status != IBV_WC_SUCCESS)
				die("libmlx5: a completion says: %s",
					ibv_wc_status_str(wcs[i].status));
		cq->polled += (uint32_t)got;
		n -= got;
		if (!got)
			patience_wait(&patience, "completions of libmlx5's");
	}
}

static void nothing(void)
{
}

static __attribute__((noinline)) void measure_post_send(void)
{
	struct ibv_send_wr *bad;
	int failed = 0;

	for (int i = 0; i < BURST; i += PACKETS)
		failed |= ibv_post_send(tx, &sends[i], &bad);
	result = failed;
}

static bool settle_post_send(void)
{
	if (result)
		die("libmlx5: posting %d sends failed: %s", BURST, strerror(result));
	take(&rx_cq, BURST);
	post_receives();
	take(&tx_cq, BURST / PACKETS);
	return true;
}

static void prepare_peer_receive(void)
{
	struct patience patience = patience_start();

	measure_post_send();
	take(&tx_cq, BURST / PACKETS);
	while (!landed(&rx_cq, BURST - 1))
		patience_wait(&patience, "64 frames of libmlx5's");
}

static __attribute__((noinline)) void measure_poll_and_post(void)
{
	struct ibv_recv_wr *bad;
	int got = 0;

	for (int i = 0; i < BURST; i += PACKETS) {
		got += ibv_poll_cq(rx_cq.cq, PACKETS, wcs + i);
		if (ibv_post_wq_recv(wq, &recvs[i], &bad))
			got = -1000;
	}
	result = got;
}

static bool settle_peer_receive(void)
{
	if (result < 0)
		die("libmlx5: ibv_post_wq_recv failed");
	rx_cq.polled += (uint32_t)result;
	take(&rx_cq, BURST - result);
	return result == BURST;
}

/* ---- the acts ---- */

enum {
	SEND,
	SEND_SINGLE,
	SEND_SUMS,
	SEND_SOFTWARE,
	RECEIVE,
	RECEIVE_COMPRESSED,
	RECEIVE_STRIDED,
	RECEIVE_STRIDED_COMPRESSED,
	FORWARD,
	PEER_SEND,
	PEER_RECEIVE,
	N_ACTS
};

static const struct act all[N_ACTS] = {
	[SEND] = {prepare_send, measure_send, settle_send},
	[SEND_SINGLE] = {prepare_send_single, measure_send, settle_send},
	[SEND_SUMS] = {prepare_send_sums, measure_send, settle_send},
	[SEND_SOFTWARE] = {prepare_send_software, measure_send, settle_send},
	[RECEIVE] = {prepare_receive, measure_receive, settle_receive},
	[RECEIVE_COMPRESSED] = {prepare_receive_compressed, measure_receive, settle_receive},
	[RECEIVE_STRIDED] = {prepare_receive_strided, measure_receive, settle_receive},
	[RECEIVE_STRIDED_COMPRESSED] = {prepare_receive_strided_compressed, measure_receive,
		settle_receive},
	[FORWARD] = {prepare_forward, measure_forward, settle_forward},
	[PEER_SEND] = {nothing, measure_post_send, settle_post_send},
	[PEER_RECEIVE] = {prepare_peer_receive, measure_poll_and_post, settle_peer_receive},
};
static const struct act *acts[N_ACTS];

/* Ours beside a peer's, and a technique beside its absence. */
static const struct pair {
	const char *name, *second;
	int a, b;
} cases[] =
	{
		{"send", "ibv_post_send", SEND, PEER_SEND},
		{"send_single", "ibv_post_send", SEND_SINGLE, PEER_SEND},
		{"receive_refill", "ibv_poll_cq+ibv_post_wq_recv", RECEIVE, PEER_RECEIVE},
},
  techniques[] = {
	  {"multi_packet", "send", SEND_SINGLE, SEND},
	  {"tx_checksum", "send", SEND_SOFTWARE, SEND_SUMS},
	  {"cqe_compression", "receive_refill", RECEIVE, RECEIVE_COMPRESSED},
	  {"striding", "receive_refill", RECEIVE, RECEIVE_STRIDED},
	  {"striding+cqe_compression", "receive_refill", RECEIVE, RECEIVE_STRIDED_COMPRESSED},
};

enum {
	N_CASES = sizeof(cases) / sizeof(cases[0]),
	N_TECHNIQUES = sizeof(techniques) / sizeof(techniques[0]),
};

/* ---- the report ---- */

static void print_pairs(const char *title, const char *a, const char *b, const struct pair *pairs,
	int n, const double *counts, double (*ns)[2])
{
	printf("%-26s%-30s%12s%12s%8s%10s%10s\n", title, "instructions and ns per packet", a, b,
		"ratio", "ns", "ns");
	for (int i = 0; i < n; i++)
		printf("%-26s%-30s%12.1f%12.1f%8.2f%10.1f%10.1f\n", pairs[i].name, pairs[i].second,
			counts[pairs[i].a], counts[pairs[i].b],
			counts[pairs[i].a] / counts[pairs[i].b], ns[i][0], ns[i][1]);
}

static void json_number(FILE *out, const char *who, const char *what, double value)
{
	if (isnan(value))
		fprintf(out, ", \"%s_%s\": null", who, what);
	else
		fprintf(out, ", \"%s_%s\": %.2f", who, what, value);
}

static void json_pairs(FILE *out, const char *list, const char *second, const char *const who[2],
	const struct pair *pairs, int n, const double *counts, double (*ns)[2])
{
	fprintf(out, "\"%s\": [", list);
	for (int i = 0; i < n; i++) {
		fprintf(out, "%s\n  {\"name\": \"%s\", \"%s\": \"%s\"", i ? "," : "", pairs[i].name,
			second, pairs[i].second);
		json_number(out, who[0], "instructions", counts[pairs[i].a]);
		json_number(out, who[1], "instructions", counts[pairs[i].b]);
		json_number(out, who[0], "ns", ns[i][0]);
		json_number(out, who[1], "ns", ns[i][1]);
		fprintf(out, "}");
	}
	fprintf(out, "\n]");
}

static void write_json(const char *path, const double *counts, double (*case_ns)[2],
	double (*technique_ns)[2], double forward_ns)
{
	FILE *out = fopen(path, "w");

	if (!out)
		die("cannot write %s: %s", path, strerror(errno));
	fprintf(out, "{");
	json_pairs(out, "cases", "peer", (const char *const[]){"ours", "peer"}, cases, N_CASES,
		counts, case_ns);
	fprintf(out, ", ");
	json_pairs(out, "techniques", "call", (const char *const[]){"off", "on"}, techniques,
		N_TECHNIQUES, counts, technique_ns);
	fprintf(out, ", \"macswap\": {\"name\": \"macswap\"");
	json_number(out, "ours", "instructions", counts[FORWARD]);
	json_number(out, "ours", "ns", forward_ns);
	fprintf(out, "}}\n");
	if (ferror(out) || fclose(out))
		die("cannot write %s", path);
}

static void measure(int rounds, const char *json)
{
	double counts[N_ACTS], case_ns[N_CASES][2], technique_ns[N_TECHNIQUES][2], forward_ns;

	for (int i = 0; i < N_ACTS; i++)
		counts[i] = NAN;
	for (int i = 0; i < N_CASES; i++)
		time_pair((const struct act *const[]){acts[cases[i].a], acts[cases[i].b]}, rounds,
			case_ns[i]);
	for (int i = 0; i < N_TECHNIQUES; i++)
		time_pair((const struct act *const[]){acts[techniques[i].a], acts[techniques[i].b]},
			rounds, technique_ns[i]);
	forward_ns = time_rounds(acts[FORWARD], rounds).median;
	if (!count_instructions(
		    (const char *const[]){"--device", names[0], "--other-device", names[1], NULL},
		    counts, N_ACTS))
		fprintf(stderr,
			"valgrind is not installed: no instruction counts (.ci/deps test installs it)\n");
	print_pairs("case", "ours", "peer", cases, N_CASES, counts, case_ns);
	print_pairs("technique", "off", "on", techniques, N_TECHNIQUES, counts, technique_ns);
	printf("macswap, from poll to doorbell: %.1f instructions and %.1f ns a packet\n",
		counts[FORWARD], forward_ns);
	if (json)
		write_json(json, counts, case_ns, technique_ns, forward_ns);
}

/* The emulated device reads its environment when it is loaded. */
static void with_two_devices(char **argv)
{
	if (getenv("VHCA_DEVICES"))
		return;
	setenv("VHCA_DEVICES", "2", 1);
	setenv("VHCA_WIRE", "loopback", 1);
	execv("/proc/self/exe", argv);
	die("cannot start itself again: %s", strerror(errno));
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"device", required_argument, NULL, 'd'},
		{"other-device", required_argument, NULL, 'o'},
		{"rounds", required_argument, NULL, 'r'},
		{"json", required_argument, NULL, 'j'},
		{"count", no_argument, NULL, 'c'}, /* by the program itself, under callgrind */
		{},
	};
	const char *json = NULL;
	int rounds = 300, option;
	bool count = false;

	if (argc < 2 || strcmp(argv[1], "--device") != 0)
		with_two_devices(argv);
	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (option) {
		case 'd': names[0] = optarg; break;
		case 'o': names[1] = optarg; break;
		case 'r': rounds = (int)strtol(optarg, NULL, 10); break;
		case 'j': json = optarg; break;
		case 'c': count = true; break;
		default:
			fputs("usage: raw_datapath [--device NAME --other-device NAME] [--rounds N] [--json FILE]\n\n"
			      "  --device NAME  first: what it sends comes to the other one; else two emulated ones\n",
				stderr);
			return 2;
		}
	}
	if (rounds < 1)
		die("--rounds is a number from 1 up");
	vhca_present();
	peer_open();
	ours_open();
	for (int i = 0; i < N_ACTS; i++)
		acts[i] = &all[i];
	if (count)
		count_rounds(acts, N_ACTS);
	else
		measure(rounds, json);
	ours_close();
	peer_close();
	return 0;
}
