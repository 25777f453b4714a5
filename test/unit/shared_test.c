/* shared_test.c - mlx5 queues that share CQs and receive rings: each completion finds its queue, few
 * CQs hold for many queues, what goes leaves nothing behind; and datagrams */

#include "duo.h"

enum { N_QUEUES = 200, EACH = 6 };

static struct mlx5_group *group(void)
{
	return mlx5_queue(duo.a)->group;
}

/* What the driver mlx5 has; another one may have fewer or more. */
static void must_be_cqs(const struct shared_cq *shared, int n)
{
	int found = 0;

	for (; shared; shared = shared->next)
		found++;
	assert_int_equal(found, n);
}

/* ---- many queues ---- */

static struct vbn_queue *left[N_QUEUES], *right[N_QUEUES];
static int arrived[N_QUEUES];

static void make_pairs(const struct vbn_queue_conf *base, int n)
{
	struct vbn_queue_conf conf = *base;

	for (int i = 0; i < n; i++) {
		conf.context = &arrived[i];
		assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &left[i]), 0);
		assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &right[i]), 0);
		duo.a = left[i];
		duo.b = right[i];
		duo_meet();
	}
}

static void destroy_pairs(int from, int to)
{
	for (int i = from; i < to; i++) {
		vbn_queue_destroy(left[i]);
		vbn_queue_destroy(right[i]);
	}
	duo.a = duo.b = NULL;
}

/* Message k of queue i is its own: sent over all queues by turns, received in each queue's order. */
static void talk(int from, int to)
{
	uint64_t start = clock_ns();
	int expected = (to - from) * EACH, got = 0;

	memset(arrived, 0, sizeof(arrived));
	for (int k = 0; k < EACH; k++)
		for (int i = from; i < to; i++)
			assert_int_equal(
				vbn_send_one(left[i], duo_buf((uint64_t)(i * EACH + k), 33)), 1);
	while (got < expected) {
		int n;

		vbn_worker_poll(duo.worker); /* flushes */
		n = vbn_poll(duo.worker, duo.events, 20);
		for (int j = 0; j < n; j++, got++) {
			struct vbn_event *event = &duo.events[j];
			int *mine = vbn_queue_context(event->queue);
			int i = (int)(mine - arrived);

			assert_int_equal(event->op, VBN_OP_RECV);
			assert_ptr_equal(event->queue, right[i]);
			duo_check(event->buf->data, (uint64_t)(i * EACH + (*mine)++), 33);
			vbn_buf_free(&event->buf, 1);
		}
		if (!n)
			duo_patience(start);
	}
}

static void test_many_queues(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_SRQ);

	(void)state;
	conf.tx_depth = 8;
	conf.cq_mod = 4;
	conf.timeout = (struct vbn_num)VBN_NUM(18);
	make_pairs(&conf, N_QUEUES / 2);
	for (int at = 0; at < N_QUEUES / 2; at += 50)
		talk(at, at + 50);
	if (duo_is_direct()) {
		must_be_cqs(group()->send_cqs, 1);
		must_be_cqs(group()->recv_cqs, 1);
	}
	/* The first half goes while the others talk on; new ones take its place. */
	destroy_pairs(0, N_QUEUES / 4);
	talk(N_QUEUES / 4, N_QUEUES / 2);
	duo.a = left[N_QUEUES / 2 - 1];
	if (duo_is_direct())
		assert_int_equal(group()->send_cqs->reserved, 2 * (N_QUEUES / 4) * 8);
	make_pairs(&conf, N_QUEUES / 4);
	talk(0, N_QUEUES / 4);
	destroy_pairs(0, N_QUEUES / 2);
}

/* Rings of more than the first CQ holds: the next is twice as large. */
static void test_cqs_grow(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_SHARED);

	(void)state;
	conf.tx_depth = 1024;
	conf.rx_depth = 16;
	make_pairs(&conf, 5);
	if (duo_is_direct()) {
		must_be_cqs(group()->send_cqs, 2);
		assert_int_equal(group()->send_cqs->cq.mask + 1, 8192);
		must_be_cqs(group()->recv_cqs, 1);
	}
	talk(0, 5);
	destroy_pairs(0, 5);
}

/* Events of several queues, taken one at a time: none is lost, each queue's in order. */
static void test_one_at_a_time(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_SHARED);
	uint64_t start = clock_ns();
	uintptr_t next[5] = {0};
	int got = 0, received = 0;

	(void)state;
	conf.rx_depth = 16;
	make_pairs(&conf, 5);
	for (uintptr_t k = 0; k < 10; k++)
		for (int i = 0; i < 5; i++) {
			struct vbn_buf *buf = duo_buf(k, 9);

			vbn_buf_set_cookie(buf, (void *)k);
			assert_int_equal(vbn_send_one(left[i], buf), 1);
		}
	for (int i = 0; i < 5; i++)
		vbn_flush(left[i]);
	while (got < 50 || received < 50) {
		struct vbn_event event;

		if (!vbn_poll(duo.worker, &event, 1)) {
			duo_patience(start);
			continue;
		}
		vbn_buf_free(&event.buf, 1);
		if (event.op == VBN_OP_RECV) {
			received++;
			continue;
		}
		for (int i = 0; i < 5; i++)
			if (event.queue == left[i])
				assert_int_equal((uintptr_t)event.cookie, next[i]++);
		got++;
	}
	destroy_pairs(0, 5);
}

