/* shm_bench.c - same-host queues against the bare minimum between the same two cores: a ring of one
 * producer and one consumer whose both sides touch every byte, a ping-pong of one cache line, a memcpy
 * in and a memcpy out
 *
 * Large messages go by reference, out of a pool that is shared, and in pieces, out of one that is not. They
 * stand beside two bare ones: what is written is copied into shared memory and out of it; and what is
 * written in shared memory is copied out of it, which is the least there can be.
 *
 * Usage: shm_bench [--rounds N] [--cores A,B] [--realtime] [--json FILE]
 *
 * Two processes, one on each core. In each round every contender runs once, ours beside its bare one;
 * the ratio is of the medians. What cores give changes from minute to minute, so only ratios of one
 * run say something. --realtime asks for SCHED_FIFO, so that other programs do not run in between.
 */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <verbena.h>

enum {
	MOST = 32, /* messages of a burst */
	LINE = 64,
	RING_SLOTS = 1024,
	KIB = 1024,
	COPY_MOST = 1024 * KIB, /* bytes of a message, and of all in the ring */
	COPY_RING = 8 * COPY_MOST,
	COPY_SLOTS = 32,
	MAX_ROUNDS = 101,
};

/* ---- what the two processes share, beside the queues ---- */

struct bare_ring {
	uint64_t head __attribute__((aligned(128)));
	uint64_t tail __attribute__((aligned(128)));
	uint8_t slots[COPY_RING] __attribute__((aligned(4096)));
};

struct shared {
	struct vbn_address address[2][8];
	uint32_t step[2] __attribute__((aligned(128))); /* how far each process is */
	uint32_t ready[2];
	uint64_t begin_ns, end_ns;
	uint64_t sum;
	uint64_t ball[2 * LINE / 8] __attribute__((aligned(128)));
	struct bare_ring ring;
};
static struct shared *shared;

/* ---- one process ---- */

static int me; /* 0 sends */
static struct vbn_worker *worker;
static uint64_t sum;

/* A queue with its pool. */
static struct lane {
	uint32_t size;
	enum vbn_switch shared;
	uint32_t rx_depth, n_bufs;
	int burst;
	struct vbn_pool *pool;
	struct vbn_queue *queue;
} lanes[] = {
	{8 * KIB, VBN_OFF, 0, 4096, MOST, NULL, NULL},
	{8 * KIB, VBN_ON, 0, 2048, MOST, NULL, NULL},
	{8 * KIB, VBN_OFF, 64, 1024, MOST, NULL, NULL},
	{8 * KIB, VBN_ON, 64, 1024, MOST, NULL, NULL},
	{64 * KIB, VBN_OFF, 64, 128, 8, NULL, NULL},
	{64 * KIB, VBN_ON, 64, 128, 8, NULL, NULL},
	{COPY_MOST, VBN_OFF, 16, 32, 2, NULL, NULL},
	{COPY_MOST, VBN_ON, 16, 32, 2, NULL, NULL},
};
enum { N_LANES = sizeof(lanes) / sizeof(lanes[0]) };
static struct lane *lane = lanes; /* of the contender */

static void must(int ret, const char *what)
{
	if (ret < 0)
		die("%s: %s", what, strerror(-ret));
}

/* Both are here. */
static void meet(void)
{
	uint32_t here = ++shared->step[me];

	__atomic_store_n(&shared->ready[me], here, __ATOMIC_RELEASE);
	while (__atomic_load_n(&shared->ready[!me], __ATOMIC_ACQUIRE) < here)
		;
}

static void open_lane(struct lane *at, struct vbn_port *port)
{
	const struct vbn_pool_conf pool = {
		.n_bufs = at->n_bufs, .data_size = at->size, .memfd = at->shared};
	struct vbn_queue_conf conf = {.rx_depth = at->rx_depth, .by_reference = at->shared};

	must(vbn_pool_create(&pool, &at->pool), "vbn_pool_create");
	conf.rx_pool = at->pool;
	must(vbn_queue_create(worker, port, &conf, &at->queue), "vbn_queue_create");
	vbn_queue_address(at->queue, &shared->address[me][at - lanes]);
}

static bool goes_by_reference(const struct lane *at)
{
	struct vbn_mode modes[32];
	int n = vbn_queue_modes(at->queue, modes, 32);

	for (int i = 0; i < n && i < 32; i++)
		if (!strcmp(modes[i].name, "by_reference"))
			return strcmp(modes[i].effective, "off") != 0;
	return false;
}

/* The peer maps what is shared some time behind the connect. */
static void await_reference(const struct lane *at)
{
	const uint64_t begin = now_ns();

	while (!goes_by_reference(at)) {
		if (now_ns() - begin > 10ull * 1000 * 1000 * 1000)
			die("%u bytes do not go by reference", at->size);
		usleep(1000);
	}
}

