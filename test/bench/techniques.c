/* techniques.c - each technique of the mlx5 driver, on against off: instructions and time per
 * message of the call that it is for; 64-byte messages in bursts of 64
 *
 * What a technique saves beyond the core (a fetch over PCIe, a store to a register, an ordered write,
 * a page that the device looks up) only a real device shows: run it there, with --device. What
 * queues share is in compressed.c.
 */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <verbena.h>

/* Linked ahead of libibverbs, where it is; naming it keeps the linker from leaving it out. */
extern const char *vhca_present(void) __attribute__((weak));

enum {
	DEPTH = 256,
	SIZE = 64,
	SMALL = 32,
	/* Bufs that go round one behind the other, each on a page of its own: more than a TLB has. */
	PAGES_DEPTH = 2048,
	PAGES_DATA = 4096,
};

struct loop {
	struct vbn_queue *tx, *rx;
};

static struct vbn_worker *worker;
static struct vbn_port *port, *ordered_ports[2]; /* relaxed_ordering off, on */
static struct vbn_pool *pool, *page_pools[2];    /* of plain pages, of huge ones */
static struct vbn_zone *page_zones[2];
static struct vbn_buf *bufs[BURST], *received[BURST];
static struct loop *in_use;
static uint32_t size;
static int result;

static void must(int error, const char *what)
{
	if (error < 0)
		die("%s failed: %s", what, strerror(-error));
}

/* ---- what is done beside the calls that count ---- */

static void make_messages(void)
{
	if (vbn_buf_alloc(pool, bufs, BURST) != BURST)
		die("the pool has no %d bufs left: something was not freed", BURST);
	for (int i = 0; i < BURST; i++) {
		bufs[i]->len = size;
		memset(bufs[i]->data, i, size);
	}
}

static void take_received(void)
{
	struct patience patience = patience_start();

	for (int got = 0; got < BURST;) {
		int n = vbn_recv(in_use->rx, received, BURST - got);

		must(n, "vbn_recv");
		vbn_buf_free(received, n);
		got += n;
		if (!n)
			patience_wait(&patience, "64 receives");
	}
}

static void take_completed(void)
{
	struct patience patience = patience_start();

	while (vbn_queue_outstanding(in_use->tx)) {
		must(vbn_recv(in_use->tx, received, BURST), "vbn_recv");
		if (vbn_queue_outstanding(in_use->tx))
			patience_wait(&patience, "the send completions");
	}
}

static void send_messages(void)
{
	make_messages();
	if (vbn_send(in_use->tx, bufs, BURST) != BURST)
		die("vbn_send took fewer than %d messages of an empty ring", BURST);
	vbn_flush(in_use->tx);
}

static bool settle_sent(void)
{
	if (result != BURST)
		die("%d of %d messages were taken", result, BURST);
	take_received();
	take_completed();
	return true;
}

static bool settle_reaped(void)
{
	bool all = !vbn_queue_outstanding(in_use->tx);

	must(result, "vbn_recv");
	take_completed();
	return all;
}

static bool settle_received(void)
{
	struct patience patience = patience_start();
	int got = result;

	must(got, "vbn_recv");
	vbn_buf_free(received, got);
	while (got < BURST) {
		int n = vbn_recv(in_use->rx, received, BURST - got);

		must(n, "vbn_recv");
		vbn_buf_free(received, n);
		got += n;
		if (!n)
			patience_wait(&patience, "the rest of 64 receives");
	}
	return result == BURST;
}

/* ---- the calls that count ---- */

static __attribute__((noinline)) void measure_post(void)
{
	result = vbn_send(in_use->tx, bufs, BURST);
	vbn_flush(in_use->tx);
}

static __attribute__((noinline)) void measure_post_lone(void)
{
	int taken = 0;

	for (int i = 0; i < BURST; i++) {
		taken += vbn_send(in_use->tx, &bufs[i], 1);
		vbn_flush(in_use->tx);
	}
	result = taken;
}

static __attribute__((noinline)) void measure_reap(void)
{
	result = vbn_recv(in_use->tx, received, BURST);
}

static __attribute__((noinline)) void measure_receive(void)
{
	result = vbn_recv(in_use->rx, received, BURST);
}

/* ---- the techniques ---- */

enum call { POST, LONE, REAP, RECEIVE };

static void prepare(struct loop *loop, enum call call, uint32_t bytes)
{
	in_use = loop;
	size = bytes;
	if (call == POST || call == LONE) {
		make_messages();
		return;
	}
	send_messages();
	if (call == REAP)
		take_received();
	else
		take_completed();
	rest_us(200);
}

