/* duo_cases.c - what each driver's tests of two queues expect alike: how they fail, come back by a reset, and run short
 */
#include "duo.h"

void duo_expect_failed(struct vbn_queue *queue, enum vbn_status status, const char *words)
{
	for (;;) {
		duo_wait(queue, 1);
		if (duo.events[0].op == VBN_OP_FAILED)
			break;
		vbn_buf_free(&duo.events[0].buf, 1); /* what had arrived before */
	}
	assert_int_equal(duo.events[0].status, status);
	assert_has(vbn_queue_error(queue), words);
}

void duo_expect_returned(struct vbn_queue *queue, enum vbn_op op, enum vbn_status status)
{
	duo_wait(queue, 1);
	assert_int_equal(duo.events[0].op, op);
	assert_int_equal(duo.events[0].status, status);
	vbn_buf_free(&duo.events[0].buf, 1);
}

void duo_reset_at_work(enum vbn_transport transport, enum duo_kind kind)
{
	struct vbn_queue_conf conf = duo_conf(transport, kind);

	duo_connect(&conf);
	for (uintptr_t round = 0; round < 12; round++) {
		uintptr_t next = 0;
		uint64_t start = clock_ns();
		bool failed = false;
		int ret;

		duo_stream(duo.a, duo.b, 40 + 13 * round);
		for (uintptr_t i = 0; i < 30; i++) {
			struct vbn_buf *buf = duo_buf(i, 10);

			vbn_buf_set_cookie(buf, (void *)i);
			if (duo.to_b)
				vbn_buf_set_peer(buf, duo.to_b);
			assert_int_equal(vbn_send_one(duo.a, buf), 1);
			if (i % 7 == round % 7)
				vbn_flush(duo.a); /* the last ones are staged only */
		}
		while ((ret = vbn_queue_reset(duo.a)) == -EAGAIN) {
			int got = vbn_poll(duo.worker, duo.events, 3);

			for (int i = 0; i < got; i++) {
				struct vbn_event *event = &duo.events[i];

				if (event->queue == duo.a && event->op == VBN_OP_SEND) {
					assert_int_equal((uintptr_t)event->cookie, next++);
					assert_int_equal(
						event->status, failed ? VBN_FLUSHED : VBN_OK);
				} else if (event->queue == duo.a) {
					assert_int_equal(event->op, VBN_OP_FAILED);
					assert_int_equal(event->status, VBN_FLUSHED);
					assert_false(failed);
					failed = true;
				}
				if (event->buf)
					vbn_buf_free(&event->buf, 1);
			}
			duo_patience(start);
		}
		assert_int_equal(ret, 0);
		assert_int_equal(next, 30);
		assert_true(failed);
		assert_int_equal(vbn_queue_outstanding(duo.a), 0);
		duo_reset(duo.b);
		duo_meet();
	}
	duo_stream(duo.b, duo.a, 200);
	duo_disconnect();
}

void duo_srq_limit(void **state)
{
	struct vbn_srq_conf srq = {
		.depth = DUO_DEPTH, .pool = duo.pool, .limit = DUO_DEPTH / 2, .context = &duo};
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	struct vbn_buf *hoard[DUO_BUFS];

	(void)state;
	assert_int_equal(vbn_srq_create(duo.worker, duo.port, &srq, &duo.srq), 0);
	conf.srq = duo.srq;
	duo_connect(&conf);
	for (int round = 1; round <= 2; round++) {
		struct vbn_srq_stats stats;
		int n = (int)vbn_pool_available(duo.pool), limits = 0, received = 0;
		uint64_t start = clock_ns();

		assert_int_equal(vbn_buf_alloc(duo.pool, hoard, n), n);
		for (int i = 0; i < DUO_DEPTH * 3 / 4; i++)
			assert_int_equal(vbn_send_inline(duo.a, "some bytes", 10), 1);
		vbn_flush(duo.a);
		while (received < DUO_DEPTH * 3 / 4 || !limits) {
			int got = vbn_poll(duo.worker, duo.events, 16);

			for (int i = 0; i < got; i++) {
				if (duo.events[i].op == VBN_OP_SRQ_LIMIT) {
					assert_ptr_equal(duo.events[i].cookie, &duo);
					assert_null(duo.events[i].queue);
					limits++;
				} else {
					hoard[n++] = duo.events[i].buf;
					received++;
				}
			}
			duo_patience(start);
		}
		for (int i = 0; i < 10; i++)
			assert_int_equal(vbn_poll(duo.worker, duo.events, 16), 0);
		assert_int_equal(limits, 1);
		vbn_srq_stats(duo.srq, &stats);
		assert_int_equal(stats.limits, round);
		assert_true(stats.no_buf >= DUO_DEPTH / 2);
		vbn_buf_free(hoard, n);
		do {
			vbn_poll(duo.worker, duo.events, 1);
			vbn_srq_stats(duo.srq, &stats);
			duo_patience(start);
		} while (stats.posted != DUO_DEPTH);
	}
	duo_stream(duo.a, duo.b, 500);
}
