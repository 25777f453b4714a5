/* message_test.c - every operation of every transport at every size, with any driver and device:
 * data right, in order, exactly once, and what a transport has not refused
 *
 * VBN_TEST_DEVICE names the device (mlx5_0: on the emulated one, where this is linked with it),
 * VBN_TEST_MESSAGES how many go through each combination.
 */

#include "unit.h"

#include <verbena.h>

/* Linked ahead of libibverbs, where it is; naming it keeps the linker from leaving it out. */
extern const char *vhca_present(void) __attribute__((weak));

enum {
	DEPTH = 16, /* so that a few messages go round every ring */
	WINDOW = 8,
	N_BUFS = 40,
	LONGEST = 1 << 20,
	N_EVENTS = 32,
	INLINE = 64,
};

enum operation {
	SEND,
	SEND_IMM,
	SEND_CHAIN,
	SEND_INLINE,
	SEND_INLINE_IMM,
	WRITE,
	WRITE_IMM,
	WRITE_INLINE,
	READ,
	FETCH_ADD,
	CMP_SWAP,
	N_OPERATIONS,
};

static const char *const operation_names[N_OPERATIONS] = {"send", "send_imm", "send of a chain",
	"send_inline", "send_inline_imm", "write", "write_imm", "write_inline", "read", "fetch_add",
	"cmp_swap"};
static const char *const transport_names[] = {"rc", "uc", "ud"};

struct fixture {
	struct vbn_worker *worker;
	struct vbn_port *port;
	struct vbn_port_info info;
	struct vbn_pool *pool;
	struct vbn_export *target; /* a slot of LONGEST for each message of a window */
	struct vbn_queue *a, *b;
	struct vbn_peer *to_b, *to_a;
	struct vbn_srq *srq;
};
static struct fixture f;
static const char *device = "mlx5_0";
static uint64_t n_messages = 32;

/* What goes on of one combination. */
struct course {
	enum vbn_transport transport;
	enum operation operation;
	uint32_t len;
	uint64_t staged,
		arrived;   /* a message has arrived when it was received, or seen to be done */
	uint64_t returned; /* bufs that events gave back */
};
static struct course course;

static bool can(const char *word)
{
	char words[140], wanted[20];

	snprintf(words, sizeof(words), " %s ", f.info.capabilities);
	snprintf(wanted, sizeof(wanted), " %s ", word);
	return strstr(words, wanted);
}

static void complain(const char *what, uint64_t is, uint64_t should)
{
	unit_fail(
		"%s %s of %u bytes, message %llu of %llu staged: %s is %llu and should be %llu; a: %s; b: %s; the log: %s",
		transport_names[course.transport], operation_names[course.operation], course.len,
		(unsigned long long)course.arrived, (unsigned long long)course.staged, what,
		(unsigned long long)is, (unsigned long long)should, vbn_queue_error(f.a),
		vbn_queue_error(f.b), unit_log);
}

static void must_be(const char *what, uint64_t is, uint64_t should)
{
	if (is != should)
		complain(what, is, should);
}

/* ---- set-up ---- */

static int open_all(void **state)
{
	(void)state;
	if (vhca_present)
		vhca_present();
	memset(&f, 0, sizeof(f));
	unit_catch_log();
	assert_int_equal(vbn_init(NULL, NULL), 0);
	unit_catch_log();
	assert_int_equal(vbn_worker_attach(&(struct vbn_worker_conf){0}, &f.worker), 0);
	assert_int_equal(vbn_port_open(device, NULL, &f.port), 0);
	vbn_port_info(f.port, &f.info);
	assert_int_equal(vbn_pool_create(&(struct vbn_pool_conf){.n_bufs = 3 * N_BUFS,
						 .data_size = LONGEST,
						 .name = "message"},
				 &f.pool),
		0);
	assert_int_equal(vbn_export_create(f.port,
				 &(struct vbn_export_conf){.size = (size_t)LONGEST * WINDOW,
					 .access = VBN_REMOTE_WRITE | VBN_REMOTE_READ |
						 (can("atomic") ? VBN_REMOTE_ATOMIC : 0)},
				 &f.target),
		0);
	return 0;
}

