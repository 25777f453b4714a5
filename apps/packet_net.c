/* packet_net.c - the IP stack under `verbena echo` and `verbena fwd l3`
 *
 * A worker has one end of each device, whatever the number of its queues: what its queues receive is handed
 * in, what is sent goes out by the first of them. With a capture the stack fills checksums in, so that the
 * file has what goes over the wire.
 */
#include "packet_net.h"

#include <stdlib.h>
#include <verbena/net.h>
#include <verbena/udp.h>

enum { STACK_MTU = 9216 };

static struct vbn_net *net;

/* ---- addresses: of each version in turn to the devices ---- */

struct split {
	char of[MAX_DEVICES][1024]; /* as vbn_net_interface_conf has them */
	int n[2];                   /* by version */
};

static int bad_address(const char *text)
{
	return usage_error(
		"option --ip cannot be \"%.80s\": it is no address with its prefix; give it as 10.0.0.1/24 or fd00::1/64",
		text);
}

static int check_address(const char *text, bool *v6)
{
	char address[64], *slash, *end;
	struct vbn_ip ip;
	long length;

	if (strlen(text) >= sizeof(address))
		return bad_address(text);
	strcpy(address, text);
	slash = strchr(address, '/');
	if (!slash)
		return bad_address(text);
	*slash = 0;
	length = strtol(slash + 1, &end, 10);
	*v6 = strchr(address, ':');
	if (vbn_ip_parse(address, &ip) || end == slash + 1 || *end || length < 0 ||
		length > (*v6 ? 128 : 32))
		return bad_address(text);
	return 0;
}

static int take_address(struct split *split, int n_devices, const char *text)
{
	bool v6 = false;
	int status = check_address(text, &v6);
	char *to;

	if (status)
		return status;
	to = split->of[split->n[v6]++ % n_devices];
	if (strlen(to) + strlen(text) + 2 > sizeof(split->of[0]))
		return usage_error("option --ip is given too often: an interface has 16 addresses");
	if (*to)
		strcat(to, ",");
	strcat(to, text);
	return 0;
}

static int split_addresses(const struct texts *ips, int n_devices, struct split *split)
{
	char one[64];
	int status = 0;

	*split = (struct split){.n = {0}};
	for (int i = 0; i < ips->n; i++)
		for (const char *at = ips->text[i]; at && !status;) {
			const char *comma = strchr(at, ',');
			size_t length = comma ? (size_t)(comma - at) : strlen(at);

			if (length >= sizeof(one))
				return bad_address(at);
			memcpy(one, at, length);
			one[length] = 0;
			status = take_address(split, n_devices, one);
			at = comma ? comma + 1 : NULL;
		}
	return status;
}

int net_check(const struct net_options *options)
{
	static struct split split;

	if (!options->ips->n)
		return usage_error(
			"option --ip is missing: give an address of the device's, as 10.0.0.2/24");
	return split_addresses(options->ips, 1, &split);
}

/* ---- the net ---- */

static int add_routes(const struct texts *routes)
{
	char what[128];
	int err = 0;

	for (int i = 0; routes && i < routes->n && !err; i++) {
		struct vbn_net_route route;

		err = vbn_net_route_parse(net, routes->text[i], &route);
		if (!err)
			err = vbn_net_route_add(net, &route);
		snprintf(what, sizeof(what), "route \"%.80s\" cannot be had", routes->text[i]);
	}
	return err ? library_failed(err, what) : 0;
}

/* What a device carries and the stack does. */
static uint32_t choose_mtu(struct packet_run *run, const struct vbn_port_info *info)
{
	struct vbn_mode mode = {
		.name = "ip_mtu", .why = "the longest packet that the IP stack sends"};

	if (info->frame_mtu <= STACK_MTU)
		return info->frame_mtu;
	snprintf(mode.requested, sizeof(mode.requested), "%u", info->frame_mtu);
	snprintf(mode.effective, sizeof(mode.effective), "%d", STACK_MTU);
	mode_list_add(&run->modes, &mode, 1, info->name);
	return STACK_MTU;
}

/* The loopback interface has none. */
static int check_mac(const struct vbn_port_info *info)
{
	static const uint8_t none[6];

	if (!(info->mac[0] & 1) && memcmp(info->mac, none, 6))
		return 0;
	return cannot(
		"port %s has no MAC of its own, so nobody could send to an address there: give a --device that has one, as a TAP or veth device",
		info->name);
}

int net_prepare(struct packet_run *run, const struct net_options *options)
{
	static struct split split;
	static char names[MAX_DEVICES][16];
	struct vbn_net_interface_conf interfaces[MAX_DEVICES] = {0};
	struct vbn_net_conf conf = {.name = run->command->name,
		.interfaces = interfaces,
		.n_interfaces = (uint32_t)run->n_devices,
		.forward = options->forward};
	int status = split_addresses(options->ips, run->n_devices, &split), err;

	for (int i = 0; i < run->n_devices && !status; i++)
		status = check_mac(&run->devices[i].info);
	if (status)
		return status;
	for (int i = 0; i < run->n_devices; i++) {
		const struct vbn_port_info *info = &run->devices[i].info;

		snprintf(names[i], sizeof(names[i]), "if%d", i);
		interfaces[i] = (struct vbn_net_interface_conf){.name = names[i],
			.link = (uint32_t)i,
			.mtu = choose_mtu(run, info),
			.addresses = *split.of[i] ? split.of[i] : NULL};
		memcpy(interfaces[i].mac, info->mac, 6);
	}
	err = vbn_net_create(&conf, &net);
	return err ? library_failed(err, "the IP stack cannot be made")
		   : add_routes(options->routes);
}

