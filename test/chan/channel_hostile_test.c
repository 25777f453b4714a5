/* channel_hostile_test.c - peers that lie: a queue of its own that says what it likes, and a session
 * that says half of what it should; each is told why, and the others go on */

#include "channel_fixture.h"

#include "chan/channel_wire.h"
#include "chan/handshake.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static const struct vbn_channel_group_conf conf = {.max_channels = 4,
	.buf_size = BUF_SIZE,
	.window = 16,
	.n_held = 64,
	.max_message = 1 << 16,
	.connect_ns = LONG_NS};

static const struct vbn_session_conf service = {.service = "verbena.channel"};

/* ---- a peer made of a session and a queue ---- */

struct liar {
	struct vbn_session *session;
	struct vbn_queue *queue;
	struct vbn_pool *pool;
	struct offer offer, answer;
	uint8_t bytes[HANDSHAKE_MAX];
	uint32_t sequence, limit;
};

static void liar_open(struct liar *liar)
{
	struct vbn_queue_conf queue = {.tx_depth = 64,
		.rx_depth = 64,
		.rnr_retry = VBN_NUM(0),
		.remote_access = VBN_REMOTE_WRITE};

	memset(liar, 0, sizeof(*liar));
	assert_int_equal(vbn_pool_create(&(struct vbn_pool_conf){.n_bufs = 64,
						 .data_size = BUF_SIZE + CHANNEL_HEADER},
				 &liar->pool),
		0);
	queue.rx_pool = liar->pool;
	assert_int_equal(vbn_queue_create(f.worker, f.port, &queue, &liar->queue), 0);
	liar->offer = (struct offer){.kind = HANDSHAKE_OFFER,
		.buf_size = BUF_SIZE + CHANNEL_HEADER,
		.window = 32,
		.max_message = 1 << 16,
		.name = "a liar's channel"};
	vbn_queue_address(liar->queue, &liar->offer.address);
	assert_int_equal(vbn_session_connect(vbn_channel_listener_address(f.listener), &service,
				 &liar->session),
		0);
}

static void liar_says(struct liar *liar, const void *bytes, size_t len)
{
	assert_int_equal(vbn_session_send(liar->session, bytes, len), 0);
}

/* What it is told: the length, or -errno. */
static int liar_hears(struct liar *liar)
{
	uint64_t begin = clock_ns();
	int ret;

	do {
		turn();
		ret = vbn_session_recv(liar->session, liar->bytes, sizeof(liar->bytes), 1);
	} while (ret == -ETIMEDOUT && clock_ns() - begin < LONG_NS);
	return ret;
}

static void liar_connect(struct liar *liar)
{
	const struct offer ready = {.kind = HANDSHAKE_READY};
	struct wire_fault fault;
	uint8_t bytes[HANDSHAKE_MAX];
	int len;

	liar_open(liar);
	liar_says(liar, bytes, vbn__offer_pack(&liar->offer, bytes));
	len = liar_hears(liar);
	assert_true(len > 0);
	assert_int_equal(vbn__offer_unpack(
				 liar->bytes, (size_t)len, HANDSHAKE_ANSWER, &liar->answer, &fault),
		0);
	assert_int_equal(vbn_queue_connect(liar->queue, &liar->answer.address), 0);
	liar_says(liar, bytes, vbn__offer_pack(&ready, bytes));
	liar->limit = liar->offer.window;
	turn_until(f.b[f.n_b - 1].seen[VBN_CHANNEL_OPENED]);
}

static void liar_close(struct liar *liar)
{
	vbn_session_close(liar->session, NULL);
	vbn_queue_destroy(liar->queue);
	vbn_pool_destroy(liar->pool);
}

/* One send: a header, and up to 12 bytes behind it. */
static void send_raw(struct liar *liar, enum channel_type type, uint32_t length, uint32_t sequence,
	uint32_t limit, const void *body, size_t body_len)
{
	uint8_t bytes[CHANNEL_MAX_CONTROL] = {0};

	channel_pack(bytes, type, length, sequence, limit);
	if (body_len)
		memcpy(bytes + CHANNEL_HEADER, body, body_len);
	assert_int_equal(vbn_send_inline(liar->queue, bytes, CHANNEL_HEADER + body_len), 1);
}

/* One that is as it should be. */
static void send_good(struct liar *liar, enum channel_type type, const void *body, size_t body_len)
{
	send_raw(liar, type, (uint32_t)body_len, liar->sequence++, liar->limit, body, body_len);
}

