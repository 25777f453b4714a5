/* technique_test.c - each technique of the mlx5 driver asked for and seen to be taken: by a counter,
 * by what libmlx5 made, by the modes; and refused with a reason where it cannot be had */

#include "duo.h"

#include <dlfcn.h>

static int refused; /* so many mlx5dv_create_qp() more, as where registers have run out */

struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
	struct mlx5dv_qp_init_attr *dv)
{
	__typeof__(mlx5dv_create_qp) *real = (__typeof__(real))dlsym(RTLD_NEXT, "mlx5dv_create_qp");

	if (refused && refused--) {
		errno = ENOMEM;
		return NULL;
	}
	return real(context, attr, dv);
}

static const char *mode(const struct vbn_queue *queue, const char *name)
{
	static struct vbn_mode modes[40];
	int n = vbn_queue_modes(queue, modes, ARRAY_SIZE(modes));

	for (int i = 0; i < n; i++)
		if (!strcmp(modes[i].name, name))
			return modes[i].effective;
	return "no such mode";
}

static struct vbn_queue_stats stats_of(const struct vbn_queue *queue)
{
	struct vbn_queue_stats stats;

	vbn_queue_stats(queue, &stats);
	return stats;
}

static void expect_refused(const struct vbn_queue_conf *conf, int error, const char *sentence)
{
	struct vbn_queue *queue;

	unit_catch_log();
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, conf, &queue), error);
	assert_logged(sentence);
}

/* Lone messages go with their doorbell, bursts are fetched; the halves of the register take turns
 * for all queues of the worker. */
static void test_blueflame(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);

	(void)state;
	conf.blueflame = VBN_ON;
	duo_connect(&conf);
	assert_string_equal(mode(duo.a, "blueflame"), "on");
	for (int i = 0; i < 200; i++) {
		struct vbn_queue *from = i & 1 ? duo.a : duo.b, *to = i & 1 ? duo.b : duo.a;

		assert_int_equal(vbn_send_one(from, duo_buf((uint64_t)i, 30)), 1);
		vbn_flush(from);
		duo_wait(to, 1);
		duo_check(duo.events[0].buf->data, (uint64_t)i, 30);
		vbn_buf_free(&duo.events[0].buf, 1);
	}
	assert_int_equal(stats_of(duo.a).tx_blueflame, 100);
	duo_stream(duo.a, duo.b, 1000);
	duo_disconnect();
	conf.own_uar = VBN_OFF;
	expect_refused(&conf, -ENOTSUP, "gives no register of its own that takes WQEs");
}

/* A thread domain gives another register than libmlx5's own. */
static void test_own_uar(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	struct doorbell *own;

	(void)state;
	conf.own_uar = VBN_ON;
	duo_connect(&conf);
	assert_string_equal(mode(duo.a, "own_uar"), "on");
	own = mlx5_queue(duo.a)->sq.doorbell;
	assert_ptr_equal(own, mlx5_queue(duo.b)->sq.doorbell);
	duo_stream(duo.a, duo.b, 300);
	vbn_queue_destroy(duo.b);
	conf.own_uar = VBN_OFF;
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.b), 0);
	assert_ptr_not_equal(own->reg, mlx5_queue(duo.b)->sq.doorbell->reg);
	assert_string_equal(mode(duo.b, "own_uar"), "off");
	vbn_queue_destroy(duo.b);
	conf.own_uar = VBN_AUTO; /* does without, where ON would fail */
	refused = 1;
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.b), 0);
	assert_string_equal(mode(duo.b, "own_uar"), "off");
	conf.own_uar = VBN_ON;
	refused = 1;
	expect_refused(&conf, -ENOMEM, "refused a queue pair");
}

static void test_doorbells(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	struct vbn_queue_stats stats;

	(void)state;
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 800);
	stats = stats_of(duo.a);
	assert_true(stats.tx_doorbells < stats.tx_messages);
	duo_disconnect();
	conf.doorbell_burst = VBN_OFF;
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 800);
	stats = stats_of(duo.a);
	assert_int_equal(stats.tx_doorbells, stats.tx_messages + stats.tx_nops);
}

