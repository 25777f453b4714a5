/* kv.c - a key-value store: GET is an RDMA read of the server's memory, PUT a message to the server
 *
 *        client                                        server
 *
 *   GET  hash of the key: which bucket                 exported table
 *        vbn_read() ----------- its NIC alone -------> [bucket][bucket][bucket][bucket]...
 *        check wrong: torn, so read it again                           ^
 *   PUT  vbn_send(key, value) -----------------------> put() ----------+
 *        acknowledged <------------------------------- vbn_send(), of the same buf
 *
 *     verbena vhca -- ./kv --keys 100000 --seconds 5
 *
 * A NIC that reads an item while the server writes it gets some of the old and some of the new; the
 * check over the rest of the item tells. No lock, and no part of the server's core in a GET.
 *
 * Here both are on one worker, each with a queue of its own. What set_up() gives the one of the other,
 * two addresses and a handle, are plain bytes: between hosts a session carries them.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <verbena.h>

enum {
	ITEMS = 16,  /* of a bucket; two are used on average, so that hardly one is ever full */
	WINDOW = 64, /* operations under way */
};

static struct vbn_port *port;
static unsigned long n_keys = 10000;
static double seconds = 1;

/* ---- the table ---- */

struct item {
	uint64_t check;             /* of all the rest; it is 0 where all the rest is */
	uint64_t key;               /* 0: there is none */
	uint64_t version, value[5]; /* with the others a cache line */
};

struct bucket {
	struct item items[ITEMS];
};

static uint64_t hash(uint64_t key)
{
	key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9;
	key = (key ^ key >> 27) * 0x94d049bb133111eb;
	return key ^ key >> 31;
}

static uint64_t check_of(const struct item *item)
{
	uint64_t check = hash(hash(item->key) ^ item->version);

	for (int i = 0; i < 5; i++)
		check = hash(check ^ item->value[i]);
	return check;
}

/* Where a bucket has the key, or could. NULL: it is full of others. */
static struct item *find(struct bucket *bucket, uint64_t key)
{
	for (int i = 0; i < ITEMS; i++)
		if (bucket->items[i].key == key || !bucket->items[i].key)
			return &bucket->items[i];
	return NULL;
}

/* ---- the server ---- */

static struct {
	struct vbn_queue *queue;
	struct vbn_export *exported;
	struct bucket *table;
	uint64_t n_buckets; /* a power of two */
} server;

/* A PUT's message, and its answer, which has no key where the table had no room. */
struct put {
	struct item item;
	uint64_t op; /* the client's number for it */
};

/* What is stored is there for the NIC before the answer is on its way: a GET that is begun after that
 * finds it. 1: the buf is the library's again. */
static int put(struct vbn_buf *buf)
{
	struct item *new = &((struct put *)buf->data)->item, *item;

	if (buf->len != sizeof(struct put) || !new->key)
		return 0;
	item = find(&server.table[hash(new->key) & (server.n_buckets - 1)], new->key);
	if (item)
		*item = *new;
	else
		new->key = 0;
	return vbn_send_one(server.queue, buf);
}

/* ---- the client ---- */

struct op {
	uint64_t key, version; /* of a GET, the oldest that is right: 0 where none is stored yet */
};

struct versions {
	uint64_t sent, stored;
};

static struct {
	struct vbn_queue *queue;
	struct vbn_pool *pool;
	struct vbn_region table;
	struct op ops[WINDOW];
	int n_under_way;
	struct versions *versions; /* by key */
	uint64_t n_begun;          /* operations; the first n_keys load the table */
	uint64_t began, cycles;    /* the time of those behind */
	unsigned long gets, puts, torn, wrong;
	bool failed;
} client;

static void fail(const char *why)
{
	if (!client.failed)
		fprintf(stderr, "kv: %s\n", why);
	client.failed = true;
	vbn_stop();
}

static struct item item_of(uint64_t key, uint64_t version)
{
	struct item item = {.key = key, .version = version};

