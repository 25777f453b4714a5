/* thread.c - the thread that answers who looks from outside
 *
 * It is not the control thread: that one may wait for a device, for long where the device or its driver
 * is stuck, and just then somebody wants to know what goes on. What it watches is known before it starts.
 */

#include "obs/obs.h"
#include "run/run.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MAX_WATCHES = 4 };

static struct {
	struct watch {
		int fd;
		void (*fn)(int fd, void *arg);
		void *arg;
	} watches[MAX_WATCHES];
	uint32_t n_watches;
	int epoll_fd, stop_fd;
	bool runs;
	pthread_t thread;
} obs;

int vbn__obs_watch(int fd, void (*fn)(int fd, void *arg), void *arg)
{
	if (obs.runs || obs.n_watches == MAX_WATCHES)
		return -EBUSY;
	obs.watches[obs.n_watches++] = (struct watch){.fd = fd, .fn = fn, .arg = arg};
	return 0;
}

/* One event a turn, so that none of its business holds up the rest. */
static void *obs_main(void *arg)
{
	struct epoll_event event;
	const struct watch *watch;

	(void)arg;
	for (;;) {
		if (epoll_wait(obs.epoll_fd, &event, 1, -1) != 1)
			continue;
		if (event.data.u32 == MAX_WATCHES)
			return NULL;
		watch = &obs.watches[event.data.u32];
		watch->fn(watch->fd, watch->arg);
	}
}

static int add(int fd, uint32_t index)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};

	return epoll_ctl(obs.epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int make_fds(void)
{
	int ret;

	obs.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (obs.epoll_fd < 0)
		return -errno;
	obs.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ret = obs.stop_fd < 0 ? -errno : add(obs.stop_fd, MAX_WATCHES);
	for (uint32_t i = 0; i < obs.n_watches && !ret; i++)
		ret = add(obs.watches[i].fd, i);
	if (!ret)
		return 0;
	if (obs.stop_fd >= 0)
		close(obs.stop_fd);
	close(obs.epoll_fd);
	return ret;
}

static int start_thread(void)
{
	sigset_t before;
	int ret;

	vbn__block_signals(&before);
	ret = pthread_create(&obs.thread, NULL, obs_main, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (ret)
		return -ret;
	pthread_setname_np(obs.thread, "vbn-telemetry");
	vbn__control_beside(&obs.thread);
	obs.runs = true;
	return 0;
}

int vbn__obs_thread_start(void)
{
	int ret = make_fds();

	if (ret)
		return ret;
	ret = start_thread();
	if (!ret)
		return 0;
	close(obs.stop_fd);
	close(obs.epoll_fd);
	return ret;
}

void vbn__obs_thread_stop(void)
{
	const uint64_t one = 1;

	if (obs.runs) {
		vbn__control_beside(NULL);
		if (write(obs.stop_fd, &one, sizeof(one)) < 0)
			return; /* it cannot be: nobody else writes there */
		pthread_join(obs.thread, NULL);
		close(obs.stop_fd);
		close(obs.epoll_fd);
	}
	obs.runs = false;
	obs.n_watches = 0;
}
