/* two.c - a queue in this process and one in another, for tests */

#include "two.h"

#include "../unit/held.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

struct two two = {.from = -1, .to = -1};
struct vbn_worker_conf two_worker_conf;
struct vbn_pool_conf two_pool_conf = {.n_bufs = TWO_BUFS, .data_size = TWO_DATA};

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "process %d: %s; %s; the log: %s\n", getpid(), what,
		two.queue ? vbn_queue_error(two.queue) : "", unit_log);
	abort();
}

int two_open(void **state)
{
	(void)state;
	must(!vbn_init(NULL, NULL), "it starts");
	unit_catch_log();
	must(!vbn_worker_attach(&two_worker_conf, &two.worker), "it is a worker");
	must(!vbn_port_open("shm", NULL, &two.port), "it has a port");
	must(!vbn_pool_create(&two_pool_conf, &two.pool), "it has a pool");
	must(!vbn_export_create(two.port,
		     &(struct vbn_export_conf){.size = TWO_EXPORT,
			     .access = VBN_REMOTE_WRITE | VBN_REMOTE_READ | VBN_REMOTE_ATOMIC},
		     &two.exported),
		"it has an export");
	return 0;
}

int two_close(void **state)
{
	(void)state;
	two_disconnect();
	must(vbn_pool_available(two.pool) == two_pool_conf.n_bufs, "all bufs are home");
	vbn_export_destroy(two.exported);
	vbn_worker_detach(two.worker);
	vbn_pool_destroy(two.pool);
	vbn_port_close(two.port);
	vbn_fini();
	return 0;
}

void two_start(const char *what)
{
	int there[2], back[2];
	pid_t parent = getpid();

	must(!pipe(there) && !pipe(back), "there are pipes");
	two.pid = fork();
	must(two.pid >= 0, "it forks");
	if (!two.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		dup2(there[0], 0);
		dup2(back[1], 3);
		for (int fd = 4; fd < 64; fd++)
			close(fd);
		execl("/proc/self/exe", "shm_two", what, NULL);
		_exit(127);
	}
	close(there[0]);
	close(back[1]);
	two.to = there[1];
	two.from = back[0];
}

static void close_pipes(void)
{
	close(two.to);
	close(two.from);
	two.to = two.from = -1;
}

int two_wait(void)
{
	int status = -1;

	close_pipes();
	must(waitpid(two.pid, &status, 0) == two.pid, "the other ends");
	two.pid = 0;
	return status;
}

void two_kill(void)
{
	kill(two.pid, SIGKILL);
}

void two_is_other(void)
{
	two.from = 0;
	two.to = 3;
	two_open(NULL);
}

void two_say(const struct two_word *word)
{
	if (write(two.to, word, sizeof(*word)) != sizeof(*word))
		must(errno == EPIPE, "it says something");
}

bool two_hear(struct two_word *word)
{
	return read(two.from, word, sizeof(*word)) == sizeof(*word);
}

bool two_may_hear(void)
{
	return poll(&(struct pollfd){.fd = two.from, .events = POLLIN}, 1, 0) > 0;
}

void two_connect_after(bool other_first)
{
	const struct vbn_queue_conf conf = {.tx_depth = TWO_DEPTH,
		.rx_depth = TWO_DEPTH,
		.rx_pool = two.pool,
		.remote_access = VBN_REMOTE_WRITE | VBN_REMOTE_READ | VBN_REMOTE_ATOMIC};
	struct two_word word = {.remote = vbn_export_remote(two.exported, 0)}, theirs;

	must(!vbn_queue_create(two.worker, two.port, &conf, &two.queue), "it has a queue");
	vbn_queue_address(two.queue, &word.address);
	two_say(&word);
	must(two_hear(&theirs), "it is told where the other is");
	two.remote = theirs.remote;
	if (other_first)
		must(two_hear(&theirs), "the other has connected");
	must(!vbn_queue_connect(two.queue, &theirs.address), "it connects");
	two_say(&word);
	if (!other_first)
		must(two_hear(&theirs), "the other has connected, too");
}

void two_connect(void)
{
	two_connect_after(false);
}

void two_disconnect(void)
{
	vbn_queue_destroy(two.queue);
	two.queue = NULL;
}

void two_patience(uint64_t since)
{
	must(clock_ns() - since < 60 * SECOND_NS, "it has waited for a minute");
	sched_yield();
}

int two_segments(void)
{
	return held_mappings("/memfd:verbena");
}