static void disconnect(void)
{
	vbn_queue_destroy(f.a);
	vbn_queue_destroy(f.b);
	vbn_peer_release(f.to_a);
	vbn_peer_release(f.to_b);
	vbn_srq_destroy(f.srq);
	f.a = f.b = NULL;
	f.to_a = f.to_b = NULL;
	f.srq = NULL;
	assert_int_equal(vbn_pool_available(f.pool), 3 * N_BUFS);
}

static int close_all(void **state)
{
	(void)state;
	disconnect();
	vbn_export_destroy(f.target);
	vbn_worker_detach(f.worker);
	vbn_pool_destroy(f.pool);
	vbn_port_close(f.port);
	vbn_fini();
	return 0;
}

static struct vbn_queue_conf base_conf(enum vbn_transport transport)
{
	return (struct vbn_queue_conf){.transport = transport,
		.tx_depth = DEPTH,
		.rx_depth = DEPTH,
		.cq_mod = 4,
		.inline_size = VBN_NUM(INLINE),
		.rx_pool = f.pool,
		.remote_access = VBN_REMOTE_WRITE | VBN_REMOTE_READ |
			(can("atomic") ? VBN_REMOTE_ATOMIC : 0)};
}

static void meet(void)
{
	struct vbn_address a, b;
	bool datagrams = course.transport == VBN_UD;

	vbn_queue_address(f.a, &a);
	vbn_queue_address(f.b, &b);
	assert_int_equal(vbn_queue_connect(f.a, datagrams ? NULL : &b), 0);
	assert_int_equal(vbn_queue_connect(f.b, datagrams ? NULL : &a), 0);
	if (!datagrams)
		return;
	assert_int_equal(vbn_peer_create(f.a, &b, &f.to_b), 0);
	assert_int_equal(vbn_peer_create(f.b, &a, &f.to_a), 0);
}

/* False: the driver has no SRQ. */
static bool connect_pair(enum vbn_transport transport, bool shared)
{
	struct vbn_queue_conf conf = base_conf(transport);
	struct vbn_srq_conf srq = {
		.depth = DEPTH, .pool = f.pool, .datagrams = transport == VBN_UD};

	course = (struct course){.transport = transport};
	if (shared && vbn_srq_create(f.worker, f.port, &srq, &f.srq))
		return false;
	conf.srq = f.srq;
	assert_int_equal(vbn_queue_create(f.worker, f.port, &conf, &f.a), 0);
	assert_int_equal(vbn_queue_create(f.worker, f.port, &conf, &f.b), 0);
	meet();
	return true;
}

/* ---- contents ---- */

static uint8_t pattern(uint64_t message, size_t at)
{
	return (uint8_t)(message * 131 + at * 7 + at / 256 + 1);
}

static void fill(uint8_t *data, uint64_t message, uint32_t from, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		data[i] = pattern(message, from + i);
}

static void check(const uint8_t *data, uint64_t message, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		if (data[i] != pattern(message, i))
			complain("a byte", data[i], pattern(message, i));
}

static uint32_t imm_of(uint64_t message)
{
	return (uint32_t)message * 2654435761u;
}

static size_t slot_of(uint64_t message)
{
	return (size_t)(message % WINDOW) * LONGEST;
}

static uint8_t *slot_bytes(uint64_t message)
{
	return (uint8_t *)vbn_export_addr(f.target) + slot_of(message);
}

/* ---- stage ---- */

static bool is_inline(enum operation operation)
{
	return operation == SEND_INLINE || operation == SEND_INLINE_IMM ||
		operation == WRITE_INLINE;
}

static bool is_atomic(enum operation operation)
{
	return operation == FETCH_ADD || operation == CMP_SWAP;
}

/* Its event gives the buf back, whatever its flags. */
static bool fetches(enum operation operation)
{
	return operation == READ || is_atomic(operation);
}