	for (uint64_t i = 0; i < 5; i++)
		item.value[i] = hash(key ^ version << 32 ^ i << 60);
	item.check = check_of(&item);
	return item;
}

/* No older than what was stored when it was asked for, and no newer than what was ever sent. */
static bool is_right(const struct op *op, const struct item *item)
{
	struct item right = item_of(op->key, item->version);

	if (!item->key)
		return !op->version;
	return !memcmp(item, &right, sizeof(right)) && item->version >= op->version &&
		item->version <= client.versions[op->key].sent;
}

/* 1: staged. The iteration ends with a doorbell for all that is. */
static int stage_get(struct op *op, struct vbn_buf *buf)
{
	uint64_t n_buckets = client.table.len / sizeof(struct bucket);
	struct vbn_remote remote = {0};

	buf->len = sizeof(struct bucket);
	vbn_buf_set_cookie(buf, op);
	vbn_region_at(
		&client.table, (hash(op->key) & (n_buckets - 1)) * buf->len, buf->len, &remote);
	return vbn_read_one(client.queue, buf, remote);
}

static int stage_put(struct op *op, struct vbn_buf *buf)
{
	struct put put = {item_of(op->key, op->version), (uint64_t)(op - client.ops)};

	buf->len = sizeof(put);
	memcpy(buf->data, &put, sizeof(put));
	return vbn_send_one(client.queue, buf);
}

/* PUTs of all keys to load them, later one PUT in ten of any. */
static void begin(struct op *op)
{
	uint64_t random = hash(++client.n_begun);
	bool loads = client.n_begun <= n_keys, puts = loads || random % 10 == 0;
	struct vbn_buf *buf;

	op->key = loads ? client.n_begun : 1 + (random >> 8) % n_keys;
	op->version = puts ? ++client.versions[op->key].sent : client.versions[op->key].stored;
	if (vbn_buf_alloc(client.pool, &buf, 1) == 1) {
		if ((puts ? stage_put(op, buf) : stage_get(op, buf)) == 1)
			return;
		vbn_buf_free(&buf, 1);
	}
	fail("the pool is empty, or the queue takes no more");
}

/* One is done. */
static void go_on(struct op *op, uint64_t now)
{
	if (!client.began && client.n_begun >= n_keys) {
		client.began = now;
		client.gets = client.puts = 0;
	}
	client.cycles = client.began ? now - client.began : 0;
	if ((double)client.cycles < seconds * (double)vbn_cycles_hz())
		begin(op);
	else if (!--client.n_under_way)
		vbn_stop();
}

/* A bucket has come. 1: the buf is for the same GET again. */
static int got(struct op *op, struct vbn_buf *buf, uint64_t now)
{
	struct item *item = find((struct bucket *)buf->data, op->key);

	if (item && item->check != check_of(item)) {
		client.torn++;
		return stage_get(op, buf);
	}
	client.gets++;
	client.wrong += !item || !is_right(op, item);
	go_on(op, now);
	return 0;
}

static void stored(const struct put *answer, uint64_t now)
{
	struct op *op = &client.ops[answer->op % WINDOW];

	if (answer->item.key != op->key)
		fail("the table has no room for a key");
	client.versions[op->key].stored = op->version;
	client.puts++;
	go_on(op, now);
}

/* ---- the program ---- */

/* A poll function. */
static int work(struct vbn_worker *worker, void *arg)
{
	uint64_t now = vbn_worker_cycles(worker);
	struct vbn_event events[WINDOW];
	int n = vbn_poll(worker, events, WINDOW);

	(void)arg;
	for (int i = 0; i < n; i++) {
		struct vbn_event *event = &events[i];
		int taken = 0; /* 1: the buf is the library's again */

		if (event->op == VBN_OP_FAILED)
			fail(vbn_queue_error(event->queue));
		else if (event->op == VBN_OP_READ && event->status == VBN_OK)
			taken = got(event->cookie, event->buf, now);
		else if (event->op == VBN_OP_RECV && event->queue == server.queue)
			taken = put(event->buf);
		else if (event->op == VBN_OP_RECV)
			stored((const struct put *)event->buf->data, now);
		if (taken != 1 && event->buf)
			vbn_buf_free(&event->buf, 1);
	}
	return n;
}

