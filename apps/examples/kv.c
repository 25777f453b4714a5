/* kv.c - a key-value store: GET is an RDMA read of the server's memory, PUT a message to the server
 *
 *        client's worker                               server's worker
 *
 *   GET  hash of the key: which bucket                 exported table
 *        vbn_read() ----------- its NIC alone -------> [bucket][bucket][bucket][bucket]...
 *        check wrong: torn, so read it again                           ^
 *        key not there, bucket full: the next                          | put()
 *   PUT  vbn_send(key, value) -----------------------> vbn_poll() -----+
 *        acknowledged <------------------------------- vbn_send_inline()
 *
 *   verbena vhca -- ./kv                               both in this process
 *   ./kv --listen :7472                                and elsewhere, up to 16 of them:
 *   ./kv --connect HOST:7472 --keys 100000 --seconds 5
 *
 * A NIC that reads a bucket while the server writes it gets some of the old and some of the new; the
 * check over all the rest of the bucket tells. No lock, and no part of the server's core in a GET.
 *
 * The two meet in a session over TCP, and tell each other the addresses of their queues and where
 * the table is. Their hosts must have the same byte order.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <verbena.h>

enum {
	ITEMS = 5,   /* of a bucket */
	PROBES = 4,  /* buckets side by side that may have a key */
	WINDOW = 64, /* operations of a client that are under way */
	BURST = 16,  /* of them begun at once, at least, with one doorbell */
	DEPTH = 256, /* of a send ring: a window, and what is done but not yet known to be */
	SEATS = 16,  /* clients at a time */
	LOOK_NS = 10 * 1000 * 1000, /* from one look at what has come by TCP to the next */
};

static const char *device = "mlx5_0", *listen_at, *connect_to;
static uint32_t keys = 10000;
static double mix_seconds = 1;
static struct vbn_port *port;
static int n_workers;

/* ---- the table ---- */

struct value {
	uint64_t words[5];
};

struct item {
	uint64_t key; /* 0: there is none */
	struct value value;
};

struct bucket {
	uint64_t check; /* of all the rest; it is 0 where all the rest is */
	uint64_t n_changes;
	struct item items[ITEMS];
};
_Static_assert(sizeof(struct bucket) == 256, "four cache lines, read as one");

static uint64_t hash(uint64_t key)
{
	key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9;
	key = (key ^ key >> 27) * 0x94d049bb133111eb;
	return key ^ key >> 31;
}

static uint64_t check_of(const struct bucket *bucket)
{
	uint64_t words[sizeof(*bucket) / 8], check = 0;

	memcpy(words, bucket, sizeof(words));
	for (size_t i = 1; i < sizeof(words) / 8; i++)
		check = hash(check ^ words[i]);
	return check;
}

/* Where a bucket has the key, or could. NULL: it is full of others. Keys are never taken out, so a
 * key that is further on has found this one full. */
static struct item *find(struct bucket *bucket, uint64_t key)
{
	for (int i = 0; i < ITEMS; i++)
		if (bucket->items[i].key == key || !bucket->items[i].key)
			return &bucket->items[i];
	return NULL;
}

/* ---- what the two say: the first pair by TCP, the second by queue ---- */

static const struct vbn_session_conf meeting = {.service = "verbena.kv"};

struct hello {
	struct vbn_address address;
};

struct welcome {
	struct vbn_address address;
	struct vbn_handle table;
	uint32_t client; /* the upper half of its keys, so that clients have keys of their own */
};

struct put {
	uint64_t key;
	struct value value;
	uint64_t op; /* the client's number for it; the answer has it again */
};

struct answer {
	uint64_t op;
	uint64_t stored; /* 0: there is no room for the key */
};

/* ---- the server ---- */

struct seat {
	struct vbn_session *session; /* NULL: it is free */
	struct vbn_queue *queue;     /* NULL until the client has said where its own is */
	const char *why;             /* it has to leave */
};

static struct {
	struct vbn_session_listener *listener;
	struct vbn_export *exported;
	struct bucket *table;
	uint64_t n_buckets; /* a power of two */
	struct vbn_pool *pool;
	struct vbn_timer look;
	struct seat seats[SEATS];
	uint32_t n_clients;
	uint64_t n_puts;
} server;

static bool put(const struct put *request)
{
	for (uint64_t probe = 0; request->key && probe < PROBES; probe++) {
		uint64_t at = (hash(request->key) + probe) & (server.n_buckets - 1);
		struct item *item = find(&server.table[at], request->key);

		if (!item)
			continue;
		*item = (struct item){request->key, request->value};
		server.table[at].n_changes++;
		server.table[at].check = check_of(&server.table[at]);
		server.n_puts++;
		return true;
	}
	return false;
}