static bool has_imm(enum operation operation)
{
	return operation == SEND_IMM || operation == SEND_INLINE_IMM || operation == WRITE_IMM;
}

/* Every third buf comes back by an event; else the library frees it. */
static bool wants_event(uint64_t message)
{
	return course.operation == WRITE || message % 3 == 0;
}

static struct vbn_buf *new_buf(void)
{
	struct vbn_buf *buf;

	assert_int_equal(vbn_buf_alloc(f.pool, &buf, 1), 1);
	return buf;
}

static struct vbn_buf *message_buf(uint64_t message)
{
	struct vbn_buf *buf = new_buf();

	buf->len = is_atomic(course.operation) ? 8 : course.len;
	if (course.operation == SEND_CHAIN) {
		struct vbn_buf *second = new_buf();

		buf->len = course.len / 3;
		second->len = course.len - buf->len;
		fill(second->data, message, buf->len, second->len);
		vbn_buf_append(buf, second);
	}
	if (!fetches(course.operation))
		fill(buf->data, message, 0, buf->len);
	if (!fetches(course.operation) && wants_event(message))
		vbn_buf_set_cookie(buf, (void *)(uintptr_t)(message + 1));
	if (f.to_b)
		vbn_buf_set_peer(buf, f.to_b);
	return buf;
}

/* One that copies. */
static int stage_inline(uint64_t message, struct vbn_remote remote)
{
	uint8_t bytes[INLINE];

	fill(bytes, message, 0, course.len);
	if (course.operation == WRITE_INLINE)
		return vbn_write_inline(f.a, bytes, course.len, remote);
	if (course.operation == SEND_INLINE_IMM)
		return vbn_send_inline_imm(f.a, bytes, course.len, imm_of(message));
	return f.to_b ? vbn_send_inline_to(f.a, f.to_b, bytes, course.len)
		      : vbn_send_inline(f.a, bytes, course.len);
}

static int stage_buf(uint64_t message, struct vbn_buf *buf, struct vbn_remote remote)
{
	switch (course.operation) {
	case SEND:
	case SEND_CHAIN: return vbn_send_one(f.a, buf);
	case SEND_IMM: return vbn_send_imm_one(f.a, buf, imm_of(message));
	case WRITE: return vbn_write_one(f.a, buf, remote);
	case WRITE_IMM: return vbn_write_imm_one(f.a, buf, remote, imm_of(message));
	case READ: return vbn_read_one(f.a, buf, remote);
	case FETCH_ADD: return vbn_fetch_add_one(f.a, buf, vbn_export_remote(f.target, 0), 3);
	case CMP_SWAP:
		return vbn_cmp_swap_one(
			f.a, buf, vbn_export_remote(f.target, 0), message, message + 1);
	default: return -EINVAL;
	}
}

static int stage(uint64_t message)
{
	struct vbn_remote remote = vbn_export_remote(f.target, slot_of(message));
	struct vbn_buf *buf;
	int ret;

	if (is_inline(course.operation))
		return stage_inline(message, remote);
	if (course.operation == READ)
		fill(slot_bytes(message), message, 0, course.len);
	buf = message_buf(message);
	ret = stage_buf(message, buf, remote);
	if (ret != 1)
		vbn_buf_free(&buf, 1);
	return ret;
}

/* ---- what comes of it ---- */

static void received(const struct vbn_event *event)
{
	const uint64_t message = course.arrived;
	const bool write = course.operation == WRITE_IMM;

	must_be("the event", event->op, write ? VBN_OP_RECV_WRITE : VBN_OP_RECV);
	must_be("its queue is the other end", event->queue == f.b, true);
	must_be("the length", event->len, course.len);
	must_be("the buf's length", event->buf->len, write ? 0 : course.len);
	must_be("having immediate data", event->has_imm, has_imm(course.operation));
	if (event->has_imm)
		must_be("the immediate data", event->imm, imm_of(message));
	if (f.to_a)
		must_be("its coming from a", vbn_buf_is_from(event->buf, f.to_a), true);
	check(write ? slot_bytes(message) : event->buf->data, message, course.len);
	course.arrived++;
}

