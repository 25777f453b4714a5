/* meet.c - how queues of two processes meet: a socket for each port, one connection to each process,
 * who may come, and who has gone
 *
 * Everything here is the control thread's. One that waits for an answer serves others meanwhile, so
 * that two processes may wait for each other. The sockets are abstract: nothing of them is in a file
 * system, and they are gone with their process.
 */

#include "drv/shm/shm.h"
#include "drv/shm/wire.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PATIENCE_NS (5ull * 1000 * 1000 * 1000) /* for a peer's answer */
#define MAX_CLIENTS 4096

struct shm_source {
	int fd;
	void (*ready)(struct shm_source *source);
	struct shm_port *port;
	struct shm_source *next;
};

struct shm_peer {
	struct shm_source source;
	uint64_t id; /* of its port */
	uint32_t refs;
	int pid;
	bool lost;
	bool replied;
	int fd; /* that came with the reply; -1 */
	struct shm_reply reply;
	struct shm_peer *next;
};

static struct {
	int epoll,
		spare; /* spare: a descriptor to accept with where there are no more, and close */
	struct shm_port *ports;
	uint32_t n_clients;
} meet = {.epoll = -1, .spare = -1};

/* ---- sources ---- */

static int watch(struct shm_source *source)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

	return epoll_ctl(meet.epoll, EPOLL_CTL_ADD, source->fd, &event) ? -errno : 0;
}

static void source_close(struct shm_source *source)
{
	if (source->fd >= 0)
		close(source->fd); /* which takes it out of the epoll, too */
	source->fd = -1;
}

/* One event at a time: what its function frees can have none left to come. */
static void serve_one(int timeout_ms)
{
	struct epoll_event event;
	struct shm_source *source;

	if (epoll_wait(meet.epoll, &event, 1, timeout_ms) != 1)
		return;
	source = event.data.ptr;
	source->ready(source);
}

static void on_epoll(int fd, void *arg)
{
	(void)fd, (void)arg;
	serve_one(0);
}

/* ---- who may come ---- */

/* The users that VBN_SHM_UIDS lists, beside one's own. */
static bool user_may(uid_t uid)
{
	const char *list = getenv("VBN_SHM_UIDS");
	char *end;

	if (uid == geteuid())
		return true;
	while (list && *list) {
		unsigned long listed = strtoul(list, &end, 10);

		if (end == list)
			return false;
		if (listed == uid)
			return true;
		list = *end == ',' ? end + 1 : end;
		if (*end && *end != ',')
			return false;
	}
	return false;
}

static bool peer_may(int fd, int *pid)
{
	struct ucred creds = {.uid = (uid_t)-1};
	socklen_t size = sizeof(creds);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &creds, &size) || size != sizeof(creds))
		return false;
	*pid = creds.pid;
	return user_may(creds.uid);
}

static void refused(struct shm_port *port, const char *why)
{
	if (!port->counts[SHM_REFUSED_PEERS])
		log_warning(
			"port %s refused a process: %s; what is refused from here on is counted only",
			port->port.info.name, why);
	shm_count(port, SHM_REFUSED_PEERS, 1);
}

/* ---- the owner's side ---- */

static struct shm_queue *find_queue(struct shm_port *port, const struct shm_request *request)
{
	for (struct vbn_queue *at = port->port.queues; at; at = at->next) {
		struct shm_queue *sq = shm_queue(at);

		if (at->number == request->number && sq->in && sq->nonce == request->nonce &&
			(uint32_t)at->conf.transport == request->transport)
			return sq;
	}
	return NULL;
}

static enum shm_status judge(
	struct shm_port *port, const struct shm_request *request, struct shm_queue **queue)
{
	struct shm_queue *sq;

