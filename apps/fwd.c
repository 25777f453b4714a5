/* fwd.c - `verbena fwd`: frames from one device to another, or back, with their MACs as they are, set, or
 * swapped
 *
 * The loop is a template: a mode that is not asked for costs nothing, nor does a capture.
 */
#include "packet_net.h"

struct fwd_options {
	struct packet_options packet;
	struct texts peers, ips, routes;
};

enum mode { MODE_IO, MODE_MAC, MODE_MACSWAP, MODE_L3 };
#define MODE_WORDS "io mac macswap l3"

#define PREFETCH   4 /* frames ahead */

static const struct option options[] = {
	PACKET_OPTIONS(struct fwd_options),
	{"duration", "T", VALUE_TIME, offsetof(struct fwd_options, packet.duration), SECOND / 1000,
		365 * DAY, NULL, "how long (until it is stopped, or all files are read)"},
	{"eth-peer", "MAC", VALUE_TEXTS, offsetof(struct fwd_options, peers), 0, MAX_DEVICES, NULL,
		"of mac: whom frames are sent to out of the first device,\nand, given again, of the second (02:00:00:00:00:00 and\n02:00:00:00:00:01)"},
	{"ip", "ADDR/LEN", VALUE_TEXTS, offsetof(struct fwd_options, ips), 0, 16, NULL,
		"of l3: an address to have, v4 or v6, as 10.0.0.1/24;\nseveral, or with commas; of two devices in turn to each"},
	{"route", "ROUTE", VALUE_TEXTS, offsetof(struct fwd_options, routes), 0, 16, NULL,
		"of l3: as \"10.1.0.0/16 via 10.0.0.2\"; several"},
};

static const struct command command = {
	.name = "fwd",
	.usage = "io|mac|macswap|l3 [options]",
	.summary =
		"Forwards Ethernet frames: what comes by one device goes out by the other, or back out of the same where there is\n"
		"one. io leaves them as they are, mac sets both MACs (from the device, to --eth-peer), macswap swaps them. l3 is a\n"
		"router of IPv4 and IPv6, with its own addresses and routes.",
	.more = "In parentheses stands what holds where an option is not given. Sizes take KiB, MiB, GiB; counts k, M, G; times us,\n"
		"ms, s.\n"
		"--vbn-page-size=plain|transparent|2M|1G and --vbn-log=LEVEL are the library's own options.\n"
		"\n"
		"examples:\n"
		"  verbena fwd macswap --device xdp:eth0\n"
		"                           back to where it came from, until it is stopped\n"
		"  verbena fwd io --device tap:left --device tap:right --duration 10 --json -\n"
		"                           a cable between two TAP devices\n"
		"  verbena fwd mac --device mlx5_0 --device mlx5_1 --cores 2,3 --queues 2\n"
		"                           two workers with two queues of each device\n"
		"  verbena fwd l3 --device xdp:eth0 --ip 10.0.0.1/24 --device xdp:eth1 --ip 10.0.1.1/24\n"
		"                           a router between two networks\n"
		"  verbena fwd macswap --device pcap:in.pcap --device \"pcap:>out.pcap\"\n"
		"                           from file to file; the end of the one that is read ends it\n"
		"  verbena fwd io --device tap:a --pcap a.pcapng,\"udp port 53\"\n"
		"                           what goes by and matches, for Wireshark\n"
		"\n"
		"Every frame that came is in `received`, and in `sent` or in `drops` by its name; that is checked at the end. JSON:\n"
		"tool version mode devices seconds received sent drops msg_rate gbit_rate cycles_per_packet queues workers accounted\n"
		"capture effective stopped errors, and of l3 `fates`: what became of the frames that are no drops.\n"
		"\n"
		"exit status: 0 done, stopped by SIGINT or SIGTERM included; 1 a queue failed, or frames are not accounted for;\n"
		"2 usage; 3 cannot run here.\n",
	.options = options,
	.n_options = ARRAY_SIZE(options),
};

/* ---- the frames: the first 12 bytes are destination and source; there are 16 in any buf ---- */

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef bytes16 unaligned16 __attribute__((aligned(1), __may_alias__));