static void doorbell_burst(struct vbn_queue_conf *conf, bool on)
{
	conf->doorbell_burst = on ? VBN_ON : VBN_OFF;
}

static void cq_mod(struct vbn_queue_conf *conf, bool on)
{
	conf->cq_mod = on ? BURST : 1;
}

static void inline_bufs(struct vbn_queue_conf *conf, bool on)
{
	conf->inline_size = (struct vbn_num){SIZE, on};
}

static void blueflame(struct vbn_queue_conf *conf, bool on)
{
	conf->blueflame = on ? VBN_ON : VBN_OFF;
}

static void own_uar(struct vbn_queue_conf *conf, bool on)
{
	conf->own_uar = on ? VBN_ON : VBN_OFF;
}

static void prefetch(struct vbn_queue_conf *conf, bool on)
{
	conf->prefetch = on ? VBN_ON : VBN_OFF;
}

static void cqe_128(struct vbn_queue_conf *conf, bool on)
{
	conf->cqe_size = on ? 128 : 64;
}

static void scatter_to_cqe(struct vbn_queue_conf *conf, bool on)
{
	conf->scatter_to_cqe = on ? VBN_ON : VBN_OFF;
}

static void cqe_compression(struct vbn_queue_conf *conf, bool on)
{
	conf->cqe_compression = on ? VBN_ON : VBN_OFF;
}

/* A completion for each send, compressed or not. */
static void send_compression(struct vbn_queue_conf *conf, bool on)
{
	cqe_compression(conf, on);
	conf->cq_mod = 1;
}

static void templates(struct vbn_queue_conf *conf, bool on)
{
	conf->templates = on ? VBN_ON : VBN_OFF;
}

/* Service level 3, DSCP 26. */
static void sl_and_dscp(struct vbn_queue_conf *conf, bool on)
{
	conf->service_level = (struct vbn_num){3, on};
	conf->traffic_class = (struct vbn_num){26 << 2, on};
}

/* These two are the port's and the pool's. */
static void relaxed_ordering(struct vbn_queue_conf *conf, bool on)
{
	(void)conf, (void)on;
}

static void huge_pages(struct vbn_queue_conf *conf, bool on)
{
	conf->rx_pool = page_pools[on];
	conf->rx_depth = PAGES_DEPTH;
}

/* name, what is called, bytes of a message */
#define TECHNIQUES(X)                               \
	X(doorbell_burst, POST, post, SIZE)         \
	X(cq_mod, REAP, reap, SIZE)                 \
	X(inline_bufs, POST, post, SIZE)            \
	X(blueflame, LONE, post_lone, SIZE)         \
	X(own_uar, POST, post, SIZE)                \
	X(prefetch, RECEIVE, receive, SIZE)         \
	X(cqe_128, RECEIVE, receive, SIZE)          \
	X(scatter_to_cqe, RECEIVE, receive, SMALL)  \
	X(cqe_compression, RECEIVE, receive, SIZE)  \
	X(send_compression, REAP, reap, SIZE)       \
	X(templates, POST, post, SIZE)              \
	X(relaxed_ordering, RECEIVE, receive, SIZE) \
	X(huge_pages, RECEIVE, receive, SIZE)       \
	X(sl_and_dscp, POST, post, SIZE)

#define ENUM(name, call, measured, bytes) T_##name,
enum { TECHNIQUES(ENUM) N_TECHNIQUES };

static struct loop loops[N_TECHNIQUES][2]; /* off, on */

