/* session_test.c - sessions over TCP: who is let in, who is not and why, messages, the end */

#include "../unit/unit.h"

#include "chan/wire.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <verbena.h>

#define SECOND_NS (1000ull * 1000 * 1000)
#define LONG_NS   (30 * SECOND_NS)

static const struct vbn_session_conf base = {.service = "test.session"};

static int init(void **state)
{
	(void)state;
	unit_catch_log();
	return vbn_init(NULL, NULL);
}

static int fini(void **state)
{
	(void)state;
	vbn_fini();
	return 0;
}

static uint64_t counter_value;

static int find_counter(const char *kind, const char *object, const char *name, const char *help,
	uint64_t value, void *arg)
{
	(void)object, (void)help;
	if (!strcmp(kind, "exchange") && !strcmp(name, arg))
		counter_value = value;
	return 0;
}

static uint64_t counter(const char *name)
{
	counter_value = UINT64_MAX;
	vbn_counters_each(find_counter, (void *)(uintptr_t)name);
	return counter_value;
}

static struct vbn_session_listener *listen_at(const char *address)
{
	struct vbn_session_listener *listener;

	assert_int_equal(vbn_session_listen(address, &base, &listener), 0);
	return listener;
}

/* Both ends of a session. */
static void pair(struct vbn_session_listener *listener, struct vbn_session **here,
	struct vbn_session **there)
{
	assert_int_equal(
		vbn_session_connect(vbn_session_listener_address(listener), &base, here), 0);
	assert_int_equal(vbn_session_accept(listener, LONG_NS, there), 0);
}

static uint16_t port_of(const struct vbn_session_listener *listener)
{
	return (uint16_t)atoi(strrchr(vbn_session_listener_address(listener), ':') + 1);
}

/* ---- peers that are only sockets ---- */

static int raw_connect(uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void raw_send(int fd, const void *bytes, size_t len)
{
	assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* Reads to the end of the stream. */
static size_t raw_read_all(int fd, uint8_t *bytes, size_t size)
{
	size_t len = 0;
	ssize_t n;

	while (len < size && (n = recv(fd, bytes + len, size - len, 0)) > 0)
		len += (size_t)n;
	return len;
}

static size_t put_frame(uint8_t *at, enum frame_type type, const void *body, uint32_t len)
{
	struct frame_header header;

	vbn__frame_pack(&header, type, len);
	memcpy(at, &header, sizeof(header));
	memcpy(at + sizeof(header), body, len);
	return sizeof(header) + len;
}

static struct hello good_hello(enum wire_role role)
{
	return (struct hello){.version_min = 1,
		.version_max = 1,
		.role = role,
		.max_message = 1000,
		.service_min = 1,
		.service_max = 1,
		.service = "test.session"};
}

static size_t put_hello(uint8_t *at, const struct hello *hello)
{
	struct hello_body body;

	vbn__hello_pack(hello, &body);
	return put_frame(at, FRAME_HELLO, &body, sizeof(body));
}

/* ---- addresses ---- */

static bool has_ipv6(void)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	bool has = fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof(at));

	close(fd);
	return has;
}

/* The smallest of systems has no /etc/hosts. */
static bool has_name(const char *name)
{
	struct addrinfo *found;

	if (getaddrinfo(name, NULL, NULL, &found))
		return false;
	freeaddrinfo(found);
	return true;
}

static void addresses_of_both_families_reach(void **state)
{
	static const char *const addresses[] = {"127.0.0.1:0", "[::1]:0", ":0", "localhost:0"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
		struct vbn_session_listener *listener;
		struct vbn_session *here, *there;
		char text[64] = "";

		if (i == 1 && !has_ipv6())
			continue; /* a container may have it off */
		if (i == 3 && !has_name("localhost"))
			continue;
		listener = listen_at(addresses[i]);
		/* any address is reached by this host's */
		if (i == 2) {
			snprintf(text, sizeof(text), "127.0.0.1:%u", port_of(listener));
			assert_int_equal(vbn_session_connect(text, &base, &here), 0);
			assert_int_equal(vbn_session_accept(listener, LONG_NS, &there), 0);
		} else {
			pair(listener, &here, &there);
		}
		assert_int_equal(vbn_session_send(here, "hello", 5), 0);
		assert_int_equal(vbn_session_recv(there, text, sizeof(text), LONG_NS), 5);
		assert_memory_equal(text, "hello", 5);
		assert_non_null(strchr(vbn_session_peer(here), ':'));
		vbn_session_close(here, NULL);
		vbn_session_close(there, NULL);
		vbn_session_unlisten(listener);
	}
}