static force_inline void swap_macs(uint8_t *frame)
{
	unaligned16 *head = (unaligned16 *)(void *)frame;
	const bytes16 is = *head;

	*head = __builtin_shufflevector(
		is, is, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, 14, 15);
}

static force_inline void set_macs(uint8_t *frame, const struct lane *out)
{
	memcpy(frame, out->peer, 6);
	memcpy(frame + 6, out->mac, 6);
}

static force_inline void rewrite(
	enum mode mode, struct vbn_buf **bufs, int n, const struct lane *out)
{
	for (int i = 0; i < n && i < PREFETCH; i++)
		__builtin_prefetch(bufs[i]->data, 1);
	for (int i = 0; i < n; i++) {
		if (i + PREFETCH < n)
			__builtin_prefetch(bufs[i + PREFETCH]->data, 1);
		if (mode == MODE_MACSWAP)
			swap_macs(bufs[i]->data);
		else
			set_macs(bufs[i]->data, out);
	}
}

/* ---- the loop ---- */

/* What is only done where it is asked for: a loop for each of their sets. */
enum { CAPTURES = 1, HAS_FILES = 2, LOOPS = 4 };

/* A file waits for its frames to be sent; a device does not. */
static force_inline int to_take(
	const struct packet_worker *worker, const struct lane *lane, int with)
{
	int64_t room;

	if (!(with & HAS_FILES) || !lane->file)
		return worker->burst;
	room = lane_room(lane->out);
	return room < worker->burst ? (int)room : worker->burst;
}

static int nothing_came(struct packet_worker *worker, struct lane *lane, int with, int n)
{
	if (unlikely(n < 0))
		lane_failed(lane);
	else if (with & HAS_FILES && lane->file)
		lane_look_for_end(worker, lane);
	return 0;
}

static force_inline int forward_lane(
	struct packet_worker *worker, struct lane *lane, enum mode mode, int with)
{
	const bool capture = with & CAPTURES;
	struct lane *out = lane->out;
	struct vbn_buf *bufs[MAX_BURST];
	int most = to_take(worker, lane, with), sent;
	int n = vbn_recv(lane->queue, bufs, most);

	if (n <= 0)
		return most ? nothing_came(worker, lane, with, n) : 0;
	if (capture)
		capture_burst(lane->tap, lane->device, CAPTURE_RECEIVED, bufs, n);
	if (unlikely(vbn_worker_stopping(worker->worker)))
		return lane_end_burst(lane, bufs, n);
	if (mode != MODE_IO)
		rewrite(mode, bufs, n, out);
	if (capture)
		capture_burst(lane->tap, out->device, CAPTURE_SENT, bufs, n);
	sent = vbn_send(out->queue, bufs, n);
	if (unlikely(sent != n))
		lane_send_rest(lane, bufs, n, sent);
	return n;
}

static force_inline int forward(void *arg, enum mode mode, int with)
{
	struct packet_worker *worker = arg;
	int did = 0;

	for (int i = 0; i < worker->n_lanes; i++)
		did += forward_lane(worker, &worker->lanes[i], mode, with);
	return did;
}

#define LOOP(name, target, mode, with)                                        \
	target static int name##_##with(struct vbn_worker *worker, void *arg) \
	{                                                                     \
		(void)worker;                                                 \
		return forward(arg, mode, with);                              \
	}

#define LOOPS_OF(name, target, mode) \
	LOOP(name, target, mode, 0)  \
	LOOP(name, target, mode, 1)  \
	LOOP(name, target, mode, 2)  \
	LOOP(name, target, mode, 3)  \
	static vbn_poll_fn *const name##_loops[LOOPS] = {name##_0, name##_1, name##_2, name##_3};

/* The shuffle is one instruction where the processor has it, and several where it has not. */
#ifdef __x86_64__
#define WITH_SHUFFLE  __attribute__((target("ssse3")))
#define has_shuffle() __builtin_cpu_supports("ssse3")
#else
#define WITH_SHUFFLE
#define has_shuffle() true
#endif

LOOPS_OF(io, , MODE_IO)
LOOPS_OF(mac, , MODE_MAC)
LOOPS_OF(macswap, WITH_SHUFFLE, MODE_MACSWAP)
LOOPS_OF(macswap_plain, , MODE_MACSWAP)

