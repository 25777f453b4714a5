/* verbena/session.h - a session: what two processes tell each other over TCP, before, beside and
 * after the messages of their queues
 *
 * One end listens, the other connects. Both greet with the service that they mean and the versions
 * of it that they speak; an end that is not meant, speaks other versions or breaks the rules is
 * refused with a reason, which both ends log. Then messages of any bytes go both ways, in order.
 *
 * Addresses are "ADDR:PORT", "[V6]:PORT", ":PORT" (any address when listening, this host when
 * connecting), and "NAME:PORT". Port 0 listens on one that is free.
 *
 * Threads: the work is done on the control thread, which notices a peer's end at once, whoever
 * waits. The functions block: call them where waiting is no harm, from any thread but one at a time
 * for one session.
 */
#ifndef VERBENA_SESSION_H
#define VERBENA_SESSION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_session;
struct vbn_session_listener;

struct vbn_session_conf {
	const char *service; /* required: 1 to 23 visible characters; both ends name the same */
	uint16_t version_min, version_max; /* of the service's messages, default 1: the highest that
					      both ends have holds */
	uint32_t max_message;  /* bytes taken from the peer in one message; default 64 KiB, at most
				  64 MiB */
	uint64_t retry_ns;     /* how long connecting is tried while nobody listens; default 5 s */
	uint64_t timeout_ns;   /* how long a peer may take to greet; default 5 s */
	uint64_t keepalive_ns; /* a peer whose host is silent for so long is lost; rounded down
				  to whole seconds, 2 at least; default 10 s. A process that dies is lost at once. */
};

/* Connects and greets. -EINVAL: not an address, conf out of range; -EHOSTUNREACH: nobody knows its
 * name, or there is no way to it; -ECONNREFUSED: nobody listens,
 * or the peer has refused; -ETIMEDOUT: it does not answer; -EPROTO: it speaks something else;
 * -EPROTONOSUPPORT: no version in common; -ECONNRESET: it left while greeting; -ECANCELED, without a
 * sentence: vbn_stop() was called meanwhile. */
int vbn_session_connect(
	const char *address, const struct vbn_session_conf *conf, struct vbn_session **session);

/* -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -EHOSTUNREACH (a name that nobody knows), -EINVAL. From its return on peers can connect. */
int vbn_session_listen(const char *address, const struct vbn_session_conf *conf,
	struct vbn_session_listener **listener);

/* The next peer that has greeted. -ETIMEDOUT. What refuses or leaves while greeting is logged as a
 * warning, counted, and waited out. */
int vbn_session_accept(
	struct vbn_session_listener *listener, uint64_t timeout_ns, struct vbn_session **session);

/* "127.0.0.1:4791": where it can be reached, with the port that it got. */
const char *vbn_session_listener_address(const struct vbn_session_listener *listener);

/* Peers that were not accepted are refused. NULL is allowed. */
void vbn_session_unlisten(struct vbn_session_listener *listener);

/* Sends a copy, of 1 byte on; it is on its way when this returns, and may still be lost with the
 * peer. -EMSGSIZE: more than the peer takes; -EINVAL: nothing; else as vbn_session_status(). */
int vbn_session_send(struct vbn_session *session, const void *data, size_t len);

/* The next message: its length. -ETIMEDOUT; -EMSGSIZE: it is longer than size, and stays. What came
 * before the session's end can still be received; then as vbn_session_status(). */
int vbn_session_recv(struct vbn_session *session, void *data, size_t size, uint64_t timeout_ns);

/* 0 while it is open; -ENOTCONN: the peer has closed it in order; -ECONNREFUSED: the peer has ended
 * it with a reason; -ECONNRESET: the peer is gone; -EPROTO: the peer broke the rules. */
int vbn_session_status(const struct vbn_session *session);

/* The sentence about how it ended, "" while it is open. */
const char *vbn_session_error(const struct vbn_session *session);

/* "10.0.0.2:43210", and the version of the service that holds. */
const char *vbn_session_peer(const struct vbn_session *session);
int vbn_session_version(const struct vbn_session *session);

/* Ends it and frees it; what was sent is still delivered. With a reason it is a refusal, which the
 * peer logs; NULL ends it in order. A session of NULL is allowed. */
void vbn_session_close(struct vbn_session *session, const char *reason);

#ifdef __cplusplus
}
#endif

#endif
