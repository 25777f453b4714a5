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
 *     verbena vhca -- ./kv                                  both in this process
 *     ./kv --listen :7472                                   the server, of up to 16 at a time of
 *     ./kv --connect HOST:7472 --keys 100000 --seconds 5    clients
 *
 * A NIC that reads an item while the server writes it gets some of the old and some of the new; the
 * check over the rest of the item tells. No lock, and no part of the server's core in a GET.
 *
 * The two meet in a session over TCP: each says where its queue is, the server where the table is, too.
 * After that it tells when the other one has gone. Their hosts must have the same byte order.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <verbena.h>

enum {
	ITEMS = 16,   /* of a bucket; two are used on average, so that hardly one is ever full */
	WINDOW = 64,  /* operations of a client that are under way */
	TRIES = 1000, /* of a GET */
	CLIENTS = 16, /* of a server, at a time */
	MS = 1000000, /* in ns */
};

static const char *listen_at, *connect_to;
static unsigned long n_keys = 10000;
static double seconds = 1;
static struct vbn_port *port;
static struct vbn_pool *pool;
static uint64_t n_buckets; /* of the table */

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

/* ---- the two ends of a queue ---- */

struct end {
	struct vbn_session *session; /* NULL: there is none */
	struct vbn_queue *queue;
	const char *why; /* it has to go */
};

static struct end ends[1 + CLIENTS]; /* the client's own, and the server's */

struct hello {
	struct vbn_address address;
	struct vbn_handle table; /* the server's */
	uint64_t keys;           /* the client's own are those behind this one */
};

static const struct vbn_session_conf meeting = {.service = "verbena.kv"};

/* Makes the queue, connects it where the peer has said hello already, and says where it is. */
static int introduce(struct end *end, struct hello *mine, const struct hello *peers)
{
	struct vbn_queue_conf conf = {.tx_depth = 4 * WINDOW, /* done ones not yet reaped, too */
		.rx_depth = WINDOW,
		.rx_pool = pool,
		.remote_access = VBN_REMOTE_READ,
		.timeout = VBN_NUM(16), /* 0.3 s: who has died is told by the session, sooner */
		.context = end};

	if (vbn_queue_create(vbn_worker_self(), port, &conf, &end->queue) ||
		(peers && vbn_queue_connect(end->queue, &peers->address)))
		return -1;
	vbn_queue_address(end->queue, &mine->address);
	return vbn_session_send(end->session, mine, sizeof(*mine));
}

static bool hear(struct end *end, struct hello *hello)
{
	return end->session &&
		vbn_session_recv(end->session, hello, sizeof(*hello), 5000ull * MS) ==
		sizeof(*hello);
}

/* ---- the server ---- */

static struct vbn_session_listener *listener;
static struct vbn_export *exported;
static uint64_t n_clients;

/* A PUT's message is the item, with the client's number for it; so is the answer, which has no key where
 * the table had no room. What is stored is there for the NIC before that is on its way: a GET that is
 * begun after it finds it. 1: the buf is the library's again. */
static int put(struct end *end, const struct vbn_event *message)
{
	struct item *new = (struct item *)message->buf->data, *item;
	struct bucket *table = vbn_export_addr(exported);

	if (message->len != sizeof(*new) || !new->key || new->check != check_of(new)) {
		end->why = "it has sent something else than a PUT";
		return 0;
	}
	item = find(&table[hash(new->key) % n_buckets], new->key);
	if (item)
		*item = *new;
	else
		new->key = 0;
	return vbn_send_imm_one(end->queue, message->buf, message->imm);
}

/* A client's hello follows at once, so that others' PUTs hardly wait for it. */
static void admit(struct end *end)
{
	struct hello mine = {.keys = ++n_clients << 32}, peers;

	vbn_export_handle(exported, 0, vbn_export_size(exported), &mine.table);
	if (!hear(end, &peers) || introduce(end, &mine, &peers))
		end->why = "it is no client, or cannot be one";
	else
		fprintf(stderr, "kv: %s is served\n", vbn_session_peer(end->session));
}

/* Before there is a worker: who connects early waits. */
static int serve(void)
{
	struct vbn_export_conf table = {.access = VBN_REMOTE_READ};
	const char *address = listen_at ? listen_at : "127.0.0.1:0";

	n_buckets = n_keys / 2 + 1;
	table.size = n_buckets * sizeof(struct bucket);
	if (vbn_export_create(port, &table, &exported) ||
		vbn_session_listen(address, &meeting, &listener))
		return -1;
	address = vbn_session_listener_address(listener);
	fprintf(stderr, "kv: listening on %s\n", address);
	if (!listen_at)
		connect_to = address;
	return 0;
}

/* ---- the client ---- */

struct versions {
	uint64_t sent, stored;
};