static void fetched(const struct vbn_event *event)
{
	const uint64_t message = course.arrived;
	uint64_t value;

	must_be("the event's length", event->len, is_atomic(course.operation) ? 8 : course.len);
	if (course.operation == READ) {
		check(event->buf->data, message, course.len);
	} else {
		memcpy(&value, event->buf->data, sizeof(value));
		must_be("what was there before", value,
			course.operation == FETCH_ADD ? 3 * message : message);
	}
	course.arrived++;
}

/* A completed write is in the peer's memory; else it has only left. */
static bool completes_when_there(void)
{
	return course.transport == VBN_RC && f.info.link != VBN_LINK_IWARP;
}

/* A cookie's event comes in order. */
static void returned(const struct vbn_event *event)
{
	const uint64_t message = (uint64_t)(uintptr_t)event->cookie - 1;

	must_be("the event", event->op,
		course.operation == WRITE || course.operation == WRITE_IMM ? VBN_OP_WRITE
									   : VBN_OP_SEND);
	must_be("the order of cookies", message >= course.returned, true);
	course.returned = message + 1;
	if (course.operation == WRITE && completes_when_there()) {
		must_be("the message that was written", message, course.arrived);
		check(slot_bytes(message), message, course.len);
		course.arrived++;
	}
}

static void take_events(void)
{
	static const uint8_t fetching[] = {
		[READ] = VBN_OP_READ, [FETCH_ADD] = VBN_OP_FETCH_ADD, [CMP_SWAP] = VBN_OP_CMP_SWAP};
	struct vbn_event events[N_EVENTS];
	int n = vbn_poll(f.worker, events, N_EVENTS);

	for (int i = 0; i < n; i++) {
		must_be("the status", events[i].status, VBN_OK);
		if (events[i].op == VBN_OP_RECV || events[i].op == VBN_OP_RECV_WRITE)
			received(&events[i]);
		else if (fetches(course.operation) && events[i].op == fetching[course.operation])
			fetched(&events[i]);
		else
			returned(&events[i]);
		vbn_buf_free(&events[i].buf, 1);
	}
}

/* Of writes that nothing tells of, the bytes themselves do: they have not been there before. */
static bool has_landed(uint64_t message)
{
	const uint8_t *bytes = slot_bytes(message);

	for (uint32_t i = 0; i < course.len; i++)
		if (__atomic_load_n(&bytes[i], __ATOMIC_ACQUIRE) != pattern(message, i))
			return false;
	return true;
}

static bool is_only_seen(void)
{
	return course.operation == WRITE_INLINE ||
		(course.operation == WRITE && !completes_when_there());
}

static void exchange(enum operation operation, uint32_t len)
{
	const uint64_t n = len < LONGEST ? n_messages : min(n_messages, WINDOW + 2ull);
	const uint64_t start = clock_ns();

	course = (struct course){.transport = course.transport, .operation = operation, .len = len};
	memset(vbn_export_addr(f.target), 0, 8);
	while (course.arrived < n) {
		if (course.staged < n && course.staged - course.arrived < WINDOW) {
			int ret = stage(course.staged);

			if (ret < 0)
				complain("what staging returned, negated", (uint64_t)-ret, 0);
			course.staged += (uint64_t)ret;
			if (course.staged % 3 == 0 || course.staged == n)
				vbn_flush(f.a);
			if (ret)
				continue;
		}
		vbn_flush(f.a);
		take_events();
		if (is_only_seen() && course.arrived < course.staged && has_landed(course.arrived))
			course.arrived++;
		if (clock_ns() - start > 60ull * 1000 * 1000 * 1000)
			complain("messages that came in 60 s", course.arrived, n);
		sched_yield();
	}
	while (vbn_queue_outstanding(f.a)) {
		take_events();
		if (clock_ns() - start > 60ull * 1000 * 1000 * 1000)
			complain("what is still outstanding after 60 s", vbn_queue_outstanding(f.a),
				0);
		sched_yield();
	}
}