/* Where it fails, the library has said why. */
static int set_up(struct vbn_worker *worker, void *arg)
{
	struct vbn_pool_conf pool = {.n_bufs = 16 * WINDOW, .data_size = sizeof(struct bucket)};
	struct vbn_queue_conf conf = {.tx_depth = 4 * WINDOW, /* done ones not yet reaped, too */
		.rx_depth = WINDOW,
		.remote_access = VBN_REMOTE_READ};
	struct vbn_export_conf table = {.access = VBN_REMOTE_READ};
	struct vbn_address servers, clients;
	struct vbn_handle handle;

	(void)arg;
	for (server.n_buckets = 1; server.n_buckets * 2 < n_keys;)
		server.n_buckets *= 2;
	table.size = server.n_buckets * sizeof(struct bucket);
	if (vbn_export_create(port, &table, &server.exported) ||
		vbn_pool_create(&pool, &conf.rx_pool) ||
		vbn_queue_create(worker, port, &conf, &server.queue) ||
		vbn_queue_create(worker, port, &conf, &client.queue) ||
		vbn_export_handle(server.exported, 0, table.size, &handle))
		return -1;
	server.table = vbn_export_addr(server.exported);
	client.pool = conf.rx_pool;
	vbn_queue_address(server.queue, &servers); /* these, and the handle, are what travels */
	vbn_queue_address(client.queue, &clients);
	if (vbn_queue_connect(server.queue, &clients) ||
		vbn_queue_connect(client.queue, &servers) ||
		vbn_handle_open(&handle, &client.table))
		return -1;
	for (; client.n_under_way < WINDOW; client.n_under_way++)
		begin(&client.ops[client.n_under_way]);
	return vbn_worker_add_poll(worker, work, NULL);
}

static int usage(FILE *out)
{
	fputs("usage: kv [--device NAME] [--keys N] [--seconds S]\n"
	      "Loads N keys (10000), up to 2^28, then does nine GETs to a PUT for S seconds (1).\n"
	      "Exit status: 0 every value was right; 1 one was not, or it could not run; 2 usage.\n",
		out);
	return out == stderr ? 2 : 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"device", 1, NULL, 'd'}, {"keys", 1, NULL, 'k'},
		{"seconds", 1, NULL, 's'}, {"help", 0, NULL, 'h'}, {0}};
	struct vbn_run_conf run = {.cores = "0"};
	const char *device = "mlx5_0";
	int option, err;
	double time;

	if (vbn_init(&argc, &argv))
		return 1;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (option) {
		case 'd': device = optarg; break;
		case 'k': n_keys = strtoul(optarg, NULL, 10); break;
		case 's': seconds = strtod(optarg, NULL); break;
		default: return usage(option == 'h' ? stdout : stderr);
		}
	if (optind < argc || !n_keys || n_keys > 1 << 28 || !(seconds > 0))
		return usage(stderr);
	client.versions = calloc(n_keys + 1, sizeof(*client.versions));
	err = !client.versions || vbn_port_open(device, NULL, &port) || vbn_run(&run, set_up, NULL);
	time = (double)client.cycles / (double)vbn_cycles_hz();
	if (client.cycles)
		printf("%lu keys loaded, then %.0f GET/s and %.0f PUT/s\n%lu values read, %lu of them wrong; %lu torn ones read again\n",
			n_keys, (double)client.gets / time, (double)client.puts / time, client.gets,
			client.wrong, client.torn);
	vbn_pool_destroy(client.pool);
	vbn_export_destroy(server.exported);
	vbn_port_close(port);
	vbn_fini();
	free(client.versions);
	return err || client.failed || client.wrong || !client.gets;
}
