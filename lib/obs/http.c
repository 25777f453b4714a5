/* http.c - metrics over HTTP, by libmicrohttpd, on the telemetry thread
 *
 * The library is loaded when metrics are asked for: it brings a dozen others along, and most programs
 * have no use for them. It starts no thread; the telemetry thread watches its epoll set and a timer for
 * its deadlines. Connections are few and bounded, and what one does not read costs its own text alone.
 */

#include "obs/metrics.h"
#include "obs/obs.h"

#include <dlfcn.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define LIBRARY       "libmicrohttpd.so.12"
#define MAX_CONNECTED 16u
#define PATIENCE_S    5u
#define REQUEST_BYTES ((size_t)16 * 1024)
#define BACKLOG       16
#define OPENMETRICS   "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* What is used of the library, under its own names. */
#define FUNCTIONS(with)                                                                  \
	with(MHD_start_daemon) with(MHD_stop_daemon) with(MHD_run) with(MHD_get_timeout) \
		with(MHD_get_daemon_info) with(MHD_create_response_from_buffer)          \
			with(MHD_add_response_header) with(MHD_queue_response)           \
				with(MHD_destroy_response)

#define MEMBER(name) __typeof__(&(name)) name;
#define LOAD(name)   all &= (*(void **)(void *)&mhd.name = dlsym(mhd.library, #name)) != NULL;

static struct {
	void *library;
	FUNCTIONS(MEMBER)
} mhd;

static struct {
	struct MHD_Daemon *daemon; /* the telemetry thread's */
	int epoll_fd, timer_fd;
} http = {.timer_fd = -1};

static int load(const char *address)
{
	bool all = true;

	if (!mhd.library)
		mhd.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!mhd.library)
		return fail(ENOTSUP,
			"option --vbn-metrics=%.80s: cannot be had: %s; install it (libmicrohttpd12)",
			address, dlerror());
	FUNCTIONS(LOAD)
	return all ? 0
		   : fail(ENOTSUP,
			     "option --vbn-metrics=%.80s: cannot be had: " LIBRARY
			     " lacks functions; install a later one (0.9.75)",
			     address);
}

/* ---- requests: the telemetry thread ---- */

static enum MHD_Result answer_with(struct MHD_Connection *connection, unsigned int status,
	const char *type, const char *text, size_t len, enum MHD_ResponseMemoryMode mode)
{
	/* It is taken over or copied, never written to. */
	struct MHD_Response *response =
		mhd.MHD_create_response_from_buffer(len, (void *)(uintptr_t)text, mode);
	enum MHD_Result ret;

	if (!response) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free((void *)(uintptr_t)text);
		return MHD_NO;
	}
	mhd.MHD_add_response_header(response, "Content-Type", type);
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		mhd.MHD_add_response_header(response, "Allow", "GET, HEAD");
	ret = mhd.MHD_queue_response(connection, status, response);
	mhd.MHD_destroy_response(response);
	return ret;
}

