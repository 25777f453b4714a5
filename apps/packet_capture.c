/* packet_capture.c - --pcap: rings between the workers and a thread that filters and writes pcapng: an
 * interface for each device, each frame with its direction, and at the end the statistics of each interface,
 * with what did not get into the file
 */
#include "packet_capture.h"
#include "cmd.h"
#include "packet_filter.h"
#include "packet_pcapng.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
	SLOTS = 2048, /* of a tap */
	TAKEN = 64,   /* at once by the writer */
	MAX_INTERFACES = PCAPNG_INTERFACES,
};

struct slot {
	uint64_t ns;       /* CLOCK_REALTIME */
	uint32_t original; /* bytes of the frame */
	uint32_t captured;
	uint8_t interface, direction;
	uint8_t bytes[];
};

struct interface {
	char name[64];
	uint8_t mac[6];
	uint64_t seen, accepted; /* by the writer: came by the ring, matched */
};

struct capture_tap {
	struct capture *capture;
	struct capture_tap *next;
	struct vbn_ring *full, *empty;
	uint8_t *slots;
	uint32_t snaplen;
	uint64_t dropped[MAX_INTERFACES]; /* by the worker */
};

struct capture {
	char *path;
	const char *expression; /* in it; NULL */
	struct filter *filter;
	struct pcapng *file;
	uint32_t snaplen;
	struct interface interfaces[MAX_INTERFACES];
	int n_interfaces;
	struct capture_tap *taps;
	pthread_t writer;
	bool running, over;
	uint64_t started_ns;
};

static uint64_t wall_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- the worker's side ---- */

static void copy_frame(struct slot *slot, uint32_t most, struct vbn_buf *buf)
{
	uint32_t at = 0;

	slot->original = (uint32_t)vbn_buf_total(buf);
	for (;; buf = buf->next) {
		uint32_t n = buf->len < most - at ? buf->len : most - at;

		memcpy(slot->bytes + at, buf->data, n);
		at += n;
		if (!(buf->flags & VBN_BUF_CHAIN))
			break;
	}
	slot->captured = at;
}

void capture_burst(struct capture_tap *tap, uint32_t interface, enum capture_direction direction,
	struct vbn_buf **bufs, int n)
{
	void *slots[TAKEN];
	const uint64_t ns = wall_ns();

	for (int at = 0, got; at < n; at += got) {
		got = (int)vbn_ring_take(
			tap->empty, slots, (uint32_t)(n - at < TAKEN ? n - at : TAKEN));
		if (!got) {
			vbn_count(&tap->dropped[interface], (uint64_t)(n - at));
			break;
		}
		for (int i = 0; i < got; i++) {
			struct slot *slot = slots[i];

			slot->ns = ns;
			slot->interface = (uint8_t)interface;
			slot->direction = (uint8_t)direction;
			copy_frame(slot, tap->snaplen, bufs[at + i]);
		}
		vbn_ring_put(tap->full, slots, (uint32_t)got);
	}
	vbn_ring_publish(tap->full);
}

/* ---- the writer ---- */

static void write_slot(struct capture *capture, const struct slot *slot)
{
	struct interface *interface = &capture->interfaces[slot->interface];
	const struct pcapng_packet packet = {
		.interface = slot->interface,
		.direction = slot->direction,
		.captured = slot->captured,
		.original = slot->original,
		.ns = slot->ns,
		.bytes = slot->bytes,
	};

	interface->seen++;
	if (!filter_matches(capture->filter, slot->bytes, slot->captured, slot->original))
		return;
	interface->accepted++;
	if (!capture->file->error)
		pcapng_packet(capture->file, &packet);
}

static bool drain_tap(struct capture *capture, struct capture_tap *tap)
{
	void *slots[TAKEN];
	uint32_t n = vbn_ring_take(tap->full, slots, TAKEN);

	for (uint32_t i = 0; i < n; i++)
		write_slot(capture, slots[i]);
	if (!n)
		return false;
	vbn_ring_put(tap->empty, slots, n);
	vbn_ring_publish(tap->empty);
	return true;
}

static bool drain(struct capture *capture)
{
	bool any = false;

	for (struct capture_tap *tap = capture->taps; tap; tap = tap->next)
		any |= drain_tap(capture, tap);
	return any;
}

/* Nobody wakes it, which would be a system call of the worker's. What is written is in the file soon. */
static void *write_all(void *arg)
{
	struct capture *capture = arg;
	bool written = false;

	for (;;) {
		bool over = __atomic_load_n(&capture->over, __ATOMIC_ACQUIRE);

		if (drain(capture)) {
			written = true;
			continue;
		}
		if (over)
			return NULL;
		if (written)
			pcapng_flush(capture->file);
		written = false;
		usleep(500);
	}
}

/* ---- open and close ---- */

int capture_open(struct capture **result, const char *option, uint32_t snaplen)
{
	struct capture *capture = calloc(1, sizeof(*capture));
	char *comma;
	int status = 0, err;

	*result = capture;
	if (!capture)
		return cannot("%s cannot be captured to: there is no memory; free some", option);
	capture->snaplen = snaplen;
	capture->path = strdup(option);
	comma = capture->path ? strchr(capture->path, ',') : NULL;
	if (comma) {
		*comma = 0;
		capture->expression = comma[1] ? comma + 1 : NULL;
	}
	capture->file = malloc(sizeof(*capture->file));
	if (!capture->path || !capture->file)
		return cannot("%s cannot be captured to: there is no memory; free some", option);
	*capture->file = (struct pcapng){.fd = -1};
	if (capture->expression)
		status = filter_compile(&capture->filter, capture->expression, snaplen);
	if (status)
		return status;
	err = pcapng_open(capture->file, capture->path, &capture->over);
	return err
		? cannot("%s: a capture cannot be written there: %s; give --pcap a path in a directory of yours",
			  capture->path, why_not_opened(-err))
		: 0;
}

