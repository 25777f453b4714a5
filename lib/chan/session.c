/* session.c - sessions on the control thread: connecting, greeting, frames in and out, the end */

#include "chan/session_internal.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RETRY_PAUSE_NS (50ull * 1000 * 1000)
#define LEAVE_NS       (1000ull * 1000 * 1000)
#define SECOND_NS      (1000ull * 1000 * 1000)

static struct session *leaving; /* list */

/* ---- conf ---- */

int vbn__session_conf_check(struct vbn_session_conf *conf)
{
	size_t len = conf->service ? strnlen(conf->service, 24) : 0;

	if (len < 1 || len > 23 || strpbrk(conf->service, " \t\n"))
		return fail(EINVAL,
			"session cannot be made: its service is \"%s\" and must be 1 to 23 visible characters",
			conf->service ? conf->service : "");
	if (!conf->version_max)
		conf->version_max = 1;
	if (!conf->version_min)
		conf->version_min = 1;
	if (conf->version_min > conf->version_max)
		return fail(EINVAL, "session cannot be made: its versions %u to %u are none",
			conf->version_min, conf->version_max);
	if (!conf->max_message)
		conf->max_message = 64u << 10;
	if (conf->max_message > WIRE_MAX_TAKEN)
		return fail(EINVAL,
			"session cannot be made: max_message is %u and must be up to %u",
			conf->max_message, WIRE_MAX_TAKEN);
	if (!conf->retry_ns)
		conf->retry_ns = 5 * SECOND_NS;
	if (!conf->timeout_ns)
		conf->timeout_ns = 5 * SECOND_NS;
	if (!conf->keepalive_ns)
		conf->keepalive_ns = 10 * SECOND_NS;
	return 0;
}

struct hello vbn__session_hello(const struct vbn_session_conf *conf, enum wire_role role)
{
	struct hello hello = {
		.version_min = WIRE_VERSION,
		.version_max = WIRE_VERSION,
		.role = role,
		.max_message = conf->max_message,
		.service_min = conf->version_min,
		.service_max = conf->version_max,
	};

	snprintf(hello.service, sizeof(hello.service), "%s", conf->service);
	return hello;
}

/* ---- the end ---- */

static void unlist(struct session *session)
{
	if (!session->at)
		return;
	*session->at = session->next;
	if (session->next)
		session->next->at = session->at;
	session->at = NULL;
}

void vbn__session_list(struct session *session, struct session **list)
{
	session->next = *list;
	session->at = list;
	if (session->next)
		session->next->at = &session->next;
	*list = session;
}

static void drop_socket(struct session *session)
{
	if (session->io.fd < 0)
		return;
	vbn__reactor_remove(&session->io);
	close(session->io.fd);
	session->io.fd = -1;
}

static void session_free(struct session *session)
{
	if (session->left)
		session->left(session->arg);
	unlist(session);
	vbn__reactor_timer_clear(&session->timer);
	drop_socket(session);
	free(session->endpoints);
	free(session->body);
	free(session->out);
	session->endpoints = NULL;
	session->body = session->out = NULL;
	vbn__reactor_free_later(session);
}

void vbn__session_left_greeting(struct session *session)
{
	unlist(session);
	session->listener->n_greeting--;
	vbn__listener_watch(session->listener);
	session->listener = NULL;
}

/* What is queued goes out, then our half is shut, and the peer's is read to its end: closing with
 * bytes unread would reset the connection, and destroy what the peer has not read yet. */
static void leave(struct session *session)
{
	session->owner = NULL;
	session->state = SESSION_LEAVING;
	if (session->io.fd < 0) {
		session_free(session);
		return;
	}
	vbn__session_list(session, &leaving);
	vbn__reactor_timer_set(&session->timer, clock_ns() + LEAVE_NS);
	vbn__session_flush(session);
}

void vbn__session_end(struct session *session, int code, const char *fmt, ...)
{
	char why[2 * WIRE_MAX_REFUSE];
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	vbn__reactor_timer_clear(&session->timer);
	session->state = SESSION_OVER;
	if (session->listener) { /* nobody knows of it yet */
		log_warning("listener %s: %s", session->listener->address, why);
		vbn__session_left_greeting(session);
		leave(session);
		return;
	}
	if (session->io.fd >= 0) {
		/* A peer that has left waits for our end of the stream, and for nothing else. */
		if (!code || session->refused_by_peer)
			shutdown(session->io.fd, SHUT_WR);
		vbn__session_watch(session);
	}
	session->owner->over(session, code, why);
}

static void refuse(struct session *session, int code, const char *why)
{
	vbn__session_queue(session, FRAME_REFUSE, why, (uint32_t)strnlen(why, WIRE_MAX_REFUSE));
	vbn__session_count(COUNT_REFUSED);
	vbn__session_end(session, code, "peer %s was refused: %s", session->peer, why);
}