/* The reason that a channel was given up with, where one has come by now. */
static bool reason_came(uint32_t *reason)
{
	struct vbn_event events[8];
	int n = vbn_poll(f.worker, events, 8);
	bool came = false;

	for (int i = 0; i < n; i++) {
		uint8_t *data = events[i].op == VBN_OP_RECV ? events[i].buf->data : NULL;
		__be32 told;

		if (data && data[0] == CHANNEL_FAIL) {
			memcpy(&told, data + CHANNEL_HEADER, sizeof(told));
			*reason = from_be32(told);
			came = true;
		}
		if (events[i].buf)
			vbn_buf_free(&events[i].buf, 1);
	}
	return came;
}

/* ---- lies about headers ---- */

static void lie_short(struct liar *liar)
{
	assert_int_equal(vbn_send_inline(liar->queue, "\1\0\0\0", 4), 1);
}

static void lie_length(struct liar *liar)
{
	send_raw(liar, CHANNEL_DATA, 1u << 30, 0, liar->limit, "x", 1);
}

static void lie_type(struct liar *liar)
{
	send_raw(liar, (enum channel_type)99, 0, 0, liar->limit, NULL, 0);
}

static void lie_reserved(struct liar *liar)
{
	uint8_t bytes[CHANNEL_HEADER];

	channel_pack(bytes, CHANNEL_DATA, 0, 0, liar->limit);
	bytes[2] = 1;
	assert_int_equal(vbn_send_inline(liar->queue, bytes, sizeof(bytes)), 1);
}

static void lie_sequence(struct liar *liar)
{
	send_raw(liar, CHANNEL_DATA, 0, 1, liar->limit, NULL, 0);
}

static void lie_limit_high(struct liar *liar)
{
	send_raw(liar, CHANNEL_CREDIT, 0, 0, liar->offer.window + 1, NULL, 0);
}

static void lie_limit_back(struct liar *liar)
{
	send_raw(liar, CHANNEL_CREDIT, 0, 0, liar->limit - 1, NULL, 0);
}

static void lie_after_end(struct liar *liar)
{
	send_good(liar, CHANNEL_END, NULL, 0);
	send_good(liar, CHANNEL_DATA, NULL, 0);
}

static void lie_size(struct liar *liar)
{
	const struct channel_large size = {be64((1 << 16) + 1)};

	send_good(liar, CHANNEL_LARGE, &size, sizeof(size));
}

static void lie_size_zero(struct liar *liar)
{
	const struct channel_large size = {0};

	send_good(liar, CHANNEL_LARGE, &size, sizeof(size));
}

static void lie_landed(struct liar *liar)
{
	send_good(liar, CHANNEL_LANDED, NULL, 0);
}

static void lie_place(struct liar *liar)
{
	const struct channel_place place = {be64(0xdead), be32(0xbeef)};

	send_good(liar, CHANNEL_PLACE, &place, sizeof(place));
}

static void lie_data_in_large(struct liar *liar)
{
	const struct channel_large size = {be64(5000)};

	send_good(liar, CHANNEL_LARGE, &size, sizeof(size));
	send_good(liar, CHANNEL_DATA, NULL, 0);
}

static void lies_are_found_out_told_and_counted(void **state)
{
	static const struct {
		void (*tell)(struct liar *liar);
		enum channel_fault fault;
	} lies[] = {
		{lie_short, FAULT_SHORT},
		{lie_length, FAULT_LENGTH},
		{lie_type, FAULT_TYPE},
		{lie_reserved, FAULT_RESERVED},
		{lie_sequence, FAULT_SEQUENCE},
		{lie_limit_high, FAULT_LIMIT},
		{lie_limit_back, FAULT_LIMIT},
		{lie_after_end, FAULT_AFTER_END},
		{lie_size, FAULT_SIZE},
		{lie_size_zero, FAULT_SIZE},
		{lie_landed, FAULT_ORDER},
		{lie_place, FAULT_ORDER},
		{lie_data_in_large, FAULT_ORDER},
	};

	(void)state;
	make_groups(&conf, &conf);
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct liar liar;
		uint32_t reason = 0;

		liar_connect(&liar);
		lies[i].tell(&liar);
		turn_until(reason_came(&reason));
		if (reason != (uint32_t)lies[i].fault)
			unit_fail("lie %zu: the reason told is %u and should be %d; %s", i, reason,
				lies[i].fault, f.b[0].error);
		turn_until(f.b[0].seen[VBN_CHANNEL_FAILED]);
		assert_has(f.b[0].error, vbn__channel_fault_text(lies[i].fault));
		vbn_channel_close(f.b[0].channel);
		liar_close(&liar);
		memset(&f.b[0], 0, sizeof(f.b[0]));
		f.n_b = 0;
	}
	/* others are none the worse */
	open_channel(0);
	send_all(&f.a[0], f.pool, 1, 200, 100);
	turn_until(f.b[0].received == 200);
	assert_int_equal(f.there->landing.used, 0);
	assert_int_equal(f.there->counts[COUNT_FAULTS], ARRAY_SIZE(lies));
}

