/* ask.c - asking another process for the segment of a queue, and noticing when that process has gone */

#include "drv/shm/meet.h"
#include "drv/shm/ud.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_NS      (5ull * 1000 * 1000 * 1000) /* for a peer's answer */
#define LOAN_PATIENCE_NS (100ull * 1000 * 1000) /* the same for zones; they may come later, too */

struct shm_peer {
	struct shm_source source;
	uint64_t id; /* of its port */
	uint32_t refs;
	int pid;
	bool lost;
	bool replied;
	int fds[SHM_REPLY_FDS]; /* that came with the reply; -1 */
	struct shm_life *life;  /* NULL: not known */
	struct shm_loans *loans;
	struct shm_reply reply;
	struct shm_peer *next;
};

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
	vbn__shm_ud_process_gone(peer->source.port, peer);
}

static void peer_lost(struct shm_peer *peer)
{
	if (peer->lost)
		return;
	peer->lost = true;
	peer->loans->socket = -1;
	vbn__shm_source_close(&peer->source);
	shm_count(peer->source.port, SHM_LOST_PEERS, 1);
	tell_queues(peer);
}

static void close_fds(int fds[SHM_REPLY_FDS])
{
	for (int i = 0; i < SHM_REPLY_FDS; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

/* A reply that nobody waits for, or what is none, ends it. */
static void peer_ready(struct shm_source *source)
{
	struct shm_peer *peer = container_of(source, struct shm_peer, source);
	union {
		struct shm_reply reply;
		struct shm_offer_answer answer;
	} packet;
	int fds[SHM_REPLY_FDS];
	ssize_t n = vbn__shm_receive(source->fd, &packet, sizeof(packet), fds, SHM_REPLY_FDS);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n == sizeof(packet.answer) && packet.answer.magic == SHM_OFFER_MAGIC) {
		close_fds(fds);
		vbn__shm_lend_answered(peer->loans, &packet.answer);
		return;
	}
	if (n != sizeof(packet.reply) || packet.reply.magic != SHM_MAGIC || peer->replied) {
		close_fds(fds);
		peer_lost(peer);
		return;
	}
	peer->reply = packet.reply;
	memcpy(peer->fds, fds, sizeof(fds));
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
	/* Its queues have been told by the word, and the socket has not hung up yet. */
	if (!peer->lost && peer->life && life_is_over(peer->life->word))
		shm_count(peer->source.port, SHM_LOST_PEERS, 1);
	vbn__shm_source_close(&peer->source);
	vbn__shm_life_put(peer->life);
	peer->loans->socket = -1;
	vbn__shm_loans_put(peer->loans);
	free(peer);
}

static int no_peer(const struct shm_queue *sq, int code, const char *why)
{
	return fail(code, "%squeue %s/%u cannot be %s: %s", sq->ud ? "peer of " : "",
		sq->queue.port->info.name, sq->queue.number, sq->ud ? "made" : "connected", why);
}

static int connect_socket(uint64_t id, uint64_t deadline)
{
	struct sockaddr_un name;
	socklen_t size = vbn__shm_socket_name(id, &name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), code;

	if (fd < 0)
		return -errno;
	while (connect(fd, (struct sockaddr *)&name, size)) {
		code = errno;
		if (code == EAGAIN && clock_ns() < deadline) {
			vbn__shm_serve_one(1); /* its backlog is full */
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
	struct shm_loans *loans;
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
	if (!vbn__shm_peer_may(fd, &pid)) {
		close(fd);
		return no_peer(sq, EACCES,
			"its peer's process is of another user: run both as one, or list each in the other's VBN_SHM_UIDS");
	}
	peer = calloc(1, sizeof(*peer));
	loans = vbn__shm_loans_make(fd, NULL);
	if (!peer || !loans) {
		close(fd);
		free(peer);
		vbn__shm_loans_put(loans);
		return -ENOMEM;
	}
	*peer = (struct shm_peer){.source = {.fd = fd, .ready = peer_ready, .port = port},
		.id = id,
		.refs = 1,
		.pid = pid,
		.fds = {-1, -1},
		.loans = loans,
		.next = port->peers};
	port->peers = peer;
	if (vbn__shm_watch(&peer->source)) {
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
	if (send(peer->source.fd, request, sizeof(*request), MSG_NOSIGNAL | MSG_DONTWAIT) !=
		sizeof(*request))
		return no_peer(sq, ECONNRESET, "its peer's process does not listen any more");
	while (!peer->replied && !peer->lost && clock_ns() < deadline)
		vbn__shm_serve_one(10);
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
	case SHM_OTHER_KEY:
		return no_peer(sq, EACCES,
			"its Q_Key is another: give both queues one `qkey`, or take the address from the peer itself");
	case SHM_FULL:
		snprintf(text, sizeof(text),
			"as many queues send to it as it has rings for, %d, of one process %d: let some release it",
			UD_INLETS, UD_INLETS_OF_ONE);
		return no_peer(sq, ENOSPC, text);
	default: return no_peer(sq, EPROTO, "its peer's process answered what makes no sense");
	}
}

/* Each reply brings it; the first one will do. */
static void take_life(struct shm_peer *peer)
{
	if (!peer->life && peer->fds[1] >= 0) {
		peer->life = vbn__shm_life_map(peer->fds[1]);
		peer->fds[1] = -1;
	}
	close_fds(peer->fds);
}

/* What came from another process is checked here, once. */
static int take_reply(struct shm_queue *sq, struct shm_peer *peer, struct shm_segment **segment)
{
	const struct shm_reply *reply = &peer->reply;
	const char *why;
	char text[200];
	int fd = peer->fds[0];

	if (reply->status != SHM_OK || reply->version < SHM_VERSION_MIN ||
		reply->version > SHM_VERSION || fd < 0) {
		close_fds(peer->fds);
		return refusal_of(sq, reply);
	}
	peer->fds[0] = -1;
	take_life(peer);
	if (!vbn__shm_segment_map(fd, reply->ring_size, segment, &why))
		return 0;
	snprintf(text, sizeof(text), "the memory that its peer sent cannot be used: %s", why);
	return no_peer(sq, EPROTO, text);
}

/* What the port lends to queues of its own process. */
static struct shm_loans *loans_here(struct shm_port *port)
{
	struct shm_views *views;

	if (port->loans)
		return port->loans;
	views = vbn__shm_views_make();
	if (views)
		port->loans = vbn__shm_loans_make(-1, views);
	if (!port->loans)
		vbn__shm_views_put(views);
	return port->loans;
}

/* Datagrams are copied. */
static void take_loans(struct shm_queue *sq, struct shm_loans *loans)
{
	if (sq->ud)
		return;
	vbn__shm_lend_all(loans, shm_port(sq->queue.port));
	loans->refs++;
	sq->loans = loans;
}

static int attach_here(struct shm_queue *sq, struct shm_port *port,
	const struct shm_request *request, struct shm_reply *reply, struct shm_segment **segment)
{
	struct shm_loans *loans = loans_here(shm_port(sq->queue.port));

	if (!loans)
		return -ENOMEM;
	*segment = vbn__shm_answer(port, request, loans->views, reply, NULL);
	if (!*segment)
		return refusal_of(sq, reply);
	take_loans(sq, loans);
	vbn__shm_close_fd(*segment);
	(*segment)->refs++;
	return 0;
}

/* Most often the answer is there at once, and all large messages go by reference. */
static void await_loans(const struct shm_peer *peer)
{
	const uint64_t deadline = clock_ns() + LOAN_PATIENCE_NS;

	while (!peer->lost && vbn__shm_lend_waits(peer->loans) && clock_ns() < deadline)
		vbn__shm_serve_one(1);
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
	take_loans(sq, peer->loans);
	await_loans(peer);
	return 0;
}

struct shm_life *vbn__shm_life_of(struct shm_peer *process)
{
	if (!process || !process->life)
		return NULL;
	process->life->refs++;
	return process->life;
}

/* What a queue's address says of it. */
static struct shm_request request_of(
	const struct shm_port *port, const struct address *peer, uint64_t *id)
{
	struct shm_request request = {.magic = SHM_MAGIC,
		.version_min = SHM_VERSION_MIN,
		.version_max = SHM_VERSION,
		.number = peer->qpn,
		.transport = (uint32_t)peer->transport,
		.qkey = peer->qkey};

	memcpy(id, peer->gid, sizeof(*id));
	memcpy(&request.nonce, peer->gid + sizeof(*id), sizeof(request.nonce));
	memcpy(request.name, port->name, SHM_NAME);
	return request;
}

static void name_peer(struct shm_queue *sq, uint32_t number, const struct shm_peer *process)
{
	if (sq->ud)
		return;
	if (process)
		snprintf(sq->peer_text, sizeof(sq->peer_text), "queue %u of process %d", number,
			process->pid);
	else
		snprintf(sq->peer_text, sizeof(sq->peer_text), "queue %u of this process", number);
}

int vbn__shm_attach(struct shm_queue *sq, const struct address *peer, struct shm_segment **segment,
	struct shm_terms *terms, struct shm_peer **process)
{
	struct shm_port *own = shm_port(sq->queue.port), *port;
	uint64_t id;
	struct shm_request request = request_of(own, peer, &id);
	struct shm_reply reply = {0};
	int ret;

	request.from = sq->queue.number;
	memcpy(request.from_gid, &own->id, sizeof(own->id));
	memcpy(request.from_gid + sizeof(own->id), &sq->nonce, sizeof(sq->nonce));
	*process = NULL;
	port = vbn__shm_find_port(id);
	ret = port ? attach_here(sq, port, &request, &reply, segment)
		   : attach_there(sq, id, &request, &reply, segment, process);
	name_peer(sq, peer->qpn, *process);
	if (ret)
		return ret;
	terms->ring_size = (*segment)->ring_size;
	terms->max_message = reply.max_message;
	terms->ring = reply.ring;
	return 0;
}

void vbn__shm_leave(
	struct shm_port *own, const struct address *peer, struct shm_peer *process, uint32_t ring)
{
	uint64_t id;
	struct shm_request request = request_of(own, peer, &id);
	struct shm_port *port = vbn__shm_find_port(id);
	struct shm_reply reply;

	request.ring = ring;
	request.order = SHM_LEAVE;
	if (port)
		vbn__shm_answer(port, &request, NULL, &reply, NULL);
	else if (process && !process->lost) /* what is not taken is said by the hang-up */
		(void)!send(
			process->source.fd, &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void vbn__shm_lend_to_peers(struct shm_port *port, const struct vbn_zone *zone)
{
	for (struct shm_peer *peer = port->peers; peer; peer = peer->next)
		vbn__shm_lend(peer->loans, zone);
}

void vbn__shm_take_back_from_peers(struct shm_port *port, const struct vbn_zone *zone)
{
	for (struct shm_peer *peer = port->peers; peer; peer = peer->next)
		vbn__shm_take_back(peer->loans, zone);
}