static enum MHD_Result answer_plain(
	struct MHD_Connection *connection, unsigned int status, const char *text)
{
	return answer_with(connection, status, "text/plain; charset=utf-8", text, strlen(text),
		MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result answer_metrics(struct MHD_Connection *connection)
{
	size_t len;
	char *text = vbn__metrics_text(&len);

	vbn__obs_count(OBS_SCRAPES);
	if (!text)
		return answer_plain(
			connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "there is no memory\n");
	return answer_with(connection, MHD_HTTP_OK, OPENMETRICS, text, len, MHD_RESPMEM_MUST_FREE);
}

/* It is called when the head has come, for each part of a body, and at the end. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
	const char *method, const char *version, const char *upload, size_t *n_upload, void **state)
{
	static char begun;

	(void)arg;
	(void)version;
	(void)upload;
	if (!*state || *n_upload) {
		*state = &begun;
		*n_upload = 0; /* nobody asked for it */
		return MHD_YES;
	}
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return answer_plain(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET only\n");
	if (!strcmp(url, "/metrics"))
		return answer_metrics(connection);
	if (!strcmp(url, "/"))
		return answer_plain(connection, MHD_HTTP_OK, "Verbena: see /metrics\n");
	return answer_plain(connection, MHD_HTTP_NOT_FOUND, "there is /metrics only\n");
}

/* When the library wants to be run though nothing has come. */
static void set_timer(void)
{
	struct itimerspec when = {.it_value.tv_sec = 0};
	MHD_UNSIGNED_LONG_LONG ms;

	if (mhd.MHD_get_timeout(http.daemon, &ms) == MHD_YES) {
		when.it_value.tv_sec = (time_t)(ms / 1000);
		when.it_value.tv_nsec = (long)(ms % 1000) * 1000000 + 1;
	}
	timerfd_settime(http.timer_fd, 0, &when, NULL);
}

static void on_event(int fd, void *arg)
{
	uint64_t expired;

	(void)arg;
	if (fd == http.timer_fd && read(fd, &expired, sizeof(expired)) < 0)
		return; /* it has been set anew */
	mhd.MHD_run(http.daemon);
	set_timer();
}

/* ---- where it listens ---- */

struct where {
	char host[64], port[16];
};

/* "9464", ":9464", "127.0.0.1:9464", "[::1]:9464" */
static bool take_apart(const char *address, struct where *where)
{
	const char *colon = strrchr(address, ':');
	const char *port = colon ? colon + 1 : address;
	const char *host = address;
	size_t len = colon ? (size_t)(colon - address) : 0;

	if (len && *host == '[') {
		if (host[len - 1] != ']')
			return false;
		host++;
		len -= 2;
	} else if (memchr(host, ':', len)) {
		return false;
	}
	if (len >= sizeof(where->host) || !*port || strlen(port) >= sizeof(where->port) ||
		strspn(port, "0123456789") != strlen(port) || atoi(port) > 65535)
		return false;
	snprintf(where->host, sizeof(where->host), "%.*s", len ? (int)len : 9,
		len ? host : "127.0.0.1");
	snprintf(where->port, sizeof(where->port), "%s", port);
	return true;
}

static int cannot_listen(const char *address, int err)
{
	const char *remedy = "give an address of this machine's, as 127.0.0.1:9464";

	if (err == EADDRINUSE)
		remedy =
			"another socket has that port: choose another one, or 0 for any that is free";
	else if (err == EACCES)
		remedy = "choose a port above 1023";
	return fail(err, "option --vbn-metrics=%.80s: cannot be listened on: %s; %s", address,
		strerror(err), remedy);
}

static int listen_on(const struct addrinfo *info)
{
	const int on = 1;
	int fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
		info->ai_protocol);
	int err;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (info->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (!bind(fd, info->ai_addr, info->ai_addrlen) && !listen(fd, BACKLOG))
		return fd;
	err = errno;
	close(fd);
	return -err;
}

static int open_listener(const char *address)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *info;
	struct where where;
	int fd;

	if (!take_apart(address, &where) || getaddrinfo(where.host, where.port, &hints, &info))
		return fail(EINVAL,
			"option --vbn-metrics=%.80s: not understood: it takes ADDR:PORT or :PORT, the address as a number, as in 127.0.0.1:9464, [::1]:9464, 0.0.0.0:9464 for all",
			address);
	fd = listen_on(info);
	freeaddrinfo(info);
	return fd < 0 ? cannot_listen(address, -fd) : fd;
}

/* What was asked for with port 0 is not known before. */
static void tell_address(int fd)
{
	struct sockaddr_storage bound;
	socklen_t size = sizeof(bound);
	char host[NI_MAXHOST], port[NI_MAXSERV];

	if (getsockname(fd, (struct sockaddr *)&bound, &size) ||
		getnameinfo((struct sockaddr *)&bound, size, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return;
	log_notice(bound.ss_family == AF_INET6 ? "metrics: at http://[%s]:%s/metrics"
					       : "metrics: at http://%s:%s/metrics",
		host, port);
}

/* ---- start and stop ---- */

static int watch(void)
{
	int ret = vbn__obs_watch(http.epoll_fd, on_event, NULL);

	if (!ret)
		ret = vbn__obs_watch(http.timer_fd, on_event, NULL);
	if (!ret)
		set_timer();
	return ret;
}

/* The listening socket is the daemon's from here on. */
static int start_daemon(int listen_fd)
{
	http.daemon = mhd.MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, NULL,
		MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_CONNECTION_LIMIT, MAX_CONNECTED,
		MHD_OPTION_CONNECTION_TIMEOUT, PATIENCE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		REQUEST_BYTES, MHD_OPTION_END);
	if (!http.daemon) {
		close(listen_fd);
		return -EIO;
	}
	http.epoll_fd = mhd.MHD_get_daemon_info(http.daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
	http.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return http.timer_fd < 0 ? -errno : watch();
}

int vbn__http_start(const char *address)
{
	int ret = load(address);
	int fd = ret ? ret : open_listener(address);

	if (fd < 0)
		return fd;
	ret = start_daemon(fd);
	if (ret) {
		vbn__http_stop();
		return fail(-ret,
			"option --vbn-metrics=%.80s: cannot be had: the server could not be started (%s); raise the limit on open files (ulimit -n)",
			address, strerror(-ret));
	}
	tell_address(fd);
	return 0;
}

void vbn__http_stop(void)
{
	if (!http.daemon)
		return;
	if (http.timer_fd >= 0)
		close(http.timer_fd);
	http.timer_fd = -1;
	mhd.MHD_stop_daemon(http.daemon);
	http.daemon = NULL;
}
