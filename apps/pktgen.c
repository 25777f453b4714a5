/* pktgen.c - `verbena pktgen`: frames of a protocol at a rate, of sizes, in flows, or a capture in its own time;
 * what comes back is timed */
#include "pktgen.h"

#include <stdlib.h>

#define VALUE(field) offsetof(struct pktgen_options, field)

static const struct option options[] = {
	PACKET_OPTIONS(struct pktgen_options),
	{"duration", "T", VALUE_TIME, VALUE(packet.duration), SECOND / 1000, 365 * DAY, NULL,
		"how long (10 s; with --count or --pcap-replay until all\nis sent)"},
	{"count", "N", VALUE_COUNT, VALUE(count), 1, 1000000000000000, NULL,
		"frames in all (as many as go)"},
	{"rate", "N", VALUE_RATE, VALUE(rate), 1, 1000000000000, NULL,
		"a second in all: frames, as 100k or 1Mpps, or bits on\nthe wire, with FCS, preamble and gap, as 10Gbit. What\nis more than 10 ms late is not made up for (unlimited)"},
	{"window", "N", VALUE_COUNT, VALUE(window), 1, 65536, NULL,
		"frames on their way at once, at most: the next ones go\nwhen some have come back; what has not after 100 ms is\ntaken for lost (unlimited)"},
	{"protocol", "WORD", VALUE_WORD, VALUE(protocol), 0, 0, PROTOCOL_WORDS,
		"udp, tcp (segments of data), tcp-syn, icmp (echo\nrequests; ICMPv6's with IPv6), arp (who has --dst-ip),\nethernet (type 88b5, no IP) (udp)"},
	{"size", "BYTES", VALUE_TEXT, VALUE(size), 0, 0, NULL,
		"of a frame, without FCS (64, or the least that the\nprotocol's headers and a stamp take); A-B is any size\nbetween, by chance; several have their shares behind a\ncolon, as 60:7,590:4,1514:1, which imix stands for"},
	{"seed", "N", VALUE_COUNT, VALUE(seed), 0, UINT32_MAX, NULL,
		"of that chance (0): the same one gives the same sizes"},
	{"flows", "N", VALUE_COUNT, VALUE(flows), 1, MAX_FLOWS, NULL,
		"that frames take turns of (as many as the longest range\nhas); where no range is given by their source ports,\nwhich of icmp are identifiers, of arp by their senders"},
	{"dst-mac", "MAC", VALUE_TEXT, VALUE(dst_mac), 0, 0, NULL,
		"to whom (02:00:00:00:00:00, of a second device :01; of\narp to all)"},
	{"resolve", NULL, VALUE_FLAG, VALUE(resolve), 0, 0, NULL,
		"first ask by ARP or neighbour discovery who has the\n(first) --dst-ip, and send there"},
	{"src-mac", "MAC", VALUE_TEXT, VALUE(src_mac), 0, 0, NULL, "from whom (the device's)"},
	{"dst-ip", "A[-B]", VALUE_TEXT, VALUE(dst_ip), 0, 0, NULL,
		"address or range of them, v4 or v6 (198.19.0.1)"},
	{"src-ip", "A[-B]", VALUE_TEXT, VALUE(src_ip), 0, 0, NULL,
		"the same (198.18.0.1); who asks for them by ARP or\nneighbour discovery is answered"},
	{"dport", "N[-M]", VALUE_TEXT, VALUE(dport), 0, 0, NULL, "port or range of them (9)"},
	{"sport", "N[-M]", VALUE_TEXT, VALUE(sport), 0, 0, NULL, "the same (1024)"},
	{"ttl", "N", VALUE_COUNT, VALUE(ttl), 1, 255, NULL, "or hop limit (64)"},
	{"vlan", "ID", VALUE_COUNT, VALUE(vlan), 1, 4094, NULL, "a tag in each frame (none)"},
	{"pcap-replay", "FILE", VALUE_TEXT, VALUE(replay), 0, 0, NULL,
		"send what is in this capture, with the time between\nframes that they have in it; with --rate at that rate"},
	{"verify", NULL, VALUE_FLAG, VALUE(verify), 0, 0, NULL,
		"every frame must come back: those that do not are lost"},
};

