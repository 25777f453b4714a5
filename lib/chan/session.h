/* session.h - a session as the control thread has it: a state machine over one TCP connection
 *
 * Everything here runs on the control thread. An owner learns by calls what happens, and may do
 * anything from within them, freeing the session included. verbena/session.h is an owner that lets
 * other threads wait (session_wait.c); channels are another.
 */
#ifndef VBN_CHAN_SESSION_H
#define VBN_CHAN_SESSION_H

#include "chan/endpoint.h"
#include "chan/reactor.h"
#include "chan/wire.h"

#include <verbena/session.h>

struct session;

struct session_owner {
	/* The peer has greeted. */
	void (*open)(struct session *session);
	/* A message; `data` is valid during the call. False: hold further ones back until
	 * vbn__session_resume(). */
	bool (*message)(struct session *session, const uint8_t *data, uint32_t len);
	/* It has ended, other than by the owner: code 0 in order, else an errno. The last call;
	 * the session is left to be closed. */
	void (*over)(struct session *session, int code, const char *why);
};

enum session_state {
	SESSION_CONNECTING, /* or waiting to try again */
	SESSION_GREETING,
	SESSION_OPEN,
	SESSION_LEAVING, /* the owner has let go: what is to be sent is, then it is freed */
	SESSION_OVER,
};

struct session {
	struct garbage_link {
		void *next;
	} link; /* first: the reactor's, when it is freed */
	struct reactor_io io;
	struct reactor_timer timer; /* to connect, to greet, to leave; or the next try */
	enum session_state state;
	bool held, refused_by_peer;
	const struct session_owner *owner;
	void *arg;               /* the owner's */
	void (*left)(void *arg); /* where set: called when a session that was closed is gone */
	struct session_listener *listener;
	struct hello mine, theirs;
	uint16_t version;
	uint64_t timeout_ns, keepalive_ns;
	/* connecting */
	struct endpoint *endpoints;
	int n_endpoints, next_endpoint;
	uint64_t give_up_at;
	int last_error;
	/* the frame that is coming in */
	struct frame_header header;
	enum frame_type type;
	uint32_t got, length; /* of header and body together */
	uint8_t *body;
	/* what waits to go out */
	uint8_t *out;
	size_t out_at, out_len, out_size;
	char peer[ENDPOINT_TEXT];
	struct session *next,
		**at; /* in the list of those leaving, or of the listener's greeting */
};

struct session_listener {
	struct garbage_link link;
	struct reactor_io io;
	const struct session_owner *owner; /* of the sessions that come, told from `open` on */
	void *arg;
	struct hello mine;
	uint64_t timeout_ns, keepalive_ns;
	struct session *greeting; /* list */
	int n_greeting;
	char address[ENDPOINT_TEXT];
};

/* conf checked and defaults filled in: 0 or -EINVAL with a sentence. Any thread. */
int vbn__session_conf_check(struct vbn_session_conf *conf);

/* Connects to one endpoint after the other, for retry_ns. -ENOMEM. `over` may be the first call. */
int vbn__session_connect(const struct endpoint *endpoints, int n,
	const struct vbn_session_conf *conf, const struct session_owner *owner, void *arg,
	struct session **session);

/* On the first endpoint that can be had. 0 or -errno with a sentence. */
int vbn__session_listen(const struct endpoint *endpoints, int n,
	const struct vbn_session_conf *conf, const struct session_owner *owner, void *arg,
	struct session_listener **listener);
void vbn__session_unlisten(struct session_listener *listener);

/* Queues a message. -EMSGSIZE, -ENOTCONN, -ENOBUFS: the peer does not read and too much waits. */
int vbn__session_send(struct session *session, const void *data, size_t len);
void vbn__session_resume(struct session *session);

/* The owner lets go: with a reason, refused; else in order. What is queued goes out first, for a
 * second at most. NULL is allowed. */
void vbn__session_close(struct session *session, const char *reason);

/* Drops those that are leaving: the control thread ends. */
void vbn__sessions_abandon(void);

#endif
