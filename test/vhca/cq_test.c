/* cq_test.c - completion queues: moderated events, resizing under traffic, overrun, QPs of several
 * kinds on one CQ, and compressed CQEs with a scalar decoder */

#include "pair.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>

static double ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void send_many(struct pair *pair, uint64_t first, uint64_t n)
{
	for (uint64_t i = first; i < first + n; i++) {
		post_recv(&pair->b, i, 0, 64);
		post_send(&pair->a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
	}
	for (uint64_t i = first; i < first + n; i++)
		expect_wc(pair->a.send_cq, i, IBV_WC_SUCCESS);
}

static void take_event(struct pair *pair)
{
	struct ibv_cq *cq;
	void *cookie;

	assert_int_equal(ibv_get_cq_event(pair->channel, &cq, &cookie), 0);
	assert_ptr_equal(cq, pair->b.recv_cq);
	ibv_ack_cq_events(cq, 1);
}

/* The event comes with the tenth completion, or, where a period is set, when that is over. */
static void moderation(void **state)
{
	struct pair_conf conf = {.events = true};
	struct ibv_modify_cq_attr attr = {
		.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {.cq_count = 10, .cq_period = 0}};
	struct pollfd ready;
	struct pair pair;
	double start;

	(void)state;
	pair_open(&pair, &conf);
	ready = (struct pollfd){.fd = pair.channel->fd, .events = POLLIN};
	assert_int_equal(ibv_modify_cq(pair.b.recv_cq, &attr), 0);
	for (uint64_t round = 0; round < 3; round++) {
		assert_int_equal(ibv_req_notify_cq(pair.b.recv_cq, 0), 0);
		send_many(&pair, 0, 9);
		assert_int_equal(poll(&ready, 1, 20), 0);
		send_many(&pair, 9, 1);
		take_event(&pair);
		for (uint64_t i = 0; i < 10; i++)
			expect_wc(pair.b.recv_cq, i, IBV_WC_SUCCESS);
	}
	attr.moderate.cq_period = 4000;
	assert_int_equal(ibv_modify_cq(pair.b.recv_cq, &attr), 0);
	assert_int_equal(ibv_req_notify_cq(pair.b.recv_cq, 0), 0);
	start = ms();
	send_many(&pair, 0, 1);
	take_event(&pair);
	assert_true(ms() - start >= 4.0);
	expect_wc(pair.b.recv_cq, 0, IBV_WC_SUCCESS);
	attr.moderate.cq_period = 5000;
	assert_int_equal(ibv_modify_cq(pair.b.recv_cq, &attr), EINVAL);
	pair_close(&pair);
}

/* What was rung before the resize is in the old ring: too many completions for the new size are
 * found out, and none is lost or doubled while the size changes. */
static void resize_under_traffic(void **state)
{
	struct pair_conf conf = {.cq_depth = 63, .max_wr = 64};
	struct pair pair;
	uint64_t got = 0;

	(void)state;
	pair_open(&pair, &conf);
	for (uint64_t round = 0; round < 100; round++) {
		for (uint64_t i = 0; i < 20; i++) {
			post_recv(&pair.b, round * 20 + i, 0, 64);
			post_send(&pair.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
		}
		assert_int_equal(ibv_resize_cq(pair.b.recv_cq, 7), EINVAL);
		assert_int_equal(ibv_resize_cq(pair.b.recv_cq, round & 1 ? 63 : 127), 0);
		for (uint64_t i = 0; i < 20; i++)
			expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
		for (uint64_t i = 0; i < 20; i++)
			expect_wc(pair.b.recv_cq, got++, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

/* A CQ that was made to ignore overrun goes on, over what nobody has read. */
static void overrun_ignored(void **state)
{
	struct pair_conf conf = {0};
	struct ibv_cq_init_attr_ex attr = {.cqe = 15,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
	struct pair pair, other;
	struct pollfd ready;
	struct ibv_cq_ex *cq;

	(void)state;
	pair_open(&pair, &conf);
	cq = ibv_create_cq_ex(pair.context, &attr);
	assert_non_null(cq);
	conf.share = &pair;
	conf.cq = ibv_cq_ex_to_cq(cq);
	pair_open(&other, &conf);
	ready = (struct pollfd){.fd = pair.context->async_fd, .events = POLLIN};
	send_many(&other, 0, 40);
	assert_int_equal(poll(&ready, 1, 20), 0);
	pair_close(&other);
	assert_int_equal(ibv_destroy_cq(conf.cq), 0);
	pair_close(&pair);
}

/* An RC, a UC and a UD QP complete on one CQ, each with its own number. */
static void several_kinds(void **state)
{
	struct pair_conf conf = {0};
	struct pair rc, uc, ud;
	struct ibv_ah_attr to = {
		.is_global = 1, .port_num = 1, .grh = {.sgid_index = 3, .hop_limit = 1}};
	struct ibv_ah *ah;
	struct ibv_cq *cq;

	(void)state;
	pair_open(&rc, &conf);
	cq = rc.b.recv_cq;
	conf = (struct pair_conf){.share = &rc, .cq = cq, .type = IBV_QPT_UC};
	pair_open(&uc, &conf);
	conf.type = IBV_QPT_UD;
	pair_open(&ud, &conf);
	assert_int_equal(ibv_query_gid(rc.context, 1, 3, &to.grh.dgid), 0);
	ah = ibv_create_ah(rc.pd, &to);
	assert_non_null(ah);
	for (uint64_t i = 0; i < 200; i++) {
		struct pair *pair = i % 3 == 0 ? &rc : i % 3 == 1 ? &uc : &ud;
		struct ibv_sge sge = {(uintptr_t)pair->a.memory, 8, pair->a.mr->lkey};
		struct ibv_send_wr wr = {.wr_id = i,
					   .sg_list = &sge,
					   .num_sge = 1,
					   .opcode = IBV_WR_SEND,
					   .send_flags = IBV_SEND_SIGNALED},
				   *bad;
		struct ibv_wc wc;

		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = pair->b.qp->qp_num;
		wr.wr.ud.remote_qkey = PAIR_QKEY;
		post_recv(&pair->b, i, 0, 64);
		assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
		expect_wc(pair->a.send_cq, i, IBV_WC_SUCCESS);
		wc = wait_wc(cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.qp_num, pair->b.qp->qp_num);
		assert_int_equal(wc.byte_len, pair == &ud ? 48 : 8);
	}
	assert_int_equal(ibv_destroy_ah(ah), 0);
	pair_close(&ud);
	pair_close(&uc);
	pair_close(&rc);
}

/* ---- compression ---- */

/* Reads a ring of CQEs as a program must whose CQ is compressed. What a session has taken is marked
 * as not the program's, since the device has not written it. */
struct decoder {
	struct mlx5dv_cq cq;
	uint32_t ci;
	uint32_t n_sessions, n_plain; /* CQEs that came in sessions, and alone */
	/* of the session under way */
	uint32_t left, taken;
	uint32_t title_ci;
	struct mlx5_cqe64 title;
};

struct mini_cqe {
	__be32 hash, byte_cnt;
};

struct completion {
	uint32_t byte_cnt, qpn;
	uint16_t wqe_counter;
};

static struct mlx5_cqe64 *slot(const struct decoder *d, uint32_t index)
{
	return (void *)((uint8_t *)d->cq.buf + (index % d->cq.cqe_cnt) * d->cq.cqe_size +
		d->cq.cqe_size - 64);
}

static uint8_t owner_of(const struct decoder *d, uint32_t index)
{
	return index / d->cq.cqe_cnt & 1;
}

static void next_of_session(struct decoder *d, struct completion *completion)
{
	uint32_t array = d->taken / 8;
	const struct mini_cqe *mini = (const void *)slot(d, d->title_ci + (array ? 8 * array : 1));

	completion->byte_cnt = be32toh(mini[d->taken % 8].byte_cnt);
	completion->wqe_counter = (uint16_t)(be16toh(d->title.wqe_counter) + d->taken);
	completion->qpn = be32toh(d->title.sop_drop_qpn) & 0xffffff;
	d->taken++;
	d->n_sessions++;
	if (--d->left)
		return;
	for (uint32_t i = 0; i < d->taken; i++)
		slot(d, d->title_ci + i)->op_own =
			MLX5_CQE_INVALID << 4 | owner_of(d, d->title_ci + i);
	d->ci = d->title_ci + d->taken;
	__atomic_store_n(d->cq.dbrec, htobe32(d->ci & 0xffffff), __ATOMIC_RELEASE);
}

/* False where there is none. */
static bool next_completion(struct decoder *d, struct completion *completion)
{
	struct mlx5_cqe64 *cqe = slot(d, d->ci);
	uint8_t op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);

	if (d->left) {
		next_of_session(d, completion);
		return true;
	}
	if (op_own >> 4 == MLX5_CQE_INVALID || (op_own & 1) != owner_of(d, d->ci))
		return false;
	assert_int_equal(op_own >> 4, MLX5_CQE_RESP_SEND);
	if (mlx5dv_get_cqe_format(cqe) == 3) {
		d->title = *cqe;
		d->title_ci = d->ci;
		d->left = be32toh(cqe->byte_cnt);
		d->taken = 0;
		assert_true(d->left > 1 && d->left <= d->cq.cqe_cnt);
		next_of_session(d, completion);
		return true;
	}
	*completion = (struct completion){be32toh(cqe->byte_cnt),
		be32toh(cqe->sop_drop_qpn) & 0xffffff, be16toh(cqe->wqe_counter)};
	d->n_plain++;
	d->ci++;
	__atomic_store_n(d->cq.dbrec, htobe32(d->ci & 0xffffff), __ATOMIC_RELEASE);
	return true;
}

static struct ibv_cq *compressed_cq(struct ibv_context *context, uint8_t format, bool timestamps)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 127, .wc_flags = timestamps ? IBV_WC_EX_WITH_COMPLETION_TIMESTAMP : 0};
	struct mlx5dv_cq_init_attr dv = {.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE,
		.cqe_comp_res_format = format};
	struct ibv_cq_ex *cq = mlx5dv_create_cq(context, &attr, &dv);

	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

/* Bursts of messages of lengths of their own: all come out of the decoder in order, most of them
 * from sessions, round the ring many times. */
static void stream_compressed(struct pair *pair, struct decoder *d, uint32_t n, bool others)
{
	uint32_t posted = 0, sent = 0, received = 0, acked = 0;
	struct completion completion;
	struct mlx5dv_qp qp = {0};
	struct mlx5dv_obj object = {.qp = {pair->b.qp, &qp}};
	struct ibv_wc wc;

	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
	for (; posted < 64; posted++)
		post_recv(&pair->b, posted, 0, 512);
	while (received < n) {
		posted =
			received + 64; /* the same WQEs again: libmlx5 does not see them consumed */
		__atomic_store_n(qp.dbrec, htobe32(posted & 0xffff), __ATOMIC_RELEASE);
		for (; sent < posted && sent < n && sent - acked < 60; sent++) {
			bool signal = sent % 20 == 19 || sent == n - 1;
			bool solicited = others && sent % 13 == 0;

			post_send(&pair->a, sent, IBV_WR_SEND,
				(signal ? IBV_SEND_SIGNALED : 0) |
					(solicited ? IBV_SEND_SOLICITED : 0),
				0, sent % 500, NULL, 0);
		}
		while (ibv_poll_cq(pair->a.send_cq, 1, &wc)) {
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			acked = (uint32_t)wc.wr_id + 1;
		}
		while (next_completion(d, &completion)) {
			assert_int_equal(completion.byte_cnt, received % 500);
			assert_int_equal(completion.wqe_counter, (uint16_t)received);
			assert_int_equal(completion.qpn, pair->b.qp->qp_num);
			received++;
		}
	}
}

static void compression(void **state)
{
	struct mlx5dv_context caps = {.comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION};

	(void)state;
	for (int v = 0; v < 6; v++) {
		struct pair_conf conf = {.cqe_size = v & 1 ? 128 : 64, .no_scatter = true};
		uint8_t format = v & 2 ? MLX5DV_CQE_RES_FORMAT_CSUM : MLX5DV_CQE_RES_FORMAT_HASH;
		bool timestamps = v >= 4;
		struct decoder d = {.ci = 0};
		struct mlx5dv_obj object = {.cq = {.out = &d.cq}};
		struct pair pair, other;

		pair_open(&pair, &conf);
		assert_int_equal(mlx5dv_query_device(pair.context, &caps), 0);
		assert_true(caps.cqe_comp_caps.max_num >= 64);
		assert_true(caps.cqe_comp_caps.supported_format & format);
		conf.share = &pair;
		conf.cq = compressed_cq(pair.context, format, timestamps);
		assert_non_null(conf.cq);
		pair_open(&other, &conf);
		object.cq.in = conf.cq;
		assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ), 0);
		assert_int_equal(d.cq.cqe_size, conf.cqe_size);
		stream_compressed(&other, &d, 20000, v & 2);
		print_message("%u of 20000 in sessions\n", d.n_sessions);
		assert_int_equal(d.n_sessions + d.n_plain, 20000);
		if (timestamps)
			assert_int_equal(d.n_sessions, 0);
		else
			assert_true(d.n_sessions > d.n_plain);
		pair_close(&other);
		assert_int_equal(ibv_destroy_cq(conf.cq), 0);
		pair_close(&pair);
	}
}

/* One format, of those there are. */
static void format_refused(void **state)
{
	struct pair_conf conf = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &conf);
	assert_null(compressed_cq(
		pair.context, MLX5DV_CQE_RES_FORMAT_HASH | MLX5DV_CQE_RES_FORMAT_CSUM, false));
	pair_close(&pair);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(moderation),
		cmocka_unit_test(resize_under_traffic),
		cmocka_unit_test(overrun_ignored),
		cmocka_unit_test(several_kinds),
		cmocka_unit_test(compression),
		cmocka_unit_test(format_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