/* A peer that goes on regardless takes receives that were promised to others, where the ring is
 * shared. (A ring of its own is empty then, and the device ends the queue.) */
static void a_peer_that_sends_more_than_it_may_is_stopped(void **state)
{
	struct liar liar;
	uint32_t reason;

	(void)state;
	make_groups(&conf, &conf);
	for (int i = 0; i < 3; i++)
		open_channel(i);
	liar_connect(&liar);
	f.b[3].holds = true;
	while (f.there->n_rings && !f.b[3].seen[VBN_CHANNEL_FAILED]) {
		uint8_t bytes[CHANNEL_HEADER];

		channel_pack(bytes, CHANNEL_DATA, 0, liar.sequence, liar.limit);
		liar.sequence += vbn_send_inline(liar.queue, bytes, sizeof(bytes)) == 1;
		if (vbn_queue_outstanding(liar.queue) > 32)
			reason_came(&reason);
		turn();
	}
	if (f.there->n_rings)
		assert_has(f.b[3].error, vbn__channel_fault_text(FAULT_OVERRUN));
	release_held(&f.b[3], f.b[3].n_held);
	for (int i = 0; i < 3; i++)
		send_all(&f.a[i], f.pool, 1, 100, 100);
	turn_until(f.b[0].received + f.b[1].received + f.b[2].received == 300);
	liar_close(&liar);
}

/* A place that is not one: the device of whoever owns that memory refuses the write. */
static void a_place_that_is_a_lie_fails_the_sender(void **state)
{
	const struct channel_place place = {be64(0xdead000), be32(0xbeef)};
	struct vbn_buf *buf, *tail;
	struct liar liar;

	(void)state;
	make_groups(&conf, &conf);
	liar_connect(&liar);
	buf = new_message(f.pool, 1, BUF_SIZE);
	tail = new_message(f.pool, 1, BUF_SIZE);
	vbn_buf_append(buf, tail);
	vbn_buf_set_cookie(buf, &f);
	assert_int_equal(vbn_channel_send(f.b[0].channel, &buf, 1), 1);
	send_good(&liar, CHANNEL_PLACE, &place, sizeof(place));
	turn_until(f.b[0].seen[VBN_CHANNEL_FAILED] && f.b[0].seen[VBN_CHANNEL_UNSENT]);
	assert_has(f.b[0].error, " failed: ");
	assert_int_equal(f.b[0].unsent_number, 1);
	liar_close(&liar);
}

/* A reason that this version does not know is one all the same. */
static void a_peer_may_give_up_for_any_reason(void **state)
{
	const struct channel_fail why = {be32(4711)};
	struct liar liar;

	(void)state;
	make_groups(&conf, &conf);
	liar_connect(&liar);
	send_good(&liar, CHANNEL_FAIL, &why, sizeof(why));
	turn_until(f.b[0].seen[VBN_CHANNEL_FAILED]);
	assert_has(f.b[0].error, "the peer has given it up");
	assert_has(f.b[0].error, "does not know");
	liar_close(&liar);
}

/* ---- lies and cuts in the handshake ---- */

static void offers_that_are_none_are_refused(void **state)
{
	struct {
		size_t at, len;
		uint8_t value;
		const char *reason;
	} lies[] = {
		{0, 96, 9, "a message of kind 9"},
		{0, 96, HANDSHAKE_READY, "a message of kind 3"},
		{1, 96, 0x80, "reserved bits"},
		{1, 96, HANDSHAKE_GOES_ON, "is not known here"},
		{3, 96, 7, "says 7 bytes of data and has 0"},
		{4, 96, 0xff, "size of the peer's bufs"},
		{8, 96, 0xff, "the peer's window"},
		{12, 96, 1, "reserved bits"},
		{48, 96, 0, "could not be connected"},
		{0, 95, HANDSHAKE_OFFER, "has 95 bytes of 96"},
		{0, 1, HANDSHAKE_OFFER, "has 1 bytes of 96"},
	};

	(void)state;
	make_groups(&conf, &conf);
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		uint8_t bytes[HANDSHAKE_MAX];
		struct liar liar;

		liar_open(&liar);
		vbn__offer_pack(&liar.offer, bytes);
		bytes[lies[i].at] = lies[i].value;
		liar_says(&liar, bytes, lies[i].len);
		assert_int_equal(liar_hears(&liar), -ECONNREFUSED);
		assert_has(vbn_session_error(liar.session), lies[i].reason);
		liar_close(&liar);
	}
	turn_until(!f.there->n_channels);
	open_channel(0);
}