static const struct command command = {
	.name = "pktgen",
	.usage = "[options]",
	.summary =
		"Sends Ethernet frames as fast as they go, or at a rate: UDP, TCP, ICMP or ARP of given sizes, flows, addresses\n"
		"and ports, or what is in a capture. Each has a stamp of its time; what comes back, from verbena fwd macswap,\n"
		"verbena echo or any other that sends it back, is counted, and its round trip is told in percentiles.",
	.more = "In parentheses stands what holds where an option is not given. Sizes take KiB, MiB, GiB; counts k, M, G; rates those,\n"
		"kpps, Mpps, kbit, Mbit, Gbit; times us, ms, s. Flow number N has the N-th address and port of each range, which begins\n"
		"anew behind its end. With two devices each sends, and frames of one may come back by the other.\n"
		"--vbn-page-size=plain|transparent|2M|1G and --vbn-log=LEVEL are the library's own options.\n"
		"\n"
		"examples:\n"
		"  verbena pktgen --device xdp:eth0 --dst-mac 02:00:00:00:00:09 --dst-ip 10.0.0.9\n"
		"                           64-byte frames for 10 s\n"
		"  verbena pktgen --device mlx5_0 --rate 1Mpps --size 64-1500 --flows 1k --json -\n"
		"                           a million a second, in a thousand flows\n"
		"  verbena pktgen --device mlx5_0 --rate 10Gbit --size imix --protocol tcp\n"
		"                           a mix of sizes, in 10 Gbit of wire a second\n"
		"  verbena pktgen --device xdp:eth0 --protocol icmp --src-ip 10.0.0.1 --dst-ip 10.0.0.2 --resolve --rate 100\n"
		"                           pings, of whoever has that address: the round trip's time\n"
		"  verbena pktgen --device tap:a --dst-ip fd00::1-fd00::ff --dport 1000-1999 --count 100k\n"
		"                           ranges of addresses and ports\n"
		"  verbena fwd macswap --device xdp:b     at one end of a veth pair, and at the other\n"
		"  verbena pktgen --device xdp:a --rate 10k --verify\n"
		"                           each must come back: the round trip's time\n"
		"  verbena pktgen --device xdp:eth0 --pcap-replay trace.pcapng\n"
		"                           a capture, in its own time\n"
		"\n"
		"JSON: tool version mode devices seconds received sent drops msg_rate gbit_rate cycles_per_packet queues workers\n"
		"accounted returned lost neighbours percentiles rate replay capture effective stopped errors. `mode` is the protocol,\n"
		"or replay; seconds are from the first frame sent to the last; rate has `wanted`, `sent`, `unit`, `missed` of --rate;\n"
		"msg_rate and gbit_rate (bits of frames, without FCS) are of what was sent. What was received is `returned`,\n"
		"`received` of `neighbours` (ARP and neighbour discovery), or a drop; percentiles are of the round trip, in ns. Of a\n"
		"replay `returned` is what is equal to a frame that was sent, but for its MACs; `not_sent` what of the file was not.\n"
		"\n"
		"exit status: 0 done; 1 a queue failed, nothing was sent, the file is damaged, or with --verify something did not\n"
		"come back; 2 usage; 3 cannot run here; 4 nobody has the address that --resolve asks for; 130 stopped by SIGINT or\n"
		"SIGTERM, with the results so far.\n",
	.options = options,
	.n_options = ARRAY_SIZE(options),
};

static const char *const protocol_names[] = {
	"udp", "tcp", "tcp-syn", "icmp", "arp", "ethernet"}; /* PROTOCOL_WORDS */

static struct pattern pattern;

/* ---- a worker's part ---- */

static int open_source(struct packet_worker *worker, struct pktgen_worker *own)
{
	struct vbn_queue_conf conf = {.transport = VBN_RAW,
		.tx_depth = 64,
		.rx_depth = 64,
		.rx_pool = worker->pool,
		.rx_group = pattern.source_group};
	int err = vbn_queue_create(worker->worker, pattern.source, &conf, &own->source);

	return err ? err : vbn_queue_connect(own->source, NULL);
}