static void open_queues(void)
{
	struct vbn_port *port;

	must(vbn_init(NULL, NULL), "vbn_init");
	must(vbn_worker_attach(&(struct vbn_worker_conf){0}, &worker), "vbn_worker_attach");
	must(vbn_port_open("shm", NULL, &port), "vbn_port_open");
	for (int i = 0; i < N_LANES; i++)
		open_lane(&lanes[i], port);
	meet();
	for (int i = 0; i < N_LANES; i++)
		must(vbn_queue_connect(lanes[i].queue, &shared->address[!me][i]),
			"vbn_queue_connect");
	for (int i = 0; i < N_LANES; i++)
		if (lanes[i].shared == VBN_ON)
			await_reference(&lanes[i]);
}

/* ---- contenders: `size` bytes, n times; 0 is the sender's half ---- */

static inline __attribute__((always_inline)) void fill(uint8_t *to, size_t size, uint64_t value)
{
	for (size_t i = 0; i < size; i += sizeof(value))
		__builtin_memcpy(to + i, &value, sizeof(value));
}

static inline __attribute__((always_inline)) void read_all(const uint8_t *from, size_t size)
{
	uint64_t value, total = 0;

	for (size_t i = 0; i < size; i += sizeof(value)) {
		__builtin_memcpy(&value, from + i, sizeof(value));
		total += value;
	}
	sum += total;
}

/* Indices are published once a burst, and the other side's is looked at where the known one does not
 * do. */
static inline __attribute__((always_inline)) void bare_send(uint64_t n, size_t size, size_t stride)
{
	struct bare_ring *ring = &shared->ring;
	uint64_t head = 0, tail = 0;

	while (head < n) {
		while (head + MOST - tail > RING_SLOTS)
			tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
		for (int i = 0; i < MOST; i++, head++)
			fill(ring->slots + head % RING_SLOTS * stride, size, head);
		__atomic_store_n(&ring->head, head, __ATOMIC_RELEASE);
	}
}

static inline __attribute__((always_inline)) void bare_receive(
	uint64_t n, size_t size, size_t stride)
{
	struct bare_ring *ring = &shared->ring;
	uint64_t head, tail = 0;

	while (tail < n) {
		while ((head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE)) == tail)
			;
		for (; tail < head; tail++)
			read_all(ring->slots + tail % RING_SLOTS * stride, size);
		__atomic_store_n(&ring->tail, tail, __ATOMIC_RELEASE);
	}
}

#define BARE(name, size, stride)                       \
	static void name(uint64_t n)                   \
	{                                              \
		if (me == 0)                           \
			bare_send(n, size, stride);    \
		else                                   \
			bare_receive(n, size, stride); \
	}
BARE(bare_64, 64, 64)
BARE(bare_8, 8, 8)
BARE(bare_8_lines, 8, 64)

/* What is written is copied into a slot, unless it is written there at once, and out of it. */
static void copy_messages(uint64_t n, size_t size, bool once)
{
	static uint8_t own[COPY_RING];
	const uint64_t slots = COPY_RING / size < COPY_SLOTS ? COPY_RING / size : COPY_SLOTS;
	struct bare_ring *ring = &shared->ring;

	for (uint64_t i = 0; i < n; i++) {
		uint8_t *slot = ring->slots + i % slots * size, *mine = own + i % slots * size;

		if (me == 0) {
			if (!once)
				fill(mine, size, i);
			while (i - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) >= slots)
				;
			if (once)
				fill(slot, size, i);
			else
				memcpy(slot, mine, size);
			__atomic_store_n(&ring->head, i + 1, __ATOMIC_RELEASE);
		} else {
			while (__atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) <= i)
				;
			memcpy(mine, slot, size);
			__atomic_store_n(&ring->tail, i + 1, __ATOMIC_RELEASE);
		}
	}
}

static void bare_copies(uint64_t n)
{
	copy_messages(n, lane->size, false);
}

static void bare_copy(uint64_t n)
{
	copy_messages(n, lane->size, true);
}

/* One that has a second line has its data there. */
static inline __attribute__((always_inline)) void ping(uint64_t n, bool two)
{
	uint64_t *ball = shared->ball;

	for (uint64_t i = 1; i <= n; i++) {
		if (me == 0) {
			if (two)
				fill((uint8_t *)(ball + LINE / 8), LINE, i);
			__atomic_store_n(ball, i, __ATOMIC_RELEASE);
		}
		while (__atomic_load_n(ball, __ATOMIC_ACQUIRE) != (me ? i : i + (1ull << 32)))
			;
		if (two)
			read_all((uint8_t *)(ball + LINE / 8), LINE);
		if (me == 1) {
			if (two)
				fill((uint8_t *)(ball + LINE / 8), LINE, i);
			__atomic_store_n(ball, i + (1ull << 32), __ATOMIC_RELEASE);
		}
	}
}