static enum mode mode_of(const struct packet_run *run)
{
	static const struct option option = {.value = VALUE_WORD, .words = MODE_WORDS};
	int64_t mode = 0;

	option_take(&option, "", run->mode, &mode);
	return (enum mode)mode;
}

static vbn_poll_fn *loop(const struct packet_run *run)
{
	int with = run->capture ? CAPTURES : 0;

	for (int i = 0; i < run->n_devices; i++)
		with |= device_is_file(&run->devices[i]) ? HAS_FILES : 0;
	switch (mode_of(run)) {
	case MODE_IO: return io_loops[with];
	case MODE_MAC: return mac_loops[with];
	default: return has_shuffle() ? macswap_loops[with] : macswap_plain_loops[with];
	}
}

/* ---- the command ---- */

static int setup(struct packet_worker *worker)
{
	const struct fwd_options *own = worker->run->own;

	for (int i = 0; i < worker->n_lanes; i++) {
		struct lane *lane = &worker->lanes[i];

		if (lane->device < own->peers.n)
			mac_parse(own->peers.text[lane->device], lane->peer);
	}
	return 0;
}

static struct net_options net_options(const struct fwd_options *conf)
{
	return (struct net_options){.ips = &conf->ips, .routes = &conf->routes, .forward = true};
}

static int check(const struct packet_run *run, const struct fwd_options *conf)
{
	const struct net_options router = net_options(conf);
	uint8_t parsed[6];

	if (mode_of(run) == MODE_L3)
		return conf->peers.n ? usage_error("option --eth-peer is for fwd mac: l3 finds its "
						   "neighbours' MACs; leave it out")
				     : net_check(&router);
	if (conf->ips.n || conf->routes.n)
		return usage_error(
			"option --%s is for fwd l3: %s looks at no addresses; leave it out",
			conf->ips.n ? "ip" : "route", run->mode);
	if (conf->peers.n && mode_of(run) != MODE_MAC)
		return usage_error(
			"option --eth-peer is for fwd mac: %s sets no MACs; leave it out",
			run->mode);
	for (int i = 0; i < conf->peers.n; i++)
		if (!mac_parse(conf->peers.text[i], parsed))
			return usage_error(
				"option --eth-peer cannot be \"%.80s\": it is no MAC; give one as 02:00:00:00:00:01",
				conf->peers.text[i]);
	return 0;
}

/* The first argument says how; 0 or an exit status. */
static int take_mode(int argc, char **argv, const char **mode)
{
	static const struct option option = {.value = VALUE_WORD, .words = MODE_WORDS};
	int64_t value;

	if (argc < 2 || !strncmp(argv[1], "--", 2))
		return usage_error("the mode is missing: give io, mac, macswap or l3 first");
	*mode = argv[1];
	return option_take(&option, "the mode", argv[1], &value);
}

static int l3_prepare(struct packet_run *run)
{
	const struct net_options router = net_options(run->own);

	return net_prepare(run, &router);
}

static const struct packet_command l2 = {
	.name = "fwd", .setup = setup, .loop = loop, .forwards = true, .endless = true};
static const struct packet_command l3 = {
	.name = "fwd",
	.prepare = l3_prepare,
	.unprepare = net_unprepare,
	.setup = net_setup,
	.teardown = net_teardown,
	.free_workers = net_free_workers,
	.loop = net_loop,
	.delivered = net_delivered,
	.json = net_json,
	.print = net_print,
	.forwards = true,
	.endless = true,
	.own_mac = true,
	.more_bufs = 4096,
};

int cmd_fwd(int argc, char **argv)
{
	static struct packet_run run = {.command = &l2};
	static struct fwd_options conf;
	uint64_t given;
	bool help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
	int status;

	if (!help) {
		status = take_mode(argc, argv, &run.mode);
		if (status)
			return status;
		argc--;
		argv++;
	}
	status = packet_begin(&command, argc, argv, &run, &conf, &given);
	if (status != OPTIONS_OK)
		return status;
	if (mode_of(&run) == MODE_L3)
		run.command = &l3;
	status = check(&run, &conf);
	return status ? status : packet_execute(&run);
}
