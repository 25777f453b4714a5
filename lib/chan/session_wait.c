/* session_wait.c - verbena/session.h: sessions for threads that may wait
 *
 * The control thread owns the session; what it tells is kept under a lock of the object that the
 * caller holds, and those who wait for it are woken.
 */

#include "chan/session.h"

#include "run/run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Messages kept for a caller that does not take them; then the peer has to wait. */
#define MAX_KEPT     64
#define STOP_LOOK_NS 50000000ull /* between looks whether the program is to stop */
#define FOREVER_NS   (1000ull * 3600 * 24 * 365 * 1000 * 1000)

struct message {
	struct message *next;
	uint32_t len;
	uint8_t data[];
};

struct vbn_session {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* the control thread's; constant for others */
	struct session *core;
	struct vbn_session_listener *listener; /* that it came by */
	/* under the lock */
	struct message *first, **end;
	int n_kept;
	bool open, over, left;
	int code;
	char why[512];
	/* written before it is handed out */
	char peer[ENDPOINT_TEXT];
	int version;
	uint32_t max_message;
	struct vbn_session *next; /* to be accepted; under the listener's lock */
};

struct vbn_session_listener {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct session_listener *core;
	struct vbn_session *first, **end; /* to be accepted; under the lock */
	char address[ENDPOINT_TEXT];
};

/* ---- waiting ---- */

