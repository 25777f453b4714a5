/* session_listen.c - the end that listens: peers come, greet, and become sessions of an owner */

#include "chan/session_internal.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <unistd.h>

#define BACKLOG      1024
#define MAX_GREETING 256 /* the next ones wait until one of these has greeted or timed out */
#define TURN         16

void vbn__listener_watch(struct session_listener *listener)
{
	vbn__reactor_change(
		&listener->io, listener->n_greeting < MAX_GREETING ? (uint32_t)EPOLLIN : 0u);
}

static void take(struct session_listener *listener, int fd)
{
	struct session *session = vbn__session_new(&listener->mine, listener->timeout_ns,
		listener->keepalive_ns, listener->owner, listener->arg);

	if (!session) {
		close(fd);
		return;
	}
	session->io.fd = fd;
	session->io.events = EPOLLIN;
	session->listener = listener;
	vbn__session_list(session, &listener->greeting);
	listener->n_greeting++;
	if (vbn__reactor_add(&session->io))
		vbn__session_lost(session, ENOMEM);
	else
		vbn__session_greet(session);
}

static void on_peers(struct reactor_io *io, uint32_t events)
{
	struct session_listener *listener = container_of(io, struct session_listener, io);

	(void)events;
	for (int i = 0; i < TURN && listener->n_greeting < MAX_GREETING; i++) {
		int fd = accept4(io->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			break;
		take(listener, fd);
	}
	vbn__listener_watch(listener);
}

static int open_socket(const struct endpoint *endpoint)
{
	int fd = socket(endpoint->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1, zero = 0, error;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	/* [::] takes IPv4 peers too, so that ":PORT" is any address. */
	if (endpoint->address.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (!bind(fd, (const struct sockaddr *)&endpoint->address, endpoint->len) &&
		!listen(fd, BACKLOG))
		return fd;
	error = errno;
	close(fd);
	return -error;
}

/* The last failure is the one that is told: of any address, IPv6's comes first and may be off. */
static int open_first(const struct endpoint *endpoints, int n)
{
	int fd = -EADDRNOTAVAIL;

	for (int i = 0; i < n && fd < 0; i++)
		fd = open_socket(&endpoints[i]);
	return fd;
}

int vbn__session_listen(const struct endpoint *endpoints, int n,
	const struct vbn_session_conf *conf, const struct session_owner *owner, void *arg,
	struct session_listener **created)
{
	struct session_listener *listener = calloc(1, sizeof(*listener));
	char text[ENDPOINT_TEXT];
	int ret;

	if (!listener)
		return -ENOMEM;
	listener->owner = owner;
	listener->arg = arg;
	listener->mine = vbn__session_hello(conf, WIRE_LISTENS);
	listener->timeout_ns = conf->timeout_ns;
	listener->keepalive_ns = conf->keepalive_ns;
	listener->io.fn = on_peers;
	listener->io.events = EPOLLIN;
	listener->io.fd = open_first(endpoints, n);
	if (listener->io.fd < 0) {
		ret = fail(-listener->io.fd,
			"listener %s cannot be made: %s; choose another address or port, or end what has it",
			vbn__endpoint_text(&endpoints[n - 1], text), strerror(-listener->io.fd));
		goto free_listener;
	}
	vbn__endpoint_of_socket(listener->io.fd, false, listener->address);
	ret = vbn__reactor_add(&listener->io);
	if (ret)
		goto close_socket;
	vbn__session_counters(true);
	*created = listener;
	return 0;

close_socket:
	close(listener->io.fd);
free_listener:
	free(listener);
	return ret;
}

void vbn__session_unlisten(struct session_listener *listener)
{
	vbn__reactor_remove(&listener->io);
	close(listener->io.fd);
	listener->io.fd = -1;
	while (listener->greeting) {
		struct session *session = listener->greeting;

		vbn__session_left_greeting(session);
		vbn__session_close(session, "the listener has ended");
	}
	vbn__reactor_free_later(listener);
}