static void what_is_no_address_is_refused(void **state)
{
	static const char *const bad[] = {
		"", "127.0.0.1", "127.0.0.1:", ":x", ":65536", "::1:80", "[::1]", "[]:80"};
	struct vbn_session_listener *listener;
	struct vbn_session *session;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(vbn_session_listen(bad[i], &base, &listener), -EINVAL);
		assert_int_equal(vbn_session_connect(bad[i], &base, &session), -EINVAL);
	}
	/* As an address is written, and nobody knows the host. */
	assert_int_equal(vbn_session_listen("1.2.3.4.5:80", &base, &listener), -EHOSTUNREACH);
	assert_int_equal(vbn_session_connect("1.2.3.4.5:80", &base, &session), -EHOSTUNREACH);
	assert_logged("cannot be used");
}

static void conf_out_of_range_is_refused(void **state)
{
	static const struct vbn_session_conf bad[] = {
		{0},
		{.service = ""},
		{.service = "two words"},
		{.service = "a name that is far too long"},
		{.service = "x", .version_min = 3, .version_max = 2},
		{.service = "x", .max_message = UINT32_MAX},
	};
	struct vbn_session_listener *listener;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(vbn_session_listen(":0", &bad[i], &listener), -EINVAL);
}

static void an_address_in_use_is_named(void **state)
{
	struct vbn_session_listener *listener = listen_at("127.0.0.1:0"), *second;

	(void)state;
	assert_int_equal(vbn_session_listen(vbn_session_listener_address(listener), &base, &second),
		-EADDRINUSE);
	assert_logged(vbn_session_listener_address(listener));
	vbn_session_unlisten(listener);
}

/* ---- messages ---- */

static void messages_go_both_ways_in_order(void **state)
{
	struct vbn_session_listener *listener = listen_at("127.0.0.1:0");
	struct vbn_session *here, *there;
	uint8_t *big = calloc(2, 64 << 10), *got = big + (64 << 10);

	(void)state;
	pair(listener, &here, &there);
	for (uint32_t i = 0; i < 500; i++) {
		uint32_t value;

		assert_int_equal(vbn_session_send(here, &i, sizeof(i)), 0);
		if (i % 3)
			continue;
		/* the receiver is behind, so that the sender has to be held back */
		assert_int_equal(vbn_session_recv(there, &value, sizeof(value), LONG_NS), 4);
		assert_int_equal(value, i / 3);
	}
	for (uint32_t i = 167, value; i < 500; i++) {
		assert_int_equal(vbn_session_recv(there, &value, sizeof(value), LONG_NS), 4);
		assert_int_equal(value, i);
	}
	for (uint32_t i = 0; i < 64 << 10; i++)
		big[i] = (uint8_t)(i * 7);
	assert_int_equal(vbn_session_send(there, big, 64 << 10), 0);
	assert_int_equal(vbn_session_recv(here, got, 100, LONG_NS), -EMSGSIZE);
	assert_int_equal(vbn_session_recv(here, got, 64 << 10, LONG_NS), 64 << 10);
	assert_memory_equal(big, got, 64 << 10);
	assert_int_equal(vbn_session_send(there, big, (64 << 10) + 1), -EMSGSIZE);
	assert_int_equal(vbn_session_send(there, big, 0), -EINVAL);
	assert_int_equal(vbn_session_recv(here, got, 64 << 10, 1), -ETIMEDOUT);
	vbn_session_close(there, NULL);
	vbn_session_close(here, NULL);
	vbn_session_unlisten(listener);
	free(big);
}