static void bare_ping(uint64_t n)
{
	ping(n, false);
}

static void bare_ping_2(uint64_t n)
{
	ping(n, true);
}

static inline __attribute__((always_inline)) void shm_send(uint64_t n, size_t size, const int most)
{
	struct vbn_pool *pool = lane->pool;
	struct vbn_queue *queue = lane->queue;
	struct vbn_buf *bufs[MOST];
	uint64_t sent = 0;

	while (sent < n) {
		int done;

		while ((done = vbn_buf_alloc(pool, bufs, most)) == -ENOBUFS)
			vbn_recv(queue, bufs, MOST);
		must(done, "vbn_buf_alloc");
		for (int i = 0; i < most; i++) {
			bufs[i]->len = (uint32_t)size;
			fill(bufs[i]->data, size, sent + (uint64_t)i);
		}
		done = 0;
		do {
			int took = vbn_send(queue, bufs + done, most - done);

			must(took, "vbn_send");
			done += took;
			vbn_flush(queue);
		} while (done < most);
		sent += (uint64_t)most;
	}
	while (vbn_queue_outstanding(queue))
		vbn_recv(queue, bufs, MOST);
}

static inline __attribute__((always_inline)) void shm_receive(uint64_t n, size_t size, bool touch)
{
	struct vbn_queue *queue = lane->queue;
	struct vbn_buf *bufs[MOST];
	uint64_t received = 0;

	while (received < n) {
		int got = vbn_recv(queue, bufs, MOST);

		must(got, "vbn_recv");
		if (touch)
			for (int i = 0; i < got; i++)
				read_all(bufs[i]->data, size);
		vbn_buf_free(bufs, got);
		received += (uint64_t)got;
	}
}

#define SHM(name, size)                             \
	static void name(uint64_t n)                \
	{                                           \
		if (me == 0)                        \
			shm_send(n, size, MOST);    \
		else                                \
			shm_receive(n, size, true); \
	}
SHM(shm_64, 64)
SHM(shm_8, 8)

static void shm_copy(uint64_t n)
{
	if (me == 0)
		shm_send(n, lane->size, lane->burst);
	else
		shm_receive(n, lane->size, false);
}

static void receive_one(void)
{
	struct vbn_buf *buf;
	int got;

	while (!(got = vbn_recv(lane->queue, &buf, 1)))
		;
	must(got, "vbn_recv");
	vbn_buf_free(&buf, 1);
}

static inline __attribute__((always_inline)) void shm_ping(uint64_t n, size_t size)
{
	uint8_t bytes[LINE] = {0};

	for (uint64_t i = 0; i < n; i++) {
		if (me == 1)
			receive_one();
		must(vbn_send_inline(lane->queue, bytes, size), "vbn_send_inline");
		vbn_flush(lane->queue);
		if (me == 0)
			receive_one();
	}
}

static void shm_ping_8(uint64_t n)
{
	shm_ping(n, 8);
}

static void shm_ping_64(uint64_t n)
{
	shm_ping(n, 64);
}

/* ---- rounds ---- */

static const struct contender {
	const char *name;
	void (*run)(uint64_t n);
	uint64_t n;
	double unit;   /* nanoseconds of a run by n and this */
	int bare;      /* the contender that it is compared to; itself: none */
	double wanted; /* of the bare one's rate, or of its time; 0: it is said, no more */
	int lane;
} contenders[] = {
	{"bare ring, 64 B", bare_64, 320000, 1, 0, 0, 0},
	{"shm, 64 B", shm_64, 320000, 1, 0, 0.6, 0},
	{"bare ring, 8 B packed", bare_8, 640000, 1, 2, 0, 0},
	{"bare ring, 8 B in a line each", bare_8_lines, 320000, 1, 3, 0, 0},
	{"shm, 8 B", shm_8, 320000, 1, 3, 0.6, 0},
	{"bare memcpy, 8 KiB", bare_copies, 4096, 1, 5, 0, 0},
	{"bare memcpy once, 8 KiB", bare_copy, 4096, 1, 5, 0, 0},
	{"shm, 8 KiB in pieces", shm_copy, 4096, 1, 5, 0.8, 0},
	{"shm, 8 KiB by reference", shm_copy, 4096, 1, 5, 0.8, 1},
	{"shm, 8 KiB, rx_depth 64, in pieces", shm_copy, 4096, 1, 5, 0.8, 2},
	{"shm, 8 KiB, rx_depth 64, by ref.", shm_copy, 4096, 1, 5, 0.8, 3},
	{"bare memcpy, 64 KiB", bare_copies, 1024, 1, 11, 0, 4},
	{"bare memcpy once, 64 KiB", bare_copy, 1024, 1, 11, 0, 4},
	{"shm, 64 KiB in pieces", shm_copy, 1024, 1, 11, 0.8, 4},
	{"shm, 64 KiB by reference", shm_copy, 1024, 1, 11, 0.8, 5},
	{"bare memcpy, 1 MiB", bare_copies, 64, 1, 15, 0, 6},
	{"bare memcpy once, 1 MiB", bare_copy, 64, 1, 15, 0, 6},
	{"shm, 1 MiB in pieces", shm_copy, 64, 1, 15, 0.8, 6},
	{"shm, 1 MiB by reference", shm_copy, 64, 1, 15, 0.8, 7},
	{"bare ping-pong of a line", bare_ping, 30000, 2, 19, 0, 0},
	{"shm ping-pong, 8 B", shm_ping_8, 30000, 2, 19, 1 / 1.5, 0},
	{"shm ping-pong, 64 B", shm_ping_64, 30000, 2, 19, 1 / 1.5, 0},
	{"bare ping-pong of two lines", bare_ping_2, 30000, 2, 22, 0, 0},
	{"shm ping-pong, 64 B, of these", shm_ping_64, 30000, 2, 22, 1 / 1.5, 0},
};
enum { N_CONTENDERS = sizeof(contenders) / sizeof(contenders[0]) };

