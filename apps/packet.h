/* packet.h - what `verbena fwd`, `echo` and `pktgen` share: devices, workers, lanes, capture, the run, its
 * report
 *
 *     run ── worker (one core) ── lane (one queue of one device) ──> the lane that its frames go out by
 *
 *     packet_device.c    which ports, their rx groups and rules
 *     packet_files.c     which files are read and written, and that none is both
 *     packet_worker.c    a worker: its pool, queues, end
 *     packet_run.c       a run from start to exit status; the thread that tells the time
 *     packet_report.c    counts, the table, the live one, JSON
 *     packet_capture.c   --pcap: frames copied into a ring, and the thread that writes them
 *     packet_filter.c    what of them it lets through, by libpcap
 *     packet_pcapng.c    the file
 *
 * Threads: a lane belongs to its worker; the monitor thread reads what it counts by relaxed loads. The main
 * thread reads everything once vbn_run() has returned.
 *
 * Every frame that came is in `received`, and is in `sent` or in a drop by its name: balance_check().
 */
#ifndef PACKET_H
#define PACKET_H

#include "cmd.h"
#include "histogram.h"
#include "packet_capture.h"

#define load_once(ptr)         __atomic_load_n(ptr, __ATOMIC_RELAXED)
#define store_once(ptr, value) __atomic_store_n(ptr, value, __ATOMIC_RELAXED)

#define SECOND                 1000000000ll
#define DAY                    (86400 * SECOND)

enum {
	MAX_DEVICES = 2,
	MAX_BURST = 512,
	MAX_NAMED_DROPS = 16, /* of a queue or a port */
};

/* First in each command's own options. */
struct packet_options {
	struct texts devices;
	const char *cores, *json, *pcap;
	int64_t duration; /* ns; 0: no end */
	int64_t queues, burst, tx_depth, rx_depth, snaplen;
};

#define PACKET_OPTIONS(type)                                                                                                                                                                                          \
	{"device", "NAME", VALUE_TEXTS, offsetof(type, packet.devices), 0, MAX_DEVICES, NULL,                                                                                                                         \
		"a port of raw Ethernet: mlx5_0, tap:NAME, xdp:IFNAME,\npcap:FILE (which is read), pcap:>FILE (written), or vhca,\nan emulated ConnectX; once or twice"},                                             \
		{"cores", "LIST", VALUE_TEXT, offsetof(type, packet.cores), 0, 0, NULL,                                                                                                                               \
			"as 0,2-3; one worker each (one near the device on which\nno other process polls)"},                                                                                                          \
		{"queues", "N", VALUE_COUNT, offsetof(type, packet.queues), 1, 64, NULL,                                                                                                                              \
			"of each device to a worker; what is received is spread\nover all of them by RSS (1)"},                                                                                                       \
		{"burst", "N", VALUE_COUNT, offsetof(type, packet.burst), 1, MAX_BURST, NULL,                                                                                                                         \
			"frames at once, at most (32)"},                                                                                                                                                              \
		{"tx-depth", "N", VALUE_POW2, offsetof(type, packet.tx_depth), 1, 32768, NULL,                                                                                                                        \
			"of a transmit ring; a power of two (1024)"},                                                                                                                                                 \
		{"rx-depth", "N", VALUE_POW2, offsetof(type, packet.rx_depth), 1, 32768, NULL,                                                                                                                        \
			"of a receive ring; a power of two (1024)"},                                                                                                                                                  \
		{"pcap", "FILE[,FILTER]", VALUE_TEXT, offsetof(type, packet.pcap), 0, 0, NULL,                                                                                                                        \
			"capture what is received and sent, as pcapng; of it what\nthe filter, an expression as tcpdump's, lets through.\nFrames that the file cannot keep up with are not in it,\nand are counted"}, \
		{"snaplen", "BYTES", VALUE_SIZE, offsetof(type, packet.snaplen), 64, 65535, NULL,                                                                                                                     \
			"of a frame in the capture (9216)"},                                                                                                                                                          \
	{                                                                                                                                                                                                             \
		"json", "FILE", VALUE_TEXT, offsetof(type, packet.json), 0, 0, NULL,                                                                                                                                  \
			"write the result as one JSON object; - is standard\noutput, which then has nothing else"                                                                                                     \
	}

