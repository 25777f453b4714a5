/* stack_host.c - a host of its own on packet ports, for tests against Linux: usage:
 *   stack_host [OPTIONS] PORT ADDRESSES [PORT ADDRESSES]
 *
 *   --forward             a router
 *   --sums                the stack fills in checksums, not the port
 *   --generic             xdp: the program runs behind the interface's driver
 *   --mtu N               of the ports
 *   --group GROUP         its echo is a member
 *   --route ROUTE
 *   --relay IP:PORT       what comes to port 5001 goes there, and what comes from there to whoever wrote last
 *   --vlan VID ADDRESSES  an interface more on the first port, of frames with that tag
 *
 * Echoes UDP on port 7. A datagram to port 9 that is IP:PORT has 1,000 bytes sent there. Port 10 takes 128 datagrams, and
 * nobody reads them. Says "ready" when it is. A line "count" on its standard input is answered with its counters, a JSON
 * object, "stall" with "stalled", and keeps the worker from its queues until the next
 * line; "leave" and "join" are of the groups. Counts at SIGTERM, too.
 */

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <verbena.h>

enum { MOST = 4, LISTEN_EACH = 64, MOST_DROPS = 32, SLOW_DEPTH = 128 };

static struct {
	bool forward, sums, generic;
	uint32_t mtu;
	const char *routes[MOST], *groups[MOST], *ports[MOST], *addresses[MOST];
	const char *relay, *vlan, *vlan_addresses;
	int n_routes, n_groups, n_ports;
} options;

static struct vbn_port *ports[MOST];
static struct vbn_queue *queues[MOST];
static struct vbn_pool *pool; /* of all ports: what came by one goes by another */
static struct vbn_net *net;
static struct vbn_net_end *ends[MOST];

enum { ECHO, ORDER, RELAY, SLOW, N_SOCKETS };
static struct vbn_udp *sockets[N_SOCKETS];
static struct vbn_udp_address relay_to, relay_back;
static struct {
	uint64_t received, sent; /* datagrams, as the callbacks saw them */
} seen;

/* ---- sockets ---- */

static void echo(struct vbn_udp *udp, struct vbn_buf **bufs, int n, void *arg)
{
	int sent = vbn_udp_reply(udp, bufs, n);

	(void)arg;
	sent = sent < 0 ? 0 : sent;
	seen.received += (uint64_t)n;
	seen.sent += (uint64_t)sent;
	vbn_buf_free(bufs + sent, n - sent);
}

