/* echo.c - `verbena echo`: a host of its own on a device: it answers ARP, neighbour discovery, ping of both
 * versions, and sends UDP datagrams back */
#include "packet_net.h"

#include <verbena/net.h>
#include <verbena/udp.h>

struct echo_options {
	struct packet_options packet;
	struct texts ips, routes;
	int64_t port;
};

static const struct option options[] = {
	PACKET_OPTIONS(struct echo_options),
	{"ip", "ADDR/LEN", VALUE_TEXTS, offsetof(struct echo_options, ips), 0, 16, NULL,
		"an address to have, v4 or v6, as 10.0.0.2/24; several,\nor with commas; of two devices in turn to each"},
	{"route", "ROUTE", VALUE_TEXTS, offsetof(struct echo_options, routes), 0, 16, NULL,
		"as \"default via 10.0.0.1\"; several"},
	{"port", "N", VALUE_COUNT, offsetof(struct echo_options, port), 1, 65535, NULL,
		"of UDP, to which what comes is sent back (7)"},
	{"duration", "T", VALUE_TIME, offsetof(struct echo_options, packet.duration), SECOND / 1000,
		365 * DAY, NULL, "how long (until it is stopped, or all files are read)"},
};

static const struct command command = {
	.name = "echo",
	.usage = "[options]",
	.summary =
		"Is a host on the network by itself: with an IP stack in user space it answers ARP and IPv6 neighbour discovery,\n"
		"ping of both versions, and sends back what comes to a UDP port.",
	.more = "In parentheses stands what holds where an option is not given. Sizes take KiB, MiB, GiB; counts k, M, G; times us,\n"
		"ms, s.\n"
		"--vbn-page-size=plain|transparent|2M|1G and --vbn-log=LEVEL are the library's own options.\n"
		"\n"
		"examples:\n"
		"  verbena echo --device tap:vbn0 --ip 10.0.0.2/24     and then\n"
		"  ip addr add 10.0.0.1/24 dev vbn0; ping 10.0.0.2; echo hello | nc -u 10.0.0.2 7\n"
		"  verbena echo --device xdp:eth0 --ip 192.0.2.9/24 --ip 2001:db8::9/64 --route \"default via 192.0.2.1\"\n"
		"                           on a network, with a way out of it\n"
		"  verbena echo --device mlx5_0 --ip 192.0.2.9/24 --cores 2-5 --json - --pcap echo.pcapng\n"
		"                           four workers, what goes by captured\n"
		"\n"
		"Every frame that came has its end: in `fates` (delivered, answered, consumed, merged, handed_over), or in `drops`\n"
		"by its name; that is checked. JSON: tool version mode devices seconds received sent drops msg_rate\n"
		"gbit_rate cycles_per_packet queues workers accounted replied fates capture effective stopped errors.\n"
		"\n"
		"exit status: 0 done, stopped by SIGINT or SIGTERM included; 1 a queue failed, or frames are not accounted for;\n"
		"2 usage; 3 cannot run here.\n",
	.options = options,
	.n_options = ARRAY_SIZE(options),
};

/* Run to completion: what came goes back from where it is. */
static void reply(struct vbn_udp *udp, struct vbn_buf **bufs, int n, void *arg)
{
	struct net_worker *own = arg;
	int sent = vbn_udp_reply(udp, bufs, n);

	sent = sent < 0 ? 0 : sent;
	vbn_count(&own->replied, (uint64_t)sent);
	if (unlikely(sent < n)) {
		vbn_count(&own->not_replied, (uint64_t)(n - sent));
		vbn_buf_free(bufs + sent, n - sent);
	}
}

static int setup(struct packet_worker *worker)
{
	const struct echo_options *conf = worker->run->own;
	int err = net_setup(worker);
	struct net_worker *own = worker->own;
	struct vbn_udp_conf udp = {
		.local.port = (uint16_t)conf->port, .recv = reply, .arg = worker->own};

	return err ? err : vbn_udp_open(own->ends[0], &udp, &own->udp);
}

static void teardown(struct packet_worker *worker)
{
	const struct net_worker *own = worker->own;

	if (own && own->not_replied)
		drops_add(&worker->named, "not_replied", own->not_replied);
	net_teardown(worker);
}

static int prepare(struct packet_run *run)
{
	const struct echo_options *conf = run->own;
	const struct net_options host = {.ips = &conf->ips, .routes = &conf->routes};

	return net_prepare(run, &host);
}

static void add_json(const struct packet_run *run, json_t *root)
{
	const uint64_t replied = OWN_SUM(run, struct net_worker, replied);

	json_object_set_new(root, "replied", json_integer((json_int_t)replied));
	net_json(run, root);
}

int cmd_echo(int argc, char **argv)
{
	static const struct packet_command echo = {
		.name = "echo",
		.prepare = prepare,
		.unprepare = net_unprepare,
		.setup = setup,
		.teardown = teardown,
		.free_workers = net_free_workers,
		.loop = net_loop,
		.delivered = net_delivered,
		.json = add_json,
		.print = net_print,
		.endless = true,
		.own_mac = true,
		.more_bufs = 4096,
	};
	static struct packet_run run = {.command = &echo};
	static struct echo_options conf;
	const struct net_options host = {.ips = &conf.ips};
	uint64_t given;
	int status = packet_begin(&command, argc, argv, &run, &conf, &given);

	if (status != OPTIONS_OK)
		return status;
	conf.port = conf.port ? conf.port : 7;
	status = net_check(&host);
	return status ? status : packet_execute(&run);
}