struct named_count {
	char name[32];
	uint64_t count;
};

/* Names add up. */
struct drops {
	struct named_count of[128];
	int n;
};

json_t *drops_json(const struct drops *drops);
void drops_add(struct drops *drops, const char *name, uint64_t count);
uint64_t drops_total(const struct drops *drops);

struct packet_device {
	struct vbn_port *port;
	struct vbn_port_info info;
	struct vbn_rx_group *group; /* NULL: it transmits only */
	struct vbn_drop before[MAX_NAMED_DROPS];
};

/* Why a frame that was received is not sent: the worker counts it. */
enum drop {
	DROP_TX_RING_FULL,
	DROP_NOT_SENDABLE, /* too long for the device, or too short; or it takes none */
	DROP_QUEUE_FAILED,
	DROP_AT_THE_END, /* came while the run was winding down */
	DROP_STRANGER,   /* pktgen: not one of its own */
	N_DROPS
};
extern const char *const drop_names[N_DROPS];

/* One queue. */
struct lane {
	/* line 0: the loop reads it */
	struct vbn_queue *queue;
	struct lane *out;
	struct capture_tap *tap; /* NULL: no capture */
	uint8_t device;          /* index */
	bool receives, failed;
	bool file;  /* what it receives is read from one */
	bool ended; /* that is at its end: read by the monitor */
	uint32_t tx_depth;
	uint8_t mac[6], peer[6]; /* of the device; whom frames are sent to by it */
	uint64_t drops[N_DROPS]; /* of what it received */
	/* the end, once all is over */
	struct vbn_queue_stats stats cache_aligned;
	struct drops named;
	char error[256];
	int index; /* among the device's */
};

struct packet_run;

struct packet_worker {
	struct packet_run *run;
	struct vbn_worker *worker;
	struct vbn_pool *pool;
	struct lane *lanes;
	int n_lanes;
	int burst;
	int index, core, node;
	bool gone; /* with the run's lock: its queues are, or will be */
	void *own; /* the command's */
	struct vbn_worker_stats start, stop;
	struct capture_tap *tap;
	struct drops named; /* of no one queue; once all is over */
};

/* What a command is, besides its options. */
struct packet_command {
	const char *name;
	/* By the main thread, with the devices open, and before they are closed. May be NULL. */
	int (*prepare)(struct packet_run *run); /* 0 or an exit status */
	void (*unprepare)(struct packet_run *run);
	/* Once all is told: what `setup` made and `teardown` left for the result. May be NULL. */
	void (*free_workers)(struct packet_run *run);
	/* On the worker's thread, behind and before what is the same for all; 0 or -errno. May be NULL. */
	int (*setup)(struct packet_worker *worker);
	void (*teardown)(struct packet_worker *worker);
	vbn_poll_fn *(*loop)(const struct packet_run *run); /* its argument is the packet_worker */
	/* The monitor's: whether there is nothing more to do; once the time is over, whether what is on its
	 * way has come. May be NULL. */
	bool (*is_done)(const struct packet_run *run);
	bool (*has_come)(const struct packet_run *run);
	/* By the main thread, of a result: more keys, lines, and a status. May be NULL. */
	void (*json)(const struct packet_run *run, json_t *root);
	void (*print)(const struct packet_run *run);
	int (*verdict)(const struct packet_run *run);
	/* When it first sent, and when it was done with that, which then is the time of the result; 0: it did
	 * not. NULL: it is the run's. */
	void (*span)(const struct packet_run *run, uint64_t *first, uint64_t *last);
	/* Of frames received, those with an end that is no drop; NULL: those that were sent. */
	uint64_t (*delivered)(const struct packet_run *run);
	bool forwards; /* what was received is sent, or dropped by name */
	bool live_table;
	uint32_t more_bufs; /* of a worker's pool, beside what fills its rings */
	bool endless;       /* a signal is its end */
	bool own_mac;       /* of what a shared device gets only what is for it, not everything */
};

