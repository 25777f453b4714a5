/* failure_test.c - queues that fail on an emulated mlx5 device, and go on after a reset: each error
 * in words, outstanding work in order, other queues undisturbed, no buf lost
 *
 * duo_close() counts the bufs. A faulty WQE is asked for by its number, and each of those tests
 * executes a known number of WQEs.
 */

#include "duo.h"
#include "vhca_ask.h"

#include <stdlib.h>

/* ---- error syndromes, from the device ---- */

enum { FIRST_SYNDROMES = 12, WQES_EACH = 3 };

static const struct {
	uint8_t code;
	enum vbn_status status;
} syndromes[FIRST_SYNDROMES] = {{0x01, VBN_LOCAL_LENGTH}, {0x02, VBN_LOCAL_QP},
	{0x04, VBN_LOCAL_PROTECTION}, {0x06, VBN_LOCAL_QP}, {0x10, VBN_BAD_RESPONSE},
	{0x11, VBN_LOCAL_ACCESS}, {0x12, VBN_REMOTE_INVALID}, {0x13, VBN_REMOTE_ACCESS},
	{0x14, VBN_REMOTE_OPERATION}, {0x15, VBN_RETRY_EXCEEDED}, {0x16, VBN_RNR_RETRY_EXCEEDED},
	{0x22, VBN_REMOTE_ABORTED}};

static void set_faults(void)
{
	char spec[512] = "";

	for (int i = 0; i < FIRST_SYNDROMES; i++)
		snprintf(spec + strlen(spec), sizeof(spec) - strlen(spec), "%ssyndrome=%x@%d",
			i ? "," : "", syndromes[i].code, WQES_EACH * (i + 1));
	setenv("VHCA_FAULT", spec, 1);
}

/* Two sends are carried out, the third fails, two more are flushed; all have cookies. */
static void expect_failure(enum vbn_status status)
{
	uintptr_t i;

	for (i = 0; i < 5; i++) {
		struct vbn_buf *buf = duo_buf(i, 20);

		vbn_buf_set_cookie(buf, (void *)i);
		assert_int_equal(vbn_send_one(duo.a, buf), 1);
	}
	vbn_flush(duo.a);
	duo_wait(duo.a, 6);
	for (i = 0; i < 6; i++) {
		struct vbn_event *event = &duo.events[i];

		if (i == 2) {
			assert_int_equal(event->op, VBN_OP_FAILED);
			assert_int_equal(event->status, status);
			assert_null(event->buf);
			continue;
		}
		assert_int_equal(event->op, VBN_OP_SEND);
		assert_int_equal(event->status, i < 2 ? VBN_OK : i == 3 ? status : VBN_FLUSHED);
		assert_int_equal((uintptr_t)event->cookie, i < 2 ? i : i - 1);
		assert_int_equal(event->len, 20);
		vbn_buf_free(&event->buf, 1);
	}
}

/* Each, on a queue of each kind in turn. This must be the first test: WQEs are counted. */
static void test_every_syndrome(void **state)
{
	(void)state;
	for (int i = 0; i < FIRST_SYNDROMES; i++) {
		struct vbn_queue_conf conf = duo_conf(VBN_RC, (enum duo_kind)(i % DUO_KINDS));
		char words[40];

		duo_connect(&conf);
		expect_failure(syndromes[i].status);
		snprintf(words, sizeof(words), "(syndrome %#x", syndromes[i].code);
		if (duo_is_direct())
			assert_has(vbn_queue_error(duo.a), words);
		assert_has(vbn_queue_error(duo.a), vbn_status_text(syndromes[i].status));
		assert_has(vbn_queue_error(duo.a), "for WQE 2 (SEND, ");
		assert_has(vbn_queue_error(duo.a), " segments, 20 bytes at");
		assert_int_equal(vbn_send_inline(duo.a, "x", 1), -EPIPE);
		duo_disconnect();
	}
}

/* ---- what programs do wrong ---- */