static void test_cqe_sizes(void **state)
{
	(void)state;
	for (uint32_t size = 64; size <= 128; size *= 2)
		for (int kind = 0; kind < DUO_KINDS; kind++) {
			struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
			struct vbn_srq_conf srq = {
				.depth = DUO_DEPTH, .pool = duo.pool, .cqe_size = size};

			conf.cqe_size = size;
			conf.shared_cq = kind == DUO_SHARED ? VBN_ON : VBN_AUTO;
			if (kind == DUO_SRQ) {
				assert_int_equal(
					vbn_srq_create(duo.worker, duo.port, &srq, &duo.srq), 0);
				conf.srq = duo.srq;
			}
			duo_connect(&conf);
			assert_int_equal(1 << mlx5_queue(duo.a)->recv_cq->log2_stride, size);
			assert_int_equal(1 << mlx5_queue(duo.a)->send_cq->log2_stride, size);
			duo_stream(duo.a, duo.b, 500);
			duo_disconnect();
		}
}

/* Small messages come in the CQE: 32 bytes of it, or 64 of a large one. */
static void test_scatter_to_cqe(void **state)
{
	(void)state;
	for (uint32_t size = 64; size <= 128; size *= 2)
		for (int kind = 0; kind < DUO_SHARED; kind++) {
			struct vbn_queue_conf conf = duo_conf(VBN_RC, (enum duo_kind)kind);

			conf.scatter_to_cqe = VBN_ON;
			conf.cqe_size = size;
			duo_connect(&conf);
			assert_string_equal(mode(duo.b, "scatter_to_cqe"), "on");
			duo_stream(duo.a, duo.b, 900); /* lengths 0 to 89, ten times each */
			assert_int_equal(stats_of(duo.b).rx_scattered, 10 * size / 2);
			duo_disconnect();
			conf.scatter_to_cqe = VBN_OFF;
			duo_connect(&conf);
			duo_stream(duo.a, duo.b, 900);
			assert_int_equal(stats_of(duo.b).rx_scattered, 0);
			duo_disconnect();
		}
}

/* Where CQs are shared, one queue asks for all. */
static void test_prefetch(void **state)
{
	(void)state;
	for (int kind = 0; kind < DUO_KINDS; kind++) {
		struct vbn_queue_conf conf = duo_conf(VBN_RC, (enum duo_kind)kind);

		duo_connect(&conf);
		assert_string_equal(mode(duo.a, "prefetch"), "off");
		vbn_queue_destroy(duo.b);
		vbn_queue_destroy(duo.a);
		assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.a), 0);
		conf.prefetch = VBN_ON;
		assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.b), 0);
		duo_meet();
		assert_string_equal(mode(duo.b, "prefetch"), "on");
		assert_string_equal(mode(duo.a, "prefetch"), kind == DUO_OWN ? "off" : "on");
		duo_stream(duo.a, duo.b, 2000);
		duo_stream(duo.b, duo.a, 2000);
		duo_disconnect();
	}
}

/* The memory of a WQE, once it has been rung. */
static void read_wqe(const struct vbn_queue *queue, uint16_t index, uint64_t *words)
{
	const struct sq *sq = &container_of(queue, const struct mlx5_queue, queue)->sq;

	memcpy(words, sq->wqes + (size_t)(index & sq->mask) * 64, 64);
}