/* ---- the end ---- */

/* Waits until the session is over. */
static int end_of(struct vbn_session *session)
{
	uint8_t byte;

	return vbn_session_recv(session, &byte, 1, LONG_NS);
}

static void an_end_is_in_order_or_has_a_reason(void **state)
{
	struct vbn_session_listener *listener = listen_at("127.0.0.1:0");
	struct vbn_session *here, *there;
	char text[16];

	(void)state;
	pair(listener, &here, &there);
	assert_int_equal(vbn_session_send(here, "last", 4), 0);
	vbn_session_close(here, NULL);
	assert_int_equal(vbn_session_recv(there, text, sizeof(text), LONG_NS), 4);
	assert_int_equal(end_of(there), -ENOTCONN);
	assert_int_equal(vbn_session_send(there, "x", 1), -ENOTCONN);
	vbn_session_close(there, NULL);

	pair(listener, &here, &there);
	vbn_session_close(there, "the kettle boils\n\x01");
	assert_int_equal(end_of(here), -ECONNREFUSED);
	assert_has(vbn_session_error(here), "refuses: the kettle boils??");
	vbn_session_close(here, NULL);
	vbn_session_unlisten(listener);
}

static void a_peer_that_dies_is_noticed_unasked(void **state)
{
	struct vbn_session_listener *listener = listen_at("127.0.0.1:0");
	struct hello hello = good_hello(WIRE_CONNECTS);
	struct vbn_session *there;
	uint64_t begin;
	uint8_t bytes[256];
	int fd = raw_connect(port_of(listener));

	(void)state;
	raw_send(fd, bytes, put_hello(bytes, &hello));
	assert_int_equal(vbn_session_accept(listener, LONG_NS, &there), 0);
	assert_int_equal(vbn_session_status(there), 0);
	raw_send(fd, "VBN", 3);
	close(fd);
	begin = clock_ns();
	while (!vbn_session_status(there) && clock_ns() - begin < LONG_NS)
		sched_yield();
	assert_int_equal(vbn_session_status(there), -ECONNRESET);
	assert_has(vbn_session_error(there), "in the middle of a message");
	vbn_session_close(there, NULL);
	vbn_session_unlisten(listener);
}

struct late {
	char address[64];
	struct vbn_session_listener *listener;
};

static void *listen_late(void *arg)
{
	struct late *late = arg;

	usleep(100000);
	late->listener = listen_at(late->address);
	return NULL;
}

static void connecting_waits_for_the_listener(void **state)
{
	struct vbn_session_listener *first = listen_at("127.0.0.1:0");
	struct vbn_session_conf patient = base;
	struct vbn_session *here, *there;
	struct late late;
	pthread_t thread;

	(void)state;
	snprintf(late.address, sizeof(late.address), "%s", vbn_session_listener_address(first));
	vbn_session_unlisten(first);
	patient.retry_ns = LONG_NS;
	assert_int_equal(pthread_create(&thread, NULL, listen_late, &late), 0);
	assert_int_equal(vbn_session_connect(late.address, &patient, &here), 0);
	pthread_join(thread, NULL);
	assert_int_equal(vbn_session_accept(late.listener, LONG_NS, &there), 0);
	vbn_session_close(here, NULL);
	vbn_session_close(there, NULL);
	vbn_session_unlisten(late.listener);
}

static void nobody_there_is_said(void **state)
{
	struct vbn_session_listener *first = listen_at("127.0.0.1:0");
	struct vbn_session_conf hasty = base;
	struct vbn_session *here;
	char address[64];

	(void)state;
	snprintf(address, sizeof(address), "%s", vbn_session_listener_address(first));
	vbn_session_unlisten(first);
	hasty.retry_ns = 1;
	assert_int_equal(vbn_session_connect(address, &hasty, &here), -ECONNREFUSED);
	assert_null(here);
	assert_logged("cannot be reached: Connection refused; start the end that listens");
}

/* ---- peers that are refused ---- */