void vbn__session_lost(struct session *session, int error)
{
	bool greeting = session->state == SESSION_GREETING;

	drop_socket(session);
	if (session->state == SESSION_LEAVING) {
		session_free(session);
		return;
	}
	if (session->state == SESSION_OVER)
		return;
	vbn__session_count(COUNT_LOST);
	if (greeting)
		vbn__session_end(session, ECONNRESET,
			"peer %s left while greeting, after %u bytes (%s): is it Verbena, and alive?",
			session->peer, session->got, error ? strerror(error) : "end of stream");
	else
		vbn__session_end(session, ECONNRESET,
			"peer %s is lost: %s%s; look at what it said last", session->peer,
			error ? strerror(error) : "it ended without taking leave",
			session->got ? ", in the middle of a message" : "");
}

void vbn__session_close(struct session *session, const char *reason)
{
	if (!session)
		return;
	vbn__reactor_timer_clear(&session->timer);
	if (session->state == SESSION_CONNECTING) {
		session_free(session);
		return;
	}
	if (session->state != SESSION_OVER && reason) {
		vbn__session_count(COUNT_REFUSED);
		vbn__session_queue(
			session, FRAME_REFUSE, reason, (uint32_t)strnlen(reason, WIRE_MAX_REFUSE));
	} else if (session->state == SESSION_OPEN) {
		vbn__session_queue(session, FRAME_BYE, NULL, 0);
	}
	leave(session);
}

void vbn__sessions_abandon(void)
{
	while (leaving)
		session_free(leaving);
	vbn__session_counters(false);
}

/* ---- greeting ---- */

static void set_options(struct session *session)
{
	int fd = session->io.fd, one = 1, interval = 1;
	int whole = (int)max(session->keepalive_ns / SECOND_NS, 2ull), idle = whole / 2;
	int probes = whole - idle;
	unsigned int silent_ms = (unsigned int)whole * 1000;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof(silent_ms));
}

static void send_hello(struct session *session)
{
	struct hello_body body;

	vbn__hello_pack(&session->mine, &body);
	vbn__session_queue(session, FRAME_HELLO, &body, sizeof(body));
}

void vbn__session_greet(struct session *session)
{
	vbn__endpoint_of_socket(session->io.fd, true, session->peer);
	set_options(session);
	session->state = SESSION_GREETING;
	vbn__reactor_timer_set(&session->timer, clock_ns() + session->timeout_ns);
	if (session->mine.role == WIRE_CONNECTS)
		send_hello(session);
	vbn__session_watch(session);
}

static void on_hello(struct session *session)
{
	struct wire_fault fault;

	if (vbn__hello_unpack(session->body, session->length, &session->theirs, &fault) ||
		vbn__hello_agree(&session->mine, &session->theirs, &session->version, &fault)) {
		refuse(session, fault.code, fault.why);
		return;
	}
	if (session->mine.role == WIRE_LISTENS)
		send_hello(session);
	if (session->listener)
		vbn__session_left_greeting(session);
	vbn__reactor_timer_clear(&session->timer);
	session->state = SESSION_OPEN;
	vbn__session_count(COUNT_OPENED);
	session->owner->open(session);
}

/* ---- frames that have come whole ---- */

static void on_refuse(struct session *session)
{
	char text[WIRE_MAX_REFUSE + 1];

	vbn__wire_text(session->body, session->length, text, sizeof(text));
	session->refused_by_peer = true;
	vbn__session_count(COUNT_REFUSED_BY_PEER);
	vbn__session_end(session, ECONNREFUSED, "peer %s refuses: %s", session->peer, text);
}

void vbn__session_frame(struct session *session)
{
	switch (session->type) {
	case FRAME_HELLO: on_hello(session); return;
	case FRAME_REFUSE: on_refuse(session); return;
	case FRAME_BYE:
		vbn__session_end(session, 0, "peer %s has ended the session", session->peer);
		return;
	case FRAME_MESSAGE:
		session->held = !session->owner->message(session, session->body, session->length);
		return;
	}
}

void vbn__session_faulty(struct session *session, const struct wire_fault *fault)
{
	refuse(session, fault->code, fault->why);
}

/* ---- what the owner asks ---- */

int vbn__session_send(struct session *session, const void *data, size_t len)
{
	if (session->state != SESSION_OPEN)
		return -ENOTCONN;
	if (len < 1)
		return -EINVAL;
	if (len > session->theirs.max_message)
		return -EMSGSIZE;
	if (!vbn__session_queue(session, FRAME_MESSAGE, data, (uint32_t)len))
		return -ENOBUFS;
	vbn__session_watch(session);
	return 0;
}