static void server_take(struct seat *seat, const struct vbn_event *event)
{
	if (event->op == VBN_OP_FAILED) {
		seat->why = vbn_queue_error(seat->queue);
	} else if (event->op == VBN_OP_RECV && event->len != sizeof(struct put)) {
		seat->why = "it has sent something else than a PUT";
	} else if (event->op == VBN_OP_RECV) {
		const struct put *request = (const struct put *)event->buf->data;
		struct answer answer = {request->op, put(request)};

		/* What put() has stored is there for the NIC before this is on its way: a GET that
		 * is begun after the answer finds it. */
		if (vbn_send_inline(seat->queue, &answer, sizeof(answer)) != 1)
			seat->why = "it does not take its answers";
	}
}

/* Answers the hello of a client with a queue for it. */
static int admit(struct vbn_worker *worker, struct seat *seat, const struct hello *hello)
{
	struct vbn_queue_conf conf = {.tx_depth = DEPTH,
		.rx_depth = WINDOW,
		.rx_pool = server.pool,
		.remote_access = VBN_REMOTE_READ,
		.context = seat};
	struct welcome welcome = {.client = ++server.n_clients};
	size_t size = vbn_export_size(server.exported);
	int err = vbn_queue_create(worker, port, &conf, &seat->queue);

	if (!err)
		err = vbn_queue_connect(seat->queue, &hello->address);
	if (!err)
		err = vbn_export_handle(server.exported, 0, size, &welcome.table);
	if (err)
		return err;
	vbn_queue_address(seat->queue, &welcome.address);
	err = vbn_session_send(seat->session, &welcome, sizeof(welcome));
	if (!err)
		fprintf(stderr, "kv: %s is served\n", vbn_session_peer(seat->session));
	return err;
}

static void attend(struct vbn_worker *worker, struct seat *seat)
{
	struct hello hello;
	int n = vbn_session_recv(seat->session, &hello, sizeof(hello), 0);

	if (n == sizeof(hello) && !seat->queue)
		n = admit(worker, seat, &hello) ? -EPROTO : -ETIMEDOUT;
	if (n != -ETIMEDOUT && !seat->why)
		seat->why = n == -ENOTCONN ? "it has left" : "it is lost, or is no client";
	if (!seat->why)
		return;
	fprintf(stderr, "kv: %s: %s\n", vbn_session_peer(seat->session), seat->why);
	vbn_session_close(seat->session, seat->why);
	vbn_queue_destroy(seat->queue);
	*seat = (struct seat){0};
}

/* A timer's. Who finds no seat free waits for one. */
static void server_look(struct vbn_worker *worker, void *arg)
{
	for (struct seat *seat = server.seats; seat < server.seats + SEATS; seat++) {
		if (!seat->session && vbn_session_accept(server.listener, 0, &seat->session))
			continue;
		attend(worker, seat);
	}
	vbn_timer_start(worker, &server.look, LOOK_NS);
	(void)arg;
}

/* Before there is a worker: who connects early waits. */
static int server_open(const char *address)
{
	struct vbn_export_conf conf = {.access = VBN_REMOTE_READ};
	int err;

	for (server.n_buckets = 1; server.n_buckets * ITEMS < 4ull * keys;)
		server.n_buckets *= 2;
	conf.size = server.n_buckets * sizeof(struct bucket);
	err = vbn_export_create(port, &conf, &server.exported);
	if (err)
		return err;
	server.table = vbn_export_addr(server.exported);
	return vbn_session_listen(address, &meeting, &server.listener);
}

static int server_start(struct vbn_worker *worker)
{
	struct vbn_pool_conf conf = {.n_bufs = 2 * SEATS * WINDOW, .data_size = sizeof(struct put)};

	vbn_timer_init(&server.look, server_look, NULL);
	vbn_timer_start(worker, &server.look, 0);
	return vbn_pool_create(&conf, &server.pool);
}

static void server_close(void)
{
	if (server.n_clients)
		fprintf(stderr,
			"kv: %" PRIu32 " clients, %" PRIu64 " PUTs; the GETs are not seen here\n",
			server.n_clients, server.n_puts);
	for (int i = 0; i < SEATS; i++)
		vbn_session_close(server.seats[i].session, NULL);
	vbn_session_unlisten(server.listener);
	vbn_pool_destroy(server.pool);
	vbn_export_destroy(server.exported);
}