	if (request->version_min > SHM_VERSION || request->version_max < SHM_VERSION_MIN)
		return SHM_OTHER_VERSION;
	if (strncmp(request->name, port->name, SHM_NAME) != 0)
		return SHM_OTHER_NAME;
	sq = find_queue(port, request);
	if (!sq || !load_once(&segment_head(sq->in)->open))
		return SHM_NO_QUEUE;
	/* As long as it takes nothing itself the next one may have it, with a ring of its own. */
	if (sq->in->attached && (sq->out || vbn__shm_queue_renew(sq)))
		return SHM_TAKEN;
	*queue = sq;
	return SHM_OK;
}

/* What is answered. With SHM_OK the queue's segment, which is the asker's to write into from here on;
 * else NULL. */
static struct shm_segment *answer(
	struct shm_port *port, const struct shm_request *request, struct shm_reply *reply)
{
	struct shm_queue *sq;

	*reply = (struct shm_reply){.magic = SHM_MAGIC,
		.version_min = SHM_VERSION_MIN,
		.version_max = SHM_VERSION,
		.status = judge(port, request, &sq),
		.version = min((uint32_t)request->version_max, (uint32_t)SHM_VERSION)};
	if (reply->status != SHM_OK)
		return NULL;
	sq->in->attached = true;
	reply->ring_size = sq->in->ring_size;
	reply->max_message = sq->rx.data_size;
	shm_count(port, SHM_ATTACHED, 1);
	return sq->in;
}

/* Nobody else will need it. */
static void close_fd(struct shm_segment *segment)
{
	if (segment->fd >= 0)
		close(segment->fd);
	segment->fd = -1;
}

static bool send_reply(int socket, const struct shm_reply *reply, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)reply, .iov_len = sizeof(*reply)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		struct cmsghdr *header;

		message.msg_control = control.bytes;
		message.msg_controllen = sizeof(control.bytes);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*reply);
}

static void client_end(struct shm_source *client)
{
	for (struct shm_source **at = &client->port->clients; *at; at = &(*at)->next) {
		if (*at == client) {
			*at = client->next;
			break;
		}
	}
	meet.n_clients--;
	source_close(client);
	free(client);
}

/* No descriptor of the asker's is taken: there is no room for one. */
static void client_ready(struct shm_source *client)
{
	struct shm_request request;
	struct shm_segment *segment;
	struct shm_reply reply;
	ssize_t n = recv(client->fd, &request, sizeof(request), MSG_TRUNC | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != sizeof(request) || request.magic != SHM_MAGIC) {
		if (n > 0)
			refused(client->port, "what it said is no request");
		client_end(client);
		return;
	}
	segment = answer(client->port, &request, &reply);
	if (!send_reply(client->fd, &reply, segment ? segment->fd : -1)) {
		client_end(client);
		return;
	}
	if (segment)
		close_fd(segment);
}

static void accept_one(struct shm_port *port, int fd)
{
	struct shm_source *client;
	int pid;

	if (!peer_may(fd, &pid)) {
		refused(port, "it is of another user; VBN_SHM_UIDS lists those that may come");
		close(fd);
		return;
	}
	client = meet.n_clients < MAX_CLIENTS ? calloc(1, sizeof(*client)) : NULL;
	if (!client) {
		refused(port, "too many have come");
		close(fd);
		return;
	}
	*client = (struct shm_source){.fd = fd, .ready = client_ready, .port = port};
	if (watch(client)) {
		close(fd);
		free(client);
		return;
	}
	meet.n_clients++;
	client->next = port->clients;
	port->clients = client;
}

static void listener_ready(struct shm_source *listener)
{
	int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0) {
		accept_one(listener->port, fd);
		return;
	}
	if ((errno != EMFILE && errno != ENFILE) || meet.spare < 0)
		return;
	/* It would stay readable: taken and hung up instead. */
	close(meet.spare);
	fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	meet.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	refused(listener->port, "there are no descriptors left; raise ulimit -n");
}