static void meet_again(void)
{
	duo_reset(duo.a);
	duo_reset(duo.b);
	assert_string_equal(vbn_queue_error(duo.a), "");
	assert_int_equal(vbn_send_inline(duo.a, "x", 1), -ENOTCONN);
	duo_meet();
	duo_stream(duo.a, duo.b, 300);
	duo_stream(duo.b, duo.a, 300);
}

static void refused_remotely(enum duo_kind kind)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, kind);
	struct vbn_remote beyond = vbn_export_remote(duo.target, 0);
	struct vbn_remote odd = vbn_export_remote(duo.target, 4);

	beyond.addr += 1u << 30;
	duo_connect(&conf);
	assert_int_equal(vbn_read_one(duo.a, duo_buf(0, 100), beyond), 1);
	vbn_flush(duo.a);
	duo_expect_failed(duo.a, VBN_REMOTE_ACCESS, "(RDMA_READ, ");
	assert_has(vbn_queue_error(duo.a), " segments, 100 bytes at");
	duo_expect_returned(duo.a, VBN_OP_READ, VBN_REMOTE_ACCESS);
	meet_again();
	assert_int_equal(vbn_write_imm_one(duo.a, duo_buf(0, 100), beyond, 1), 1);
	vbn_flush(duo.a);
	duo_expect_failed(duo.a, VBN_REMOTE_ACCESS, "(RDMA_WRITE_IMM, ");
	assert_has(vbn_queue_error(duo.a), " segments, 100 bytes at");
	meet_again();
	assert_int_equal(vbn_fetch_add_one(duo.a, duo_buf(0, 8), beyond, 1), 1);
	vbn_flush(duo.a);
	duo_expect_failed(duo.a, VBN_REMOTE_ACCESS, "(ATOMIC_FA, ");
	assert_has(vbn_queue_error(duo.a), " segments, 8 bytes at");
	duo_expect_returned(duo.a, VBN_OP_FETCH_ADD, VBN_REMOTE_ACCESS);
	meet_again();
	assert_int_equal(vbn_cmp_swap_one(duo.a, duo_buf(0, 8), odd, 1, 2), 1);
	vbn_flush(duo.a);
	duo_expect_failed(duo.a, VBN_REMOTE_INVALID, "(ATOMIC_CS, ");
	assert_has(vbn_queue_error(duo.a), " segments, 8 bytes at");
	duo_expect_returned(duo.a, VBN_OP_CMP_SWAP, VBN_REMOTE_INVALID);
	meet_again();
}

static void test_refused_remotely(void **state)
{
	(void)state;
	refused_remotely(DUO_OWN);
}

static void test_refused_remotely_shared(void **state)
{
	(void)state;
	refused_remotely(DUO_SHARED);
}

static void test_refused_remotely_srq(void **state)
{
	(void)state;
	refused_remotely(DUO_SRQ);
}

/* vbn_recv() sees the receives that the failure of a send has flushed, and names the failure: whoever
 * is told -EPIPE asks why at once. */
static void test_a_receiver_is_told_the_cause(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	struct vbn_buf *bufs[8];
	uint64_t start = clock_ns();
	int got;

	(void)state;
	for (int i = 0; i < 20; i++) {
		duo_connect(&conf);
		assert_int_equal(vbn_write_one(duo.a, duo_buf(0, 8), (struct vbn_remote){1, 2}), 1);
		vbn_flush(duo.a);
		while (!(got = vbn_recv(duo.a, bufs, ARRAY_SIZE(bufs))))
			duo_patience(start);
		assert_int_equal(got, -EPIPE);
		assert_has(vbn_queue_error(duo.a), vbn_status_text(VBN_REMOTE_ACCESS));
		assert_has(vbn_queue_error(duo.a), "rkey 0x2");
		duo_disconnect();
	}
}