void vbn__session_resume(struct session *session)
{
	if (!session->held)
		return;
	session->held = false;
	if (session->state == SESSION_OPEN)
		vbn__session_watch(session);
}

/* ---- connecting ---- */

static void try_connect(struct session *session);

static bool worth_a_retry(int error)
{
	switch (error) {
	case ECONNREFUSED:
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case ECONNRESET:
	case EADDRNOTAVAIL:
	case EAGAIN: return true;
	default: return false;
	}
}

static void connect_failed(struct session *session, int error)
{
	char text[ENDPOINT_TEXT];
	uint64_t now = clock_ns();

	drop_socket(session);
	vbn__reactor_timer_clear(&session->timer);
	session->last_error = error;
	if (session->next_endpoint < session->n_endpoints) {
		vbn__reactor_timer_set(&session->timer, now);
		return;
	}
	session->next_endpoint = 0;
	if (worth_a_retry(error) && now < session->give_up_at) {
		vbn__reactor_timer_set(
			&session->timer, min(now + RETRY_PAUSE_NS, session->give_up_at));
		return;
	}
	vbn__endpoint_text(&session->endpoints[0], text);
	vbn__session_end(session, error,
		"peer %s cannot be reached: %s; start the end that listens, and check the address and firewalls",
		text, strerror(error));
}

/* A port of the range that clients get theirs from may be connected to itself. */
static bool is_self(int fd)
{
	char here[ENDPOINT_TEXT], there[ENDPOINT_TEXT];

	vbn__endpoint_of_socket(fd, false, here);
	vbn__endpoint_of_socket(fd, true, there);
	return !strcmp(here, there);
}

void vbn__session_connected(struct session *session)
{
	socklen_t len = sizeof(int);
	int error = 0;

	if (getsockopt(session->io.fd, SOL_SOCKET, SO_ERROR, &error, &len))
		error = errno;
	if (!error && is_self(session->io.fd))
		error = ECONNREFUSED;
	if (error)
		connect_failed(session, error);
	else
		vbn__session_greet(session);
}

static void try_connect(struct session *session)
{
	const struct endpoint *to = &session->endpoints[session->next_endpoint++];
	int fd = socket(to->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		connect_failed(session, errno);
		return;
	}
	if (connect(fd, (const struct sockaddr *)&to->address, to->len) && errno != EINPROGRESS) {
		int error = errno;

		close(fd);
		connect_failed(session, error);
		return;
	}
	session->io.fd = fd;
	session->io.events = EPOLLOUT;
	if (vbn__reactor_add(&session->io)) {
		connect_failed(session, ENOMEM);
		return;
	}
	vbn__reactor_timer_set(&session->timer, clock_ns() + session->timeout_ns);
}

static void on_timer(struct reactor_timer *timer)
{
	struct session *session = container_of(timer, struct session, timer);

	switch (session->state) {
	case SESSION_CONNECTING:
		if (session->io.fd < 0)
			try_connect(session);
		else
			connect_failed(session, ETIMEDOUT);
		return;
	case SESSION_GREETING:
		vbn__session_count(COUNT_TIMED_OUT);
		refuse(session, ETIMEDOUT, "the greeting did not come in time");
		return;
	case SESSION_LEAVING: session_free(session); return;
	case SESSION_OPEN:
	case SESSION_OVER: return;
	}
}

/* ---- create ---- */

struct session *vbn__session_new(const struct hello *mine, uint64_t timeout_ns,
	uint64_t keepalive_ns, const struct session_owner *owner, void *arg)
{
	struct session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->io.fd = -1;
	session->io.fn = vbn__session_ready;
	session->timer.fn = on_timer;
	session->owner = owner;
	session->arg = arg;
	session->mine = *mine;
	session->timeout_ns = timeout_ns;
	session->keepalive_ns = keepalive_ns;
	return session;
}

int vbn__session_connect(const struct endpoint *endpoints, int n,
	const struct vbn_session_conf *conf, const struct session_owner *owner, void *arg,
	struct session **created)
{
	struct hello mine = vbn__session_hello(conf, WIRE_CONNECTS);
	struct session *session =
		vbn__session_new(&mine, conf->timeout_ns, conf->keepalive_ns, owner, arg);
	uint64_t now = clock_ns();

	if (!session)
		return -ENOMEM;
	session->endpoints = calloc((size_t)n, sizeof(*endpoints));
	if (!session->endpoints) {
		session_free(session);
		return -ENOMEM;
	}
	memcpy(session->endpoints, endpoints, (size_t)n * sizeof(*endpoints));
	session->n_endpoints = n;
	session->give_up_at = now + conf->retry_ns;
	vbn__endpoint_text(endpoints, session->peer);
	vbn__session_counters(true);
	vbn__reactor_timer_set(
		&session->timer, now); /* so that no call comes from within this one */
	*created = session;
	return 0;
}