static socklen_t socket_name(uint64_t id, struct sockaddr_un *name)
{
	int n;

	*name = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "verbena-shm/%016llx",
		(unsigned long long)id);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int meet_start(void)
{
	int ret;

	if (meet.ports)
		return 0;
	meet.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (meet.epoll < 0)
		return -errno;
	ret = vbn__control_watch(meet.epoll, on_epoll, NULL);
	if (ret) {
		close(meet.epoll);
		meet.epoll = -1;
		return ret;
	}
	meet.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return 0;
}

static void meet_stop(void)
{
	if (meet.ports || meet.epoll < 0)
		return;
	vbn__control_unwatch(meet.epoll);
	close(meet.epoll);
	if (meet.spare >= 0)
		close(meet.spare);
	meet.epoll = meet.spare = -1;
}

static int listen_at(struct shm_port *port)
{
	struct shm_source *listener = port->listener;
	struct sockaddr_un name;
	socklen_t size = socket_name(port->id, &name);

	listener->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd < 0 || bind(listener->fd, (struct sockaddr *)&name, size) ||
		listen(listener->fd, 128))
		return -errno;
	return watch(listener);
}

int vbn__shm_listen(struct shm_port *port)
{
	int ret;

	port->listener = calloc(1, sizeof(*port->listener));
	if (!port->listener)
		return -ENOMEM;
	*port->listener = (struct shm_source){.fd = -1, .ready = listener_ready, .port = port};
	ret = meet_start();
	if (!ret)
		ret = listen_at(port);
	if (ret) {
		vbn__shm_unlisten(port);
		return fail(-ret,
			"port %s cannot listen for processes of this host: %s; raise ulimit -n",
			port->port.info.name, strerror(-ret));
	}
	port->next = meet.ports;
	meet.ports = port;
	return 0;
}

void vbn__shm_unlisten(struct shm_port *port)
{
	for (struct shm_port **at = &meet.ports; *at; at = &(*at)->next) {
		if (*at == port) {
			*at = port->next;
			break;
		}
	}
	while (port->clients)
		client_end(port->clients);
	if (port->listener)
		source_close(port->listener);
	free(port->listener);
	port->listener = NULL;
	meet_stop();
}

/* ---- the asker's side ---- */

/* Queues whose peer has not ended in order are told; the others find out when they have something to
 * say. */
static void tell_queues(struct shm_peer *peer)
{
	for (struct vbn_queue *at = peer->source.port->port.queues; at; at = at->next) {
		struct shm_queue *sq = shm_queue(at);

		if (sq->process != peer || !load_once(&segment_head(sq->out)->open))
			continue;
		store_once(&sq->gone, 1);
		queue_tell(at, NEWS_QP);
	}
}

static void peer_lost(struct shm_peer *peer)
{
	if (peer->lost)
		return;
	peer->lost = true;
	source_close(&peer->source);
	shm_count(peer->source.port, SHM_LOST_PEERS, 1);
	tell_queues(peer);
}

static int descriptor_of(struct msghdr *message)
{
	struct cmsghdr *header = CMSG_FIRSTHDR(message);
	int fd = -1;

	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
		header->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	return fd;
}

/* A reply that nobody waits for, or that is none, ends it. */
static void peer_ready(struct shm_source *source)
{
	struct shm_peer *peer = container_of(source, struct shm_peer, source);
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct shm_reply reply;
	struct iovec iov = {.iov_base = &reply, .iov_len = sizeof(reply)};
	struct msghdr message = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes)};
	ssize_t n = recvmsg(source->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int fd;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	fd = n > 0 ? descriptor_of(&message) : -1;
	if (n != sizeof(reply) || message.msg_flags & MSG_TRUNC || reply.magic != SHM_MAGIC ||
		peer->replied) {
		if (fd >= 0)
			close(fd);
		peer_lost(peer);
		return;
	}
	peer->reply = reply;
	peer->fd = fd;
	peer->replied = true;
}

