/* churn_test.c - looking at queues, pools and counters while they come and go
 *
 * Given workers that make and destroy what they have as fast as they can, a client that asks for
 * everything gets whole answers, and the metrics are whole. Under TSan: without a race.
 */

#include "../unit/unit.h"

#include "obs/metrics.h"
#include "obs/obs.h"

#include <jansson.h>
#include <pthread.h>
#include <verbena.h>

enum { N_THREADS = 3, N_LOOKS = 100 };

static struct vbn_port *port;
static bool over; /* the looks have been taken */
static uint64_t n_rounds[N_THREADS];
static uint64_t n_sent;

/* What is said of a queue that carries messages, too. */
static void exchange(
	struct vbn_worker *worker, struct vbn_queue *a, struct vbn_queue *b, struct vbn_pool *pool)
{
	struct vbn_buf *buf;

	for (int i = 0; i < 8; i++) {
		if (vbn_buf_alloc(pool, &buf, 1) == 1) {
			buf->len = 16;
			if (vbn_send_one(a, buf) == 1)
				__atomic_fetch_add(&n_sent, 1, __ATOMIC_RELAXED);
			else
				vbn_buf_free(&buf, 1);
		}
		vbn_worker_poll(worker);
		if (vbn_recv(b, &buf, 1) == 1)
			vbn_buf_free(&buf, 1);
	}
}

static void make_queues(struct vbn_worker *worker, struct vbn_pool *pool)
{
	struct vbn_queue_conf conf = {
		.tx_depth = 16, .rx_depth = 16, .rx_pool = pool, .tx_pool = pool};
	struct vbn_address here, there;
	struct vbn_queue *a, *b;

	if (vbn_queue_create(worker, port, &conf, &a))
		return;
	if (!vbn_queue_create(worker, port, &conf, &b)) {
		vbn_queue_address(a, &here);
		vbn_queue_address(b, &there);
		if (!vbn_queue_connect(a, &there) && !vbn_queue_connect(b, &here))
			exchange(worker, a, b, pool);
		vbn_queue_destroy(b);
	}
	vbn_queue_destroy(a);
}

static void one_round(struct vbn_worker *worker)
{
	static const struct vbn_counter_name names[] = {{"rounds", "rounds"}};
	const struct vbn_pool_conf conf = {.n_bufs = 64, .data_size = 64};
	struct vbn_counters *counters;
	struct vbn_pool *pool;
	struct vbn_srq *srq;
	uint64_t count = 0;

	if (vbn_pool_create(&conf, &pool))
		return;
	if (!vbn_srq_create(worker, port, &(struct vbn_srq_conf){.depth = 16, .pool = pool}, &srq))
		vbn_srq_destroy(srq);
	if (!vbn_counters_add(&(struct vbn_counters_conf){.kind = "churn",
				      .object = "x",
				      .names = names,
				      .values = &count,
				      .n = 1},
		    &counters)) {
		make_queues(worker, pool);
		vbn_count(&count, 1);
		vbn_counters_remove(counters);
	}
	vbn_pool_destroy(pool);
}

/* A worker of its own, with a queue that stays, so that the device does not end with each round. */
static void *churn(void *arg)
{
	const struct vbn_pool_conf conf = {.n_bufs = 64, .data_size = 64};
	struct vbn_queue_conf queue_conf = {.tx_depth = 16, .rx_depth = 16};
	uint64_t *rounds = arg;
	struct vbn_worker *worker;
	struct vbn_queue *stays = NULL;
	struct vbn_pool *pool = NULL;

	if (vbn_worker_attach(NULL, &worker))
		return NULL;
	if (!vbn_pool_create(&conf, &pool)) {
		queue_conf.rx_pool = queue_conf.tx_pool = pool;
		vbn_queue_create(worker, port, &queue_conf, &stays);
	}
	while (stays && !load_once(&over)) {
		one_round(worker);
		store_once(rounds, *rounds + 1);
	}
	vbn_queue_destroy(stays);
	vbn_pool_destroy(pool);
	vbn_worker_detach(worker);
	return NULL;
}

/* Workers that come and go. */
static void *churn_workers(void *arg)
{
	uint64_t *rounds = arg;
	struct vbn_worker *worker;

	while (!load_once(&over) && !vbn_worker_attach(NULL, &worker)) {
		vbn_worker_poll(worker);
		vbn_worker_detach(worker);
		store_once(rounds, *rounds + 1);
	}
	return NULL;
}

/* On a thread that is neither a worker's nor the control thread, as the socket's requests are. */
static int look(int *n_bad)
{
	static const char *const requests[] = {"/verbena/worker/all", "/verbena/queue/all",
		"/verbena/pool/all", "/verbena/port/all", "/verbena/churn/all",
		"/verbena/queue/list", "/verbena/srq/all", "/verbena/channel/all",
		"/verbena/control/all", "/"};
	static char answer[TELEMETRY_MAX_ANSWER];
	json_error_t error;
	size_t len;
	char *text;

	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		json_t *json;

		len = vbn__telemetry_answer(
			requests[i], strlen(requests[i]), answer, sizeof(answer));
		json = json_loadb(answer, len, 0, &error);
		*n_bad += !json;
		json_decref(json);
	}
	text = vbn__metrics_text(&len);
	*n_bad += !text || len < 6 || memcmp(text + len - 6, "# EOF\n", 6);
	free(text);
	return 0;
}

static bool all_turn(void)
{
	for (int i = 0; i < N_THREADS; i++)
		if (load_once(&n_rounds[i]) < 3)
			return false;
	return true;
}

static void looking_while_they_come_and_go(void **state)
{
	pthread_t threads[N_THREADS];
	int n_bad = 0, n_looks = 0;

	(void)state;
	assert_int_equal(vbn_init(NULL, NULL), 0);
	assert_int_equal(vbn_port_open("mlx5_0", NULL, &port), 0);
	for (int i = 0; i < N_THREADS; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, i ? churn : churn_workers, &n_rounds[i]),
			0);
	/* The test's own timeout ends it where they do not turn. */
	while (n_looks++ < N_LOOKS || !all_turn())
		assert_int_equal(look(&n_bad), 0);
	store_once(&over, true);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(n_bad, 0);
	assert_true(load_once(&n_sent) > 0);
	vbn_port_close(port);
	vbn_fini();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(looking_while_they_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
