/* msgrate_device.c - which port a run is on, and which cores */
#include "msgrate.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_PORTS         64
#define SPARE_DESCRIPTORS 12 /* that a port and a run take, at the most */
#define SPARE_SPACE       (32 << 20)

/* ---- the port ---- */

int device_before_library(struct run *run)
{
	const char *why = vhca_why(), *device = run->conf.device;

	run->requested_device = device ? device : "auto";
	if (why)
		snprintf(run->chosen, sizeof(run->chosen), "%s", why);
	if (why && !vhca_is_loaded())
		return cannot(
			"vhca could not be loaded into verbena: the system refuses the preload "
			"of " VHCA_LIBRARY "; name a real device with --device");
	if (device && !strcmp(device, "vhca") && !vhca_is_loaded())
		return vhca_start_over("");
	return 0;
}

const char *device_text(const struct run *run, char text[64])
{
	snprintf(text, 64, "%.40s%s", run->port_info.name,
		vhca_is_loaded() ? ", emulated (vhca)" : "");
	return text;
}

/* Known ahead, because a library that runs out of either takes it for a machine without devices. */
static int check_descriptors(void)
{
	int fds[SPARE_DESCRIPTORS], n = 0;

	while (n < SPARE_DESCRIPTORS && (fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		n++;
	for (int i = 0; i < n; i++)
		close(fds[i]);
	if (n == SPARE_DESCRIPTORS || (errno != EMFILE && errno != ENFILE))
		return 0;
	return cannot("no device can be opened: of the %d file descriptors that a run takes %d are "
		      "left; raise ulimit -n",
		SPARE_DESCRIPTORS, n);
}

static int check_address_space(void)
{
	void *space = mmap(NULL, SPARE_SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (space == MAP_FAILED)
		return cannot(
			"no device can be opened: there are no %d MiB of address space left: %s; "
			"raise ulimit -v",
			SPARE_SPACE >> 20, strerror(errno));
	munmap(space, SPARE_SPACE);
	return 0;
}

/* Same-host memory is no network, so nobody gets it unasked; interfaces have no messages. */
static bool is_network(const struct vbn_port_info *info)
{
	return info->link != VBN_LINK_HOST && !port_is_interface(info);
}

static bool usable(const struct vbn_port_info *info)
{
	return info->up && *info->driver && is_network(info);
}

/* Takes those that are no network out of the list: how many are left. */
static int only_networks(struct vbn_port_info *infos, int n)
{
	int kept = 0;

	for (int i = 0; i < n; i++)
		if (is_network(&infos[i]))
			infos[kept++] = infos[i];
	return kept;
}

/* The fastest of those that are up; the first of equals. NULL: none is. */
static const struct vbn_port_info *best_port(const struct vbn_port_info *infos, int n)
{
	const struct vbn_port_info *best = NULL;

	for (int i = 0; i < n; i++)
		if (usable(&infos[i]) && (!best || infos[i].speed_mbit > best->speed_mbit))
			best = &infos[i];
	return best;
}

static void note_chosen(struct run *run, const struct vbn_port_info *port, int n)
{
	if (run->conf.device || *run->chosen)
		return;
	snprintf(run->chosen, sizeof(run->chosen), "using %s (driver %s, %.1f Gbit/s): %s",
		port->name, port->driver, port->speed_mbit / 1000.0,
		n > 1 ? "of the ports that are up, the fastest that Verbena has a driver for"
		      : "it is the only port here");
}

/* Nothing to run on but the emulator. */
static int fall_back(const struct vbn_port_info *infos, int n)
{
	char why[256] = "using vhca, an emulated ConnectX: there is no RDMA device on this machine";

	if (vhca_is_loaded())
		return cannot(
			"the emulator shows no port that works: %s; look at verbena vhca -- ibv_devinfo",
			n ? "none is up" : "libibverbs finds no device");
	if (n)
		snprintf(why, sizeof(why),
			"using vhca, an emulated ConnectX: of %d ports here none works (%s %s); --device "
			"names one",
			n, infos[0].name, infos[0].up ? "has no driver of Verbena's" : "is down");
	return vhca_start_over(why);
}

/* Names the port where the user leaves it open. */
static int choose(struct run *run, char *name, size_t size)
{
	struct vbn_port_info *infos = calloc(MAX_PORTS, sizeof(*infos));
	const struct vbn_port_info *best;
	int n = infos ? vbn_port_list(infos, MAX_PORTS) : -ENOMEM, status = 0;

	n = n > MAX_PORTS ? MAX_PORTS : n < 0 ? 0 : n;
	n = only_networks(infos, n);
	best = best_port(infos, n);
	if (best) {
		note_chosen(run, best, n);
		snprintf(name, size, "%s", best->name);
	} else {
		status = fall_back(infos, n);
	}
	free(infos);
	return status;
}

static bool port_can(const struct run *run, const char *word)
{
	char words[sizeof(run->port_info.capabilities) + 2], wanted[32];

	snprintf(words, sizeof(words), " %s ", run->port_info.capabilities);
	snprintf(wanted, sizeof(wanted), " %s ", word);
	return strstr(words, wanted);
}

int device_check(struct run *run)
{
	static const char *const transports[] = {"rc", "uc", "ud"};
	const enum msg_op op = (enum msg_op)run->conf.op;
	const char *const connection = transports[run->conf.connection];
	const struct {
		bool wanted;
		const char *word, *text;
	} needs[] = {
		{true, connection, connection},
		{op_has_imm(op), "imm", "immediate data"},
		{op_is_atomic(op), "atomic", "atomics"},
		{op == OP_READ, "read", "reads"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(needs); i++)
		if (needs[i].wanted && !port_can(run, needs[i].word))
			return cannot(
				"port %s%s has no %s, but %s: give another --op or --connection, or another --device",
				run->port_info.name,
				run->port_info.link == VBN_LINK_IWARP ? ", an iWARP one," : "",
				needs[i].text, run->port_info.capabilities);
	if (!port_can(run, "imm"))
		run->credit_len = run->conf.size == 4 ? 8 : 4;
	return 0;
}

int device_open(struct run *run)
{
	const struct msgrate_options *conf = &run->conf;
	struct vbn_port_conf port_conf = {
		.gid_index = {(uint32_t)conf->gid_index, conf->gid_given},
		.mtu = (uint32_t)conf->mtu,
	};
	char name[64], what[128];
	int status, err;

	status = check_descriptors();
	if (!status)
		status = check_address_space();
	if (status)
		return status;
	if (conf->device && strcmp(conf->device, "vhca"))
		snprintf(name, sizeof(name), "%s", conf->device);
	else
		status = choose(run, name, sizeof(name));
	if (status)
		return status;
	err = vbn_port_open(name, &port_conf, &run->port);
	if (err) {
		snprintf(what, sizeof(what), "port %s cannot be opened", name);
		return library_failed(err, what);
	}
	vbn_port_info(run->port, &run->port_info);
	return 0;
}

/* ---- cores ---- */

int cores_parse(struct run *run)
{
	return run->conf.cores ? cores_take(run->conf.cores, run->cores, &run->n_cores) : 0;
}

/* Two busy workers want a third core for all else: the control thread, interrupts, vhca's engine.
 */
int cores_choose(struct run *run)
{
	int cores[2], n;

	if (run->n_cores)
		return 0;
	n = vbn_cores_near(run->port_info.node, cores, ARRAY_SIZE(cores));
	if (n < 1)
		return library_failed(n < 0 ? n : -EPERM, "no core can be found for a worker");
	if (run->conf.listen || run->conf.connect) {
		/* Two processes of one host are not to meet on one core. */
		run->n_cores = 1;
		run->cores[0] = cores[run->conf.listen && n > 1];
		return 0;
	}
	run->n_cores = run->conf.one_worker || n <= 2 ? 1 : 2;
	for (int i = 0; i < run->n_cores; i++)
		run->cores[i] = cores[i];
	return 0;
}