static void waiting_init(pthread_mutex_t *lock, pthread_cond_t *changed)
{
	pthread_condattr_t attr;

	pthread_mutex_init(lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(changed, &attr);
	pthread_condattr_destroy(&attr);
}

static struct timespec deadline_in(uint64_t ns)
{
	uint64_t at = clock_ns() + min(ns, FOREVER_NS);

	return (struct timespec){(time_t)(at / 1000000000), (long)(at % 1000000000)};
}

/* Under the lock. False: the time is over. */
static bool wait_once(
	pthread_cond_t *changed, pthread_mutex_t *lock, const struct timespec *deadline)
{
	return pthread_cond_timedwait(changed, lock, deadline) != ETIMEDOUT;
}

/* ---- what the control thread tells ---- */

static struct vbn_session *session_new(void)
{
	struct vbn_session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	waiting_init(&session->lock, &session->changed);
	session->end = &session->first;
	return session;
}

static void session_destroy(struct vbn_session *session)
{
	struct message *message;

	while ((message = session->first)) {
		session->first = message->next;
		free(message);
	}
	pthread_cond_destroy(&session->changed);
	pthread_mutex_destroy(&session->lock);
	free(session);
}

static void note_open(struct vbn_session *session)
{
	struct session *core = session->core;

	pthread_mutex_lock(&session->lock);
	memcpy(session->peer, core->peer, sizeof(session->peer));
	session->version = core->version;
	session->max_message = core->theirs.max_message;
	session->open = true;
	pthread_cond_broadcast(&session->changed);
	pthread_mutex_unlock(&session->lock);
}

static void on_open(struct session *core)
{
	note_open(core->arg);
}

/* The session of a peer that came: a new one for the listener to hand out. */
static void on_peer(struct session *core)
{
	struct vbn_session_listener *listener = core->arg;
	struct vbn_session *session = session_new();

	if (!session) {
		vbn__session_close(core, "the listener has no memory");
		return;
	}
	session->core = core;
	session->listener = listener;
	core->arg = session;
	note_open(session);
	pthread_mutex_lock(&listener->lock);
	*listener->end = session;
	listener->end = &session->next;
	pthread_cond_signal(&listener->changed);
	pthread_mutex_unlock(&listener->lock);
}

static void end_with(struct vbn_session *session, int code, const char *why)
{
	pthread_mutex_lock(&session->lock);
	session->over = true;
	session->code = code ? code : ENOTCONN;
	snprintf(session->why, sizeof(session->why), "%s", why);
	pthread_cond_broadcast(&session->changed);
	pthread_mutex_unlock(&session->lock);
}

static bool on_message(struct session *core, const uint8_t *data, uint32_t len)
{
	struct vbn_session *session = core->arg;
	struct message *message = malloc(sizeof(*message) + len);
	bool more;

	if (!message) {
		end_with(session, ENOMEM, "there was no memory for a message of the peer");
		return false;
	}
	message->next = NULL;
	message->len = len;
	memcpy(message->data, data, len);
	pthread_mutex_lock(&session->lock);
	*session->end = message;
	session->end = &message->next;
	more = ++session->n_kept < MAX_KEPT;
	pthread_cond_broadcast(&session->changed);
	pthread_mutex_unlock(&session->lock);
	return more;
}

static void on_over(struct session *core, int code, const char *why)
{
	end_with(core->arg, code, why);
}

static void on_left(void *arg)
{
	struct vbn_session *session = arg;

	pthread_mutex_lock(&session->lock);
	session->left = true;
	pthread_cond_broadcast(&session->changed);
	pthread_mutex_unlock(&session->lock);
}

static const struct session_owner connecting = {on_open, on_message, on_over};
static const struct session_owner accepting = {on_peer, on_message, on_over};

/* ---- connect ---- */

struct connect_call {
	const struct vbn_session_conf *conf;
	struct endpoint endpoints[ENDPOINT_MAX];
	int n;
	struct vbn_session *session;
};

static int connect_call(void *arg)
{
	struct connect_call *call = arg;

	return vbn__session_connect(call->endpoints, call->n, call->conf, &connecting,
		call->session, &call->session->core);
}

/* The session goes on by itself, and ends by itself. A stop may come from a signal handler, which
 * wakes nobody. */
static void wait_for_greeting(struct vbn_session *session, uint32_t stops)
{
	pthread_mutex_lock(&session->lock);
	while (!session->open && !session->over && vbn__stops() == stops) {
		struct timespec deadline = deadline_in(STOP_LOOK_NS);

		wait_once(&session->changed, &session->lock, &deadline);
	}
	pthread_mutex_unlock(&session->lock);
}

/* -errno, where there is no session. */
static int greeted(struct vbn_session *session)
{
	int ret = 0;

	pthread_mutex_lock(&session->lock);
	if (session->over && !session->open)
		ret = fail(session->code, "%s", session->why);
	else if (!session->open)
		ret = -ECANCELED;
	pthread_mutex_unlock(&session->lock);
	return ret;
}

VBN_API int vbn_session_connect(
	const char *address, const struct vbn_session_conf *asked, struct vbn_session **connected)
{
	struct vbn_session_conf conf = asked ? *asked : (struct vbn_session_conf){0};
	struct connect_call call = {.conf = &conf};
	int ret = vbn__session_conf_check(&conf);
	uint32_t stops = vbn__stops();

	*connected = NULL;
	if (ret)
		return ret;
	call.n = vbn__endpoint_parse(address, false, true, call.endpoints);
	if (call.n < 0)
		return call.n;
	ret = vbn__reactor_start();
	if (ret)
		return ret;
	call.session = session_new();
	if (!call.session)
		return -ENOMEM;
	ret = vbn__control_call(-1, connect_call, &call);
	if (ret) {
		session_destroy(call.session);
		return ret;
	}
	wait_for_greeting(call.session, stops);
	ret = greeted(call.session);
	if (ret)
		vbn_session_close(call.session, NULL);
	else
		*connected = call.session;
	return ret;
}

/* ---- listen and accept ---- */

struct listen_call {
	const struct vbn_session_conf *conf;
	struct endpoint endpoints[ENDPOINT_MAX];
	int n;
	struct vbn_session_listener *listener;
};

static int listen_call(void *arg)
{
	struct listen_call *call = arg;
	int ret = vbn__session_listen(call->endpoints, call->n, call->conf, &accepting,
		call->listener, &call->listener->core);

	if (!ret)
		memcpy(call->listener->address, call->listener->core->address, ENDPOINT_TEXT);
	return ret;
}

static void listener_free(struct vbn_session_listener *listener)
{
	pthread_cond_destroy(&listener->changed);
	pthread_mutex_destroy(&listener->lock);
	free(listener);
}

VBN_API int vbn_session_listen(const char *address, const struct vbn_session_conf *asked,
	struct vbn_session_listener **result)
{
	struct vbn_session_conf conf = asked ? *asked : (struct vbn_session_conf){0};
	struct listen_call call = {.conf = &conf};
	int ret = vbn__session_conf_check(&conf);

	*result = NULL;
	if (ret)
		return ret;
	call.n = vbn__endpoint_parse(address, true, true, call.endpoints);
	if (call.n < 0)
		return call.n;
	ret = vbn__reactor_start();
	if (ret)
		return ret;
	call.listener = calloc(1, sizeof(*call.listener));
	if (!call.listener)
		return -ENOMEM;
	waiting_init(&call.listener->lock, &call.listener->changed);
	call.listener->end = &call.listener->first;
	ret = vbn__control_call(-1, listen_call, &call);
	if (ret) {
		listener_free(call.listener);
		return ret;
	}
	*result = call.listener;
	return 0;
}

VBN_API const char *vbn_session_listener_address(const struct vbn_session_listener *listener)
{
	return listener->address;
}

static struct vbn_session *take_accepted(struct vbn_session_listener *listener)
{
	struct vbn_session *session = listener->first;

	if (!session)
		return NULL;
	listener->first = session->next;
	if (!listener->first)
		listener->end = &listener->first;
	return session;
}

VBN_API int vbn_session_accept(
	struct vbn_session_listener *listener, uint64_t timeout_ns, struct vbn_session **accepted)
{
	const struct timespec deadline = deadline_in(timeout_ns);

	pthread_mutex_lock(&listener->lock);
	do
		*accepted = take_accepted(listener);
	while (!*accepted && wait_once(&listener->changed, &listener->lock, &deadline));
	if (!*accepted)
		*accepted = take_accepted(listener);
	pthread_mutex_unlock(&listener->lock);
	return *accepted ? 0 : -ETIMEDOUT;
}

static int unlisten_call(void *arg)
{
	struct vbn_session_listener *listener = arg;

	vbn__session_unlisten(listener->core);
	return 0;
}

VBN_API void vbn_session_unlisten(struct vbn_session_listener *listener)
{
	struct vbn_session *session;

	if (!listener)
		return;
	vbn__control_call(-1, unlisten_call, listener);
	while ((session = take_accepted(listener)))
		vbn_session_close(session, "the listener has ended");
	listener_free(listener);
}

/* ---- messages ---- */

struct send_call {
	struct vbn_session *session;
	const void *data;
	size_t len;
};

static int send_call(void *arg)
{
	struct send_call *call = arg;

	return vbn__session_send(call->session->core, call->data, call->len);
}

VBN_API int vbn_session_status(const struct vbn_session *session)
{
	pthread_mutex_t *lock = &((struct vbn_session *)(uintptr_t)session)->lock;
	int ret;

	pthread_mutex_lock(lock);
	ret = session->over ? -session->code : 0;
	pthread_mutex_unlock(lock);
	return ret;
}

VBN_API int vbn_session_send(struct vbn_session *session, const void *data, size_t len)
{
	struct send_call call = {session, data, len};
	int ret = vbn_session_status(session);

	if (!ret)
		ret = vbn__control_call(-1, send_call, &call);
	/* It may have ended between the two. */
	return ret == -ENOTCONN ? vbn_session_status(session) : ret;
}

/* The first message, once it is there. Under the lock. */
static int wait_for_message(struct vbn_session *session, const struct timespec *deadline)
{
	bool in_time = true;

	while (!session->first) {
		if (session->over)
			return -session->code;
		if (!in_time)
			return -ETIMEDOUT;
		in_time = wait_once(&session->changed, &session->lock, deadline);
	}
	return 0;
}

static int resume_call(void *arg)
{
	struct vbn_session *session = arg;

	vbn__session_resume(session->core);
	return 0;
}

VBN_API int vbn_session_recv(
	struct vbn_session *session, void *data, size_t size, uint64_t timeout_ns)
{
	const struct timespec deadline = deadline_in(timeout_ns);
	struct message *message = NULL;
	bool was_full = false;
	int ret;

	pthread_mutex_lock(&session->lock);
	ret = wait_for_message(session, &deadline);
	if (!ret && session->first->len > size)
		ret = -EMSGSIZE;
	if (!ret) {
		message = session->first;
		session->first = message->next;
		if (!session->first)
			session->end = &session->first;
		was_full = session->n_kept-- == MAX_KEPT;
	}
	pthread_mutex_unlock(&session->lock);
	if (!message)
		return ret;
	if (was_full)
		vbn__control_call(-1, resume_call, session);
	memcpy(data, message->data, message->len);
	ret = (int)message->len;
	free(message);
	return ret;
}

VBN_API const char *vbn_session_error(const struct vbn_session *session)
{
	return vbn_session_status(session) ? session->why : "";
}

VBN_API const char *vbn_session_peer(const struct vbn_session *session)
{
	return session->peer;
}

VBN_API int vbn_session_version(const struct vbn_session *session)
{
	return session->version;
}

/* ---- close ---- */

struct close_call {
	struct vbn_session *session;
	const char *reason;
};

static int close_call(void *arg)
{
	struct close_call *call = arg;

	call->session->core->left = on_left;
	vbn__session_close(call->session->core, call->reason);
	return 0;
}

/* It takes as long as the peer's host does, and a second at most. */
VBN_API void vbn_session_close(struct vbn_session *session, const char *reason)
{
	struct close_call call = {session, reason};

	if (!session)
		return;
	vbn__control_call(-1, close_call, &call);
	pthread_mutex_lock(&session->lock);
	while (!session->left)
		pthread_cond_wait(&session->changed, &session->lock);
	pthread_mutex_unlock(&session->lock);
	session_destroy(session);
}
