/* obs.c - telemetry's start and end */

#include "obs/obs.h"
#include "obs/metrics.h"
#include "run/run.h"

#include <stdio.h>
#include <unistd.h>

static const struct counter_name counter_names[] = {
	[OBS_CLIENTS] = {"clients", "clients that connected to the telemetry socket"},
	[OBS_CLIENTS_DROPPED] = {"clients_dropped",
		"clients that were disconnected here, since there were too many or they were gone"},
	[OBS_COMMANDS] = {"commands", "commands that were answered"},
	[OBS_REFUSED] = {"refused", "commands that have no answer"},
	[OBS_SCRAPES] = {"scrapes", "times that metrics were asked for over HTTP"},
};
static_assert(ARRAY_SIZE(counter_names) == OBS_COUNTS, "each count has its name");

static uint64_t counts[OBS_COUNTS];
static struct counter_set counters = {.kind = "telemetry",
	.object = "process",
	.names = counter_names,
	.values = counts,
	.n = OBS_COUNTS};

static struct place place = {.fd = -1};
static pid_t owner; /* a child has the descriptor, but not the place */

void vbn__obs_count(enum obs_count which)
{
	count_add(&counts[which], 1);
}

/* A program that ends without vbn_fini() leaves no socket either. */
static __attribute__((__destructor__)) void leave_at_exit(void)
{
	if (owner == getpid())
		vbn__place_leave(&place);
}

static int start_socket(const char *prefix, char why[256])
{
	int ret = vbn__place_take(prefix, &place, why);

	if (ret)
		return ret;
	owner = getpid();
	ret = vbn__server_start(place.fd);
	if (ret) {
		snprintf(why, 256, "it cannot be watched: %s", strerror(-ret));
		vbn__place_leave(&place);
	}
	return ret;
}

static int start_telemetry(enum vbn_switch wanted, const char *prefix)
{
	char why[256];
	int ret;

	if (!vbn__place_prefix_ok(prefix))
		return fail(EINVAL,
			"option --vbn-file-prefix=%.80s: not understood: it becomes a directory's name; give it up to 48 letters, digits, \".\", \"_\" or \"-\"",
			prefix);
	if (wanted == VBN_OFF)
		return 0;
	ret = start_socket(prefix, why);
	if (!ret) {
		log_debug("telemetry: listens at %s", place.path);
		return 0;
	}
	if (wanted == VBN_ON)
		return fail(-ret,
			"telemetry: cannot be had: %s; set RUNTIME_DIRECTORY to a directory of this user's, or leave --vbn-telemetry=on out",
			why);
	log_info(
		"telemetry: goes without: %s; set RUNTIME_DIRECTORY to a directory of this user's to have it",
		why);
	return 0;
}

static void stop_telemetry(void)
{
	if (place.fd < 0)
		return;
	vbn__server_stop();
	vbn__place_leave(&place);
}

static int start_thread(void)
{
	int ret = vbn__obs_thread_start();

	if (!ret)
		return 0;
	return fail(-ret,
		"telemetry: cannot be had: the system gave no thread or descriptor for it (%s); raise the limit on processes (ulimit -u) or on open files (ulimit -n), or give --vbn-telemetry=off",
		strerror(-ret));
}

int vbn__obs_start(const struct obs_conf *conf)
{
	int ret = start_telemetry(conf->telemetry, conf->prefix ? conf->prefix : "verbena");

	if (!ret && conf->metrics)
		ret = vbn__http_start(conf->metrics);
	if (!ret && (place.fd >= 0 || conf->metrics)) {
		ret = start_thread();
		if (!ret)
			vbn__counters_add(&counters);
	}
	if (ret)
		vbn__obs_stop();
	return ret;
}

void vbn__obs_stop(void)
{
	vbn__obs_thread_stop();
	vbn__counters_remove(&counters);
	vbn__http_stop();
	stop_telemetry();
}
