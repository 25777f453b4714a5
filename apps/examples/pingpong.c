/* pingpong.c - a message back and forth between two queues of one worker: the whole API a program
 * needs
 *
 *     verbena vhca -- ./pingpong mlx5_0
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <verbena.h>

#define ROUNDS 1000

static int connect_both(struct vbn_queue *a, struct vbn_queue *b)
{
	struct vbn_address to_a, to_b;
	int err;

	vbn_queue_address(a, &to_a);
	vbn_queue_address(b, &to_b);
	err = vbn_queue_connect(a, &to_b);
	return err ? err : vbn_queue_connect(b, &to_a);
}

/* Sends the buf and waits until it is at the other queue. */
static int pass(struct vbn_worker *worker, struct vbn_queue *from, struct vbn_queue *to,
	struct vbn_buf **buf)
{
	int n = vbn_send_one(from, *buf);

	if (n < 1)
		return n ? n : -EAGAIN;
	do {
		vbn_worker_poll(worker);    /* rings the doorbell */
		n = vbn_recv(from, buf, 1); /* nothing comes: this frees the buf that was sent */
		if (n >= 0)
			n = vbn_recv(to, buf, 1);
	} while (!n);
	return n < 0 ? n : 0;
}

static int play(struct vbn_worker *worker, struct vbn_port *port)
{
	struct vbn_pool_conf pool_conf = {.n_bufs = 128, .data_size = 64};
	struct vbn_queue_conf conf = {.tx_depth = 16, .rx_depth = 16, .cq_mod = 1};
	struct vbn_queue *ping = NULL, *pong = NULL;
	struct vbn_buf *buf;
	int err = vbn_pool_create(&pool_conf, &conf.rx_pool);

	if (!err)
		err = vbn_queue_create(worker, port, &conf, &ping);
	if (!err)
		err = vbn_queue_create(worker, port, &conf, &pong);
	if (!err)
		err = connect_both(ping, pong);
	if (!err && vbn_buf_alloc(conf.rx_pool, &buf, 1) < 0)
		err = -ENOBUFS;
	if (!err) {
		buf->len = (uint32_t)sprintf((char *)buf->data, "hello") + 1;
		for (int i = 0; i < ROUNDS && !err; i++) {
			err = pass(worker, ping, pong, &buf);
			if (!err)
				err = pass(worker, pong, ping, &buf);
		}
		if (!err) {
			printf("\"%s\" went back and forth %d times\n", (char *)buf->data, ROUNDS);
			vbn_buf_free(&buf, 1);
		}
	}
	vbn_queue_destroy(ping);
	vbn_queue_destroy(pong);
	vbn_pool_destroy(conf.rx_pool);
	return err;
}

int main(int argc, char **argv)
{
	struct vbn_worker_conf worker_conf = {0};
	struct vbn_worker *worker;
	struct vbn_port *port;
	int err = vbn_init(&argc, &argv);

	if (err)
		return 1;
	err = vbn_port_open(argc > 1 ? argv[1] : "mlx5_0", NULL, &port);
	if (!err) {
		err = vbn_worker_attach(&worker_conf, &worker);
		if (!err) {
			err = play(worker, port);
			vbn_worker_detach(worker);
		}
		vbn_port_close(port);
	}
	vbn_fini();
	if (err)
		fprintf(stderr, "pingpong: %s\n", strerror(-err));
	return err ? 1 : 0;
}