static void peer_free(struct shm_peer *peer)
{
	for (struct shm_peer **at = &peer->source.port->peers; *at; at = &(*at)->next) {
		if (*at == peer) {
			*at = peer->next;
			break;
		}
	}
	source_close(&peer->source);
	free(peer);
}

static int no_peer(const struct shm_queue *sq, int code, const char *why)
{
	return fail(code, "queue %s/%u cannot be connected: %s", sq->queue.port->info.name,
		sq->queue.number, why);
}

static int connect_socket(uint64_t id, uint64_t deadline)
{
	struct sockaddr_un name;
	socklen_t size = socket_name(id, &name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), code;

	if (fd < 0)
		return -errno;
	while (connect(fd, (struct sockaddr *)&name, size)) {
		code = errno;
		if (code == EAGAIN && clock_ns() < deadline) {
			serve_one(1); /* its backlog is full */
			continue;
		}
		close(fd);
		return -code;
	}
	return fd;
}

static int find_peer(struct shm_queue *sq, uint64_t id, uint64_t deadline, struct shm_peer **result)
{
	struct shm_port *port = shm_port(sq->queue.port);
	struct shm_peer *peer;
	int fd, pid;

	for (peer = port->peers; peer; peer = peer->next) {
		if (peer->id == id && !peer->lost) {
			peer->refs++;
			*result = peer;
			return 0;
		}
	}
	fd = connect_socket(id, deadline);
	if (fd == -ECONNREFUSED)
		return no_peer(sq, ECONNREFUSED,
			"no process of this host has its peer: it has ended, or is in another container; both must share the host's network namespace");
	if (fd < 0)
		return no_peer(sq, -fd, strerror(-fd));
	if (!peer_may(fd, &pid)) {
		close(fd);
		return no_peer(sq, EACCES,
			"its peer's process is of another user: run both as one, or list it in VBN_SHM_UIDS");
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer) {
		close(fd);
		return -ENOMEM;
	}
	*peer = (struct shm_peer){.source = {.fd = fd, .ready = peer_ready, .port = port},
		.id = id,
		.refs = 1,
		.pid = pid,
		.fd = -1,
		.next = port->peers};
	port->peers = peer;
	if (watch(&peer->source)) {
		peer_free(peer);
		return -ENOMEM;
	}
	*result = peer;
	return 0;
}

void vbn__shm_detach(struct shm_port *port, struct shm_peer *peer)
{
	(void)port;
	if (peer && !--peer->refs)
		peer_free(peer);
}

/* Asks a process and waits; others are served meanwhile. */
static int ask(struct shm_queue *sq, struct shm_peer *peer, const struct shm_request *request,
	uint64_t deadline)
{
	peer->replied = false;
	peer->fd = -1;
	if (send(peer->source.fd, request, sizeof(*request), MSG_NOSIGNAL | MSG_DONTWAIT) !=
		sizeof(*request))
		return no_peer(sq, ECONNRESET, "its peer's process does not listen any more");
	while (!peer->replied && !peer->lost && clock_ns() < deadline)
		serve_one(10);
	if (peer->replied)
		return 0;
	if (peer->lost)
		return no_peer(
			sq, ECONNRESET, "its peer's process has gone, or refused this one's user");
	return no_peer(sq, ETIMEDOUT, "its peer's process does not answer: see what it is doing");
}

static int refusal_of(const struct shm_queue *sq, const struct shm_reply *reply)
{
	char text[160];

	switch (reply->status) {
	case SHM_OTHER_VERSION:
		snprintf(text, sizeof(text),
			"its peer's process speaks versions %u to %u, and this one %d to %d; run the same library in both",
			reply->version_min, reply->version_max, SHM_VERSION_MIN, SHM_VERSION);
		return no_peer(sq, EPROTO, text);
	case SHM_OTHER_NAME:
		return no_peer(sq, EINVAL,
			"its peer's port has another name: open the same shm:NAME on both sides");
	case SHM_NO_QUEUE:
		return no_peer(sq, ENOENT,
			"its peer is gone, or was reset since that address was told: exchange vbn_queue_address()'s anew");
	case SHM_TAKEN:
		return no_peer(sq, EISCONN,
			"its peer has been connected to already: give each queue a peer of its own");
	default: return no_peer(sq, EPROTO, "its peer's process answered what makes no sense");
	}
}

