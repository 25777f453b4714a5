/* server.c - the telemetry socket's clients: one request at a time each, and none that is waited for
 *
 * The telemetry thread watches one descriptor, an epoll set of the listening socket and the clients,
 * and takes one event of it a turn, so that its other business comes in between. A client whose
 * answer finds no room is not read from until it has read; where there are too many clients, the one
 * that has been silent for longest goes.
 */

#include "obs/obs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_CLIENTS 16
#define LISTENER    MAX_CLIENTS
#define SEND_ROOM   (4 * TELEMETRY_MAX_ANSWER)

struct client {
	int fd; /* -1: none */
	uint64_t heard;
	char *waiting; /* an answer that found no room; NULL: none */
	size_t n_waiting;
};

/* The telemetry thread's. */
static struct {
	struct client clients[MAX_CLIENTS];
	int epoll_fd, listen_fd;
	int spare_fd; /* let go of where no descriptor is left, so that a client can be turned away */
	uint64_t turn;
	char answer[TELEMETRY_MAX_ANSWER];
} server = {.epoll_fd = -1, .listen_fd = -1, .spare_fd = -1};

static void wait_for(const struct client *client, uint32_t events, int how)
{
	struct epoll_event event = {
		.events = events, .data.u32 = (uint32_t)(client - server.clients)};

	epoll_ctl(server.epoll_fd, how, client->fd, &event);
}

static void drop(struct client *client)
{
	close(client->fd);
	client->fd = -1;
	free(client->waiting);
	client->waiting = NULL;
}

static void drop_and_count(struct client *client)
{
	drop(client);
	vbn__obs_count(OBS_CLIENTS_DROPPED);
}

/* ---- out ---- */

static bool send_now(const struct client *client, const char *text, size_t len)
{
	return send(client->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len;
}

static void keep_waiting(struct client *client, const char *text, size_t len)
{
	client->waiting = malloc(len);
	if (!client->waiting) {
		drop_and_count(client);
		return;
	}
	memcpy(client->waiting, text, len);
	client->n_waiting = len;
	wait_for(client, EPOLLOUT, EPOLL_CTL_MOD);
}

static void answer(struct client *client, const char *text, size_t len)
{
	if (send_now(client, text, len))
		return;
	if (errno == EAGAIN)
		keep_waiting(client, text, len);
	else
		drop_and_count(client);
}

static void send_waiting(struct client *client)
{
	if (!send_now(client, client->waiting, client->n_waiting)) {
		if (errno != EAGAIN)
			drop_and_count(client);
		return;
	}
	free(client->waiting);
	client->waiting = NULL;
	wait_for(client, EPOLLIN, EPOLL_CTL_MOD);
}

/* ---- in ---- */

static void on_client(struct client *client)
{
	char request[TELEMETRY_MAX_REQUEST + 1];
	ssize_t n;
	size_t len;

	client->heard = ++server.turn;
	if (client->waiting) {
		send_waiting(client);
		return;
	}
	/* What is longer is cut, and by its length known to be too long. */
	n = recv(client->fd, request, sizeof(request), MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		drop(client);
		return;
	}
	len = vbn__telemetry_answer(request, (size_t)n, server.answer, sizeof(server.answer));
	answer(client, server.answer, len);
}

static struct client *longest_silent(void)
{
	struct client *found = &server.clients[0];

	for (int i = 1; i < MAX_CLIENTS; i++)
		if (server.clients[i].heard < found->heard)
			found = &server.clients[i];
	return found;
}

static struct client *place_for_client(void)
{
	struct client *client;

	for (int i = 0; i < MAX_CLIENTS; i++)
		if (server.clients[i].fd < 0)
			return &server.clients[i];
	client = longest_silent();
	drop_and_count(client);
	return client;
}

static void greet(int fd)
{
	struct client *client = place_for_client();
	const int room = SEND_ROOM;
	char text[128];
	size_t len = vbn__telemetry_greeting(text, sizeof(text));

	*client = (struct client){.fd = fd, .heard = ++server.turn};
	/* Where the system's own limit is lower than an answer. */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	wait_for(client, EPOLLIN, EPOLL_CTL_ADD);
	vbn__obs_count(OBS_CLIENTS);
	answer(client, text, len);
}

/* No descriptor is left for a client, and it would knock for ever. */
static void turn_away(void)
{
	int fd;

	close(server.spare_fd);
	fd = accept4(server.listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	server.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	vbn__obs_count(OBS_CLIENTS_DROPPED);
	if (fd >= 0 && server.spare_fd >= 0)
		return;
	epoll_ctl(server.epoll_fd, EPOLL_CTL_DEL, server.listen_fd, NULL);
	log_warning(
		"telemetry: takes no more clients: this process has no descriptor left; raise the limit on open files (ulimit -n)");
}

static void on_knock(void)
{
	int fd = accept4(server.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0)
		greet(fd);
	else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
		turn_away();
}

static void on_event(int epoll_fd, void *arg)
{
	struct epoll_event event;

	(void)arg;
	if (epoll_wait(epoll_fd, &event, 1, 0) != 1)
		return;
	if (event.data.u32 == LISTENER)
		on_knock();
	else if (server.clients[event.data.u32].fd >= 0)
		on_client(&server.clients[event.data.u32]);
}

/* ---- start and stop ---- */

static int watch_listener(int listen_fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = LISTENER};

	if (epoll_ctl(server.epoll_fd, EPOLL_CTL_ADD, listen_fd, &event))
		return -errno;
	return vbn__obs_watch(server.epoll_fd, on_event, NULL);
}

int vbn__server_start(int listen_fd)
{
	int ret;

	for (int i = 0; i < MAX_CLIENTS; i++)
		server.clients[i] = (struct client){.fd = -1};
	server.listen_fd = listen_fd;
	server.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (server.epoll_fd < 0)
		return -errno;
	server.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	ret = server.spare_fd < 0 ? -errno : watch_listener(listen_fd);
	if (!ret)
		return 0;
	close(server.spare_fd);
	close(server.epoll_fd);
	return ret;
}

void vbn__server_stop(void)
{
	for (int i = 0; i < MAX_CLIENTS; i++)
		if (server.clients[i].fd >= 0)
			drop(&server.clients[i]);
	close(server.spare_fd);
	close(server.epoll_fd);
}