/* ---- the client ---- */

struct op {
	bool under_way, is_put;
	uint32_t number;  /* of the key */
	uint32_t version; /* the value's; of a GET, the oldest that is right */
	uint32_t probe;
};

/* Of the value of a key. */
struct versions {
	uint32_t sent, stored;
};

static struct {
	struct vbn_session *session;
	struct vbn_queue *queue;
	struct vbn_pool *pool;
	struct vbn_timer look;
	struct vbn_region table;
	uint64_t n_buckets, first_key;
	struct versions *versions; /* by number */
	enum { MEETING, LOADING, MIXING, ENDING, OVER } phase;
	struct op ops[WINDOW], *idle[WINDOW]; /* idle: a stack */
	uint32_t n_idle, n_loaded;
	uint64_t random, began, load_cycles, mix_cycles;
	uint64_t gets, puts, torn, further, wrong;
	bool failed;
} client;

static int client_fail(const char *why)
{
	if (!client.failed)
		fprintf(stderr, "kv: %s\n", why);
	client.failed = true;
	vbn_stop();
	return -EPROTO;
}

/* From a value alone one can tell whether it is right. */
static struct value value_of(uint64_t key, uint64_t version)
{
	struct value value = {{version}};

	for (uint64_t i = 1; i < 5; i++)
		value.words[i] = hash(key ^ version << 32 ^ i << 60);
	return value;
}

static void retire(struct op *op)
{
	op->under_way = false;
	client.idle[client.n_idle++] = op;
}

/* Which bucket the operation looks at, and that the buf is for it. */
static struct vbn_remote aim(struct op *op, struct vbn_buf *buf)
{
	uint64_t at = (hash(client.first_key + op->number) + op->probe) & (client.n_buckets - 1);
	struct vbn_remote remote = {0};

	buf->len = sizeof(struct bucket);
	vbn_buf_set_cookie(buf, op);
	vbn_region_at(&client.table, at * buf->len, buf->len, &remote);
	return remote;
}

/* No older than what was stored when it was asked for, and no newer than what was ever sent. */
static bool is_right(const struct op *op, const struct item *item)
{
	uint64_t key = client.first_key + op->number;
	struct value right = value_of(key, item->value.words[0]);

	return item->key == key && !memcmp(&item->value, &right, sizeof(right)) &&
		right.words[0] >= op->version && right.words[0] <= client.versions[op->number].sent;
}

/* A bucket has come. False: another read of the same operation has been staged in its buf. */
static bool got(struct op *op, struct vbn_buf *buf)
{
	struct bucket *bucket = (struct bucket *)buf->data;
	bool torn = bucket->check != check_of(bucket);
	struct item *item = find(bucket, client.first_key + op->number);

	if (!torn && (item || op->probe == PROBES - 1)) {
		client.gets++;
		client.wrong += !item || !is_right(op, item);
		retire(op);
		return true;
	}
	client.torn += torn;
	client.further += !torn;
	op->probe += !torn;
	if (vbn_read_one(client.queue, buf, aim(op, buf)) == 1)
		return false;
	client_fail("a bucket could not be read again");
	return true;
}

static void stored(const struct answer *answer, size_t len)
{
	struct op *op = &client.ops[answer->op % WINDOW];

	if (len != sizeof(*answer) || !op->under_way || !op->is_put) {
		client_fail("the server has sent something else than an answer");
	} else if (!answer->stored) {
		client_fail("the table is full: give the server more --keys");
	} else {
		client.versions[op->number].stored = op->version;
		client.puts++;
		retire(op);
	}
}

/* True: the event's buf is free. */
static bool client_take(const struct vbn_event *event)
{
	if (event->op == VBN_OP_FAILED)
		client_fail(vbn_queue_error(client.queue));
	else if (event->op == VBN_OP_READ && event->status == VBN_OK)
		return got(event->cookie, event->buf);
	else if (event->op == VBN_OP_RECV)
		stored((const struct answer *)event->buf->data, event->len);
	return true;
}

/* The next operation: PUTs of all keys to load them, later one PUT in ten of any. */
static void choose(struct op *op)
{
	uint64_t random = hash(++client.random);
	bool loading = client.phase == LOADING;

	*op = (struct op){.under_way = true, .is_put = loading || random % 10 == 0};
	op->number = loading ? client.n_loaded++ : (uint32_t)((random >> 8) % keys);
	op->version = op->is_put ? ++client.versions[op->number].sent
				 : client.versions[op->number].stored;
}