static void both_ends_say_why_they_do_not_fit(void **state)
{
	struct vbn_session_conf other = base, newer = base;
	struct vbn_session_listener *listener = listen_at("127.0.0.1:0");
	const char *address = vbn_session_listener_address(listener);
	struct vbn_session *session;
	uint64_t opened = counter("opened");

	(void)state;
	other.service = "other.service";
	assert_int_equal(vbn_session_connect(address, &other, &session), -ECONNREFUSED);
	assert_logged("was refused: one end is here for \"other.service\"");
	assert_logged("refuses: one end is here for \"other.service\" and the other for "
		      "\"test.session\"");
	newer.version_min = 2;
	newer.version_max = 3;
	assert_int_equal(vbn_session_connect(address, &newer, &session), -ECONNREFUSED);
	assert_logged("refuses: one end speaks versions 2 to 3 of \"test.session\" and the other 1 "
		      "to 1");
	/* and a range that overlaps is agreed on */
	newer.version_min = 1;
	assert_int_equal(vbn_session_connect(address, &newer, &session), 0);
	assert_int_equal(vbn_session_version(session), 1);
	vbn_session_close(session, NULL);
	assert_int_equal(vbn_session_accept(listener, LONG_NS, &session), 0);
	vbn_session_close(session, NULL);
	assert_int_equal(counter("opened") - opened, 2);
	vbn_session_unlisten(listener);
}

/* The listener ends the connection of each, with a reason, and serves the next. */
static void hostile_bytes_are_refused(void **state)
{
	struct vbn_session_listener *listener = listen_at("127.0.0.1:0");
	struct hello hello = good_hello(WIRE_CONNECTS);
	struct {
		uint8_t bytes[256];
		size_t len;
		const char *reason;
	} hostile[9] = {{.reason = "not of this protocol, it begins \"GET / HTTP/1"},
		{.reason = "before the greeting"}, {.reason = "has 4294967295 bytes"},
		{.reason = "versions 2 to 9 of the exchange"}, {.reason = "has no role"},
		{.reason = "names no service"}, {.reason = "takes messages of 0 bytes"},
		{.reason = "reserved bytes"}, {.reason = "both ends listen"}};
	struct vbn_session *here, *there;
	uint64_t refused = counter("refused");

	(void)state;
	hostile[0].len = (size_t)snprintf(
		(char *)hostile[0].bytes, 256, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
	hostile[1].len = put_frame(hostile[1].bytes, FRAME_MESSAGE, "x", 1);
	hostile[2].len = put_hello(hostile[2].bytes, &hello);
	memset(hostile[2].bytes + 8, 0xff, 4);
	hello.version_min = 2;
	hello.version_max = 9;
	hostile[3].len = put_hello(hostile[3].bytes, &hello);
	hello = good_hello(WIRE_CONNECTS);
	hello.role = 7;
	hostile[4].len = put_hello(hostile[4].bytes, &hello);
	hello = good_hello(WIRE_CONNECTS);
	hello.service[0] = 0;
	hostile[5].len = put_hello(hostile[5].bytes, &hello);
	hello = good_hello(WIRE_CONNECTS);
	hello.max_message = 0;
	hostile[6].len = put_hello(hostile[6].bytes, &hello);
	hello = good_hello(WIRE_CONNECTS);
	hostile[7].len = put_hello(hostile[7].bytes, &hello);
	hostile[7].bytes[6] = 1;
	hello.role = WIRE_LISTENS;
	hostile[8].len = put_hello(hostile[8].bytes, &hello);
	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++) {
		uint8_t answer[512] = {0};
		int fd = raw_connect(port_of(listener));
		size_t len;

		raw_send(fd, hostile[i].bytes, hostile[i].len);
		len = raw_read_all(fd, answer, sizeof(answer) - 1);
		assert_true(len > sizeof(struct frame_header));
		assert_int_equal(answer[4], FRAME_REFUSE);
		assert_has((char *)answer + sizeof(struct frame_header), hostile[i].reason);
		assert_logged(hostile[i].reason);
		close(fd);
	}
	assert_int_equal(counter("refused") - refused, ARRAY_SIZE(hostile));
	pair(listener, &here, &there);
	vbn_session_close(here, NULL);
	vbn_session_close(there, NULL);
	vbn_session_unlisten(listener);
}

