/* session_internal.h - the seams between session.c, session_io.c and session_listen.c */
#ifndef VBN_CHAN_SESSION_INTERNAL_H
#define VBN_CHAN_SESSION_INTERNAL_H

#include "chan/session.h"

enum session_count {
	COUNT_OPENED,
	COUNT_REFUSED,
	COUNT_REFUSED_BY_PEER,
	COUNT_LOST,
	COUNT_TIMED_OUT,
	COUNT_N
};

/* session.c */
struct hello vbn__session_hello(const struct vbn_session_conf *conf, enum wire_role role);
struct session *vbn__session_new(const struct hello *mine, uint64_t timeout_ns,
	uint64_t keepalive_ns, const struct session_owner *owner, void *arg);
void vbn__session_list(struct session *session, struct session **list);
void vbn__session_left_greeting(struct session *session);

/* A socket is there and connected; greets. */
void vbn__session_greet(struct session *session);
/* A connection attempt has come to its end. */
void vbn__session_connected(struct session *session);
/* The session's last words to its owner; nothing of it may be touched behind it. */
void vbn__session_end(struct session *session, int code, const char *fmt, ...) printf_like(3, 4);
void vbn__session_lost(struct session *session, int error);
/* A frame is in session->body, or is none. */
void vbn__session_frame(struct session *session);
void vbn__session_faulty(struct session *session, const struct wire_fault *fault);

/* session_io.c */
void vbn__session_ready(struct reactor_io *io, uint32_t events);
/* Writes what it can, waits for the rest. May end the session. */
void vbn__session_flush(struct session *session);
/* Waits for what there is to wait for. */
void vbn__session_watch(struct session *session);
/* False: too much waits already, or no memory. */
bool vbn__session_queue(
	struct session *session, enum frame_type type, const void *data, uint32_t len);

/* session_listen.c */
void vbn__listener_watch(struct session_listener *listener);

/* Counters: of kind "exchange". */
void vbn__session_count(enum session_count which);
void vbn__session_counters(bool on);

#endif
