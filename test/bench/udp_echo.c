/* udp_echo.c - a UDP echo server by recvmmsg() and sendmmsg(), as good as sockets let one be: udp_echo PORT */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BURST = 64, SIZE = 2048 };

static char room[BURST][SIZE];
static struct sockaddr_in peers[BURST];
static struct iovec parts[BURST];
static struct mmsghdr messages[BURST];

static int listen_at(uint16_t port)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0), size = 4 << 20;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	return fd >= 0 && !bind(fd, (struct sockaddr *)(void *)&here, sizeof(here)) ? fd : -1;
}

static void describe(int i)
{
	parts[i] = (struct iovec){room[i], SIZE};
	messages[i].msg_hdr = (struct msghdr){.msg_name = &peers[i],
		.msg_namelen = sizeof(peers[i]),
		.msg_iov = &parts[i],
		.msg_iovlen = 1};
}

int main(int argc, char **argv)
{
	int fd = argc == 2 ? listen_at((uint16_t)atoi(argv[1])) : -1;

	if (fd < 0) {
		perror("udp_echo PORT");
		return 1;
	}
	puts("listening");
	fflush(stdout);
	for (int i = 0; i < BURST; i++)
		describe(i);
	for (;;) {
		int n = recvmmsg(fd, messages, BURST, MSG_WAITFORONE, NULL);

		for (int i = 0; i < n; i++)
			parts[i].iov_len = messages[i].msg_len;
		for (int at = 0, sent; at < n; at += sent) {
			sent = sendmmsg(fd, messages + at, (unsigned int)(n - at), 0);
			if (sent <= 0)
				break;
		}
		for (int i = 0; i < n; i++)
			describe(i);
	}
}
