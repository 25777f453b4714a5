/* small_program.c - what sanitizer_test.sh builds in every way: two queue pairs of one process, some
 * messages between them, their data checked, everything given back
 */

#include <endian.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GID_INDEX = 3, MESSAGES = 200, BYTES = 300, INLINE = 32, DEPTH = 16 };

static void demand(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "small_program: %s failed\n", what);
	exit(1);
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE}};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	demand(qp != NULL, "ibv_create_qp");
	return qp;
}

static void connect_qp(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = GID_INDEX}}};

	demand(!ibv_query_gid(qp->context, 1, GID_INDEX, &attr.ah_attr.grh.dgid), "ibv_query_gid");
	demand(!ibv_modify_qp(qp, &attr,
		       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		"to INIT");
	attr.qp_state = IBV_QPS_RTR;
	demand(!ibv_modify_qp(qp, &attr,
		       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		"to RTR");
	attr.qp_state = IBV_QPS_RTS;
	demand(!ibv_modify_qp(qp, &attr,
		       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		"to RTS");
}

static void wait_both(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	for (int n = 0; n < 2;) {
		int got = ibv_poll_cq(cq, 1, &wc);

		demand(got >= 0, "ibv_poll_cq");
		demand(!got || wc.status == IBV_WC_SUCCESS, "a completion");
		n += got;
	}
}

/* Of the short ones some are inline, and what is received comes in the CQE: libmlx5 copies them by
 * memcpy(), which ThreadSanitizer sees. It then took the device for a thread that races with it. */
static void send_one(struct ibv_qp *from, struct ibv_qp *to, struct ibv_mr *mr, uint8_t seed)
{
	uint32_t length = seed & 1 ? INLINE : BYTES;
	uint8_t *memory = mr->addr;
	struct ibv_sge out = {(uintptr_t)memory, length, mr->lkey},
		       in = {(uintptr_t)memory + BYTES, BYTES, mr->lkey};
	struct ibv_recv_wr recv = {.sg_list = &in, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send = {.sg_list = &out,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED |
					   (seed & 2 && length == INLINE ? IBV_SEND_INLINE : 0)},
			   *bad;

	memset(memory, seed, BYTES);
	memset(memory + BYTES, 0, BYTES);
	demand(!ibv_post_recv(to, &recv, &bad_recv), "ibv_post_recv");
	demand(!ibv_post_send(from, &send, &bad), "ibv_post_send");
	wait_both(from->send_cq);
	demand(!memcmp(memory, memory + BYTES, length), "the data");
}

int main(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *context = list && n ? ibv_open_device(list[0]) : NULL;
	uint8_t *memory = calloc(2, BYTES);
	struct ibv_qp *a, *b;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	demand(context != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	demand(pd != NULL, "ibv_alloc_pd");
	cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	demand(cq != NULL, "ibv_create_cq");
	mr = ibv_reg_mr(pd, memory, 2 * BYTES, IBV_ACCESS_LOCAL_WRITE);
	demand(mr != NULL, "ibv_reg_mr");
	a = make_qp(pd, cq);
	b = make_qp(pd, cq);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	for (int i = 0; i < MESSAGES; i++)
		send_one(a, b, mr, (uint8_t)i);
	demand(!ibv_destroy_qp(a) && !ibv_destroy_qp(b), "ibv_destroy_qp");
	demand(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq), "ibv_destroy_cq");
	demand(!ibv_dealloc_pd(pd) && !ibv_close_device(context), "ibv_close_device");
	free(memory);
	puts("all messages arrived");
	return 0;
}