struct op {
	uint64_t key, version; /* of a GET, the oldest that is right: 0 where none is stored yet */
	struct versions *versions;
	bool puts; /* and is not answered yet */
	int tries;
};

static struct {
	struct vbn_region table;
	uint64_t keys;
	struct op ops[WINDOW];
	int n_under_way;
	struct versions *versions; /* by key */
	uint64_t n_begun;          /* operations; the first n_keys load the table */
	uint64_t began;            /* those behind */
	double seconds;            /* since then */
	unsigned long gets, puts, torn, wrong;
} client;

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
		item->version <= op->versions->sent;
}

/* 1: staged. The iteration ends with a doorbell for all that is. */
static int stage_get(struct op *op, struct vbn_buf *buf)
{
	struct vbn_remote remote = {0};

	buf->len = sizeof(struct bucket);
	vbn_buf_set_cookie(buf, op);
	vbn_region_at(&client.table, hash(op->key) % n_buckets * buf->len, buf->len, &remote);
	return vbn_read_one(ends->queue, buf, remote);
}

static int stage_put(struct op *op, struct vbn_buf *buf)
{
	buf->len = sizeof(struct item);
	*(struct item *)buf->data = item_of(op->key, op->version);
	return vbn_send_imm_one(ends->queue, buf, (uint32_t)(op - client.ops));
}

/* PUTs of all keys to load them, later one PUT in ten of any. */
static void begin(struct op *op)
{
	uint64_t random = hash(++client.n_begun), number = client.n_begun;
	struct vbn_buf *buf;

	*op = (struct op){.puts = number <= n_keys || random % 10 == 0};
	if (number > n_keys)
		number = 1 + (random >> 8) % n_keys;
	op->key = client.keys + number;
	op->versions = &client.versions[number];
	op->version = op->puts ? ++op->versions->sent : op->versions->stored;
	if (vbn_buf_alloc(pool, &buf, 1) == 1) {
		if ((op->puts ? stage_put(op, buf) : stage_get(op, buf)) == 1)
			return;
		vbn_buf_free(&buf, 1);
	}
	ends->why = "the pool is empty, or the queue takes no more";
}

/* One is done. */
static void go_on(struct op *op)
{
	uint64_t now = vbn_worker_cycles(vbn_worker_self());

	if (!client.began && client.n_begun >= n_keys) {
		client.began = now;
		client.gets = client.puts = 0;
	}
	if (client.began)
		client.seconds = (double)(now - client.began) / (double)vbn_cycles_hz();
	if (client.seconds < seconds && !vbn_worker_stopping(vbn_worker_self()))
		begin(op);
	else if (!--client.n_under_way)
		vbn_stop();
}

/* A bucket has come. 1: the buf is for the same GET again. */
static int got(struct op *op, struct vbn_buf *buf)
{
	struct item *item = find((struct bucket *)buf->data, op->key);

	if (item && item->check != check_of(item) && op->tries++ < TRIES) {
		client.torn++;
		return stage_get(op, buf);
	}
	client.gets++;
	client.wrong += !item || !is_right(op, item);
	go_on(op);
	return 0;
}

static void stored(const struct vbn_event *answer)
{
	const struct item *item = (const struct item *)answer->buf->data;
	struct op *op = &client.ops[answer->imm % WINDOW];

	if (answer->len != sizeof(*item) || !op->puts) {
		ends->why = "it has sent something else than an answer";
	} else if (item->key != op->key) {
		ends->why = "its table has no room for a key";
	} else {
		op->puts = false;
		op->versions->stored = op->version;
		client.puts++;
		go_on(op);
	}
}

static int ask(void)
{
	struct hello hello = {0};
	int err = vbn_session_connect(connect_to, &meeting, &ends->session);

	return err ? err : introduce(ends, &hello, NULL);
}

static int join(void)
{
	struct hello hello;

	if (!hear(ends, &hello) || vbn_handle_open(&hello.table, &client.table) ||
		client.table.len < sizeof(struct bucket) ||
		vbn_queue_connect(ends->queue, &hello.address)) {
		fprintf(stderr, "kv: %s does not let this client in\n", connect_to);
		return -1;
	}
	n_buckets = client.table.len / sizeof(struct bucket);
	client.keys = hello.keys;
	for (; client.n_under_way < WINDOW; client.n_under_way++)
		begin(&client.ops[client.n_under_way]);
	return 0;
}

/* ---- the program ---- */

/* A poll function. */
static int work(struct vbn_worker *worker, void *arg)
{
	struct vbn_event events[WINDOW];
	int n = vbn_poll(worker, events, WINDOW);

	(void)arg;
	for (int i = 0; i < n; i++) {
		struct vbn_event *event = &events[i];
		struct end *end = vbn_queue_context(event->queue);
		int taken = 0; /* 1: the buf is the library's again */

		if (event->op == VBN_OP_FAILED)
			end->why = vbn_queue_error(event->queue);
		else if (event->op == VBN_OP_READ && event->status == VBN_OK)
			taken = got(event->cookie, event->buf);
		else if (event->op == VBN_OP_RECV && end == ends)
			stored(event);
		else if (event->op == VBN_OP_RECV)
			taken = put(end, event);
		if (taken != 1 && event->buf)
			vbn_buf_free(&event->buf, 1);
	}
	return n;
}

