/* channel_process_test.c - channels between processes: one that sends until it is killed, one that
 * does all there is to do and closes
 *
 * The others are this program again; they are told where to connect on their standard input.
 */

#include "channel_fixture.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { N_MESSAGES = 400, LARGE = 100000 };

static struct vbn_channel_group_conf conf = {.max_channels = 4,
	.buf_size = BUF_SIZE,
	.window = 16,
	.n_held = 512, /* what it sends comes from there, too */
	.max_message = 1 << 20,
	.connect_ns = LONG_NS,
	.keepalive_ns = SECOND_NS / 5,
	.give_up_ns = 2 * SECOND_NS};

/* ---- the other process ---- */

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "channel_process_test: the other process: %s: %s\n", what, unit_log);
	_exit(1);
}

struct other {
	struct vbn_worker *worker;
	struct vbn_port *port;
	struct vbn_channel_group *group;
	struct vbn_channel *channel;
	int seen[N_OPS];
	uint64_t received;
};

static void other_open(struct other *other)
{
	char address[64] = "";

	must(vhca_present() && !vbn_init(NULL, NULL), "it starts");
	must(!vbn_worker_attach(&(struct vbn_worker_conf){0}, &other->worker), "it is a worker");
	must(!vbn_port_open(port_name(), NULL, &other->port), "it has a port");
	must(!vbn_channel_group_create(other->worker, other->port, &conf, &other->group),
		"it has a group");
	must(fgets(address, sizeof(address), stdin), "it is told an address");
	address[strcspn(address, "\n")] = '\0';
	must(!vbn_channel_connect(other->group, address, "other", 5, &other->channel),
		"it connects");
}

static void other_turn(struct other *other)
{
	struct vbn_channel_event events[16];
	int n = vbn_channel_poll(other->group, events, 16);

	for (int i = 0; i < n; i++) {
		other->seen[events[i].op]++;
		if (events[i].op == VBN_CHANNEL_MESSAGE) {
			other->received++;
			vbn_channel_release(&events[i]);
		}
	}
	vbn_worker_poll(other->worker);
	if (!n)
		sched_yield();
}

/* The number of bytes by the number of the message; one in 40 is large. */
static uint32_t size_of(uint64_t number)
{
	return number % 40 ? (uint32_t)(number * 37 % (BUF_SIZE + 1)) : LARGE;
}

static bool other_send(struct other *other, uint64_t number)
{
	struct vbn_pool *pool = vbn_channel_group_pool(other->group);
	struct vbn_buf *message = NULL;
	uint32_t len = size_of(number), at = 0;
	int ret;

	do {
		struct vbn_buf *buf;

		while (vbn_buf_alloc(pool, &buf, 1) < 0) {
			other_turn(other);
			must(!other->seen[VBN_CHANNEL_FAILED], vbn_channel_error(other->channel));
		}
		buf->len = min(len - at, (uint32_t)BUF_SIZE);
		fill(buf, number, at);
		at += buf->len;
		if (message)
			vbn_buf_append(message, buf);
		else
			message = buf;
	} while (at < len);
	do {
		ret = vbn_channel_send(other->channel, &message, 1);
		other_turn(other);
	} while (!ret || ret == -ENOTCONN);
	if (ret < 0)
		vbn_buf_free(&message, 1);
	return ret == 1;
}

/* Sends without end. */
static int other_floods(void)
{
	struct other other = {0};

	other_open(&other);
	for (uint64_t number = 1; other_send(&other, number); number++)
		;
	return 1;
}

/* Sends its messages, gets as many, and closes. */
static int other_closes(void)
{
	struct other other = {0};

	other_open(&other);
	for (uint64_t number = 1; number <= N_MESSAGES; number++)
		must(other_send(&other, number), "it sends");
	vbn_channel_end(other.channel);
	while (!other.seen[VBN_CHANNEL_CLOSED] && !other.seen[VBN_CHANNEL_FAILED])
		other_turn(&other);
	must(other.seen[VBN_CHANNEL_CLOSED], vbn_channel_error(other.channel));
	must(other.received == N_MESSAGES, "it gets as many messages");
	vbn_channel_close(other.channel);
	vbn_channel_group_destroy(other.group);
	vbn_worker_detach(other.worker);
	vbn_port_close(other.port);
	vbn_fini();
	return 0;
}