/* As many as there is room for: the reads in one burst, the messages in another. */
static int begin(uint32_t n)
{
	struct vbn_buf *bufs[WINDOW], *reads[WINDOW], *sends[WINDOW];
	struct vbn_remote remotes[WINDOW];
	int n_reads = 0, n_sends = 0;

	if (vbn_buf_alloc(client.pool, bufs, (int)n) < 0)
		return client_fail("the pool is empty");
	for (uint32_t i = 0; i < n; i++) {
		struct op *op = client.idle[--client.n_idle];
		uint64_t key;

		choose(op);
		if (!op->is_put) {
			remotes[n_reads] = aim(op, bufs[i]);
			reads[n_reads++] = bufs[i];
			continue;
		}
		key = client.first_key + op->number;
		*(struct put *)bufs[i]->data =
			(struct put){key, value_of(key, op->version), (uint64_t)(op - client.ops)};
		bufs[i]->len = sizeof(struct put);
		sends[n_sends++] = bufs[i];
	}
	if (vbn_read(client.queue, reads, remotes, n_reads) != n_reads ||
		vbn_send(client.queue, sends, n_sends) != n_sends)
		return client_fail("the queue takes no more");
	return (int)n; /* the iteration ends with the doorbell */
}

static int begin_loading(struct vbn_worker *worker, const struct welcome *welcome)
{
	int err = vbn_handle_open(&welcome->table, &client.table);

	client.n_buckets = client.table.len / sizeof(struct bucket);
	if (err || !client.n_buckets || client.n_buckets & (client.n_buckets - 1))
		return client_fail("the server has told of something else than a table");
	client.first_key = (uint64_t)welcome->client << 32 | 1;
	client.began = vbn_worker_cycles(worker);
	client.phase = LOADING;
	return vbn_queue_connect(client.queue, &welcome->address);
}

/* A timer's: awaits the welcome, and then the server's end: one that has died after it took a PUT
 * leaves the queue with nothing under way that could fail. */
static void client_look(struct vbn_worker *worker, void *arg)
{
	struct welcome welcome;
	int n = vbn_session_recv(client.session, &welcome, sizeof(welcome), 0);

	(void)arg;
	if (n == sizeof(welcome) && client.phase == MEETING)
		n = begin_loading(worker, &welcome) ? -EPROTO : -ETIMEDOUT;
	if (n != -ETIMEDOUT)
		client_fail("the server is lost, or does not let this client in");
	vbn_timer_start(worker, &client.look, LOOK_NS);
}

/* A poll function: goes from phase to phase, with no operation under way between them. */
static int client_work(struct vbn_worker *worker, void *arg)
{
	uint64_t cycles = vbn_worker_cycles(worker) - client.began;
	uint32_t n = client.n_idle;

	(void)arg;
	if (client.failed || client.phase == MEETING || client.phase == OVER || n < BURST)
		return 0;
	if (client.phase == MIXING && (double)cycles > mix_seconds * (double)vbn_cycles_hz())
		client.phase = ENDING;
	if (client.phase == LOADING && n > keys - client.n_loaded)
		n = keys - client.n_loaded;
	if (client.phase != ENDING && n && !vbn_worker_stopping(worker))
		return begin(n);
	if (client.n_idle < WINDOW)
		return 0;
	if (client.phase == LOADING) {
		client.load_cycles = cycles;
		client.began += cycles;
		client.puts = 0;
		client.phase = MIXING;
	} else {
		client.mix_cycles = cycles;
		client.phase = OVER;
		vbn_stop();
	}
	return 1;
}

static int client_start(struct vbn_worker *worker)
{
	struct vbn_pool_conf pool = {.n_bufs = 8 * WINDOW, .data_size = sizeof(struct bucket)};
	struct vbn_queue_conf conf = {.tx_depth = DEPTH, .rx_depth = WINDOW};
	struct hello hello;
	int err = vbn_pool_create(&pool, &client.pool);

	for (int i = 0; i < WINDOW; i++)
		retire(&client.ops[i]);
	client.versions = calloc(keys, sizeof(*client.versions));
	conf.rx_pool = client.pool;
	if (!err && !client.versions)
		err = -ENOMEM;
	if (!err)
		err = vbn_queue_create(worker, port, &conf, &client.queue);
	if (!err)
		err = vbn_session_connect(connect_to, &meeting, &client.session);
	if (err)
		return err;
	vbn_timer_init(&client.look, client_look, NULL);
	vbn_timer_start(worker, &client.look, 0);
	vbn_queue_address(client.queue, &hello.address);
	err = vbn_session_send(client.session, &hello, sizeof(hello));
	return err ? err : vbn_worker_add_poll(worker, client_work, NULL);
}