void net_unprepare(struct packet_run *run)
{
	(void)run;
	vbn_net_destroy(net);
}

/* ---- a worker's part ---- */

/* Where there is a capture, what is sent goes by here: no more than the queue takes, once it is in the file. */
static int output(struct vbn_buf **bufs, int n, void *arg)
{
	struct lane *lane = arg;
	const int64_t room = lane_room(lane);

	n = n < room ? n : (int)room;
	if (n <= 0)
		return 0;
	capture_burst(lane->tap, lane->device, CAPTURE_SENT, bufs, n);
	return vbn_send(lane->queue, bufs, n);
}

static int attach(struct packet_worker *worker, struct net_worker *own, int device)
{
	struct lane *lane = &worker->lanes[device * (int)worker->run->conf.queues];
	struct vbn_net_end_conf conf = {
		.worker = worker->worker, .link = (uint32_t)device, .pool = worker->pool};

	if (lane->tap) {
		conf.output = output;
		conf.arg = lane;
		conf.checksum_offload = VBN_OFF;
	} else {
		conf.queue = lane->queue;
	}
	return vbn_net_attach(net, &conf, &own->ends[device]);
}

int net_setup(struct packet_worker *worker)
{
	struct net_worker *own = calloc(1, sizeof(*own));
	int err = 0;

	if (!own)
		return -ENOMEM;
	worker->own = own;
	for (int i = 0; i < worker->run->n_devices && !err; i++)
		err = attach(worker, own, i);
	return err;
}

static int note_counter(const char *name, const char *help, uint64_t value, void *arg)
{
	static const char *const fates[] = {
		"delivered", "answered", "consumed", "forwarded", "merged", "handed_over"};
	struct packet_worker *worker = arg;
	struct net_worker *own = worker->own;

	(void)help;
	if (!strncmp(name, "drop_", 5))
		drops_add(&worker->named, name + 5, value);
	for (size_t i = 0; i < ARRAY_SIZE(fates); i++)
		if (!strcmp(name, fates[i]))
			drops_add(&own->fates, name, value);
	if (!strcmp(name, "rx_frames"))
		own->received = value;
	return 0;
}

void net_teardown(struct packet_worker *worker)
{
	struct net_worker *own = worker->own;
	int64_t in = 0, out = 0;

	if (!own)
		return;
	if (own->ends[0]) {
		vbn_net_balance(own->ends[0], &in, &out);
		own->missing = in ? in : out;
		vbn_net_counters(own->ends[0], note_counter, worker);
	}
	vbn_udp_close(own->udp);
	for (int i = 0; i < MAX_DEVICES; i++)
		if (own->ends[i])
			vbn_net_detach(own->ends[i]);
}

void net_free_workers(struct packet_run *run)
{
	for (int i = 0; i < run->n_workers; i++)
		free(run->workers[i].own);
}

/* ---- the loop ---- */

static force_inline int poll_lane(struct packet_worker *worker, struct lane *lane, bool capture)
{
	struct net_worker *own = worker->own;
	struct vbn_net_end *end = own->ends[lane->device];
	struct vbn_buf *bufs[MAX_BURST];
	int n = vbn_recv(lane->queue, bufs, worker->burst);

	if (unlikely(n < 0)) {
		lane_failed(lane);
		return 0;
	}
	if (n && unlikely(vbn_worker_stopping(worker->worker)))
		return lane_end_burst(lane, bufs, n);
	if (!n && unlikely(lane->file))
		lane_look_for_end(worker, lane);
	if (n && capture)
		capture_burst(lane->tap, lane->device, CAPTURE_RECEIVED, bufs, n);
	vbn_net_input(end, bufs, n); /* with none, too: what other workers have for this one */
	vbn_net_flush(end);
	return n;
}

static force_inline int poll_lanes(void *arg, bool capture)
{
	struct packet_worker *worker = arg;
	int did = 0;

	for (int i = 0; i < worker->n_lanes; i++)
		did += poll_lane(worker, &worker->lanes[i], capture);
	return did;
}

static int plain_loop(struct vbn_worker *worker, void *arg)
{
	(void)worker;
	return poll_lanes(arg, false);
}

static int captured_loop(struct vbn_worker *worker, void *arg)
{
	(void)worker;
	return poll_lanes(arg, true);
}

vbn_poll_fn *net_loop(const struct packet_run *run)
{
	return run->capture ? captured_loop : plain_loop;
}

/* ---- what it comes to ---- */

uint64_t net_delivered(const struct packet_run *run)
{
	uint64_t sum = 0;

	for (int i = 0; i < run->n_workers; i++) {
		const struct net_worker *own = run->workers[i].own;

		sum += own ? own->received - (uint64_t)own->missing : 0;
	}
	return sum;
}

static void sum_fates(const struct packet_run *run, struct drops *sum)
{
	*sum = (struct drops){.n = 0};
	for (int i = 0; i < run->n_workers; i++) {
		const struct net_worker *own = run->workers[i].own;

		for (int d = 0; own && d < own->fates.n; d++)
			drops_add(sum, own->fates.of[d].name, own->fates.of[d].count);
	}
}

void net_json(const struct packet_run *run, json_t *root)
{
	static struct drops sum;

	sum_fates(run, &sum);
	json_object_set_new(root, "fates", drops_json(&sum));
}

void net_print(const struct packet_run *run)
{
	static struct drops sum;

	sum_fates(run, &sum);
	fputs("of what was received:", stdout);
	for (int i = 0; i < sum.n; i++)
		printf("%s %s %llu", i ? "," : "", sum.of[i].name,
			(unsigned long long)sum.of[i].count);
	putchar('\n');
}