static pid_t start(const char *what)
{
	const char *address = vbn_channel_listener_address(f.listener);
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(fds[0], 0);
		close(fds[0]);
		close(fds[1]);
		execl("/proc/self/exe", "channel_process_test", what, NULL);
		_exit(127);
	}
	close(fds[0]);
	dprintf(fds[1], "%s\n", address);
	close(fds[1]);
	return pid;
}

/* ---- this process ---- */

static void a_process_may_do_all_and_close(void **state)
{
	int status = -1;
	pid_t pid;

	(void)state;
	make_groups(&conf, &conf);
	pid = start("closes");
	turn_until(f.n_b == 1 && f.b[0].seen[VBN_CHANNEL_OPENED]);
	send_all(&f.b[0], f.pool, 1, N_MESSAGES, 500);
	vbn_channel_end(f.b[0].channel);
	turn_until(f.b[0].seen[VBN_CHANNEL_CLOSED] || f.b[0].seen[VBN_CHANNEL_FAILED]);
	assert_string_equal(f.b[0].error, "");
	assert_int_equal(f.b[0].received, N_MESSAGES);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* It dies with messages under way, a large one every now and then; another is none the worse. */
static void a_process_that_is_killed_is_noticed(void **state)
{
	pid_t pid, other;
	uint64_t begin;
	int status = -1;

	(void)state;
	make_groups(&conf, &conf);
	pid = start("floods");
	turn_until(f.n_b == 1 && f.b[0].received >= 100);
	other = start("closes");
	turn_until(f.n_b == 2 && f.b[1].received >= 10);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	begin = clock_ns();
	/* what it had sent is received, then it is silent, is asked, and does not answer */
	turn_until(f.b[0].seen[VBN_CHANNEL_FAILED]);
	printf("its death was noticed after %.2f s\n", (double)(clock_ns() - begin) / 1e9);
	/* the bound: silence, the question, as long again as is waited; and what a busy machine takes */
	assert_true(
		clock_ns() - begin < 2 * (conf.keepalive_ns + conf.give_up_ns) + 10 * SECOND_NS);
	assert_has(f.b[0].error, " failed: ");
	send_all(&f.b[1], f.pool, 1, N_MESSAGES, 100);
	vbn_channel_end(f.b[1].channel);
	turn_until(f.b[1].seen[VBN_CHANNEL_CLOSED] || f.b[1].seen[VBN_CHANNEL_FAILED]);
	assert_string_equal(f.b[1].error, "");
	assert_int_equal(waitpid(other, &status, 0), other);
	assert_int_equal(status, 0);
}

/* One that dies while it connects is as one whose line was cut. */
static void a_process_may_be_killed_at_any_time(void **state)
{
	struct vbn_buf *buf;

	(void)state;
	make_groups(&conf, &conf);
	for (int i = 0; i < 3; i++) {
		pid_t pid = start("floods");
		uint64_t begin = clock_ns();
		int status;

		while (clock_ns() - begin < (unsigned int)i * SECOND_NS / 20)
			turn();
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		turn_until(!f.n_b || f.b[f.n_b - 1].seen[VBN_CHANNEL_FAILED]);
	}
	/* an offer of a process that is dead already may still come, so who is who is not known */
	assert_int_equal(vbn_channel_connect(f.here, vbn_channel_listener_address(f.listener), "x",
				 1, &f.a[0].channel),
		0);
	vbn_channel_set_context(f.a[0].channel, &f.a[0]);
	turn_until(f.a[0].seen[VBN_CHANNEL_OPENED]);
	buf = new_message(f.pool, 1, 100);
	vbn_buf_set_cookie(buf, &f);
	assert_int_equal(vbn_channel_send(f.a[0].channel, &buf, 1), 1);
	turn_until(f.a[0].seen[VBN_CHANNEL_SENT]);
}

#define with_fixture(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		with_fixture(a_process_may_do_all_and_close),
		with_fixture(a_process_that_is_killed_is_noticed),
		with_fixture(a_process_may_be_killed_at_any_time),
	};

	conf.keepalive_ns = patient(conf.keepalive_ns);
	conf.give_up_ns = patient(conf.give_up_ns);
	if (argc > 1)
		return !strcmp(argv[1], "floods") ? other_floods() : other_closes();
	signal(SIGPIPE, SIG_IGN);
	cmocka_set_test_filter(getenv("CHANNEL_TEST"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
