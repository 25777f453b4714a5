/* sockets.c - messages between two processes over the kernel's sockets: what a program without Verbena
 * would use on one host
 *
 *     sockets tcp|unix rate SIZE SECONDS      messages a second, a write for each burst of 32
 *     sockets tcp|unix latency SIZE SECONDS   half of a round trip in ns, the median
 *
 * A stream either way, so both sides move whole bursts in one system call: the best that sockets do.
 * The receiver is on the first core that is allowed, the sender on the last.
 */
#include "bench.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MESSAGES = 32, MAX_SIZE = 64 * 1024, SAMPLES = 1 << 20 };

static char data[MESSAGES * MAX_SIZE];

static void pin(bool first)
{
	cpu_set_t allowed, own;
	size_t chosen = 0;
	bool found = false;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		die("cannot read the allowed cores: %s", strerror(errno));
	for (size_t core = 0; core < CPU_SETSIZE && !(found && first); core++)
		if (CPU_ISSET(core, &allowed))
			found = true, chosen = core;
	CPU_ZERO(&own);
	CPU_SET(chosen, &own);
	if (sched_setaffinity(0, sizeof(own), &own))
		die("cannot go to core %zu: %s", chosen, strerror(errno));
}

static void no_delay(int fd)
{
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

/* A pair over the loopback interface. */
static void connect_tcp(int fds[2])
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htobe32(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listener, (struct sockaddr *)&address, len) || listen(listener, 1) ||
		getsockname(listener, (struct sockaddr *)&address, &len) ||
		connect(fds[0], (struct sockaddr *)&address, len))
		die("no connection over the loopback interface: %s", strerror(errno));
	fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fds[1] < 0)
		die("no connection was accepted: %s", strerror(errno));
	close(listener);
	no_delay(fds[0]);
	no_delay(fds[1]);
}

/* False at the other side's end. */
static bool read_all(int fd, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = read(fd, data + got, len - got);

		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

static bool write_all(int fd, size_t len)
{
	for (size_t put = 0; put < len;) {
		ssize_t n = write(fd, data + put, len - put);

		if (n <= 0)
			return false;
		put += (size_t)n;
	}
	return true;
}

static void send_bursts(int fd, size_t size)
{
	while (write_all(fd, MESSAGES * size))
		;
}

static void take_bursts(int fd, size_t size, double seconds)
{
	uint64_t start, now, n = 0;

	if (!read_all(fd, MESSAGES * size))
		die("the sender sent nothing");
	start = now_ns();
	do {
		if (!read_all(fd, MESSAGES * size))
			die("the sender has gone");
		n += MESSAGES;
		now = now_ns();
	} while ((double)(now - start) < seconds * 1e9);
	printf("%.0f\n", (double)n * 1e9 / (double)(now - start));
}

static void answer(int fd, size_t size)
{
	while (read_all(fd, size) && write_all(fd, size))
		;
}

static void ask(int fd, size_t size, double seconds)
{
	double *halves = malloc(SAMPLES * sizeof(*halves));
	uint64_t start = now_ns(), before = start, now;
	int n = 0;

	if (!halves)
		die("no memory for the round trips");
	do {
		if (!write_all(fd, size) || !read_all(fd, size))
			die("the other side has gone");
		now = now_ns();
		halves[n++] = (double)(now - before) / 2;
		before = now;
	} while ((double)(now - start) < seconds * 1e9 && n < SAMPLES);
	printf("%.0f\n", spread_of(halves, n).median);
	free(halves);
}

int main(int argc, char **argv)
{
	int fds[2];
	bool rate;
	size_t size;
	double seconds;
	pid_t child;

	if (argc != 5)
		die("usage: sockets tcp|unix rate|latency SIZE SECONDS");
	rate = !strcmp(argv[2], "rate");
	size = (size_t)atol(argv[3]);
	seconds = atof(argv[4]);
	if (!size || size > MAX_SIZE || seconds <= 0)
		die("a size from 1 to %d and a time above 0 are needed", MAX_SIZE);
	signal(SIGPIPE, SIG_IGN);
	if (!strcmp(argv[1], "tcp"))
		connect_tcp(fds);
	else if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		die("no pair of sockets: %s", strerror(errno));
	child = fork();
	if (child < 0)
		die("no second process: %s", strerror(errno));
	close(fds[child != 0]);
	pin(child != 0);
	if (!child) {
		(rate ? send_bursts : answer)(fds[1], size);
		return 0;
	}
	(rate ? take_bursts : ask)(fds[0], size, seconds);
	close(fds[0]);
	waitpid(child, NULL, 0);
	return 0;
}