/* A timer's: who has come, and who is gone or has to go. */
static void look(struct vbn_worker *worker, void *timer)
{
	for (struct end *end = ends; end < ends + 1 + CLIENTS; end++) {
		if (listener && end != ends && !end->session &&
			!vbn_session_accept(listener, 0, &end->session))
			admit(end);
		if (end->session && vbn_session_status(end->session))
			end->why = vbn_session_error(end->session);
		if (!end->why)
			continue;
		fprintf(stderr, "kv: %s: %s\n", vbn_session_peer(end->session), end->why);
		vbn_session_close(end->session, end->why);
		vbn_queue_destroy(end->queue);
		*end = (struct end){0};
		if (end == ends)
			vbn_stop();
	}
	vbn_timer_start(worker, timer, 10 * MS);
}

/* One worker has both ends where both are here. Where it fails, the library has said why. */
static int set_up(struct vbn_worker *worker, void *timer)
{
	struct vbn_pool_conf conf = {
		.n_bufs = 8 * WINDOW * (CLIENTS + 1), .data_size = sizeof(struct bucket)};

	vbn_timer_init(timer, look, timer);
	if (vbn_pool_create(&conf, &pool) || vbn_worker_add_poll(worker, work, NULL) ||
		(connect_to && ask()))
		return -1;
	look(worker, timer); /* where both are here, it lets the client in */
	return connect_to ? join() : 0;
}

static const char usage[] =
	"usage: kv [--device NAME] [--listen ADDR:PORT | --connect ADDR:PORT] [--keys N] [--seconds S]\n"
	"Loads N keys (10000), up to 2^28, then does nine GETs to a PUT for S seconds (1).\n"
	"A server that listens has room for N keys of all its clients.\n"
	"Exit status: 0 every value was right; 1 one was not, or it could not run; 2 usage.\n";

int main(int argc, char **argv)
{
	static const struct option options[] = {{"device", 1, NULL, 'd'}, {"listen", 1, NULL, 'l'},
		{"connect", 1, NULL, 'c'}, {"keys", 1, NULL, 'k'}, {"seconds", 1, NULL, 's'},
		{"help", 0, NULL, 'h'}, {0}};
	const char *device = "mlx5_0", *wrong;
	int option, err, cores[2], n = vbn_cores_near(-1, cores, 2);
	char core[16]; /* a server leaves the best one to a client on its host */
	struct vbn_timer timer;
	struct vbn_run_conf conf = {.cores = core, .idle_yield = VBN_ON};

	if (vbn_init(&argc, &argv))
		return 1;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (option) {
		case 'd': device = optarg; break;
		case 'l': listen_at = optarg; break;
		case 'c': connect_to = optarg; break;
		case 'k': n_keys = strtoul(optarg, NULL, 10); break;
		case 's': seconds = strtod(optarg, NULL); break;
		case 'h': return fputs(usage, stdout) < 0;
		default: return fputs(usage, stderr) < 0 ? 1 : 2;
		}
	wrong = optind < argc             ? "it takes options only"
		: listen_at && connect_to ? "--listen and --connect are two processes"
		: n_keys - 1 >= 1ul << 28 ? "--keys is from 1 to 2^28"
		: !(seconds > 0)          ? "--seconds is above 0"
					  : NULL;
	if (wrong)
		return fprintf(stderr, "kv: %s\n%s", wrong, usage) < 0 ? 1 : 2;
	client.versions = calloc(n_keys + 1, sizeof(*client.versions));
	snprintf(core, sizeof(core), "%d", cores[listen_at && n > 1]);
	err = !client.versions || vbn_port_open(device, NULL, &port) || (!connect_to && serve()) ||
		vbn_run(&conf, set_up, &timer) < 0 || client.wrong ||
		(connect_to && (!ends->session || !client.gets));
	if (client.seconds > 0)
		printf("%lu keys loaded, then %.0f GET/s and %.0f PUT/s\n%lu values read, %lu of them wrong; %lu torn ones read again\n",
			n_keys, (double)client.gets / client.seconds,
			(double)client.puts / client.seconds, client.gets, client.wrong,
			client.torn);
	for (struct end *end = ends; end < ends + 1 + CLIENTS; end++)
		vbn_session_close(end->session, NULL);
	vbn_session_unlisten(listener);
	vbn_pool_destroy(pool);
	vbn_export_destroy(exported);
	vbn_port_close(port);
	vbn_fini();
	free(client.versions);
	return err;
}
