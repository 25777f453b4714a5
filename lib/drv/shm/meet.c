/* meet.c - the socket of a port: who may come, and what becomes of what they ask for */

#include "drv/shm/meet.h"
#include "drv/shm/ud.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_CLIENTS 4096

static struct {
	int epoll,
		spare; /* spare: a descriptor to accept with where there are no more, and close */
	struct shm_port *ports;
	uint32_t n_clients;
} meet = {.epoll = -1, .spare = -1};

/* ---- sources ---- */

int vbn__shm_watch(struct shm_source *source)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

	return epoll_ctl(meet.epoll, EPOLL_CTL_ADD, source->fd, &event) ? -errno : 0;
}

void vbn__shm_source_close(struct shm_source *source)
{
	if (source->fd >= 0)
		close(source->fd); /* which takes it out of the epoll, too */
	source->fd = -1;
}

/* One event at a time: what its function frees can have none left to come. */
void vbn__shm_serve_one(int timeout_ms)
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
	vbn__shm_serve_one(0);
}

/* The kernel gives no more descriptors than there is room for, and closes the rest. */
static void take_fds(struct msghdr *message, int *fds, int n_fds)
{
	struct cmsghdr *header = CMSG_FIRSTHDR(message);
	size_t n;

	if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
		return;
	n = min((header->cmsg_len - CMSG_LEN(0)) / sizeof(int), (size_t)n_fds);
	memcpy(fds, CMSG_DATA(header), n * sizeof(int));
}

ssize_t vbn__shm_receive(int socket, void *packet, size_t size, int *fds, int n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(SHM_REPLY_FDS * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = packet, .iov_len = size};
	struct msghdr message = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int))};
	ssize_t n;

	memset(fds, -1, (size_t)n_fds * sizeof(int));
	n = recvmsg(socket, &message, MSG_TRUNC | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n > 0)
		take_fds(&message, fds, n_fds);
	return n;
}

/* ---- who may come ---- */

/* The number at *list, which then points behind it and a comma. False: there is none, or it is no
 * user's. */
static bool take_uid(const char **list, uid_t *uid)
{
	char *end;
	unsigned long long number;

	if (**list < '0' || **list > '9')
		return false;
	number = strtoull(*list, &end, 10);
	*uid = (uid_t)number;
	*list = *end == ',' ? end + 1 : end;
	return number < (uid_t)-1 && (!*end || (*end == ',' && end[1]));
}

int vbn__shm_users_check(void)
{
	const char *users = getenv("VBN_SHM_UIDS"), *list = users;
	uid_t uid;

	while (list && *list)
		if (!take_uid(&list, &uid))
			return fail(EINVAL,
				"port shm cannot be opened: VBN_SHM_UIDS is \"%.60s\", which is no list of users' numbers; write it as 1000,1001, or leave it out",
				users);
	return 0;
}

/* The users that VBN_SHM_UIDS lists, beside one's own. */
static bool user_may(uid_t uid)
{
	const char *list = getenv("VBN_SHM_UIDS");
	uid_t listed;

	if (uid == geteuid())
		return true;
	while (list && *list && take_uid(&list, &listed))
		if (listed == uid)
			return true;
	return false;
}

bool vbn__shm_peer_may(int fd, int *pid)
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

		if (at->number == request->number && (sq->in || sq->ud) &&
			sq->nonce == request->nonce &&
			(uint32_t)sq->transport == request->transport)
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
	*queue = sq;
	if (sq && sq->ud)
		return SHM_OK; /* others may, too */
	if (!sq || request->order != SHM_MEET || !load_once(&segment_head(sq->in)->open))
		return SHM_NO_QUEUE;
	/* As long as it takes nothing itself the next one may have it, with a ring of its own. */
	if (sq->in->attached && (sq->out || vbn__shm_queue_renew(sq)))
		return SHM_TAKEN;
	return SHM_OK;
}

struct shm_segment *vbn__shm_answer(struct shm_port *port, const struct shm_request *request,
	struct shm_views *views, struct shm_reply *reply, const struct shm_source *client)
{
	struct shm_segment *segment;
	struct shm_queue *sq = NULL;

	*reply = (struct shm_reply){.magic = SHM_MAGIC,
		.version_min = SHM_VERSION_MIN,
		.version_max = SHM_VERSION,
		.status = judge(port, request, &sq),
		.version = min((uint32_t)request->version_max, (uint32_t)SHM_VERSION)};
	if (reply->status != SHM_OK)
		return NULL;
	if (sq->ud) {
		segment = vbn__shm_ud_answer(sq, request, reply, client);
		shm_count(port, SHM_ATTACHED, segment != NULL);
		return segment;
	}
	sq->in->attached = true;
	views->refs++;
	store_release(&sq->in->views, views); /* its worker may be at the segment */
	reply->ring_size = sq->in->ring_size;
	reply->max_message = sq->rx.data_size;
	shm_count(port, SHM_ATTACHED, 1);
	return sq->in;
}

/* Nobody else will need it. */
void vbn__shm_close_fd(struct shm_segment *segment)
{
	if (segment->fd >= 0)
		close(segment->fd);
	segment->fd = -1;
}

/* What goes with a reply: how many. */
static size_t reply_fds(const struct shm_segment *segment, int fds[SHM_REPLY_FDS])
{
	const char *why;

	fds[0] = segment ? segment->fd : -1;
	fds[1] = vbn__shm_life_fd(&why);
	return fds[0] < 0 ? 0 : fds[1] < 0 ? 1 : 2;
}