static void lengths_are_checked_in_an_open_session_too(void **state)
{
	struct vbn_session_listener *listener = listen_at("127.0.0.1:0");
	struct hello hello = good_hello(WIRE_CONNECTS);
	struct frame_header header;
	struct vbn_session *there;
	uint8_t bytes[256];
	int fd = raw_connect(port_of(listener));

	(void)state;
	raw_send(fd, bytes, put_hello(bytes, &hello));
	assert_int_equal(vbn_session_accept(listener, LONG_NS, &there), 0);
	vbn__frame_pack(&header, FRAME_MESSAGE, (64 << 10) + 1);
	raw_send(fd, &header, sizeof(header));
	assert_int_equal(end_of(there), -EMSGSIZE);
	assert_has(vbn_session_error(there), "has 65537 bytes, and 1 to 65536 are taken");
	close(fd);
	vbn_session_close(there, NULL);
	vbn_session_unlisten(listener);
}

static void a_greeting_that_does_not_come_is_not_waited_for(void **state)
{
	struct vbn_session_conf hasty = base;
	struct vbn_session_listener *listener;
	uint8_t answer[512] = {0};
	uint64_t timed_out;
	int fd;

	(void)state;
	hasty.timeout_ns = SECOND_NS / 50;
	assert_int_equal(vbn_session_listen("127.0.0.1:0", &hasty, &listener), 0);
	timed_out = counter("timed_out");
	fd = raw_connect(port_of(listener));
	raw_send(fd, "VB", 2);
	assert_true(raw_read_all(fd, answer, sizeof(answer) - 1) > 12);
	assert_has((char *)answer + 12, "did not come in time");
	assert_int_equal(counter("timed_out") - timed_out, 1);
	close(fd);
	vbn_session_unlisten(listener);
}

/* Whatever the byte behind which a peer's stream ends, the listener says so and goes on. */
static void a_peer_may_be_cut_at_every_byte(void **state)
{
	struct vbn_session_listener *listener = listen_at("127.0.0.1:0");
	struct hello hello = good_hello(WIRE_CONNECTS);
	uint8_t bytes[256];
	size_t greeting = put_hello(bytes, &hello);
	size_t len = greeting + put_frame(bytes + greeting, FRAME_MESSAGE, "message", 7);
	struct vbn_session *here, *there;
	uint8_t byte[8];

	(void)state;
	for (size_t cut = 0; cut < len; cut++) {
		int fd = raw_connect(port_of(listener));

		raw_send(fd, bytes, cut);
		shutdown(fd, SHUT_WR);
		if (cut >= greeting) {
			assert_int_equal(vbn_session_accept(listener, LONG_NS, &there), 0);
			assert_int_equal(
				vbn_session_recv(there, byte, sizeof(byte), LONG_NS), -ECONNRESET);
			assert_has(
				vbn_session_error(there), "is lost: it ended without taking leave");
			vbn_session_close(there, NULL);
		}
		close(fd);
	}
	pair(listener, &here, &there);
	vbn_session_close(here, NULL);
	vbn_session_close(there, NULL);
	vbn_session_unlisten(listener);
}

/* The other way round: what listens is a socket that answers with a part of a greeting. */
struct raw_listener {
	int fd;
	size_t cut;
	uint8_t bytes[256];
};

static void *answer_in_part(void *arg)
{
	struct raw_listener *raw = arg;
	int fd = accept(raw->fd, NULL, NULL);
	uint8_t hello[52];

	recv(fd, hello, sizeof(hello), MSG_WAITALL);
	send(fd, raw->bytes, raw->cut, MSG_NOSIGNAL);
	close(fd);
	return NULL;
}