/* "10.0.0.1:4000", or "[fd00::1]:4000". */
static int read_address(char *ip, struct vbn_udp_address *to)
{
	char *colon = strrchr(ip, ':');

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

static void send_one(struct vbn_udp *udp, const struct vbn_udp_address *to, struct vbn_buf *buf)
{
	if (vbn_udp_send(udp, to, &buf, 1) == 1)
		seen.sent++;
	else
		vbn_buf_free(&buf, 1);
}

static void order(struct vbn_udp *udp, struct vbn_buf **bufs, int n, void *arg)
{
	(void)arg;
	seen.received += (uint64_t)n;
	for (int i = 0; i < n; i++) {
		char text[64] = "";
		struct vbn_udp_address to;

		memcpy(text, bufs[i]->data, bufs[i]->len < 63 ? bufs[i]->len : 63);
		if (read_address(text, &to)) {
			vbn_buf_free(&bufs[i], 1);
			continue;
		}
		memset(bufs[i]->data, 'x', 1000);
		bufs[i]->len = 1000;
		send_one(udp, &to, bufs[i]);
	}
}

static void relay(struct vbn_udp *udp, struct vbn_buf **bufs, int n, void *arg)
{
	(void)arg;
	seen.received += (uint64_t)n;
	for (int i = 0; i < n; i++) {
		struct vbn_udp_address from;
		bool is_back;

		vbn_udp_source(bufs[i], &from);
		is_back = from.port == relay_to.port && !memcmp(&from.ip, &relay_to.ip, 16);
		if (!is_back)
			relay_back = from;
		send_one(udp, is_back ? &relay_back : &relay_to, bufs[i]);
	}
}

/* ---- counters ---- */

static int print_counter(const char *name, const char *help, uint64_t value, void *arg)
{
	(void)help;
	(void)arg;
	printf("\"%s\": %llu, ", name, (unsigned long long)value);
	return 0;
}

static void print_drops(const char *kind, const struct vbn_drop *drops, int n)
{
	printf("\"%s_drops\": {", kind);
	for (int i = 0; i < n; i++)
		printf("%s\"%s\": %llu", i ? ", " : "", drops[i].name,
			(unsigned long long)drops[i].count);
	printf("}");
}

static void print_port(int i)
{
	struct vbn_drop drops[MOST_DROPS];
	struct vbn_queue_stats stats;

	vbn_queue_stats(queues[i], &stats);
	printf("%s{", i ? ", " : "");
	print_counter("rx_messages", NULL, stats.rx_messages, NULL);
	print_counter("tx_messages", NULL, stats.tx_messages, NULL);
	print_counter("tx_done", NULL, stats.tx_done, NULL);
	print_counter("tx_refused", NULL, stats.tx_refused, NULL);
	print_counter("tx_flushed", NULL, stats.tx_flushed, NULL);
	print_counter("outstanding", NULL, vbn_queue_outstanding(queues[i]), NULL);
	print_drops("queue", drops, vbn_queue_drops(queues[i], drops, MOST_DROPS));
	printf(", ");
	print_drops("port", drops, vbn_port_drops(ports[i], drops, MOST_DROPS));
	printf("}");
}

static void print_sockets(void)
{
	uint64_t received = 0, sent = 0, dropped = 0;

	for (int i = 0; i < N_SOCKETS; i++) {
		struct vbn_udp_stats stats;

		if (!sockets[i])
			continue;
		vbn_udp_stats(sockets[i], &stats);
		received += stats.received;
		sent += stats.sent;
		dropped += stats.dropped;
		if (i == SLOW)
			print_counter("slow_received", NULL, stats.received, NULL);
	}
	print_counter("socket_received", NULL, received, NULL);
	print_counter("socket_sent", NULL, sent, NULL);
	print_counter("socket_dropped", NULL, dropped, NULL);
	print_counter("seen_received", NULL, seen.received, NULL);
	print_counter("seen_sent", NULL, seen.sent, NULL);
}

static void count(void)
{
	int64_t received, sent;

	vbn_net_balance(ends[0], &received, &sent);
	printf("{");
	vbn_net_counters(ends[0], print_counter, NULL);
	print_sockets();
	printf("\"ports\": [");
	for (int i = 0; i < options.n_ports; i++)
		print_port(i);
	printf("], \"received_missing\": %lld, \"sent_missing\": %lld}\n", (long long)received,
		(long long)sent);
	fflush(stdout);
}

/* ---- what it is told ---- */

static int join_or_leave(bool join)
{
	int err = 0;

	for (int i = 0; i < options.n_groups && !err; i++) {
		struct vbn_ip group;

		err = vbn_ip_parse(options.groups[i], &group);
		if (!err)
			err = join ? vbn_udp_join(sockets[ECHO], &group, 0)
				   : vbn_udp_leave(sockets[ECHO], &group, 0);
	}
	return err;
}

static void obey(const char *line)
{
	if (!strcmp(line, "stall\n")) {
		struct pollfd next = {.fd = 0, .events = POLLIN};

		printf("stalled\n");
		fflush(stdout);
		poll(&next, 1, -1);
	} else if (!strcmp(line, "join\n") || !strcmp(line, "leave\n")) {
		if (join_or_leave(*line == 'j'))
			fprintf(stderr, "cannot %s", line);
	} else {
		count();
	}
}

static int listen_now_and_then(struct vbn_worker *worker, void *arg)
{
	static unsigned int turn;
	static char line[64];
	static size_t n;

	(void)worker;
	(void)arg;
	if (++turn % LISTEN_EACH)
		return 0;
	while (n < sizeof(line) - 1 && read(0, line + n, 1) == 1) {
		if (line[n++] != '\n')
			continue;
		line[n] = '\0';
		n = 0;
		obey(line);
	}
	return 0;
}

static void at_end(struct vbn_worker *worker, void *arg)
{
	(void)worker;
	(void)arg;
	count();
	for (int i = 0; i < N_SOCKETS; i++)
		vbn_udp_close(sockets[i]);
	for (int i = options.n_ports; i--;)
		vbn_net_detach(ends[i]);
}

/* ---- set-up ---- */

/* All that comes to it is the stack's. */
static int take_everything(struct vbn_rx_group *group)
{
	const struct vbn_rx_rule rule = {.kind = VBN_RULE_EVERYTHING};
	uint32_t id;

	return vbn_rx_rule_add(group, &rule, &id);
}

static int attach(struct vbn_worker *worker, uint32_t link)
{
	struct vbn_rx_group *group;
	int err = vbn_rx_group_create(ports[link], NULL, &group);

	err = err ? err : take_everything(group);
	if (err)
		return err;
	err = vbn_queue_create(worker, ports[link],
		&(struct vbn_queue_conf){.transport = VBN_RAW, .rx_group = group, .rx_pool = pool},
		&queues[link]);
	if (err || (err = vbn_queue_connect(queues[link], NULL)))
		return err;
	err = vbn_net_attach(net,
		&(struct vbn_net_end_conf){.worker = worker,
			.link = link,
			.queue = queues[link],
			.pool = pool,
			.checksum_offload = options.sums ? VBN_OFF : VBN_AUTO},
		&ends[link]);
	return err ? err : vbn_worker_add_poll(worker, vbn_net_poll, ends[link]);
}

static int open_sockets(void)
{
	const struct vbn_udp_conf confs[N_SOCKETS] = {
		[ECHO] = {.local.port = 7, .recv = echo},
		[ORDER] = {.local.port = 9, .recv = order},
		[RELAY] = {.local.port = 5001, .recv = relay},
		[SLOW] = {.local.port = 10, .depth = SLOW_DEPTH},
	};
	int err = 0;

	for (int i = 0; i < N_SOCKETS && !err; i++)
		if (i != RELAY || options.relay)
			err = vbn_udp_open(ends[0], &confs[i], &sockets[i]);
	return err;
}

static int setup(struct vbn_worker *worker, void *arg)
{
	const struct vbn_pool_conf pool_conf = {.n_bufs = 4096 * (uint32_t)options.n_ports,
		.data_size = 9216,
		.headroom = VBN_NUM(128)};
	int err;

	(void)arg;
	err = vbn_pool_create(&pool_conf, &pool);
	for (int i = 0; i < options.n_ports && !err; i++)
		err = attach(worker, (uint32_t)i);
	err = err ? err : open_sockets();
	err = err ? err : join_or_leave(true);
	err = err ? err : vbn_worker_add_poll(worker, listen_now_and_then, NULL);
	err = err ? err : vbn_worker_add_exit(worker, at_end, NULL);
	if (!err)
		printf("ready\n");
	fflush(stdout);
	return err;
}

static int open_port(int i, struct vbn_net_interface_conf *interface)
{
	struct vbn_port_info info;
	int err = vbn_port_open(options.ports[i],
		&(struct vbn_port_conf){.frame_mtu = options.mtu,
			.xdp_native = options.generic ? VBN_OFF : VBN_AUTO},
		&ports[i]);

	if (err)
		return err;
	vbn_port_info(ports[i], &info);
	*interface = (struct vbn_net_interface_conf){
		.link = (uint32_t)i, .mtu = info.frame_mtu, .addresses = options.addresses[i]};
	memcpy(interface->mac, info.mac, 6);
	return 0;
}

static int make_net(void)
{
	static struct vbn_net_interface_conf interfaces[MOST + 1];
	struct vbn_net_conf conf = {.interfaces = interfaces,
		.n_interfaces = (uint32_t)options.n_ports,
		.forward = options.forward,
		.reachable_ms = 2000,
		.delay_ms = 500,
		.retransmit_ms = 300};
	int err = 0;

	for (int i = 0; i < options.n_ports && !err; i++)
		err = open_port(i, &interfaces[i]);
	if (err)
		return err;
	if (options.vlan) {
		interfaces[conf.n_interfaces] = interfaces[0];
		interfaces[conf.n_interfaces].vlan =
			(struct vbn_num)VBN_NUM((uint32_t)atoi(options.vlan));
		interfaces[conf.n_interfaces++].addresses = options.vlan_addresses;
	}
	err = vbn_net_create(&conf, &net);
	for (int i = 0; i < options.n_routes && !err; i++) {
		struct vbn_net_route route;

		err = vbn_net_route_parse(net, options.routes[i], &route);
		err = err ? err : vbn_net_route_add(net, &route);
	}
	return err;
}

/* Of a switch: 1; with a value: 2; 0: it is none, or there are too many. */
static int read_option(char **argv, int left)
{
	if (!strcmp(argv[0], "--forward"))
		return options.forward = true;
	if (!strcmp(argv[0], "--sums"))
		return options.sums = true;
	if (!strcmp(argv[0], "--generic"))
		return options.generic = true;
	if (left < 2)
		return 0;
	if (!strcmp(argv[0], "--mtu"))
		options.mtu = (uint32_t)atoi(argv[1]);
	else if (!strcmp(argv[0], "--route") && options.n_routes < MOST)
		options.routes[options.n_routes++] = argv[1];
	else if (!strcmp(argv[0], "--group") && options.n_groups < MOST)
		options.groups[options.n_groups++] = argv[1];
	else if (!strcmp(argv[0], "--relay"))
		options.relay = argv[1];
	else if (!strcmp(argv[0], "--vlan") && left > 2) {
		options.vlan = argv[1];
		options.vlan_addresses = argv[2];
		return 3;
	} else
		return 0;
	return 2;
}

static bool read_options(int argc, char **argv)
{
	int i = 1;

	for (int n; i < argc && !strncmp(argv[i], "--", 2); i += n) {
		n = read_option(argv + i, argc - i);
		if (!n)
			return false;
	}
	for (; i + 1 < argc && options.n_ports < MOST; i += 2) {
		options.ports[options.n_ports] = argv[i];
		options.addresses[options.n_ports++] = argv[i + 1];
	}
	return options.n_ports > 0 && i == argc;
}

int main(int argc, char **argv)
{
	char to[64] = "";
	int err = vbn_init(&argc, &argv);

	if (err < 0 || !read_options(argc, argv))
		return 2;
	if (options.relay) {
		strncpy(to, options.relay, sizeof(to) - 1);
		if (read_address(to, &relay_to))
			return 2;
	}
	fcntl(0, F_SETFL, O_NONBLOCK);
	err = make_net();
	if (!err)
		err = vbn_run(&(struct vbn_run_conf){.idle_yield = VBN_ON}, setup, NULL);
	return err < 0 ? 1 : 0;
}
