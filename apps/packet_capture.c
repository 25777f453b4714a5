/* packet_capture.c - --pcap: rings between the workers and a thread that filters and writes pcapng
 *
 * The format is that of the pcapng draft (IETF opsawg): a section, an interface for each device, a packet
 * block with its direction for each frame, and at the end the statistics of each interface, with what did
 * not get into the file.
 */
#include "packet_capture.h"
#include "cmd.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef VBN_HAVE_LIBPCAP
#include <dlfcn.h>
#include <pcap/pcap.h>

/* Debian's name for libpcap.so.1. */
#define VBN_LIBPCAP "libpcap.so.0.8"
#endif

enum {
	SLOTS = 2048, /* of a tap */
	TAKEN = 64,   /* at once by the writer */
	MAX_INTERFACES = 2,
	LINKTYPE_ETHERNET = 1,
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
	uint64_t seen, accepted, written; /* by the writer: came by the ring, matched */
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
	const char *filter; /* in it; NULL */
	FILE *file;
	int error; /* errno's value of what could not be written */
	uint32_t snaplen;
	struct interface interfaces[MAX_INTERFACES];
	int n_interfaces;
	struct capture_tap *taps;
	pthread_t writer;
	bool running, over;
	uint64_t started_ns;
#ifdef VBN_HAVE_LIBPCAP
	struct bpf_program program;
	bool compiled;
#endif
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

/* ---- the file ---- */

static void write_bytes(struct capture *capture, const void *bytes, size_t n)
{
	if (!capture->error && fwrite(bytes, 1, n, capture->file) != n)
		capture->error = errno ? errno : EIO;
}

/* A block: its body is put together here, and padded. */
struct block {
	uint8_t bytes[1024];
	size_t n;
};

static void put(struct block *block, const void *bytes, size_t n)
{
	static const uint8_t pad[4];

	memcpy(block->bytes + block->n, bytes, n);
	memcpy(block->bytes + block->n + n, pad, -n & 3);
	block->n += (n + 3) & ~(size_t)3;
}

static void put_option(struct block *block, uint16_t code, const void *value, size_t n)
{
	const uint16_t head[2] = {code, (uint16_t)n};

	put(block, head, sizeof(head));
	put(block, value, n);
}

static void put_count(struct block *block, uint16_t code, uint64_t value)
{
	put_option(block, code, &value, sizeof(value));
}

/* Times are two halves, the higher one first. */
static void put_time(struct block *block, uint16_t code, uint64_t ns)
{
	const uint32_t halves[2] = {(uint32_t)(ns >> 32), (uint32_t)ns};

	put_option(block, code, halves, sizeof(halves));
}

static void write_block(struct capture *capture, uint32_t type, struct block *block)
{
	uint32_t length = (uint32_t)(block->n + 12);
	const uint32_t head[2] = {type, length};

	write_bytes(capture, head, sizeof(head));
	write_bytes(capture, block->bytes, block->n);
	write_bytes(capture, &length, sizeof(length));
}

static void write_section(struct capture *capture)
{
	struct block block = {.n = 0};
	const uint32_t start[4] = {
		0x1a2b3c4d, 1, 0xffffffff, 0xffffffff}; /* version 1.0, no length */
	static const char *const program = "verbena";

	put(&block, start, sizeof(start));
	put_option(&block, 4, program, strlen(program));
	put_option(&block, 0, "", 0);
	write_block(capture, 0x0a0d0d0a, &block);
}

static void write_interface(struct capture *capture, const struct interface *interface)
{
	struct block block = {.n = 0};
	const uint32_t start[2] = {LINKTYPE_ETHERNET, capture->snaplen};
	const uint8_t nanoseconds = 9;

	put(&block, start, sizeof(start));
	put_option(&block, 2, interface->name, strlen(interface->name));
	put_option(&block, 6, interface->mac, 6);
	put_option(&block, 9, &nanoseconds, 1);
	if (capture->filter) {
		uint8_t text[512] = {0}; /* 0: the text of libpcap */
		size_t n = strlen(capture->filter);

		n = n < sizeof(text) - 1 ? n : sizeof(text) - 1;
		memcpy(text + 1, capture->filter, n);
		put_option(&block, 11, text, n + 1);
	}
	put_option(&block, 0, "", 0);
	write_block(capture, 1, &block);
}

static uint64_t dropped(const struct capture *capture, int interface)
{
	uint64_t sum = 0;

	for (const struct capture_tap *tap = capture->taps; tap; tap = tap->next)
		sum += tap->dropped[interface];
	return sum;
}

static void write_statistics(struct capture *capture, int index)
{
	const struct interface *interface = &capture->interfaces[index];
	uint64_t now = wall_ns(), lost = dropped(capture, index);
	struct block block = {.n = 0};
	const uint32_t start[3] = {(uint32_t)index, (uint32_t)(now >> 32), (uint32_t)now};

	put(&block, start, sizeof(start));
	put_time(&block, 2, capture->started_ns);
	put_time(&block, 3, now);
	put_count(&block, 4, interface->seen + lost);
	put_count(&block, 5, lost);
	put_count(&block, 6, interface->accepted);
	put_count(&block, 8, interface->written);
	put_option(&block, 0, "", 0);
	write_block(capture, 5, &block);
}

static void write_packet(struct capture *capture, const struct slot *slot)
{
	static const uint8_t pad[4];
	const uint32_t n_pad = -slot->captured & 3, length = 32 + slot->captured + n_pad + 12;
	const uint32_t head[7] = {6, length, slot->interface, (uint32_t)(slot->ns >> 32),
		(uint32_t)slot->ns, slot->captured, slot->original};
	const struct {
		uint16_t code, length;
		uint32_t flags, end, total;
	} tail = {2, 4, slot->direction, 0, length};

	static_assert(sizeof(head) + sizeof(tail) == 32 + 12, "with what is around the bytes");
	write_bytes(capture, head, sizeof(head));
	write_bytes(capture, slot->bytes, slot->captured);
	write_bytes(capture, pad, n_pad);
	write_bytes(capture, &tail, sizeof(tail));
}

/* ---- the filter ---- */

#ifdef VBN_HAVE_LIBPCAP

/* Loaded when a filter is asked for: it brings a dozen libraries with it, which no other run needs. */
#define FUNCTIONS(is)                                                                        \
	is(pcap_open_dead) is(pcap_compile) is(pcap_geterr) is(pcap_close) is(pcap_freecode) \
		is(pcap_offline_filter)
#define DECLARE(name)  static __typeof__(name) *libpcap_##name;
#define FIND(name)     *(void **)&libpcap_##name = dlsym(library, #name);
#define IS_THERE(name) libpcap_##name &&

FUNCTIONS(DECLARE)

static bool libpcap_load(void)
{
	void *library = dlopen(VBN_LIBPCAP, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		library = dlopen("libpcap.so.1", RTLD_NOW | RTLD_LOCAL); /* elsewhere */
	if (!library)
		return false;
	FUNCTIONS(FIND)
	return FUNCTIONS(IS_THERE) true;
}

static int filter_compile(struct capture *capture)
{
	pcap_t *dead;
	int status = 0;

	if (!capture->filter)
		return 0;
	if (!libpcap_load())
		return cannot("option --pcap cannot have a filter: " VBN_LIBPCAP
			      " cannot be loaded: %s; "
			      "install libpcap0.8, or leave the filter out",
			dlerror());
	dead = libpcap_pcap_open_dead(DLT_EN10MB, (int)capture->snaplen);
	if (!dead)
		return cannot("the filter of --pcap cannot be compiled: there is no memory");
	if (libpcap_pcap_compile(dead, &capture->program, capture->filter, 1, PCAP_NETMASK_UNKNOWN))
		status = usage_error(
			"option --pcap has the filter \"%.80s\", which is no expression: %s; see man "
			"pcap-filter",
			capture->filter, libpcap_pcap_geterr(dead));
	else
		capture->compiled = true;
	libpcap_pcap_close(dead);
	return status;
}

static bool filter_matches(const struct capture *capture, const struct slot *slot)
{
	const struct pcap_pkthdr header = {.caplen = slot->captured, .len = slot->original};

	return !capture->compiled ||
		libpcap_pcap_offline_filter(&capture->program, &header, slot->bytes);
}

static void filter_free(struct capture *capture)
{
	if (capture->compiled)
		libpcap_pcap_freecode(&capture->program);
}

#else

static int filter_compile(struct capture *capture)
{
	return capture->filter
		? cannot("option --pcap cannot have a filter: verbena was built without "
			 "libpcap; leave \",%.80s\" out, or build it with libpcap-dev",
			  capture->filter)
		: 0;
}

static bool filter_matches(const struct capture *capture, const struct slot *slot)
{
	(void)capture, (void)slot;
	return true;
}

static void filter_free(struct capture *capture)
{
	(void)capture;
}

#endif

/* ---- the writer ---- */

static void write_slot(struct capture *capture, const struct slot *slot)
{
	struct interface *interface = &capture->interfaces[slot->interface];

	interface->seen++;
	if (!filter_matches(capture, slot))
		return;
	interface->accepted++;
	write_packet(capture, slot);
	interface->written += !capture->error;
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
		if (written && fflush(capture->file) && !capture->error)
			capture->error = errno;
		written = false;
		usleep(500);
	}
}

/* ---- open and close ---- */

int capture_open(struct capture **result, const char *option, uint32_t snaplen)
{
	struct capture *capture = calloc(1, sizeof(*capture));
	char *comma;
	int status;

	*result = capture;
	if (!capture)
		return cannot("%s cannot be captured to: there is no memory; free some", option);
	capture->snaplen = snaplen;
	capture->path = strdup(option);
	comma = capture->path ? strchr(capture->path, ',') : NULL;
	if (comma) {
		*comma = 0;
		capture->filter = comma[1] ? comma + 1 : NULL;
	}
	status = capture->path ? filter_compile(capture) : STATUS_CANNOT;
	if (status)
		return status;
	capture->file = fopen(capture->path, "we");
	if (!capture->file)
		return cannot(
			"%s: a capture cannot be written there: %s; give --pcap a path in a directory of yours",
			capture->path, strerror(errno));
	setvbuf(capture->file, NULL, _IOFBF, 1 << 18);
	return 0;
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

int capture_start(struct capture *capture)
{
	int err;

	capture->started_ns = wall_ns();
	write_section(capture);
	for (int i = 0; i < capture->n_interfaces; i++)
		write_interface(capture, &capture->interfaces[i]);
	err = pthread_create(&capture->writer, NULL, write_all, capture);
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

int capture_finish(struct capture *capture)
{
	stop_writer(capture);
	for (int i = 0; i < capture->n_interfaces; i++)
		write_statistics(capture, i);
	if (fclose(capture->file) && !capture->error)
		capture->error = errno;
	capture->file = NULL;
	return capture->error ? cannot_write(capture->path, capture->error) : 0;
}

void capture_destroy(struct capture *capture)
{
	if (!capture)
		return;
	stop_writer(capture);
	while (capture->taps) {
		struct capture_tap *tap = capture->taps;

		capture->taps = tap->next;
		vbn_ring_destroy(tap->full);
		vbn_ring_destroy(tap->empty);
		free(tap->slots);
		free(tap);
	}
	if (capture->file)
		fclose(capture->file);
	filter_free(capture);
	free(capture->path);
	free(capture);
}

/* ---- what it came to ---- */

struct totals {
	uint64_t written, filtered, dropped;
};

static struct totals totals(const struct capture *capture)
{
	struct totals sum = {0};

	for (int i = 0; i < capture->n_interfaces; i++) {
		sum.written += capture->interfaces[i].written;
		sum.filtered += capture->interfaces[i].seen - capture->interfaces[i].accepted;
		sum.dropped += dropped(capture, i);
	}
	return sum;
}

json_t *capture_json(const struct capture *capture)
{
	struct totals sum = totals(capture);

	return json_pack("{s:s, s:s?, s:I, s:I, s:I}", "file", capture->path, "filter",
		capture->filter, "written", (json_int_t)sum.written, "filtered",
		(json_int_t)sum.filtered, "dropped", (json_int_t)sum.dropped);
}

void capture_print(const struct capture *capture)
{
	struct totals sum = totals(capture);

	printf("capture %s: %llu frames written, %llu left out by the filter, %llu dropped as the file could not keep up\n",
		capture->path, (unsigned long long)sum.written, (unsigned long long)sum.filtered,
		(unsigned long long)sum.dropped);
}