/* What came from another process is checked here, once. */
static int take_reply(struct shm_queue *sq, struct shm_peer *peer, struct shm_segment **segment)
{
	const struct shm_reply *reply = &peer->reply;
	const char *why;
	char text[200];
	int fd = peer->fd;

	peer->fd = -1;
	if (reply->status != SHM_OK || reply->version < SHM_VERSION_MIN ||
		reply->version > SHM_VERSION || fd < 0) {
		if (fd >= 0)
			close(fd);
		return refusal_of(sq, reply);
	}
	if (!vbn__shm_segment_map(fd, reply->ring_size, segment, &why))
		return 0;
	snprintf(text, sizeof(text), "the memory that its peer sent cannot be used: %s", why);
	return no_peer(sq, EPROTO, text);
}

static struct shm_port *find_port(uint64_t id)
{
	struct shm_port *port = meet.ports;

	while (port && port->id != id)
		port = port->next;
	return port;
}

static int attach_here(struct shm_queue *sq, struct shm_port *port,
	const struct shm_request *request, struct shm_reply *reply, struct shm_segment **segment)
{
	*segment = answer(port, request, reply);
	if (!*segment)
		return refusal_of(sq, reply);
	close_fd(*segment);
	(*segment)->refs++;
	return 0;
}

static int attach_there(struct shm_queue *sq, uint64_t id, const struct shm_request *request,
	struct shm_reply *reply, struct shm_segment **segment, struct shm_peer **process)
{
	const uint64_t deadline = clock_ns() + PATIENCE_NS;
	struct shm_peer *peer = NULL;
	int ret = find_peer(sq, id, deadline, &peer);

	if (ret)
		return ret;
	ret = ask(sq, peer, request, deadline);
	if (!ret)
		ret = take_reply(sq, peer, segment);
	if (ret) {
		if (ret == -ETIMEDOUT)
			peer_lost(
				peer); /* an answer that comes late would be taken for another's */
		vbn__shm_detach(peer->source.port, peer);
		return ret;
	}
	*reply = peer->reply;
	*process = peer;
	snprintf(sq->peer_text, sizeof(sq->peer_text), "queue %u of process %d", request->number,
		peer->pid);
	return 0;
}

int vbn__shm_attach(struct shm_queue *sq, const struct address *peer, struct shm_segment **segment,
	struct shm_terms *terms, struct shm_peer **process)
{
	struct shm_request request = {.magic = SHM_MAGIC,
		.version_min = SHM_VERSION_MIN,
		.version_max = SHM_VERSION,
		.number = peer->qpn,
		.transport = (uint32_t)peer->transport};
	struct shm_reply reply = {0};
	struct shm_port *port;
	uint64_t id;
	int ret;

	memcpy(&id, peer->gid, sizeof(id));
	memcpy(&request.nonce, peer->gid + sizeof(id), sizeof(request.nonce));
	memcpy(request.name, shm_port(sq->queue.port)->name, SHM_NAME);
	*process = NULL;
	snprintf(sq->peer_text, sizeof(sq->peer_text), "queue %u of this process", peer->qpn);
	port = find_port(id);
	ret = port ? attach_here(sq, port, &request, &reply, segment)
		   : attach_there(sq, id, &request, &reply, segment, process);
	if (ret)
		return ret;
	terms->ring_size = (*segment)->ring_size;
	terms->max_message = reply.max_message;
	return 0;
}
