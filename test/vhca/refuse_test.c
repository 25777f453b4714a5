/* refuse_test.c - what a process cannot have: the open fails, and one sentence says what to do */

#include "child.h"
#include "pair.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OPENED = 1, CANNOT_TEST = 2, NOBODY = 65534 };

/* In the child: 0, or OPENED. */
static int open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	assert_non_null(list);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	return context ? OPENED : 0;
}

static void expect_said(const char *said, const char *wanted)
{
	if (!strstr(said, wanted))
		fail_msg("\"%s\" is not in what was said: %s", wanted, said);
}

/* ---- an open without a thread, without memory ---- */

/* Root has no such limit. */
static int open_without_a_thread(void)
{
	struct rlimit none = {0, 0};
	struct ibv_device **list = ibv_get_device_list(NULL);

	assert_non_null(list); /* what has to be loaded is */
	if ((!geteuid() && setuid(NOBODY)) || setrlimit(RLIMIT_NPROC, &none))
		return CANNOT_TEST;
	return open_first();
}

/* The open failed with ENOENT, which libibverbs makes of whatever it was, and nothing was said. */
static void test_no_thread(void **state)
{
	char said[4096];
	int status = child_run(open_without_a_thread, "report", said, sizeof(said));

	(void)state;
	if (status == CANNOT_TEST)
		skip();
	assert_int_equal(status, 0);
	expect_said(said, "mlx5_0 cannot be opened");
	expect_said(said, "ulimit -u");
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifndef SANITIZED
/* What there is, and less than the device's pages more. */
static int open_without_memory(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long pages;
	struct rlimit limit;

	assert_non_null(list);
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%lu", &pages), 1);
	fclose(file);
	limit.rlim_cur = limit.rlim_max = (pages + 512) * (unsigned long)sysconf(_SC_PAGESIZE);
	assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
	return open_first();
}

static void test_no_memory(void **state)
{
	char said[4096];

	(void)state;
	assert_int_equal(child_run(open_without_memory, "report", said, sizeof(said)), 0);
	expect_said(said, "mlx5_0 cannot be opened");
	expect_said(said, "ulimit -v");
}
#endif

/* ---- an address that is another's ---- */

static int open_on_udp(const char *address)
{
	setenv("VHCA_WIRE", "udp", 1);
	setenv("VHCA_ADDRESS", address, 1);
	return open_first();
}

static int open_taken(void)
{
	return open_on_udp("::1");
}

static int open_nowhere(void)
{
	return open_on_udp("192.0.2.1"); /* TEST-NET-1, which no host has */
}

/* The second process with an address kept its GID and had no wire: it sent to itself what was for
 * the first, and called it a success. */
static void test_taken_address(void **state)
{
	struct sockaddr_in6 name = {.sin6_family = AF_INET6,
		.sin6_port = htons(4791),
		.sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char said[4096];

	(void)state;
	if (fd < 0 || (bind(fd, (struct sockaddr *)&name, sizeof(name)) && errno != EADDRINUSE))
		skip();
	assert_int_equal(child_run(open_taken, "report", said, sizeof(said)), 0);
	expect_said(said, "mlx5_0 cannot be opened: another process has port 4791 of ::1");
	close(fd);
}

static void test_foreign_address(void **state)
{
	char said[4096];

	(void)state;
	assert_int_equal(child_run(open_nowhere, "report", said, sizeof(said)), 0);
	expect_said(said, "mlx5_0 cannot be opened: port 4791 of 192.0.2.1");
}

/* Says its own on standard error. */
static int say_gid(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	union ibv_gid gid;

	assert_non_null(list);
	context = ibv_open_device(list[0]);
	assert_non_null(context);
	assert_int_equal(ibv_query_gid(context, 1, 3, &gid), 0);
	for (size_t i = 0; i < sizeof(gid.raw); i++)
		fprintf(stderr, "%02x", gid.raw[i]);
	return 0;
}

/* As above, without a word, where both processes had no wire by their own wish. */
static void test_no_wire_no_common_address(void **state)
{
	char one[256], other[256];

	(void)state;
	assert_int_equal(child_run(say_gid, "report", one, sizeof(one)), 0);
	assert_int_equal(child_run(say_gid, "report", other, sizeof(other)), 0);
	assert_int_equal(strlen(one), 32);
	assert_string_not_equal(one, other);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_thread),
#ifndef SANITIZED
		cmocka_unit_test(test_no_memory),
#endif
		cmocka_unit_test(test_taken_address),
		cmocka_unit_test(test_foreign_address),
		cmocka_unit_test(test_no_wire_no_common_address),
	};

	return cmocka_run_group_tests_name("refuse", tests, NULL, NULL);
}
