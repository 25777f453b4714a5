/* l2fwd.c - a complete forwarder: frames from one port to the other and back, their MACs set
 *
 *     ./l2fwd xdp:eth0 xdp:eth1
 */
#include <stdio.h>
#include <string.h>
#include <verbena.h>

struct end {
	struct vbn_port *port;
	struct vbn_port_info info;
	struct vbn_rx_group *group;
	struct vbn_queue *queue;
	struct end *other;
	unsigned long received, dropped;
} ends[2] = {{.other = &ends[1]}, {.other = &ends[0]}};

static int forward(struct vbn_worker *worker, void *arg)
{
	struct end *in = arg, *out = in->other;
	struct vbn_buf *bufs[32];
	int n = vbn_recv(in->queue, bufs, 32), sent;

	(void)worker;
	if (n <= 0)
		return 0;
	for (int i = 0; i < n; i++) {
		memcpy(bufs[i]->data, "\x02\0\0\0\0", 6); /* to 02:00:00:00:00:00 */
		memcpy(bufs[i]->data + 6, out->info.mac, 6);
	}
	sent = vbn_send(out->queue, bufs, n); /* staged; the worker's loop rings the doorbell */
	sent = sent < 0 ? 0 : sent;
	vbn_buf_free(bufs + sent, n - sent); /* the ring is full: the rest is still ours */
	in->received += (unsigned long)n;
	in->dropped += (unsigned long)(n - sent);
	return n;
}

/* On the worker's thread: its pool, a queue of each port, and what it polls. */
static int set_up(struct vbn_worker *worker, void *arg)
{
	struct vbn_pool_conf pool = {.n_bufs = 8192, .headroom = VBN_NUM(192)};
	struct vbn_queue_conf conf = {.transport = VBN_RAW};
	int err = vbn_pool_create(&pool, &conf.rx_pool);

	(void)arg;
	for (struct end *end = ends; end < ends + 2 && !err; end++) {
		conf.rx_group = end->group;
		err = vbn_queue_create(worker, end->port, &conf, &end->queue);
		if (!err)
			err = vbn_queue_connect(end->queue, NULL);
		if (!err)
			err = vbn_worker_add_poll(worker, forward, end);
	}
	return err; /* the library has said why */
}

int main(int argc, char **argv)
{
	struct vbn_rx_rule everything = {.kind = VBN_RULE_EVERYTHING};
	struct vbn_run_conf run = {.cores = "0"};
	uint32_t rule;
	int err = vbn_init(&argc, &argv);
	if (argc != 3)
		return fprintf(stderr, "usage: l2fwd PORT PORT\n"), 2;
	for (struct end *end = ends; end < ends + 2 && !err; end++) {
		err = vbn_port_open(*++argv, NULL, &end->port);
		if (!err)
			err = vbn_rx_group_create(end->port, NULL, &end->group);
		if (!err)
			err = vbn_rx_rule_add(end->group, &everything, &rule);
		if (!err)
			vbn_port_info(end->port, &end->info);
	}
	if (!err)
		err = vbn_run(&run, set_up, NULL); /* until SIGINT or SIGTERM */
	for (struct end *end = ends; end < ends + 2; end++)
		printf("received %lu, dropped %lu\n", end->received, end->dropped);
	return err < 0;
}
