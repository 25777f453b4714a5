/* hello.c - one message from one queue to another: the API in forty lines */
#include <stdio.h>
#include <string.h>
#include <verbena.h>

static int hello(struct vbn_worker *worker, void *port)
{
	struct vbn_pool_conf pool = {.n_bufs = 256, .data_size = 64};
	struct vbn_queue_conf conf = {.tx_depth = 64, .rx_depth = 64};
	struct vbn_address here, there;
	struct vbn_queue *a, *b;
	struct vbn_buf *buf;
	int n;

	if (vbn_pool_create(&pool, &conf.rx_pool) || vbn_queue_create(worker, port, &conf, &a) ||
		vbn_queue_create(worker, port, &conf, &b))
		return -1; /* the library has said why */

	vbn_queue_address(a, &here); /* between hosts these bytes travel by any means you have */
	vbn_queue_address(b, &there);
	if (vbn_queue_connect(a, &there) || vbn_queue_connect(b, &here))
		return -1;
	vbn_buf_alloc(conf.rx_pool, &buf, 1);
	buf->len = (uint32_t)snprintf((char *)buf->data, 64, "hello over RDMA") + 1;
	vbn_send_one(a, buf); /* writes a WQE; the buf is the library's from here on */
	while (!(n = vbn_recv(b, &buf, 1)))
		vbn_worker_poll(worker); /* ends with one doorbell for all that is staged */
	if (n < 0)
		return n;
	printf("%s\n", (char *)buf->data);
	vbn_buf_free(&buf, 1); /* home to the pool it came from */
	vbn_stop();
	return 0;
}

int main(int argc, char **argv)
{
	struct vbn_run_conf run = {.cores = "0"};
	struct vbn_port *port;

	if (vbn_init(&argc, &argv) || vbn_port_open("mlx5_0", NULL, &port))
		return 1;
	return vbn_run(&run, hello, port) != 0;
}