/* An lkey that is none: the device will not read the message. */
static void without_lkey(enum vbn_transport transport, enum duo_kind kind)
{
	struct vbn_queue_conf conf = duo_conf(transport, kind);
	struct vbn_buf *buf;
	__be32 *lkey, right;

	duo_connect(&conf);
	buf = duo_buf(0, 50);
	if (duo.to_b)
		vbn_buf_set_peer(buf, duo.to_b);
	lkey = &mlx5_queue(duo.a)->sq.lkey;
	right = *lkey;
	*lkey = be32(0xbad00);
	assert_int_equal(vbn_send_one(duo.a, buf), 1);
	vbn_flush(duo.a);
	duo_expect_failed(duo.a, VBN_LOCAL_PROTECTION, "with lkey 0xbad00");
	if (transport == VBN_UD)
		assert_has(vbn_queue_error(duo.a), ", to QP ");
	*lkey = right;
	meet_again();
	duo_disconnect();
}

static void test_local_protection(void **state)
{
	(void)state;
	for (int transport = VBN_RC; transport <= VBN_UD; transport++)
		for (int kind = 0; kind < DUO_KINDS; kind++)
			without_lkey((enum vbn_transport)transport, (enum duo_kind)kind);
}

/* A message longer than a receive: the receiver knows which, the sender that it was refused. */
static void test_longer_than_a_receive(void **state)
{
	(void)state;
	for (int kind = 0; kind < DUO_KINDS; kind++) {
		struct vbn_queue_conf conf = duo_conf(VBN_RC, (enum duo_kind)kind);
		struct vbn_buf *buf = duo_buf(0, DUO_DATA), *more = duo_buf(1, 1);

		duo_connect(&conf);
		vbn_buf_append(buf, more);
		assert_int_equal(vbn_send_one(duo.a, buf), 1);
		vbn_flush(duo.a);
		duo_expect_failed(duo.a, VBN_REMOTE_INVALID, "a send longer than its receive");
		duo_expect_failed(duo.b, VBN_LOCAL_LENGTH,
			kind == DUO_SRQ ? "a receive of the shared ring" : "(a receive)");
		meet_again();
		duo_disconnect();
	}
}

/* ---- a peer that does not answer, or has nothing posted ---- */

static void test_receiver_not_ready(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	struct vbn_buf *hoard[DUO_BUFS];
	int n;

	(void)state;
	conf.rnr_retry = (struct vbn_num)VBN_NUM(1);
	duo_connect(&conf);
	n = (int)vbn_pool_available(duo.pool);
	assert_int_equal(vbn_buf_alloc(duo.pool, hoard, n), n);
	/* The receiver polls, and has no bufs to post. */
	for (int i = 0; i < DUO_DEPTH; i++)
		assert_int_equal(vbn_send_inline(duo.a, "some bytes", 10), 1);
	vbn_flush(duo.a);
	for (int got = 0; got < DUO_DEPTH; got++) {
		duo_wait(duo.b, 1);
		assert_int_equal(duo.events[0].op, VBN_OP_RECV);
		hoard[n++] = duo.events[0].buf;
	}
	while (vbn_send_inline(duo.a, "one more", 8) != 1)
		vbn_poll(duo.worker, duo.events, 0);
	vbn_flush(duo.a);
	duo_wait(duo.a, 1);
	assert_int_equal(duo.events[0].op, VBN_OP_FAILED);
	assert_int_equal(duo.events[0].status, VBN_RNR_RETRY_EXCEEDED);
	assert_has(vbn_queue_error(duo.a), "exceeded after 1 retry");
	assert_has(vbn_queue_error(duo.a), "the peer had no receive posted");
	vbn_buf_free(hoard, n);
	meet_again();
}

static void test_peer_gone(void **state)
{
	(void)state;
	for (int kind = 0; kind < DUO_KINDS; kind++) {
		struct vbn_queue_conf conf = duo_conf(VBN_RC, (enum duo_kind)kind);

		duo_connect(&conf);
		vbn_queue_destroy(duo.b);
		assert_int_equal(vbn_send_one(duo.a, duo_buf(0, 8)), 1);
		vbn_flush(duo.a);
		duo_expect_failed(
			duo.a, VBN_RETRY_EXCEEDED, "retry counter exceeded after 1 retry");
		/* Another peer. */
		duo_reset(duo.a);
		assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.b), 0);
		duo_meet();
		duo_stream(duo.a, duo.b, 200);
		duo_disconnect();
	}
}

