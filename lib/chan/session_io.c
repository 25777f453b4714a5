/* session_io.c - a session's bytes: frames are put together as they come, and queued to go out */

#include "chan/session_internal.h"

#include <stdlib.h>

#define TURN         16           /* frames handled before others have their turn */
#define MAX_OUT      (128u << 20) /* bytes that may wait for a peer that does not read */
#define HEADER_BYTES ((uint32_t)sizeof(struct frame_header))

static const struct counter_name names[] = {
	{"opened", "sessions whose two ends have greeted"},
	{"refused", "peers refused here: foreign, of another version, or against the rules"},
	{"refused_by_peer", "sessions that the peer has refused or ended with a reason"},
	{"lost", "peers that left without taking leave"},
	{"timed_out", "peers that did not greet in time"},
};
static uint64_t counts[COUNT_N];
static struct counter_set counters = {
	.kind = "exchange", .object = "tcp", .names = names, .values = counts, .n = COUNT_N};
static bool counting;
static_assert(ARRAY_SIZE(names) == COUNT_N, "each count has its name");

void vbn__session_count(enum session_count which)
{
	count_add(&counts[which], 1);
}

void vbn__session_counters(bool on)
{
	if (on == counting)
		return;
	counting = on;
	if (on)
		vbn__counters_add(&counters);
	else
		vbn__counters_remove(&counters);
}

/* ---- out ---- */

void vbn__session_watch(struct session *session)
{
	bool reads = session->state == SESSION_LEAVING || !session->held;

	vbn__reactor_change(&session->io,
		(reads ? EPOLLIN : 0u) | (session->out_len ? (uint32_t)EPOLLOUT : 0u));
}

static bool make_room(struct session *session, size_t len)
{
	size_t size = pow2_ceil(session->out_len + len);
	uint8_t *out;

	if (session->out_len + len > MAX_OUT)
		return false;
	if (session->out_at + session->out_len + len <= session->out_size)
		return true;
	if (session->out_at) {
		memmove(session->out, session->out + session->out_at, session->out_len);
		session->out_at = 0;
	}
	if (size <= session->out_size)
		return true;
	out = realloc(session->out, size);
	if (!out)
		return false;
	session->out = out;
	session->out_size = size;
	return true;
}

bool vbn__session_queue(
	struct session *session, enum frame_type type, const void *data, uint32_t len)
{
	struct frame_header header;
	uint8_t *at;

	if (!make_room(session, HEADER_BYTES + (size_t)len))
		return false;
	at = session->out + session->out_at + session->out_len;
	vbn__frame_pack(&header, type, len);
	memcpy(at, &header, sizeof(header));
	if (len)
		memcpy(at + sizeof(header), data, len);
	session->out_len += HEADER_BYTES + (size_t)len;
	return true;
}

void vbn__session_flush(struct session *session)
{
	while (session->out_len) {
		ssize_t n = send(session->io.fd, session->out + session->out_at, session->out_len,
			MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			vbn__session_lost(session, errno);
			return;
		}
		if (n < 0)
			break;
		session->out_at += (size_t)n;
		session->out_len -= (size_t)n;
	}
	if (!session->out_len) {
		session->out_at = 0;
		if (session->state == SESSION_LEAVING)
			shutdown(session->io.fd, SHUT_WR);
	}
	vbn__session_watch(session);
}

/* ---- in ---- */

static bool receiving(const struct session *session)
{
	return (session->state == SESSION_GREETING || session->state == SESSION_OPEN) &&
		!session->held;
}

/* The header has come: is it one, and is there room for its body? */
static void begin_body(struct session *session)
{
	struct wire_fault fault;

	if (vbn__frame_unpack(&session->header, session->state == SESSION_OPEN,
		    session->mine.max_message, &session->type, &session->length, &fault)) {
		vbn__session_faulty(session, &fault);
		return;
	}
	session->body = malloc(max(session->length, 1u));
	if (!session->body) {
		vbn__wire_fault(&fault, ENOMEM, "there is no memory for a message of %u bytes",
			session->length);
		vbn__session_faulty(session, &fault);
	}
}

/* A whole frame has come. What handles it may end the session; its memory is there until the
 * reactor's turn is over. */
static void end_frame(struct session *session)
{
	uint8_t *body = session->body;

	session->got = 0;
	vbn__session_frame(session);
	if (session->body == body) {
		free(body);
		session->body = NULL;
	}
}

/* Reads the rest of the header or of the body. False: nothing more for now, or ever. */
static bool read_some(struct session *session)
{
	bool in_header = session->got < HEADER_BYTES;
	uint32_t at = in_header ? session->got : session->got - HEADER_BYTES;
	uint32_t wanted = (in_header ? HEADER_BYTES : session->length) - at;
	uint8_t *to = in_header ? (uint8_t *)&session->header + at : session->body + at;
	ssize_t n = recv(session->io.fd, to, wanted, MSG_DONTWAIT);

	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) {
		vbn__session_lost(session, n < 0 ? errno : 0);
		return false;
	}
	session->got += (uint32_t)n;
	if (in_header && session->got == HEADER_BYTES)
		begin_body(session);
	if (receiving(session) && session->got >= HEADER_BYTES &&
		session->got == HEADER_BYTES + session->length)
		end_frame(session);
	return true;
}

/* The owner has left, or the session is over: what comes is of no interest, only its end is. */
static void discard(struct session *session)
{
	uint8_t bytes[4096];
	ssize_t n = recv(session->io.fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
		vbn__session_lost(session, n < 0 ? errno : 0);
}

void vbn__session_ready(struct reactor_io *io, uint32_t events)
{
	struct session *session = container_of(io, struct session, io);

	if (session->state == SESSION_CONNECTING) {
		vbn__session_connected(session);
		return;
	}
	if (events & EPOLLOUT)
		vbn__session_flush(session);
	if (io->fd < 0 || !(events & ~(uint32_t)EPOLLOUT))
		return;
	if (session->state == SESSION_LEAVING || session->state == SESSION_OVER) {
		discard(session);
		return;
	}
	for (int i = 0; i < 2 * TURN && receiving(session) && read_some(session); i++)
		;
	if (io->fd >= 0)
		vbn__session_watch(session);
}