/* Fewer sends than ask for a completion: they are completed all the same. */
static void test_idle_tails(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_SRQ);
	uint64_t start = clock_ns();
	uint32_t outstanding;
	int received = 0;

	(void)state;
	make_pairs(&conf, 3);
	for (int k = 0; k < 3; k++)
		for (int i = 0; i < 3; i++) {
			assert_int_equal(vbn_send_one(left[i], duo_buf(0, 8)), 1);
			vbn_flush(left[i]);
		}
	do {
		int n = vbn_poll(duo.worker, duo.events, 20);

		for (int j = 0; j < n; j++)
			vbn_buf_free(&duo.events[j].buf, 1);
		received += n;
		outstanding = 0;
		for (int i = 0; i < 3; i++)
			outstanding += vbn_queue_outstanding(left[i]);
		duo_patience(start);
	} while (outstanding || received < 9);
	assert_int_equal(received, 9);
	destroy_pairs(0, 3);
}

/* Every 16-bit index goes round: of WQEs, of one and of two WQEBBs, and of the shared ring's record. */
static void test_wraps(void **state)
{
	(void)state;
	for (int kind = DUO_SHARED; kind <= DUO_SRQ; kind++) {
		struct vbn_queue_conf conf = duo_conf(VBN_RC, (enum duo_kind)kind);

		duo_connect(&conf);
		duo_stream(duo.a, duo.b, 70000);
		assert_int_equal(vbn_recv(duo.b, &(struct vbn_buf *){NULL}, 1), -EOPNOTSUPP);
		duo_disconnect();
		conf = duo_conf(VBN_UD, (enum duo_kind)kind);
		duo_connect(&conf);
		duo_stream(duo.a, duo.b, 70000);
		duo_disconnect();
	}
}

/* ---- the shared ring ---- */

static uint64_t posted(void)
{
	struct vbn_srq_stats stats;

	vbn_srq_stats(duo.srq, &stats);
	return stats.posted;
}

/* The fifth message from here is in the CQ. */
static void wait_unread(const struct cq *cq)
{
	uint64_t start = clock_ns();
	const struct mlx5_cqe64 *cqe;

	do {
		cqe = (const void *)(cq->first +
			((size_t)((cq->index + 4) & cq->mask) << cq->log2_stride));
		duo_patience(start);
	} while ((cqe->op_own & 1) != ((cq->index + 4) >> cq->log2_count & 1) ||
		cqe->op_own >> 4 != MLX5_CQE_RESP_SEND);
}

/* A queue goes with messages in the CQ that nobody has read: the ring gets its receives back, and the
 * CQ nothing that the next queue could take for its own. */
static void test_unread_messages_go(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_SRQ);

	(void)state;
	for (int round = 0; round < 20; round++) {
		duo_connect(&conf);
		for (int i = 0; i < 5; i++)
			assert_int_equal(vbn_send_inline(duo.a, "unread", 6), 1);
		vbn_flush(duo.a);
		if (duo_is_direct())
			wait_unread(mlx5_queue(duo.b)->recv_cq);
		vbn_queue_destroy(duo.b);
		vbn_queue_destroy(duo.a);
		duo.a = duo.b = NULL;
		assert_int_equal(vbn_poll(duo.worker, duo.events, 32), 0);
		assert_int_equal(posted(), DUO_DEPTH);
	}
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 500);
}

static void test_srq_misuse(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_SRQ);
	struct vbn_srq_conf srq = {.depth = 100, .pool = duo.pool};
	struct vbn_srq *other;
	struct vbn_queue *queue;

	(void)state;
	duo_connect(&conf);
	unit_catch_log();
	assert_int_equal(vbn_srq_create(duo.worker, duo.port, &srq, &other), -EINVAL);
	assert_logged("srq cannot be created: depth is 100 and must be a power of two: take 128");
	srq.depth = 2 * DUO_BUFS;
	assert_int_equal(vbn_srq_create(duo.worker, duo.port, &srq, &other), -ENOMEM);
	conf.transport = VBN_UD;
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &queue), -EINVAL);
	assert_logged("its srq is not for datagrams");
	conf.transport = VBN_RC;
	conf.shared_cq = VBN_OFF;
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &queue), -EINVAL);
	vbn_srq_destroy(duo.srq);
	assert_logged("2 queues receive from it");
	duo_stream(duo.a, duo.b, 100); /* it is still there */
}

#define test(name) cmocka_unit_test_setup_teardown(name, duo_open, duo_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_many_queues),
		test(test_cqs_grow),
		test(test_one_at_a_time),
		test(test_idle_tails),
		test(test_wraps),
		test(test_unread_messages_go),
		test(duo_srq_limit),
		test(test_srq_misuse),
		test(duo_peers),
		test(duo_no_peer),
		test(duo_headroom),
		test(duo_peer_misuse),
	};

	return cmocka_run_group_tests_name("shared", tests, NULL, NULL);
}