/* A replay is of one queue, so that its order is the file's. */
static void set_up_generator(const struct packet_worker *worker, struct generator *gen, int i)
{
	const struct packet_run *run = worker->run;
	const struct pktgen_options *conf = run->own;
	const int n = conf->replay ? 1 : run->n_workers * worker->n_lanes;
	const int place = worker->index * worker->n_lanes + i;

	gen->lane = &worker->lanes[i];
	gen->sends = !conf->replay || !place;
	gen->per_ns = (double)conf->rate.n / 1e9 / n;
	gen->bits = conf->rate.bits;
	gen->each = gen->bits ? 8 * (sizes_mean(&conf->sizes) + ON_THE_WIRE) : 1;
	gen->limit = UINT64_MAX;
	if (conf->count)
		gen->limit = (uint64_t)conf->count / (uint64_t)n +
			((uint64_t)place < (uint64_t)conf->count % (uint64_t)n);
	gen->flow = pattern.n_flows ? (uint32_t)place % pattern.n_flows : 0;
	gen->random = ((uint32_t)conf->seed * 2654435761u) ^ ((uint32_t)place * 40503u + 1);
	if (pattern.arp)
		memset(gen->lane->peer, 0xff, 6);
	if (conf->dst_mac)
		mac_parse(conf->dst_mac, gen->lane->peer);
	if (conf->src_mac)
		mac_parse(conf->src_mac, gen->lane->mac);
}

static int setup(struct packet_worker *worker)
{
	struct pktgen_worker *own = calloc(1, sizeof(*own));

	if (!own)
		return -ENOMEM;
	worker->own = own;
	own->pattern = &pattern;
	own->conf = worker->run->own;
	own->came_ns = now_ns();
	own->waits = own->conf->resolve;
	if (own->conf->sizes.n == 1 &&
		sizes_least(&own->conf->sizes) == sizes_most(&own->conf->sizes))
		own->fixed_size = own->conf->sizes.parts[0].first;
	own->generators = calloc((size_t)worker->n_lanes, sizeof(*own->generators));
	if (!own->generators)
		return -ENOMEM;
	for (int i = 0; i < worker->n_lanes; i++)
		set_up_generator(worker, &own->generators[i], i);
	return pattern.source && !worker->index ? open_source(worker, own) : 0;
}

/* Frames of the file that its reader has left out; one that there is no buf for waits. */
static void note_source(struct pktgen_worker *own)
{
	struct vbn_drop drops[MAX_NAMED_DROPS];
	int n = own->source ? vbn_queue_drops(own->source, drops, MAX_NAMED_DROPS) : 0;

	for (int i = 0; i < n && i < MAX_NAMED_DROPS; i++)
		if (drops[i].count && strcmp(drops[i].name, "rx_no_buf"))
			drops_add(&own->not_sent, drops[i].name, drops[i].count);
}

/* What it counted stays until the result has been printed. */
static void teardown(struct packet_worker *worker)
{
	struct pktgen_worker *own = worker->own;

	if (!own)
		return;
	vbn_buf_free(own->held + own->first_held, own->n_held);
	own->n_held = 0;
	note_source(own);
	vbn_queue_destroy(own->source);
	own->source = NULL;
}

static void free_workers(struct packet_run *run)
{
	for (int i = 0; i < run->n_workers; i++) {
		struct pktgen_worker *own = run->workers[i].own;

		if (own)
			free(own->generators);
		free(own);
	}
}

static vbn_poll_fn *loop(const struct packet_run *run)
{
	const struct pktgen_options *conf = run->own;

	return conf->replay ? pktgen_replay_loop : pktgen_loop;
}

/* ---- the monitor's questions ---- */

static uint64_t sum_sent(const struct packet_run *run)
{
	return OWN_SUM(run, struct pktgen_worker, sent);
}

static uint64_t sum_returned(const struct packet_run *run)
{
	return OWN_SUM(run, struct pktgen_worker, returned);
}

