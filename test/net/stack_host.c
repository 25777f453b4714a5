/* stack_host.c - a host of its own on packet ports, for tests against Linux: usage:
 *   stack_host [--forward] [--sums] [--group GROUP] [--route ROUTE] [--mtu N] PORT ADDRESSES [PORT ADDRESSES]
 *
 * Echoes UDP on port 7, says "ready" when it is, and at SIGTERM its counters, a JSON object, with
 * "received_missing" and "sent_missing": what has no fate. A datagram to port 9 that is IP:PORT has 1,000 bytes sent
 * there. --sums: the stack fills in checksums, not the port.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <verbena.h>

enum { MOST = 4 };

static struct {
	bool forward, sums;
	uint32_t mtu;
	const char *routes[MOST], *groups[MOST], *ports[MOST], *addresses[MOST];
	int n_routes, n_groups, n_ports;
} options;

static struct vbn_port *ports[MOST];
static struct vbn_net *net;
static struct vbn_net_end *ends[MOST];
static struct vbn_udp *echo_socket, *order_socket;

static void echo(struct vbn_udp *udp, struct vbn_buf **bufs, int n, void *arg)
{
	int sent = vbn_udp_reply(udp, bufs, n);

	(void)arg;
	sent = sent < 0 ? 0 : sent;
	vbn_buf_free(bufs + sent, n - sent);
}

/* "10.0.0.1:4000", or "[fd00::1]:4000". */
static int read_address(struct vbn_buf *buf, struct vbn_udp_address *to)
{
	char text[64] = "", *colon, *ip = text;

	memcpy(text, buf->data, buf->len < 63 ? buf->len : 63);
	colon = strrchr(text, ':');
	if (!colon)
		return -1;
	*colon = '\0';
	if (*ip == '[') {
		ip++;
		colon[-1] = '\0';
	}
	*to = (struct vbn_udp_address){.port = (uint16_t)atoi(colon + 1)};
	return vbn_ip_parse(ip, &to->ip);
}

static void order(struct vbn_udp *udp, struct vbn_buf **bufs, int n, void *arg)
{
	(void)arg;
	for (int i = 0; i < n; i++) {
		struct vbn_udp_address to;

		if (!read_address(bufs[i], &to)) {
			memset(bufs[i]->data, 'x', 1000);
			bufs[i]->len = 1000;
			if (vbn_udp_send(udp, &to, &bufs[i], 1) == 1)
				continue;
		}
		vbn_buf_free(&bufs[i], 1);
	}
}

static int print_counter(const char *name, const char *help, uint64_t value, void *arg)
{
	(void)help;
	(void)arg;
	printf("\"%s\": %llu, ", name, (unsigned long long)value);
	return 0;
}

static void at_end(struct vbn_worker *worker, void *arg)
{
	int64_t received, sent;

	(void)worker;
	(void)arg;
	vbn_udp_close(echo_socket);
	vbn_udp_close(order_socket);
	vbn_net_balance(ends[0], &received, &sent);
	printf("{");
	vbn_net_counters(ends[0], print_counter, NULL);
	printf("\"received_missing\": %lld, \"sent_missing\": %lld}\n", (long long)received,
		(long long)sent);
	for (int i = options.n_ports; i--;)
		vbn_net_detach(ends[i]);
}

static int attach(struct vbn_worker *worker, uint32_t link)
{
	struct vbn_pool *pool;
	struct vbn_rx_group *group;
	struct vbn_queue *queue;
	int err = vbn_pool_create(
		&(struct vbn_pool_conf){
			.n_bufs = 4096, .data_size = 9216, .headroom = VBN_NUM(128)},
		&pool);

	if (err || (err = vbn_rx_group_create(ports[link], NULL, &group)))
		return err;
	err = vbn_queue_create(worker, ports[link],
		&(struct vbn_queue_conf){.transport = VBN_RAW, .rx_group = group, .rx_pool = pool},
		&queue);
	if (err || (err = vbn_queue_connect(queue, NULL)))
		return err;
	err = vbn_net_attach(net,
		&(struct vbn_net_end_conf){.worker = worker,
			.link = link,
			.queue = queue,
			.pool = pool,
			.checksum_offload = options.sums ? VBN_OFF : VBN_AUTO},
		&ends[link]);
	return err ? err : vbn_worker_add_poll(worker, vbn_net_poll, ends[link]);
}

static int setup(struct vbn_worker *worker, void *arg)
{
	int err = 0;

	(void)arg;
	for (int i = 0; i < options.n_ports && !err; i++)
		err = attach(worker, (uint32_t)i);
	if (err ||
		(err = vbn_udp_open(ends[0], &(struct vbn_udp_conf){.local.port = 7, .recv = echo},
			 &echo_socket)))
		return err;
	err = vbn_udp_open(
		ends[0], &(struct vbn_udp_conf){.local.port = 9, .recv = order}, &order_socket);
	for (int i = 0; i < options.n_groups && !err; i++) {
		struct vbn_ip group;

		err = vbn_ip_parse(options.groups[i], &group);
		err = err ? err : vbn_udp_join(echo_socket, &group, 0);
	}
	if (!err)
		err = vbn_worker_add_exit(worker, at_end, NULL);
	printf("ready\n");
	fflush(stdout);
	return err;
}

static int make_net(void)
{
	static struct vbn_net_interface_conf interfaces[MOST];
	struct vbn_net_conf conf = {.interfaces = interfaces,
		.n_interfaces = (uint32_t)options.n_ports,
		.forward = options.forward,
		.reachable_ms = 2000,
		.delay_ms = 500,
		.retransmit_ms = 300};
	int err = 0;

	for (int i = 0; i < options.n_ports && !err; i++) {
		struct vbn_port_info info;

		err = vbn_port_open(options.ports[i],
			&(struct vbn_port_conf){.frame_mtu = options.mtu}, &ports[i]);
		if (err)
			return err;
		vbn_port_info(ports[i], &info);
		interfaces[i] = (struct vbn_net_interface_conf){.link = (uint32_t)i,
			.mtu = info.frame_mtu,
			.addresses = options.addresses[i]};
		memcpy(interfaces[i].mac, info.mac, 6);
	}
	err = vbn_net_create(&conf, &net);
	for (int i = 0; i < options.n_routes && !err; i++) {
		struct vbn_net_route route;

		err = vbn_net_route_parse(net, options.routes[i], &route);
		err = err ? err : vbn_net_route_add(net, &route);
	}
	return err;
}

static bool read_options(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--forward"))
			options.forward = true;
		else if (!strcmp(argv[i], "--sums"))
			options.sums = true;
		else if (i + 1 == argc)
			return false;
		else if (!strcmp(argv[i], "--mtu"))
			options.mtu = (uint32_t)atoi(argv[++i]);
		else if (!strcmp(argv[i], "--route") && options.n_routes < MOST)
			options.routes[options.n_routes++] = argv[++i];
		else if (!strcmp(argv[i], "--group") && options.n_groups < MOST)
			options.groups[options.n_groups++] = argv[++i];
		else if (options.n_ports < MOST) {
			options.ports[options.n_ports] = argv[i];
			options.addresses[options.n_ports++] = argv[++i];
		}
	}
	return options.n_ports > 0;
}

int main(int argc, char **argv)
{
	int err = vbn_init(&argc, &argv);

	if (err || !read_options(argc, argv))
		return 2;
	err = make_net();
	if (!err)
		err = vbn_run(&(struct vbn_run_conf){.idle_yield = VBN_ON}, setup, NULL);
	return err < 0 ? 1 : 0;
}