/* A peer of version 1 knows of no rejection: it gets the reason alone. */
static void a_peer_of_version_1_is_refused_as_it_knows(void **state)
{
	uint8_t bytes[HANDSHAKE_MAX];
	struct liar liar;

	(void)state;
	make_groups(&conf, &conf);
	f.answer = "what it would not understand";
	f.refuse = EACCES;
	liar_open(&liar);
	liar_says(&liar, bytes, vbn__offer_pack(&liar.offer, bytes));
	assert_int_equal(liar_hears(&liar), -ECONNREFUSED);
	assert_has(vbn_session_error(liar.session), "Permission denied");
	liar_close(&liar);
}

static int raw_connect(void)
{
	const char *address = vbn_channel_listener_address(f.listener);
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static size_t put_frame(uint8_t *at, enum frame_type type, const void *body, uint32_t len)
{
	struct frame_header header;

	vbn__frame_pack(&header, type, len);
	memcpy(at, &header, sizeof(header));
	memcpy(at + sizeof(header), body, len);
	return sizeof(header) + len;
}

/* The whole of what a connecting end says, cut behind every byte: no channel is left of any, and the
 * group goes on. */
static void a_handshake_may_be_cut_at_every_byte(void **state)
{
	const struct hello hello = {.version_min = WIRE_VERSION,
		.version_max = WIRE_VERSION,
		.role = WIRE_CONNECTS,
		.max_message = HANDSHAKE_MAX,
		.service_min = CHANNEL_VERSION,
		.service_max = CHANNEL_VERSION,
		.service = "verbena.channel"};
	const struct offer ready = {.kind = HANDSHAKE_READY};
	struct hello_body greeting;
	uint8_t all[1024], body[HANDSHAKE_MAX];
	struct liar liar;
	size_t len, before_ready;

	(void)state;
	make_groups(&conf, &conf);
	liar_open(&liar);
	liar.offer.data = (const uint8_t *)"some data";
	liar.offer.data_len = 9;
	vbn__hello_pack(&hello, &greeting);
	len = put_frame(all, FRAME_HELLO, &greeting, sizeof(greeting));
	len += put_frame(all + len, FRAME_MESSAGE, body, vbn__offer_pack(&liar.offer, body));
	before_ready = len;
	len += put_frame(all + len, FRAME_MESSAGE, body, vbn__offer_pack(&ready, body));
	for (size_t cut = 0; cut < len; cut++) {
		int fd = raw_connect();

		assert_int_equal(send(fd, all, cut, MSG_NOSIGNAL), (ssize_t)cut);
		shutdown(fd, SHUT_WR);
		if (cut >= before_ready) {
			turn_until(f.n_b == 1 && f.b[0].seen[VBN_CHANNEL_FAILED]);
			assert_has(f.b[0].error, "is lost");
			vbn_channel_close(f.b[0].channel);
			memset(&f.b[0], 0, sizeof(f.b[0]));
			f.n_b = 0;
		}
		for (int i = 0; i < 3; i++)
			turn();
		close(fd);
	}
	turn_until(!f.there->n_channels);
	liar_close(&liar);
	open_channel(0);
	send_all(&f.a[0], f.pool, 1, 100, 100);
	turn_until(f.b[0].received == 100);
}

#define with_fixture(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_fixture(lies_are_found_out_told_and_counted),
		with_fixture(a_peer_that_sends_more_than_it_may_is_stopped),
		with_fixture(a_place_that_is_a_lie_fails_the_sender),
		with_fixture(a_peer_may_give_up_for_any_reason),
		with_fixture(offers_that_are_none_are_refused),
		with_fixture(a_peer_of_version_1_is_refused_as_it_knows),
		with_fixture(a_handshake_may_be_cut_at_every_byte),
	};

	cmocka_set_test_filter(getenv("CHANNEL_TEST"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