struct packet_run {
	const struct packet_command *command;
	struct packet_options conf;
	const void *own; /* the command's options, whole */
	const char *mode;
	const char *reads,
		*reads_by; /* a file that the command reads by itself, and its option; NULL */
	struct packet_device devices[MAX_DEVICES];
	int n_devices;
	int cores[MAX_CORES];
	int n_cores;
	char cores_why[128];
	struct packet_worker *workers;
	int n_workers;
	struct mode_list modes;
	struct capture *capture;
	/* the monitor */
	pthread_t monitor;
	pthread_mutex_t lock;
	pthread_cond_t change;
	int n_ready;
	bool over;
	bool winding_down; /* relaxed: nothing new is sent */
	uint64_t start_ns, stop_ns;
	uint64_t live_ns, live_received, live_sent;
	/* its result */
	uint64_t received, sent;
	struct drops drops;
	bool balanced;
	int n_failed;
};

/* What is the same for all commands: signals, and the options, into `conf`, which begins with its packet_options.
 * OPTIONS_OK, or the status to leave with. */
int packet_begin(const struct command *command, int argc, char **argv, struct packet_run *run,
	void *conf, uint64_t *given);
/* Runs what the options in run->own ask for. An exit status. */
int packet_execute(struct packet_run *run);

/* A count that each worker has of its own, summed up. Any thread. */
uint64_t packet_own_sum(const struct packet_run *run, size_t offset);
#define OWN_SUM(run, type, member) packet_own_sum(run, offsetof(type, member))

/* ---- packet_device.c ---- */

/* Before the library is started: goes under vhca where the user asks for it. 0 or an exit status. */
int devices_before_library(const struct packet_run *run);
int devices_open(struct packet_run *run);
/* For the workers: with the number of queues known. */
int devices_group(struct packet_run *run);
/* Once all queues are there: what devices have dropped before is not of the run. The monitor's. */
void devices_ready(struct packet_run *run);
void devices_close(struct packet_run *run);
/* A file, and one that is read: "pcap:FROM" or "pcap:FROM>TO", not "pcap:>TO". */
bool device_is_file(const struct packet_device *device);
bool device_is_read(const struct packet_device *device);
/* "tap:a", or "tap:a -> tap:b". */
void devices_text(const struct packet_run *run, char text[160]);
/* "02:00:00:00:00:01". */
bool mac_parse(const char *text, uint8_t mac[6]);

/* ---- packet_files.c ---- */

/* Before any file is opened. 0 or an exit status. */
int files_check(const struct packet_run *run);

/* ---- packet_worker.c ---- */

int workers_make(struct packet_run *run);
void workers_free(struct packet_run *run);
/* For vbn_run(); arg is the run. */
int worker_setup(struct vbn_worker *worker, void *arg);
/* Frees and counts what `lane` received and could not be sent by its `out`, from bufs[at] on; vbn_send() of
 * those before answered `got`. */
void lane_send_rest(struct lane *lane, struct vbn_buf **bufs, int n, int got);
/* The run is winding down: what still comes is not begun with. 0. */
int lane_end_burst(struct lane *lane, struct vbn_buf **bufs, int n);
/* Its queue has failed: the run is over. */
void lane_failed(struct lane *lane);
/* Of a file: nothing came, perhaps as it is at its end. */
void lane_look_for_end(const struct packet_worker *worker, struct lane *lane);
/* Frames that its queue takes now. */
static inline int64_t lane_room(const struct lane *lane)
{
	return lane->tx_depth - (int64_t)vbn_queue_outstanding(lane->queue);
}
/* All that is received comes from files, and those are at their ends. The monitor's. */
bool files_have_ended(const struct packet_run *run);

/* ---- packet_report.c ---- */

/* With the run's lock: queues of a worker that is not gone are there. */
void live_print(struct packet_run *run, uint64_t now);
void packet_result_take(struct packet_run *run);
void packet_result_print(const struct packet_run *run);
json_t *packet_result_json(const struct packet_run *run);
/* All that is known of a failure; then the status. */
int packet_result_verdict(const struct packet_run *run);

static inline double run_seconds(const struct packet_run *run)
{
	return run->stop_ns > run->start_ns ? (double)(run->stop_ns - run->start_ns) / 1e9 : 0;
}

#endif