static void client_close(void)
{
	double load = (double)client.load_cycles / (double)vbn_cycles_hz();
	double mix = (double)client.mix_cycles / (double)vbn_cycles_hz();

	if (client.mix_cycles)
		printf("%" PRIu32 " keys loaded: %.0f PUT/s; then %.0f GET/s and %.0f PUT/s\n"
		       "%" PRIu64 " values read, %" PRIu64
		       " of them wrong; reads of a torn bucket %" PRIu64
		       ", of a further one %" PRIu64 "\n",
			keys, keys / load, (double)client.gets / mix, (double)client.puts / mix,
			client.gets, client.wrong, client.torn, client.further);
	vbn_session_close(client.session, NULL);
	vbn_pool_destroy(client.pool);
	free(client.versions);
}

/* ---- the program ---- */

static int take_events(struct vbn_worker *worker, void *arg)
{
	struct vbn_event events[BURST];
	int n = vbn_poll(worker, events, BURST);

	(void)arg;
	for (int i = 0; i < n; i++) {
		bool is_free = true;

		if (events[i].queue == client.queue)
			is_free = client_take(&events[i]);
		else
			server_take(vbn_queue_context(events[i].queue), &events[i]);
		if (is_free && events[i].buf)
			vbn_buf_free(&events[i].buf, 1);
	}
	return n;
}

static int set_up(struct vbn_worker *worker, void *arg)
{
	int index = vbn_worker_index(worker), err = vbn_worker_add_poll(worker, take_events, NULL);

	(void)arg;
	if (!err && server.listener && index == 0)
		err = server_start(worker);
	if (!err && connect_to && index == n_workers - 1)
		err = client_start(worker);
	return err;
}

/* A worker for each end that is here, or one for both where two would leave no core to anything
 * else. Two processes of one host do not meet on one core. */
static int run(void)
{
	struct vbn_port_info info;
	char list[32];
	struct vbn_run_conf conf = {.cores = list};
	int cores[3], n;

	vbn_port_info(port, &info);
	n = vbn_cores_near(info.node, cores, 3);
	n_workers = server.listener && connect_to && n > 2 ? 2 : 1;
	snprintf(list, sizeof(list), "%d", cores[!connect_to && n > 1]);
	if (n_workers == 2)
		snprintf(list, sizeof(list), "%d,%d", cores[0], cores[1]);
	return vbn_run(&conf, set_up, NULL);
}

static int serve_or_ask(void)
{
	int err = vbn_port_open(device, NULL, &port);

	if (!err && !connect_to)
		err = server_open(listen_at ? listen_at : "127.0.0.1:0");
	if (!err && listen_at)
		fprintf(stderr, "kv: listening on %s\n",
			vbn_session_listener_address(server.listener));
	else if (!err && !connect_to)
		connect_to = vbn_session_listener_address(server.listener);
	if (!err)
		err = run();
	client_close();
	server_close();
	vbn_port_close(port);
	return err < 0 || client.failed || client.wrong || (connect_to && !client.gets);
}

static int usage(FILE *out)
{
	fputs("usage: kv [--device NAME] [--listen ADDR:PORT | --connect ADDR:PORT] [--keys N] [--seconds S]\n"
	      "  --keys N     keys to load; of the server, to have room for (10000)\n"
	      "  --seconds S  of nine GETs to a PUT, after that (1)\n"
	      "Exit status: 0 every value was right; 1 one was not, or it could not run; 2 usage.\n",
		out);
	return out == stderr ? 2 : 0;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"device", 1, NULL, 'd'}, {"listen", 1, NULL, 'l'},
		{"connect", 1, NULL, 'c'}, {"keys", 1, NULL, 'k'}, {"seconds", 1, NULL, 's'},
		{"help", 0, NULL, 'h'}, {0}};
	int option, status;

	if (vbn_init(&argc, &argv))
		return 1;
	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (option) {
		case 'd': device = optarg; break;
		case 'l': listen_at = optarg; break;
		case 'c': connect_to = optarg; break;
		case 'k': keys = (uint32_t)strtoul(optarg, NULL, 10); break;
		case 's': mix_seconds = strtod(optarg, NULL); break;
		default: return usage(option == 'h' ? stdout : stderr);
		}
	if (optind < argc || (listen_at && connect_to) || !keys || keys >> 28 || !(mix_seconds > 0))
		return usage(stderr);
	status = serve_or_ask();
	vbn_fini();
	return status;
}