/* With and without templates a send makes the same WQE, byte for byte, and every operation works. */
static void test_templates(void **state)
{
	static const uint32_t imms[2] = {1, 2};
	uint64_t wqes[2][4][8];

	(void)state;
	for (int off = 0; off < 2; off++) {
		struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
		struct vbn_buf *bufs[2] = {duo_buf(0, 70), duo_buf(1, 71)};
		uint8_t *data[2] = {bufs[0]->data, bufs[1]->data};

		conf.templates = off ? VBN_OFF : VBN_AUTO;
		duo_connect(&conf);
		assert_string_equal(mode(duo.a, "templates"), off ? "off" : "on");
		assert_int_equal(vbn_send_imm(duo.a, bufs, imms, 2), 2);
		vbn_flush(duo.a);
		for (uint16_t i = 0; i < 2; i++) {
			read_wqe(duo.a, i, wqes[off][i]);
			wqes[off][i][0] &= ~0xffffff00000000ull; /* the QPN */
			assert_int_equal(be64toh(wqes[off][i][3]), (uintptr_t)data[i]);
			wqes[off][i][3] = 0; /* where the buf is */
		}
		duo_wait(duo.b, 2);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(duo.events[i].imm, imms[i]);
			duo_check(duo.events[i].buf->data, (uint64_t)i, duo.events[i].len);
			vbn_buf_free(&duo.events[i].buf, 1);
		}
		assert_int_equal(
			vbn_read_one(duo.a, duo_buf(0, 100), vbn_export_remote(duo.target, 64)), 1);
		assert_int_equal(vbn_fetch_add_one(duo.a, duo_buf(0, 8),
					 vbn_export_remote(duo.target, 64), 3),
			1);
		vbn_flush(duo.a);
		duo_wait(duo.a, 2);
		assert_int_equal(duo.events[0].op, VBN_OP_READ);
		assert_int_equal(duo.events[1].op, VBN_OP_FETCH_ADD);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(duo.events[i].status, VBN_OK);
			vbn_buf_free(&duo.events[i].buf, 1);
		}
		duo_stream(duo.a, duo.b, 2000);
		duo_disconnect();
	}
	assert_memory_equal(wqes[0][0], wqes[1][0], 32);
	assert_memory_equal(wqes[0][1], wqes[1][1], 32);
	for (int kind = 0; kind < DUO_KINDS; kind++) {
		struct vbn_queue_conf conf = duo_conf(VBN_UD, (enum duo_kind)kind);

		conf.templates = VBN_OFF;
		conf.inline_size = (struct vbn_num)VBN_NUM(40);
		duo_connect(&conf);
		duo_stream(duo.a, duo.b, 1000);
		duo_disconnect();
	}
}

/* What is asked of a connection's path is what the device is told, and what the modes say. */
static void test_path(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	(void)state;
	conf.service_level = (struct vbn_num)VBN_NUM(3);
	conf.traffic_class = (struct vbn_num)VBN_NUM(26 << 2 | 1);
	duo_connect(&conf);
	assert_int_equal(ibv_query_qp(mlx5_queue(duo.a)->qp, &attr, IBV_QP_AV, &init), 0);
	assert_int_equal(attr.ah_attr.sl, 3);
	assert_int_equal(attr.ah_attr.grh.traffic_class, 26 << 2 | 1);
	assert_string_equal(mode(duo.a, "service_level"), "3");
	assert_string_equal(mode(duo.a, "traffic_class"), "105");
	assert_string_equal(mode(duo.a, "pacing"), "off");
	duo_stream(duo.a, duo.b, 100);
}

/* A completion for each send, for some, for a whole ring. */
static void test_moderation(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	uint64_t signalled[3];

	(void)state;
	for (int i = 0; i < 3; i++) {
		conf.cq_mod = (uint32_t[]){1, 8, DUO_DEPTH}[i];
		duo_connect(&conf);
		duo_stream(duo.a, duo.b, 2000);
		signalled[i] = stats_of(duo.a).tx_signalled;
		duo_disconnect();
	}
	assert_true(signalled[0] >= 2000);
	assert_true(signalled[1] < signalled[0]);
	assert_true(signalled[2] <= signalled[1]);
}

static void test_what_the_device_has_not(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);

	(void)state;
	if (!duo_is_emulated())
		unit_skip("technique_limits", "what a device has not is known of the emulated one");
	conf.pace_kbit = 1000000;
	expect_refused(&conf, -ENOTSUP, "has no packet pacing");
	conf = duo_conf(VBN_RC, DUO_OWN);
	conf.cqe_size = 96;
	expect_refused(&conf, -EINVAL, "cqe_size is 96 and must be 64 or 128");
	conf = duo_conf(VBN_RC, DUO_OWN);
	conf.max_reads = (struct vbn_num)VBN_NUM(1000);
	expect_refused(&conf, -EINVAL, "max_reads is 1000 and must be 0 to 16");
}

static uint8_t max_rd_atomic(const struct vbn_queue *queue)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(container_of(queue, const struct mlx5_queue, queue)->qp,
				 &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init),
		0);
	return attr.max_rd_atomic;
}

/* What one end has in flight is no more than the other takes; where that is nothing, reads are
 * refused. */