void capture_interface(struct capture *capture, const char *name, const uint8_t mac[6])
{
	struct interface *interface = &capture->interfaces[capture->n_interfaces++];

	snprintf(interface->name, sizeof(interface->name), "%s", name);
	memcpy(interface->mac, mac, 6);
}

struct capture_tap *capture_tap(struct capture *capture)
{
	const size_t size = (sizeof(struct slot) + capture->snaplen + 63) & ~(size_t)63;
	struct capture_tap *tap = calloc(1, sizeof(*tap));

	if (!tap)
		return NULL;
	tap->next = capture->taps;
	capture->taps = tap;
	tap->capture = capture;
	tap->snaplen = capture->snaplen;
	tap->slots = calloc(SLOTS, size);
	if (!tap->slots || vbn_ring_create(SLOTS, &tap->full) ||
		vbn_ring_create(SLOTS, &tap->empty))
		return NULL;
	for (size_t i = 0; i < SLOTS; i++)
		vbn_ring_put_one(tap->empty, tap->slots + i * size);
	vbn_ring_publish(tap->empty);
	return tap;
}

static void write_start(struct capture *capture)
{
	pcapng_section(capture->file);
	for (int i = 0; i < capture->n_interfaces; i++)
		pcapng_interface(capture->file,
			&(struct pcapng_interface){.name = capture->interfaces[i].name,
				.filter = capture->expression,
				.mac = capture->interfaces[i].mac,
				.snaplen = capture->snaplen});
}

/* Signals are for the thread that waits for the run; a pipe whose reader is gone is an error of write(). */
int capture_start(struct capture *capture)
{
	sigset_t all, before;
	int err;

	capture->started_ns = wall_ns();
	write_start(capture);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&capture->writer, NULL, write_all, capture);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		return cannot("the thread that writes %s cannot be started: %s; raise ulimit -u",
			capture->path, strerror(err));
	capture->running = true;
	return 0;
}

static void stop_writer(struct capture *capture)
{
	if (!capture->running)
		return;
	__atomic_store_n(&capture->over, true, __ATOMIC_RELEASE);
	pthread_join(capture->writer, NULL);
	capture->running = false;
}

static uint64_t dropped(const struct capture *capture, int interface)
{
	uint64_t sum = 0;

	for (const struct capture_tap *tap = capture->taps; tap; tap = tap->next)
		sum += tap->dropped[interface];
	return sum;
}

static void write_statistics(struct capture *capture, uint32_t index)
{
	const struct interface *interface = &capture->interfaces[index];
	const uint64_t lost = dropped(capture, (int)index);

	pcapng_statistics(capture->file, index,
		&(struct pcapng_statistics){.from_ns = capture->started_ns,
			.to_ns = wall_ns(),
			.received = interface->seen + lost,
			.dropped = lost,
			.accepted = interface->accepted,
			.written = capture->file->written[index]});
}

int capture_finish(struct capture *capture)
{
	int err;

	stop_writer(capture);
	pcapng_flush(capture->file); /* which counts what is written */
	for (int i = 0; i < capture->n_interfaces; i++)
		write_statistics(capture, (uint32_t)i);
	err = pcapng_close(capture->file);
	if (err == ETIMEDOUT)
		return cannot(
			"%s could not be written whole: who reads that pipe takes nothing; see that it goes on",
			capture->path);
	return err ? cannot_write(capture->path, err) : 0;
}

void capture_destroy(struct capture *capture)
{
	if (!capture)
		return;
	stop_writer(capture);
	capture->over = true;
	while (capture->taps) {
		struct capture_tap *tap = capture->taps;

		capture->taps = tap->next;
		vbn_ring_destroy(tap->full);
		vbn_ring_destroy(tap->empty);
		free(tap->slots);
		free(tap);
	}
	if (capture->file)
		pcapng_close(capture->file);
	free(capture->file);
	filter_free(capture->filter);
	free(capture->path);
	free(capture);
}

/* ---- what it came to ---- */

/* Each frame that was to be captured is in one of them. */
struct totals {
	uint64_t written, filtered, too_fast, not_written;
};

static struct totals totals(const struct capture *capture)
{
	struct totals sum = {0};

	for (int i = 0; i < capture->n_interfaces; i++) {
		sum.written += capture->file->written[i];
		sum.filtered += capture->interfaces[i].seen - capture->interfaces[i].accepted;
		sum.too_fast += dropped(capture, i);
		sum.not_written += capture->interfaces[i].accepted - capture->file->written[i];
	}
	return sum;
}

json_t *capture_json(const struct capture *capture)
{
	struct totals sum = totals(capture);
	const uint64_t lost = sum.too_fast + sum.not_written;

	return json_pack("{s:s, s:s?, s:I, s:I, s:I, s:{s:I, s:I}}", "file", capture->path,
		"filter", capture->expression, "written", (json_int_t)sum.written, "filtered",
		(json_int_t)sum.filtered, "dropped", (json_int_t)lost, "drops", "too_fast",
		(json_int_t)sum.too_fast, "write_failed", (json_int_t)sum.not_written);
}

void capture_print(const struct capture *capture)
{
	struct totals sum = totals(capture);

	printf("capture %s: %llu frames written, %llu left out by the filter, %llu dropped as the file could not keep up",
		capture->path, (unsigned long long)sum.written, (unsigned long long)sum.filtered,
		(unsigned long long)sum.too_fast);
	if (sum.not_written)
		printf(", %llu as they could not be written", (unsigned long long)sum.not_written);
	putchar('\n');
}