static uint64_t sum_delivered(const struct packet_run *run)
{
	return sum_returned(run) + OWN_SUM(run, struct pktgen_worker, neighbour_came);
}

static bool is_done(const struct packet_run *run)
{
	const struct pktgen_options *conf = run->own;
	const struct pktgen_worker *first = run->workers[0].own;

	return (conf->count && sum_sent(run) == (uint64_t)conf->count) ||
		(conf->replay && load_once(&first->ended));
}

static bool has_come(const struct packet_run *run)
{
	return sum_returned(run) >= sum_sent(run);
}

/* ---- what it comes to ---- */

static const struct {
	const char *name;
	double percent;
} points[] = {{"min", 0}, {"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}, {"p99.99", 99.99},
	{"p99.999", 99.999}, {"max", 100}};

static const struct histogram *times(const struct packet_run *run)
{
	static struct histogram sum;

	sum = (struct histogram){0};
	for (int w = 0; w < run->n_workers; w++) {
		const struct pktgen_worker *own = run->workers[w].own;

		if (own)
			histogram_add(&sum, &own->times);
	}
	return &sum;
}

static uint64_t point(const struct histogram *sum, size_t i)
{
	return !i ? sum->min : histogram_percentile(sum, points[i].percent);
}

static uint64_t lost(const struct packet_run *run)
{
	uint64_t accounted = sum_returned(run) + OWN_SUM(run, struct pktgen_worker, neighbour_sent);

	return run->sent > accounted ? run->sent - accounted : 0;
}

static bool looks_for_returns(const struct packet_run *run)
{
	const struct pktgen_options *conf = run->own;

	return conf->verify || sum_returned(run);
}

/* The one worker's that replays. */
static const struct pktgen_worker *replayer(const struct packet_run *run)
{
	const struct pktgen_options *conf = run->own;

	return conf->replay ? run->workers[0].own : NULL;
}

static json_t *replay_json(const struct packet_run *run)
{
	const struct pktgen_worker *own = replayer(run);

	return own ? json_pack("{s:s, s:I, s:o}", "file", own->conf->replay, "frames",
			     (json_int_t)own->n_read, "not_sent", drops_json(&own->not_sent))
		   : json_null();
}

static void print_replay(const struct packet_run *run)
{
	const struct pktgen_worker *own = replayer(run);

	if (!own || !own->not_sent.n)
		return;
	printf("of %s not sent:", own->conf->replay);
	for (int i = 0; i < own->not_sent.n; i++)
		printf("%s %s %llu", i ? "," : "", own->not_sent.of[i].name,
			(unsigned long long)own->not_sent.of[i].count);
	putchar('\n');
}

static void add_json(const struct packet_run *run, json_t *root)
{
	const struct histogram *sum = times(run);
	json_t *percentiles = sum->n ? json_object() : json_null();

	for (size_t i = 0; i < ARRAY_SIZE(points) && sum->n; i++)
		json_object_set_new(
			percentiles, points[i].name, json_integer((json_int_t)point(sum, i)));
	json_object_set_new(root, "returned", json_integer((json_int_t)sum_returned(run)));
	json_object_set_new(root, "lost",
		looks_for_returns(run) ? json_integer((json_int_t)lost(run)) : json_null());
	json_object_set_new(root, "neighbours",
		json_pack("{s:I, s:I}", "received",
			(json_int_t)OWN_SUM(run, struct pktgen_worker, neighbour_came), "sent",
			(json_int_t)OWN_SUM(run, struct pktgen_worker, neighbour_sent)));
	json_object_set_new(root, "percentiles", percentiles);
	json_object_set_new(root, "rate", rate_json(run));
	json_object_set_new(root, "replay", replay_json(run));
}

static void print(const struct packet_run *run)
{
	const struct histogram *sum = times(run);

	rate_print(run);
	print_replay(run);
	if (looks_for_returns(run))
		printf("returned %llu, lost %llu\n", (unsigned long long)sum_returned(run),
			(unsigned long long)lost(run));
	if (!sum->n)
		return;
	printf("round trip, us:");
	for (size_t i = 0; i < ARRAY_SIZE(points); i++)
		printf("  %s %.1f", points[i].name, (double)point(sum, i) / 1e3);
	putchar('\n');
}

static int verdict(const struct packet_run *run)
{
	const struct pktgen_options *conf = run->own;

	if (conf->resolve && !neighbours_known(run, &pattern)) {
		say("%s is not known to anybody on the network: it did not answer within 2 s; see that it is up and on the same network as --src-ip, or give --dst-mac",
			conf->dst_ip);
		return STATUS_NO_PEER;
	}
	if (replayer(run) && *replayer(run)->trouble) {
		say("%s", replayer(run)->trouble);
		return STATUS_LOST;
	}
	if (!run->sent) {
		say("no frame was sent: the device took none while the run lasted; see that its link is up");
		return STATUS_LOST;
	}
	if (conf->verify && lost(run)) {
		say("%llu of %llu frames did not come back", (unsigned long long)lost(run),
			(unsigned long long)run->sent);
		return STATUS_LOST;
	}
	return STATUS_DONE;
}

/* ---- the command ---- */

static int check_macs(const struct pktgen_options *conf)
{
	const struct {
		const char *name, *text;
	} macs[] = {{"dst-mac", conf->dst_mac}, {"src-mac", conf->src_mac}};
	uint8_t mac[6];

	for (size_t i = 0; i < ARRAY_SIZE(macs); i++)
		if (macs[i].text && !mac_parse(macs[i].text, mac))
			return usage_error(
				"option --%s cannot be \"%.80s\": it is no MAC; give one as 02:00:00:00:00:01",
				macs[i].name, macs[i].text);
	return 0;
}

static int check_replay(const struct pktgen_options *conf, uint64_t given)
{
	static const char *const made[] = {"size", "flows", "dst-mac", "src-mac", "dst-ip",
		"src-ip", "dport", "sport", "ttl", "vlan", "count", "protocol", "seed", "resolve"};

	for (size_t i = 0; i < ARRAY_SIZE(made) && conf->replay; i++)
		if (option_given(&command, given, made[i]))
			return usage_error(
				"options --pcap-replay and --%s contradict each other: frames are sent as the file has them; leave --%s out",
				made[i], made[i]);
	return 0;
}

/* What a protocol has not is not to be asked for. */
static int check_protocol(const struct pktgen_options *conf, uint64_t given)
{
	static const struct {
		enum protocol protocol;
		const char *name, *option;
	} lacks[] = {
		{PROTOCOL_ICMP, "icmp", "dport"},
		{PROTOCOL_ARP, "arp", "dport"},
		{PROTOCOL_ARP, "arp", "sport"},
		{PROTOCOL_ARP, "arp", "ttl"},
		{PROTOCOL_ARP, "arp", "resolve"},
		{PROTOCOL_ETHERNET, "ethernet", "dport"},
		{PROTOCOL_ETHERNET, "ethernet", "sport"},
		{PROTOCOL_ETHERNET, "ethernet", "ttl"},
		{PROTOCOL_ETHERNET, "ethernet", "dst-ip"},
		{PROTOCOL_ETHERNET, "ethernet", "src-ip"},
		{PROTOCOL_ETHERNET, "ethernet", "flows"},
		{PROTOCOL_ETHERNET, "ethernet", "resolve"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(lacks); i++)
		if (conf->protocol == lacks[i].protocol &&
			option_given(&command, given, lacks[i].option))
			return usage_error(
				"options --protocol %s and --%s contradict each other: its frames have no such thing; leave --%s out",
				lacks[i].name, lacks[i].option, lacks[i].option);
	if (conf->resolve && !conf->dst_ip)
		return usage_error("option --resolve needs --dst-ip: give the address to ask for");
	if (conf->resolve && conf->dst_mac)
		return usage_error(
			"options --resolve and --dst-mac contradict each other: one asks for what the other says; leave one out");
	return 0;
}

static int take_sizes(struct pktgen_options *conf)
{
	static char usual[16];
	uint32_t least;
	int status;

	snprintf(usual, sizeof(usual), "%u", pattern.least > 64 ? pattern.least : 64);
	status = sizes_take(conf->size ? conf->size : usual, &conf->sizes);
	if (status)
		return status;
	if (conf->size && !strcmp(conf->size, "imix"))
		for (int i = 0; i < conf->sizes.n; i++)
			if (conf->sizes.parts[i].first < pattern.least)
				conf->sizes.parts[i].first = conf->sizes.parts[i].last =
					pattern.least;
	least = sizes_least(&conf->sizes);
	if (least >= pattern.least)
		return 0;
	return usage_error(
		"option --size cannot be %u: headers and stamp of such a frame take %u bytes; give at least that",
		least, pattern.least);
}

static int open_replay(const struct pktgen_options *conf)
{
	char name[1100], what[1200];
	struct vbn_rx_rule everything = {.kind = VBN_RULE_EVERYTHING};
	uint32_t id;
	int err;

	pattern.known = known_make();
	if (!pattern.known)
		return cannot(
			"%.1024s cannot be replayed: there is no memory; free some", conf->replay);
	snprintf(name, sizeof(name), "pcap:%.1024s", conf->replay);
	err = vbn_port_open(name, NULL, &pattern.source);
	if (!err)
		err = vbn_rx_group_create(pattern.source, NULL, &pattern.source_group);
	if (!err)
		err = vbn_rx_rule_add(pattern.source_group, &everything, &id);
	snprintf(what, sizeof(what), "%.1024s cannot be replayed", conf->replay);
	return err ? library_failed(err, what) : 0;
}

/* Once the library is there. */
static int prepare(struct packet_run *run)
{
	const struct pktgen_options *conf = run->own;
	uint32_t most = 0;

	if (conf->replay)
		return open_replay(conf);
	for (int i = 0; i < run->n_devices; i++)
		if (!most || run->devices[i].info.frame_mtu < most)
			most = run->devices[i].info.frame_mtu;
	most += pattern.ip_at;
	if (sizes_most(&conf->sizes) > most)
		return usage_error(
			"option --size cannot be %u: the device sends frames of at most %u bytes; give no more, or raise its MTU",
			sizes_most(&conf->sizes), most);
	return 0;
}

static void unprepare(struct packet_run *run)
{
	(void)run;
	vbn_rx_group_destroy(pattern.source_group);
	vbn_port_close(pattern.source);
	known_free(pattern.known);
}

int cmd_pktgen(int argc, char **argv)
{
	static const struct packet_command pktgen = {
		.name = "pktgen",
		.prepare = prepare,
		.unprepare = unprepare,
		.setup = setup,
		.teardown = teardown,
		.free_workers = free_workers,
		.loop = loop,
		.is_done = is_done,
		.has_come = has_come,
		.span = pktgen_span,
		.delivered = sum_delivered,
		.json = add_json,
		.print = print,
		.verdict = verdict,
		.live_table = true,
	};
	static struct packet_run run = {.command = &pktgen};
	static struct pktgen_options conf;
	uint64_t given;
	int status = packet_begin(&command, argc, argv, &run, &conf, &given);

	if (status != OPTIONS_OK)
		return status;
	conf.ttl = conf.ttl ? conf.ttl : 64;
	if (!conf.packet.duration && !conf.count && !conf.replay)
		conf.packet.duration = 10 * SECOND;
	status = check_macs(&conf);
	if (!status && conf.window && conf.packet.cores && strpbrk(conf.packet.cores, ",-"))
		status = usage_error(
			"options --window and --cores contradict each other: what one worker sends may come back to "
			"another; give one core");
	if (!status)
		status = check_replay(&conf, given);
	if (!status)
		status = check_protocol(&conf, given);
	if (!status)
		status = pattern_make(&pattern, &conf);
	if (!status)
		status = take_sizes(&conf);
	run.reads = conf.replay;
	run.reads_by = "pcap-replay";
	run.mode = conf.replay ? "replay" : protocol_names[conf.protocol];
	if (!status)
		status = packet_execute(&run);
	pattern_free(&pattern);
	return status;
}