static void a_listener_may_be_cut_at_every_byte(void **state)
{
	struct hello hello = good_hello(WIRE_LISTENS);
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t at_len = sizeof(at);
	struct raw_listener raw = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
	size_t len = put_hello(raw.bytes, &hello);
	struct vbn_session *here;
	char address[64];

	(void)state;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(raw.fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(raw.fd, 16), 0);
	getsockname(raw.fd, (struct sockaddr *)&at, &at_len);
	snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(at.sin_port));
	for (raw.cut = 0; raw.cut <= len; raw.cut++) {
		pthread_t thread;
		int ret;

		unit_catch_log();
		assert_int_equal(pthread_create(&thread, NULL, answer_in_part, &raw), 0);
		ret = vbn_session_connect(address, &base, &here);
		assert_int_equal(ret, raw.cut == len ? 0 : -ECONNRESET);
		if (ret)
			assert_logged("left while greeting");
		vbn_session_close(here, NULL);
		pthread_join(thread, NULL);
	}
	close(raw.fd);
}

/* More peers at once than may greet at once: each has its turn. */
static void many_peers_have_their_turn(void **state)
{
	enum { N = 300 };
	struct vbn_session_listener *listener = listen_at("127.0.0.1:0");
	struct hello hello = good_hello(WIRE_CONNECTS);
	uint8_t bytes[256];
	size_t len = put_hello(bytes, &hello);
	struct vbn_session *there;
	int fds[N];

	(void)state;
	for (int i = 0; i < N; i++) {
		fds[i] = raw_connect(port_of(listener));
		raw_send(fds[i], bytes, len / 2);
	}
	for (int i = 0; i < N; i++) {
		raw_send(fds[i], bytes + len / 2, len - len / 2);
		shutdown(fds[i], SHUT_WR);
	}
	for (int i = 0; i < N; i++) {
		assert_int_equal(vbn_session_accept(listener, LONG_NS, &there), 0);
		vbn_session_close(there, NULL);
	}
	for (int i = 0; i < N; i++)
		close(fds[i]);
	vbn_session_unlisten(listener);
}

static void a_listener_may_end_with_peers_waiting(void **state)
{
	struct vbn_session_listener *listener = listen_at("127.0.0.1:0");
	struct vbn_session *here;
	int fd = raw_connect(port_of(listener));
	uint8_t answer[128] = {0};

	(void)state;
	assert_int_equal(
		vbn_session_connect(vbn_session_listener_address(listener), &base, &here), 0);
	vbn_session_unlisten(listener);
	assert_int_equal(end_of(here), -ECONNREFUSED);
	vbn_session_close(here, NULL);
	/* one that was in the backlog still is reset by the system */
	raw_read_all(fd, answer, sizeof(answer));
	close(fd);
}

static void before_init_there_is_no_session(void **state)
{
	struct vbn_session_listener *listener;

	(void)state;
	unit_catch_log();
	assert_int_equal(vbn_session_listen("127.0.0.1:0", &base, &listener), -ESHUTDOWN);
	assert_logged("vbn_init() was not called");
}

#define with_library(test) cmocka_unit_test_setup_teardown(test, init, fini)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(before_init_there_is_no_session),
		with_library(addresses_of_both_families_reach),
		with_library(what_is_no_address_is_refused),
		with_library(conf_out_of_range_is_refused),
		with_library(an_address_in_use_is_named),
		with_library(messages_go_both_ways_in_order),
		with_library(an_end_is_in_order_or_has_a_reason),
		with_library(a_peer_that_dies_is_noticed_unasked),
		with_library(connecting_waits_for_the_listener),
		with_library(nobody_there_is_said),
		with_library(both_ends_say_why_they_do_not_fit),
		with_library(hostile_bytes_are_refused),
		with_library(lengths_are_checked_in_an_open_session_too),
		with_library(a_greeting_that_does_not_come_is_not_waited_for),
		with_library(a_peer_may_be_cut_at_every_byte),
		with_library(a_listener_may_be_cut_at_every_byte),
		with_library(many_peers_have_their_turn),
		with_library(a_listener_may_end_with_peers_waiting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
