/* subject.c - a process to look at from outside: a worker, two queues that send to each other, a pool
 * with an odd name, counters and a command of its own
 *
 * It takes the library's options, says "ready", and runs until its standard input ends. `abandon`
 * then leaves without vbn_fini(), `alone` has no port, `more` has what subject.h says, and of `stuck`
 * the control thread is kept in a call.
 */

#include "subject.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct vbn_counter_name names[] = {{"turns", "turns of the loop"}, {"no_help", NULL}};

struct subject {
	struct vbn_worker *worker;
	struct vbn_port *port;
	struct vbn_pool *pool;
	struct vbn_queue *a, *b;
	struct vbn_counters *counters;
	uint64_t counts[2];
};

static int echo(const char *params, char *json, size_t size, void *arg)
{
	(void)arg;
	return snprintf(json, size, "{\"length\": %zu}", strlen(params)) < 0 ? -1 : 0;
}

static int input_ended(void)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	char byte;

	return poll(&in, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

static int turn(struct vbn_worker *worker, void *arg)
{
	struct subject *subject = arg;
	struct vbn_buf *buf;
	int n;

	vbn_count(&subject->counts[0], 1);
	if (!subject->a)
		return !vbn_worker_stopping(worker);
	if (!vbn_worker_stopping(worker) && vbn_buf_alloc(subject->pool, &buf, 1) == 1) {
		buf->len = 32;
		if (vbn_send_one(subject->a, buf) != 1)
			vbn_buf_free(&buf, 1);
	}
	n = vbn_recv(subject->b, &buf, 1);
	if (n > 0)
		vbn_buf_free(&buf, 1);
	vbn_recv(subject->a, &buf, 1);
	return n;
}

static int make_queues(struct subject *subject)
{
	struct vbn_queue_conf conf = {
		.tx_depth = 64, .rx_depth = 64, .rx_pool = subject->pool, .tx_pool = subject->pool};
	struct vbn_address here, there;

	if (vbn_port_open("mlx5_0", NULL, &subject->port) ||
		vbn_queue_create(subject->worker, subject->port, &conf, &subject->a) ||
		vbn_queue_create(subject->worker, subject->port, &conf, &subject->b))
		return -1;
	vbn_queue_address(subject->a, &here);
	vbn_queue_address(subject->b, &there);
	return vbn_queue_connect(subject->a, &there) || vbn_queue_connect(subject->b, &here);
}

static int make(struct subject *subject, int alone)
{
	const struct vbn_pool_conf pool = {
		.n_bufs = 512, .data_size = 64, .name = "o\"d\\d \xff\n"};
	const struct vbn_counters_conf counters = {.kind = "subject",
		.object = "it",
		.names = names,
		.values = subject->counts,
		.n = 2};

	if (vbn_worker_attach(NULL, &subject->worker) || vbn_pool_create(&pool, &subject->pool) ||
		vbn_counters_add(&counters, &subject->counters) ||
		vbn_telemetry_command("/subject/echo", "How long it was", echo, NULL) ||
		vbn_worker_add_poll(subject->worker, turn, subject))
		return -1;
	return alone ? 0 : make_queues(subject);
}

static void end(struct subject *subject)
{
	vbn_telemetry_remove("/subject/echo");
	vbn_counters_remove(subject->counters);
	vbn_queue_destroy(subject->a);
	vbn_queue_destroy(subject->b);
	subject->a = subject->b = NULL; /* the worker turns until it has drained */
	vbn_worker_detach(subject->worker);
	vbn_pool_destroy(subject->pool);
	vbn_port_close(subject->port);
	vbn_fini();
}

int main(int argc, char **argv)
{
	struct subject subject = {.worker = NULL};
	const char *mode;
	int abandon, alone, more, stuck;

	if (vbn_init(&argc, &argv))
		return 3;
	mode = argc > 1 ? argv[1] : "";
	abandon = !strcmp(mode, "abandon");
	alone = abandon || !strcmp(mode, "alone");
	more = !strcmp(mode, "more");
	stuck = !strcmp(mode, "stuck");
	if (make(&subject, alone) ||
		(more && more_make(subject.worker, subject.port, subject.pool)) ||
		(stuck && stuck_begin()))
		return 1;
	printf("ready\n");
	fflush(stdout);
	while (!input_ended()) {
		vbn_worker_poll(subject.worker);
		if (more)
			more_turn();
		usleep(500); /* others use these cores, too */
	}
	if (abandon)
		exit(0);
	if (stuck)
		stuck_end();
	if (more)
		more_end();
	end(&subject);
	return 0;
}