/* ---- reset ---- */

static void test_reset_at_work(void **state)
{
	(void)state;
	for (int transport = VBN_RC; transport <= VBN_UD; transport++)
		for (int kind = 0; kind < DUO_KINDS; kind++)
			duo_reset_at_work((enum vbn_transport)transport, (enum duo_kind)kind);
}

/* Reset comes before connecting, too, and again; a queue that has passed the 16-bit wrap begins at
 * 0. */
static void test_reset_of_others(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);

	(void)state;
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.a), 0);
	assert_int_equal(vbn_queue_create(duo.worker, duo.port, &conf, &duo.b), 0);
	assert_int_equal(vbn_queue_reset(duo.a), 0);
	assert_int_equal(vbn_queue_reset(duo.a), 0);
	duo_meet();
	duo_stream(duo.a, duo.b, 70000);
	meet_again();
}

/* ---- what happens to the port ---- */

/* Its own, and another pair's: one fails, and the other notices nothing. */
static void test_others_go_on(void **state)
{
	(void)state;
	for (int kind = 0; kind < DUO_KINDS; kind++) {
		struct vbn_queue_conf conf = duo_conf(VBN_RC, (enum duo_kind)kind);
		struct vbn_queue *failed, *peer;
		struct vbn_queue_stats stats;

		duo_connect(&conf);
		assert_int_equal(vbn_write_one(duo.a, duo_buf(0, 8), (struct vbn_remote){1, 2}), 1);
		vbn_flush(duo.a);
		failed = duo.a;
		peer = duo.b;
		duo_expect_failed(failed, VBN_REMOTE_ACCESS, "rkey 0x2");
		duo_connect(&conf);
		duo_stream(duo.a, duo.b, 1000);
		duo_stream(duo.b, duo.a, 1000);
		vbn_queue_stats(duo.b, &stats);
		assert_int_equal(stats.rx_messages, 1000);
		vbn_queue_destroy(failed);
		vbn_queue_destroy(peer);
		duo_stream(duo.a, duo.b, 100);
		duo_disconnect();
	}
}

static void test_port_flap(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	uint64_t start = clock_ns();
	struct vbn_port_info info;

	(void)state;
	conf.retry_count = (struct vbn_num)VBN_NUM(7);
	conf.timeout = (struct vbn_num)VBN_NUM(18);
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 100);
	unit_catch_log();
	vhca_tell("port mlx5_0 down");
	do {
		vbn_port_info(duo.port, &info);
		duo_patience(start);
	} while (info.up);
	vhca_tell("port mlx5_0 up");
	do {
		vbn_port_info(duo.port, &info);
		duo_patience(start);
	} while (!info.up);
	duo_stream(duo.a, duo.b, 100);
	assert_logged("port mlx5_0 went down");
	assert_logged("port mlx5_0 is up again");
}

/* The GID that the port has chosen moves to another index: new connections use it there. */
static void test_gid_moves(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	struct vbn_port_info info;
	uint64_t start = clock_ns();
	char line[96], gid[64];
	int before;

	(void)state;
	vbn_port_info(duo.port, &info);
	before = info.gid_index;
	assert_int_equal(sscanf(info.gid, "::ffff:%60s", gid), 1);
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 10);
	unit_catch_log();
	snprintf(line, sizeof(line), "gid mlx5_0 del %d", before);
	vhca_tell(line);
	vhca_tell("gid mlx5_0 add 10.1.2.3 v2");
	snprintf(line, sizeof(line), "gid mlx5_0 add %s v2", gid);
	vhca_tell(line);
	do {
		vbn_port_info(duo.port, &info);
		duo_patience(start);
	} while (info.gid_index == before);
	assert_logged("its GID has moved from index");
	meet_again();
}