static double times[N_CONTENDERS][MAX_ROUNDS];

static void run_one(int which, int round)
{
	const struct contender *contender = &contenders[which];

	lane = &lanes[contender->lane];
	if (me == 0)
		shared->ring.head = shared->ring.tail = shared->ball[0] = 0;
	meet();
	if (me == 0)
		shared->begin_ns = now_ns();
	contender->run(contender->n);
	if (me == 1)
		shared->end_ns = now_ns();
	meet();
	times[which][round] = (double)(shared->end_ns - shared->begin_ns) / (double)contender->n /
		contender->unit;
	meet();
}

static void settle_on(int core, bool realtime)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)core, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("core %d may not be used", core);
	if (realtime &&
		sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 5}))
		die("SCHED_FIFO may not be used: be root, or leave --realtime out");
}

static void report(int rounds, const char *json)
{
	FILE *file = json ? fopen(json, "we") : NULL;
	struct spread spreads[N_CONTENDERS];

	if (json && !file)
		die("%s cannot be written", json);
	printf("%-36s %10s %10s %10s %8s %8s\n", "", "ns median", "10 %", "90 %", "of bare",
		"wanted");
	if (file)
		fprintf(file, "{\"rounds\":%d,\"cases\":[", rounds);
	for (int i = 0; i < N_CONTENDERS; i++)
		spreads[i] = spread_of(times[i], rounds);
	for (int i = 0; i < N_CONTENDERS; i++) {
		const struct contender *contender = &contenders[i];
		double ratio = spreads[contender->bare].median / spreads[i].median;

		printf("%-36s %10.2f %10.2f %10.2f", contender->name, spreads[i].median,
			spreads[i].low, spreads[i].high);
		if (contender->bare != i)
			printf(" %8.2f", ratio);
		if (contender->wanted > 0)
			printf(" %8.2f", contender->wanted);
		printf("\n");
		if (file)
			fprintf(file,
				"%s{\"name\":\"%s\",\"ns\":%.3f,\"of_bare\":%.3f,\"wanted\":%.3f}",
				i ? "," : "", contender->name, spreads[i].median, ratio,
				contender->wanted);
	}
	if (file) {
		fprintf(file, "]}\n");
		fclose(file);
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"rounds", required_argument, NULL, 'r'},
		{"cores", required_argument, NULL, 'c'}, {"realtime", no_argument, NULL, 't'},
		{"json", required_argument, NULL, 'j'}, {0}};
	int rounds = 9, cores[2] = {0, 1}, option, status = 0;
	const char *json = NULL;
	bool realtime = false;
	pid_t other;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'r')
			rounds = atoi(optarg);
		else if (option == 'c' && sscanf(optarg, "%d,%d", &cores[0], &cores[1]) == 2)
			continue;
		else if (option == 't')
			realtime = true;
		else if (option == 'j')
			json = optarg;
		else
			die("usage: shm_bench [--rounds N] [--cores A,B] [--realtime] [--json FILE]");
	}
	if (rounds < 1 || rounds > MAX_ROUNDS)
		die("--rounds is 1 to %d", MAX_ROUNDS);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (shared == MAP_FAILED)
		die("no memory");
	other = fork();
	me = other == 0;
	if (me)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	settle_on(cores[me], false);
	open_queues();
	settle_on(cores[me], realtime);
	for (int round = 0; round < rounds; round++)
		for (int i = 0; i < N_CONTENDERS; i++)
			run_one(i, round);
	settle_on(cores[me], false);
	if (me)
		_exit(sum == 1);
	report(rounds, json);
	waitpid(other, &status, 0);
	return 0;
}