#define PREPARE(name, call, measured, bytes)               \
	static void name##_on(void)                        \
	{                                                  \
		prepare(&loops[T_##name][1], call, bytes); \
	}                                                  \
	static void name##_off(void)                       \
	{                                                  \
		prepare(&loops[T_##name][0], call, bytes); \
	}
TECHNIQUES(PREPARE)

#define settle_post      settle_sent
#define settle_post_lone settle_sent
#define settle_reap      settle_reaped
#define settle_receive   settle_received
#define PAIR(name, call, measured, bytes)                                             \
	{#name, #measured, name, {name##_off, measure_##measured, settle_##measured}, \
		{name##_on, measure_##measured, settle_##measured}},

static const struct technique {
	const char *name, *measured;
	void (*set)(struct vbn_queue_conf *conf, bool on);
	struct act off, on;
} techniques[N_TECHNIQUES] = {TECHNIQUES(PAIR)};

static const struct act *acts[2 * N_TECHNIQUES]; /* off, on of each */

/* ---- set-up ---- */

static struct vbn_queue *create(const struct technique *technique, bool on)
{
	struct vbn_queue_conf conf = {.tx_depth = DEPTH,
		.rx_depth = DEPTH,
		.cq_mod = BURST,
		.rx_pool = pool,
		.tx_pool = pool,
		.inline_size = VBN_NUM(0)};
	struct vbn_queue *queue;

	technique->set(&conf, on);
	must(vbn_queue_create(worker, technique->set == relaxed_ordering ? ordered_ports[on] : port,
		     &conf, &queue),
		technique->name);
	return queue;
}

static void open_loop(struct loop *loop, const struct technique *technique, bool on)
{
	struct vbn_address tx, rx;

	loop->tx = create(technique, on);
	loop->rx = create(technique, on);
	vbn_queue_address(loop->tx, &tx);
	vbn_queue_address(loop->rx, &rx);
	must(vbn_queue_connect(loop->tx, &rx), "vbn_queue_connect");
	must(vbn_queue_connect(loop->rx, &tx), "vbn_queue_connect");
}

/* Where there are no huge pages, those that the kernel makes of plain ones. */
static void make_page_pool(bool huge)
{
	struct vbn_pool_conf pool_conf = {
		.n_bufs = 2 * PAGES_DEPTH + BURST, .data_size = PAGES_DATA};
	struct vbn_zone_conf conf = {.size = vbn_pool_footprint(&pool_conf),
		.pages = huge ? VBN_PAGES_AUTO : VBN_PAGES_PLAIN};

	must(vbn_zone_create(&conf, &page_zones[huge]), "vbn_zone_create");
	pool_conf.zone = page_zones[huge];
	must(vbn_pool_create(&pool_conf, &page_pools[huge]), "vbn_pool_create");
}

static void open_ordered_port(const char *device, bool relaxed)
{
	struct vbn_port_conf conf = {.relaxed_ordering = relaxed ? VBN_ON : VBN_OFF};

	must(vbn_port_open(device, &conf, &ordered_ports[relaxed]), "vbn_port_open");
}

static void open_all(const char *device)
{
	struct vbn_pool_conf pool_conf = {
		.n_bufs = 4 * N_TECHNIQUES * DEPTH + 4 * BURST, .data_size = 256};

	if (vhca_present)
		vhca_present();
	must(vbn_init(NULL, NULL), "vbn_init");
	must(vbn_port_open(device, NULL, &port), "vbn_port_open");
	must(vbn_worker_attach(&(struct vbn_worker_conf){0}, &worker), "vbn_worker_attach");
	must(vbn_pool_create(&pool_conf, &pool), "vbn_pool_create");
	for (int on = 0; on < 2; on++) {
		open_ordered_port(device, on);
		make_page_pool(on);
	}
	for (int i = 0; i < N_TECHNIQUES; i++)
		for (int on = 0; on < 2; on++) {
			open_loop(&loops[i][on], &techniques[i], on);
			acts[2 * i + on] = on ? &techniques[i].on : &techniques[i].off;
		}
}

static void close_all(void)
{
	for (int i = 0; i < N_TECHNIQUES; i++)
		for (int on = 0; on < 2; on++) {
			vbn_queue_destroy(loops[i][on].tx);
			vbn_queue_destroy(loops[i][on].rx);
		}
	vbn_worker_detach(worker);
	vbn_pool_destroy(pool);
	for (int on = 0; on < 2; on++) {
		vbn_pool_destroy(page_pools[on]);
		vbn_zone_destroy(page_zones[on]);
		vbn_port_close(ordered_ports[on]);
	}
	vbn_port_close(port);
	vbn_fini();
}

/* ---- the report ---- */

static const char *page_size(const struct vbn_zone *zone)
{
	static struct vbn_mode modes[8];
	int n = vbn_zone_modes(zone, modes, 8);

	for (int i = 0; i < n; i++)
		if (!strcmp(modes[i].name, "page_size"))
			return modes[i].effective;
	return "unknown";
}

/* Pages that a zone is made of: transparent ones are huge as far as its name says. */
static size_t count_pages(const struct vbn_zone *zone, const char *name)
{
	const size_t kib = vbn_zone_size(zone) >> 10, plain = (size_t)sysconf(_SC_PAGESIZE) >> 10;
	size_t huge = 0;

	if (strstr(name, "GiB"))
		return kib >> 20;
	if (strstr(name, "MiB"))
		return kib >> 11;
	sscanf(name, "transparent, %zu of", &huge);
	return huge / 2048 + (kib - huge) / plain;
}

static void print_pages(FILE *out)
{
	for (int on = 0; on < 2; on++) {
		const char *name = page_size(page_zones[on]);

		fprintf(out, "huge_pages, %s: %zu KiB, %s: %zu pages to look up\n",
			on ? "on" : "off", vbn_zone_size(page_zones[on]) >> 10, name,
			count_pages(page_zones[on], name));
	}
}

/* Packet pacing has no cost to measure: the device has it, or says why not. */
static void print_pacing(FILE *out)
{
	struct vbn_queue_conf conf = {
		.tx_depth = DEPTH, .rx_depth = DEPTH, .rx_pool = pool, .pace_kbit = 1000000};
	struct vbn_queue *queue;
	int ret = vbn_queue_create(worker, port, &conf, &queue);

	fprintf(out, "pacing: %s\n",
		!ret                      ? "the device has it for RC"
			: ret == -ENOTSUP ? "the device has none for RC"
					  : "the device has another range than 1 Gbit/s");
	if (!ret)
		vbn_queue_destroy(queue);
}

struct outcome {
	double ns[2], counts[2]; /* off, on */
};

static void print_table(FILE *out, const struct outcome *outcomes)
{
	fprintf(out, "%-18s%-12s%14s%8s%9s%16s%8s\n", "technique", "call", "instructions", "", "",
		"ns per message", "");
	fprintf(out, "%-18s%-12s%14s%8s%9s%16s%8s\n", "", "", "off", "on", "ratio", "off", "on");
	for (int i = 0; i < N_TECHNIQUES; i++) {
		const struct outcome *o = &outcomes[i];

		fprintf(out, "%-18s%-12s%14.1f%8.1f%9.2f%16.1f%8.1f\n", techniques[i].name,
			techniques[i].measured, o->counts[0], o->counts[1],
			o->counts[1] / o->counts[0], o->ns[0], o->ns[1]);
	}
	print_pages(out);
	print_pacing(out);
}

static void print_json(FILE *out, const struct outcome *outcomes)
{
	fprintf(out, "{\"techniques\": [");
	for (int i = 0; i < N_TECHNIQUES; i++) {
		const struct outcome *o = &outcomes[i];

		fprintf(out, "%s\n  {\"name\": \"%s\", \"call\": \"%s\"", i ? "," : "",
			techniques[i].name, techniques[i].measured);
		if (!isnan(o->counts[0]))
			fprintf(out, ", \"off_instructions\": %.2f, \"on_instructions\": %.2f",
				o->counts[0], o->counts[1]);
		fprintf(out, ", \"off_ns\": %.2f, \"on_ns\": %.2f}", o->ns[0], o->ns[1]);
	}
	fprintf(out, "\n]}\n");
}

static void measure(const char *device, int rounds, const char *json)
{
	struct outcome outcomes[N_TECHNIQUES];
	double counts[2 * N_TECHNIQUES];
	FILE *out = json && strcmp(json, "-") ? fopen(json, "w") : stdout;

	if (!out)
		die("cannot write %s", json);
	for (int i = 0; i < 2 * N_TECHNIQUES; i++)
		counts[i] = NAN;
	for (int i = 0; i < N_TECHNIQUES; i++)
		time_pair(acts + 2 * i, rounds, outcomes[i].ns);
	if (!count_instructions(
		    (const char *const[]){"--device", device, NULL}, counts, 2 * N_TECHNIQUES))
		fprintf(stderr,
			"valgrind is not installed: no instruction counts (.ci/deps test installs it)\n");
	for (int i = 0; i < N_TECHNIQUES; i++)
		memcpy(outcomes[i].counts, counts + 2 * i, sizeof(outcomes[i].counts));
	if (!json || strcmp(json, "-"))
		print_table(stdout, outcomes);
	if (json)
		print_json(out, outcomes);
	if (ferror(out) || fflush(out))
		die("cannot write %s", json);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"device", required_argument, NULL, 'd'},
		{"rounds", required_argument, NULL, 'r'},
		{"json", required_argument, NULL, 'j'},
		{"count", no_argument, NULL, 'c'}, /* by the program itself, under callgrind */
		{},
	};
	const char *device = "mlx5:mlx5_0", *json = NULL;
	int rounds = 300, option;
	bool count = false;

	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (option) {
		case 'd': device = optarg; break;
		case 'r': rounds = (int)strtol(optarg, NULL, 10); break;
		case 'j': json = optarg; break;
		case 'c': count = true; break;
		default:
			fputs("usage: mlx5_techniques [--device NAME] [--rounds N] [--json FILE]\n",
				stderr);
			return 2;
		}
	}
	if (rounds < 1)
		die("--rounds is a number from 1 up");
	open_all(device);
	if (count)
		count_rounds(acts, 2 * N_TECHNIQUES);
	else
		measure(device, rounds, json);
	close_all();
	return 0;
}