static bool send_reply(int socket, const struct shm_reply *reply, const struct shm_segment *segment)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(SHM_REPLY_FDS * sizeof(int))];
	} control = {0};
	int fds[SHM_REPLY_FDS];
	const size_t n = reply_fds(segment, fds);
	struct iovec iov = {.iov_base = (void *)(uintptr_t)reply, .iov_len = sizeof(*reply)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n) {
		struct cmsghdr *header;

		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(n * sizeof(int));
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(header), fds, n * sizeof(int));
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*reply);
}

/* A process that has connected, with what it lends. */
struct client {
	struct shm_source source;
	struct shm_views *views;
};

static struct client *client_of(struct shm_source *source)
{
	return container_of(source, struct client, source);
}

static void client_free(struct shm_source *source)
{
	struct client *client = client_of(source);

	meet.n_clients--;
	vbn__shm_source_close(source);
	vbn__shm_views_put(client->views);
	free(client);
}

static void client_end(struct shm_source *client)
{
	vbn__shm_ud_client_gone(client->port, client);
	for (struct shm_source **at = &client->port->clients; *at; at = &(*at)->next) {
		if (*at == client) {
			*at = client->next;
			break;
		}
	}
	client_free(client);
}

static bool client_asks(struct shm_source *client, const struct shm_request *request)
{
	struct shm_reply reply;
	struct shm_segment *segment =
		vbn__shm_answer(client->port, request, client_of(client)->views, &reply, client);

	if (request->order == SHM_LEAVE)
		return true;
	if (!send_reply(client->fd, &reply, segment))
		return false;
	if (segment)
		vbn__shm_close_fd(segment);
	return true;
}

static void zone_refused(struct shm_port *port, const char *why)
{
	if (!port->counts[SHM_UNVIEWED])
		log_warning(
			"port %s does not map a zone of a process: %s; its messages go in pieces, and what is refused from here on is counted only",
			port->port.info.name, why);
	shm_count(port, SHM_UNVIEWED, 1);
}

/* Takes the descriptor, or -1. */
static bool client_offers(struct shm_source *client, const struct shm_offer *offer, int fd)
{
	struct shm_views *views = client_of(client)->views;
	struct shm_offer_answer answer = {.magic = SHM_OFFER_MAGIC, .number = offer->number};
	const char *why;

	if (offer->is_over) {
		if (fd >= 0)
			close(fd);
		vbn__shm_view_drop(views, offer->slot);
		return true;
	}
	if (fd < 0)
		return false;
	answer.is_mapped = vbn__shm_view_add(views, offer->slot, fd, offer->size, &why);
	if (answer.is_mapped)
		shm_count(client->port, SHM_VIEWED, 1);
	else
		zone_refused(client->port, why);
	return send(client->fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT) ==
		sizeof(answer);
}

/* Who says what is neither, or does not take the answer, is hung up on. */
static void client_ready(struct shm_source *client)
{
	union {
		struct shm_request request;
		struct shm_offer offer;
	} packet;
	int fd;
	ssize_t n = vbn__shm_receive(client->fd, &packet, sizeof(packet), &fd, 1);
	bool goes_on = false;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n == sizeof(packet.offer) && packet.offer.magic == SHM_OFFER_MAGIC) {
		goes_on = client_offers(client, &packet.offer, fd);
		fd = -1;
	} else if (n == sizeof(packet.request) && packet.request.magic == SHM_MAGIC) {
		goes_on = client_asks(client, &packet.request);
	} else if (n > 0) {
		refused(client->port, "what it said is no request");
	}
	if (fd >= 0)
		close(fd);
	if (!goes_on)
		client_end(client);
}

static void accept_one(struct shm_port *port, int fd)
{
	struct shm_views *views = NULL;
	struct client *client;
	int pid;

	if (!vbn__shm_peer_may(fd, &pid)) {
		refused(port,
			"it is of another user; VBN_SHM_UIDS lists those that may come, at each end the other's");
		close(fd);
		return;
	}
	client = meet.n_clients < MAX_CLIENTS ? calloc(1, sizeof(*client)) : NULL;
	if (client)
		views = vbn__shm_views_make();
	if (!views) {
		refused(port, "too many have come");
		close(fd);
		free(client);
		return;
	}
	client->source = (struct shm_source){
		.fd = fd, .ready = client_ready, .port = port, .next = port->clients};
	client->views = views;
	meet.n_clients++;
	if (vbn__shm_watch(&client->source)) {
		client_free(&client->source);
		return;
	}
	port->clients = &client->source;
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

socklen_t vbn__shm_socket_name(uint64_t id, struct sockaddr_un *name)
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
	vbn__shm_life_begin();
	return 0;
}

static void meet_stop(void)
{
	if (meet.ports || meet.epoll < 0)
		return;
	vbn__shm_life_end();
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
	socklen_t size = vbn__shm_socket_name(port->id, &name);

	listener->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd < 0 || bind(listener->fd, (struct sockaddr *)&name, size) ||
		listen(listener->fd, 128))
		return -errno;
	return vbn__shm_watch(listener);
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
	struct shm_source *client;

	for (struct shm_port **at = &meet.ports; *at; at = &(*at)->next) {
		if (*at == port) {
			*at = port->next;
			break;
		}
	}
	while ((client = port->clients)) {
		port->clients = client->next;
		client_free(client);
	}
	if (port->listener)
		vbn__shm_source_close(port->listener);
	free(port->listener);
	port->listener = NULL;
	meet_stop();
}

struct shm_port *vbn__shm_find_port(uint64_t id)
{
	struct shm_port *port = meet.ports;

	while (port && port->id != id)
		port = port->next;
	return port;
}