static void test_read_window(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN), stingy = conf, none = conf;
	struct vbn_buf *buf;

	(void)state;
	stingy.max_peer_reads = (struct vbn_num)VBN_NUM(3);
	stingy.max_reads = (struct vbn_num)VBN_NUM(7);
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.a), 0);
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &stingy, &duo.b), 0);
	duo_meet();
	assert_int_equal(max_rd_atomic(duo.a), 3);
	assert_int_equal(max_rd_atomic(duo.b), 7);
	for (int i = 0; i < 40; i++)
		assert_int_equal(vbn_read_one(duo.a, duo_buf(0, 100),
					 vbn_export_remote(duo.target, (size_t)i * 100)),
			1);
	vbn_flush(duo.a);
	duo_wait(duo.a, 40);
	for (int i = 0; i < 40; i++) {
		assert_int_equal(duo.events[i].op, VBN_OP_READ);
		assert_int_equal(duo.events[i].status, VBN_OK);
		vbn_buf_free(&duo.events[i].buf, 1);
	}
	duo_disconnect();
	none.max_peer_reads = (struct vbn_num)VBN_NUM(0);
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.a), 0);
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &none, &duo.b), 0);
	duo_meet();
	buf = duo_buf(0, 8);
	assert_int_equal(vbn_read_one(duo.a, buf, vbn_export_remote(duo.target, 0)), -EOPNOTSUPP);
	assert_int_equal(
		vbn_fetch_add_one(duo.a, buf, vbn_export_remote(duo.target, 0), 1), -EOPNOTSUPP);
	vbn_buf_free(&buf, 1);
	duo_stream(duo.a, duo.b, 100);
}

static void test_relaxed_ordering(void **state)
{
	struct vbn_mode modes[16];
	int n = vbn_port_modes(duo.port, modes, ARRAY_SIZE(modes));
	bool found = false;

	(void)state;
	for (int i = 0; i < n; i++)
		if (!strcmp(modes[i].name, "relaxed_ordering")) {
			assert_string_equal(modes[i].requested, "auto");
			assert_string_equal(modes[i].effective, "on");
			found = true;
		}
	assert_true(found);
}

/* ---- handles of memory, as they travel ---- */

static void test_handles(void **state)
{
	struct vbn_handle handle, wrong;
	struct vbn_region region;
	struct vbn_remote remote;

	(void)state;
	assert_int_equal(vbn_export_handle(duo.target, 100, 1000, &handle), 0);
	assert_int_equal(vbn_handle_open(&handle, &region), 0);
	assert_int_equal(region.len, 1000);
	assert_int_equal(region.access, VBN_REMOTE_WRITE | VBN_REMOTE_READ | VBN_REMOTE_ATOMIC);
	assert_int_equal(region.remote.addr, vbn_export_remote(duo.target, 100).addr);
	assert_int_equal(region.remote.rkey, vbn_export_remote(duo.target, 100).rkey);
	assert_true(vbn_region_at(&region, 990, 10, &remote));
	assert_int_equal(remote.addr, region.remote.addr + 990);
	assert_false(vbn_region_at(&region, 990, 11, &remote));
	assert_false(vbn_region_at(&region, 1001, 0, &remote));
	assert_false(vbn_region_at(&region, 1, UINT64_MAX, &remote));
	assert_int_equal(
		vbn_export_handle(duo.target, vbn_export_size(duo.target), 1, &wrong), -ERANGE);
	assert_int_equal(vbn_export_handle(duo.target, 0, 0, &wrong), -ERANGE);
	assert_int_equal(vbn_export_handle(duo.target, 1, SIZE_MAX, &wrong), -ERANGE);
	/* Magic, version, access, what must be zero: each byte made wrong. */
	for (size_t i = 0; i < sizeof(handle.bytes); i++) {
		if (i >= 8 && i < 28)
			continue; /* address, length and key are any */
		wrong = handle;
		wrong.bytes[i] ^= 0xa8;
		assert_int_equal(vbn_handle_open(&wrong, &region), -EINVAL);
	}
	wrong = handle;
	memset(wrong.bytes + 16, 0, 8); /* no length */
	assert_int_equal(vbn_handle_open(&wrong, &region), -EINVAL);
	memset(wrong.bytes + 16, 0xff, 8); /* beyond the address space */
	assert_int_equal(vbn_handle_open(&wrong, &region), -EINVAL);
}

#define test(name) cmocka_unit_test_setup_teardown(name, duo_open, duo_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_blueflame),
		test(test_own_uar),
		test(test_doorbells),
		test(test_cqe_sizes),
		test(test_scatter_to_cqe),
		test(test_prefetch),
		test(test_templates),
		test(test_path),
		test(test_moderation),
		test(test_what_the_device_has_not),
		test(test_read_window),
		test(test_relaxed_ordering),
		test(test_handles),
	};

	return cmocka_run_group_tests_name("technique", tests, NULL, NULL);
}