static void let_go_of(int n)
{
	for (int i = 0; i < n; i++)
		if (duo.events[i].buf)
			vbn_buf_free(&duo.events[i].buf, 1);
}

/* Nothing more comes out of a CQ that was overrun; here because its record is kept back. */
static void overrun(struct vbn_queue *from, struct vbn_queue *to)
{
	struct cq *cq = mlx5_queue(to)->recv_cq;
	__be32 *record = cq->record, elsewhere;
	uint64_t start = clock_ns();

	cq->record = &elsewhere;
	while (!to->failed) {
		if (vbn_send_inline(from, "some bytes", 10) == 1)
			vbn_flush(from);
		let_go_of(vbn_poll(duo.worker, duo.events, 8));
		duo_patience(start);
	}
	cq->record = record;
	assert_has(vbn_queue_error(to), "a completion queue of it has failed");
}

/* A sender whose peer's CQ has failed waits for what the control thread has to say of it. */
static struct vbn_queue_conf patient_conf(enum duo_kind kind)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, kind);

	conf.timeout = (struct vbn_num)VBN_NUM(22);
	conf.retry_count = (struct vbn_num)VBN_NUM(7);
	return conf;
}

/* The queue comes back with CQs and a number of its own; another one has noticed nothing. */
static void test_cq_error(void **state)
{
	struct vbn_queue_conf conf = patient_conf(DUO_OWN);
	struct vbn_queue *a, *b;

	(void)state;
	duo_connect(&conf);
	a = duo.a;
	b = duo.b;
	for (int round = 0; round < 3; round++) {
		duo_connect(&conf);
		duo_stream(duo.a, duo.b, 10);
		overrun(duo.a, duo.b);
		duo_stream(a, b, 100);
		duo_reset(duo.b);
		duo_reset(duo.a);
		duo_meet();
		duo_stream(duo.a, duo.b, 500);
		duo_stream(duo.b, duo.a, 500);
		vbn_queue_destroy(duo.a);
		vbn_queue_destroy(duo.b);
	}
	duo.a = a;
	duo.b = b;
}

static void wait_failed(struct vbn_queue *queue)
{
	uint64_t start = clock_ns();

	while (!queue->failed) {
		let_go_of(vbn_poll(duo.worker, duo.events, 8));
		duo_patience(start);
	}
	assert_has(vbn_queue_error(queue), "a completion queue of it has failed");
}

static bool is_shared(const struct mlx5_queue *mq, const struct cq *cq)
{
	for (struct shared_cq *shared = mq->group->recv_cqs; shared; shared = shared->next)
		if (&shared->cq == cq)
			return true;
	return false;
}

/* Every queue on the CQ ends with the reason, those on others go on; then each comes back on another
 * CQ, and the failed one goes with the last. */
static void test_shared_cq_error(void **state)
{
	struct vbn_queue_conf own = patient_conf(DUO_OWN), conf = patient_conf(DUO_SHARED);
	struct vbn_queue *queues[6];
	const struct cq *lost;

	(void)state;
	for (int i = 0; i < 3; i++) {
		duo_connect(i ? &conf : &own);
		queues[2 * i] = duo.a;
		queues[2 * i + 1] = duo.b;
		duo_stream(duo.a, duo.b, 100);
	}
	lost = mlx5_queue(duo.b)->recv_cq;
	overrun(duo.a, duo.b);
	for (int i = 2; i < 6; i++)
		wait_failed(queues[i]);
	duo_stream(queues[0], queues[1], 500);
	for (int i = 1; i < 3; i++) {
		duo.a = queues[2 * i];
		duo.b = queues[2 * i + 1];
		assert_true(is_shared(mlx5_queue(duo.a), lost));
		duo_reset(duo.a);
		duo_reset(duo.b);
		duo_meet();
		duo_stream(duo.a, duo.b, 500);
	}
	assert_false(is_shared(mlx5_queue(duo.a), lost));
	for (int i = 0; i < 4; i++)
		vbn_queue_destroy(queues[i]);
}