static bool has_operation(enum vbn_transport transport, enum operation operation)
{
	if (has_imm(operation) && !can("imm"))
		return false;
	if (is_atomic(operation) && f.info.link == VBN_LINK_IWARP)
		return false;
	if (transport == VBN_UD)
		return operation <= SEND_INLINE;
	return transport == VBN_RC || !fetches(operation);
}

static bool fits(enum operation operation, uint32_t len)
{
	if (is_atomic(operation))
		return len == 8 && can("atomic");
	if (operation == READ && !can("read"))
		return false;
	if (len == 8)
		return false;
	if (is_inline(operation) && len > INLINE)
		return false;
	return course.transport != VBN_UD || len <= f.info.mtu;
}

static void every_operation(enum vbn_transport transport, bool shared)
{
	static const uint32_t lengths[] = {0, 1, 8, 64, 256, 4096, LONGEST};
	int tried = 0;

	if (!can(transport_names[transport])) {
		print_message("the device has no %s\n", transport_names[transport]);
		return;
	}
	if (!connect_pair(transport, shared)) {
		print_message("the driver has no SRQ: %s\n", unit_log);
		return;
	}
	for (enum operation operation = 0; operation < N_OPERATIONS; operation++) {
		if (!has_operation(transport, operation)) {
			course.operation = operation;
			course.len = 8;
			if (transport != VBN_UD || operation != SEND_INLINE_IMM)
				must_be("what staging returned, negated", (uint64_t)-stage(0),
					EOPNOTSUPP);
			continue;
		}
		for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
			if (!fits(operation, lengths[i]))
				continue;
			exchange(operation, lengths[i]);
			tried++;
		}
	}
	print_message("%s%s: %d combinations of %llu messages\n", transport_names[transport],
		shared ? " with an SRQ" : "", tried, (unsigned long long)n_messages);
	disconnect();
}

static void test_rc(void **state)
{
	(void)state;
	every_operation(VBN_RC, false);
}

static void test_uc(void **state)
{
	(void)state;
	every_operation(VBN_UC, false);
}

static void test_ud(void **state)
{
	(void)state;
	every_operation(VBN_UD, false);
}

static void test_srq(void **state)
{
	(void)state;
	every_operation(VBN_RC, true);
	every_operation(VBN_UD, true);
}

/* A queue that was connected, used and reset is as new, three times over. */
static void test_reset(void **state)
{
	struct vbn_event events[N_EVENTS];

	(void)state;
	assert_true(connect_pair(VBN_RC, false));
	for (int round = 0; round < 3; round++) {
		const uint64_t start = clock_ns();
		struct vbn_queue *queues[] = {f.a, f.b};

		exchange(SEND, 64);
		for (int i = 0; i < 2; i++) {
			int ret;

			while ((ret = vbn_queue_reset(queues[i])) == -EAGAIN) {
				int n = vbn_poll(f.worker, events, N_EVENTS);

				for (int k = 0; k < n; k++)
					if (events[k].buf)
						vbn_buf_free(&events[k].buf, 1);
				must_be("a reset within 60 s",
					clock_ns() - start < 60ull * 1000 * 1000 * 1000, true);
				sched_yield();
			}
			must_be("what reset returned, negated", (uint64_t)-ret, 0);
		}
		meet();
	}
	exchange(can("imm") ? WRITE_IMM : WRITE, 256);
	disconnect();
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_rc),
		test(test_uc),
		test(test_ud),
		test(test_srq),
		test(test_reset),
	};

	if (getenv("VBN_TEST_DEVICE"))
		device = getenv("VBN_TEST_DEVICE");
	if (getenv("VBN_TEST_MESSAGES"))
		n_messages = (uint64_t)atoi(getenv("VBN_TEST_MESSAGES"));
	return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}
