/* vhca_ask.h - one line to the status socket of this process, and what its emulated devices answer */
#ifndef VHCA_ASK_H
#define VHCA_ASK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static inline void vhca_ask(const char *line, char *answer, size_t size)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int length =
		snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "verbena-vhca/%d", getpid());
	size_t n = 0;
	ssize_t got;

	assert_true(fd >= 0);
	assert_int_equal(
		connect(fd, (struct sockaddr *)&name,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)),
		0);
	assert_int_equal(dprintf(fd, "%s\n", line), strlen(line) + 1);
	while (n < size - 1 && (got = read(fd, answer + n, size - 1 - n)) > 0)
		n += (size_t)got;
	answer[n] = '\0';
	close(fd);
}

/* To be done, not to be told. */
static inline void vhca_tell(const char *line)
{
	char answer[128];

	vhca_ask(line, answer, sizeof(answer));
	if (!strstr(answer, "ok")) {
		print_error("\"%s\" was answered \"%s\"\n", line, answer);
		_fail(__FILE__, __LINE__);
	}
}

#endif