/* With an SRQ's CQ goes what is known of its ring: its queues cannot be reset, and say so; all that it
 * had is home once it is gone, and the next one works. */
static void test_srq_cq_error(void **state)
{
	struct vbn_queue_conf conf = patient_conf(DUO_SRQ);
	uint64_t start = clock_ns();
	int ret;

	(void)state;
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 100);
	overrun(duo.a, duo.b);
	wait_failed(duo.a);
	unit_catch_log();
	while ((ret = vbn_queue_reset(duo.b)) == -EAGAIN) {
		let_go_of(vbn_poll(duo.worker, duo.events, 8));
		duo_patience(start);
	}
	assert_int_equal(ret, -EIO);
	assert_logged("the completion queue of its srq has failed");
	duo_disconnect();
	assert_int_equal(vbn_pool_available(duo.pool), DUO_BUFS);
	conf = patient_conf(DUO_SRQ);
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 500);
}

/* The device dies: every queue says so, whatever it was doing. This must be the last test. */
static void test_device_fatal(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	struct vbn_queue_conf shared = duo_conf(VBN_RC, DUO_SRQ);
	struct vbn_queue *first, *second;

	(void)state;
	duo_connect(&conf);
	duo_stream(duo.a, duo.b, 10);
	first = duo.a;
	second = duo.b;
	duo_connect(&shared);
	duo_stream(duo.a, duo.b, 10);
	assert_int_equal(vbn_send_one(first, duo_buf(0, 10)), 1); /* staged */
	vhca_tell("fatal mlx5_0");
	duo_expect_failed(first, VBN_DEVICE_ERROR, "its device reports a fatal error");
	duo_expect_failed(duo.a, VBN_DEVICE_ERROR, "its device reports a fatal error");
	assert_int_equal(vbn_queue_outstanding(first), 0);
	vbn_queue_destroy(first);
	vbn_queue_destroy(second);
}

#define test(name) cmocka_unit_test_setup_teardown(name, duo_open, duo_close)

int main(void)
{
	/* The first counts WQEs, and the last leaves no device. */
	const struct CMUnitTest first_tests[] = {test(test_every_syndrome)};
	const struct CMUnitTest tests[] = {
		test(test_refused_remotely),
		test(test_refused_remotely_shared),
		test(test_refused_remotely_srq),
		test(test_a_receiver_is_told_the_cause),
		test(test_longer_than_a_receive),
		test(test_receiver_not_ready),
		test(test_peer_gone),
		test(test_reset_at_work),
		test(test_reset_of_others),
		test(test_others_go_on),
	};
	const struct CMUnitTest port_tests[] = {test(test_port_flap), test(test_gid_moves)};
	const struct CMUnitTest direct_tests[] = {
		/* The driver's own rings are tampered with. */
		test(test_local_protection),
		test(test_cq_error),
		test(test_shared_cq_error),
		test(test_srq_cq_error),
	};
	const struct CMUnitTest last_tests[] = {test(test_device_fatal)};
	int failed = 0;

	if (duo_is_emulated()) {
		set_faults(); /* before the device is opened, which reads them */
		failed += cmocka_run_group_tests_name("syndromes", first_tests, NULL, NULL);
	}
	failed += cmocka_run_group_tests_name("failure", tests, NULL, NULL);
	if (!duo_is_emulated()) {
		printf("SKIP failure_by_order: this device does not fail when told to, and what it does when its CQ is overrun is its own: "
		       "syndromes, port flaps, a GID that moves, CQ errors and a fatal error are tested on the emulated one\n");
		return failed;
	}
	failed += cmocka_run_group_tests_name("port", port_tests, NULL, NULL);
	if (duo_is_direct())
		failed += cmocka_run_group_tests_name("direct", direct_tests, NULL, NULL);
	return failed + cmocka_run_group_tests_name("fatal", last_tests, NULL, NULL);
}
