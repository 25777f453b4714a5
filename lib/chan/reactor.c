/* reactor.c - sockets and deadlines on the control thread, and orders to it that nobody waits for */

#include "chan/reactor.h"
#include "chan/session.h"

#include "run/run.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Events taken before the control thread looks at its calls again. */
#define TURN 32

struct garbage {
	struct garbage *next;
};

static struct {
	bool started; /* the control thread's */
	int epoll_fd;
	struct reactor_io timer,
		bell; /* bell: orders have come; its fd is constant while started */
	struct reactor_timer *first, *last; /* by deadline */
	struct garbage *garbage;
	struct mailbox orders;
} reactor;

/* ---- memory ---- */

void vbn__reactor_free_later(void *block)
{
	struct garbage *garbage = block;

	garbage->next = reactor.garbage;
	reactor.garbage = garbage;
}

static void free_garbage(void)
{
	struct garbage *garbage;

	while ((garbage = reactor.garbage)) {
		reactor.garbage = garbage->next;
		free(garbage);
	}
}

/* ---- sockets ---- */

int vbn__reactor_add(struct reactor_io *io)
{
	struct epoll_event event = {.events = io->events, .data.ptr = io};

	return epoll_ctl(reactor.epoll_fd, EPOLL_CTL_ADD, io->fd, &event) ? -errno : 0;
}

void vbn__reactor_change(struct reactor_io *io, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = io};

	if (io->events == events)
		return;
	io->events = events;
	epoll_ctl(reactor.epoll_fd, EPOLL_CTL_MOD, io->fd, &event);
}

void vbn__reactor_remove(struct reactor_io *io)
{
	epoll_ctl(reactor.epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
}

/* ---- deadlines: a list in their order, short, and mostly added to at its end ---- */

static void arm(void)
{
	uint64_t at = reactor.first ? reactor.first->at : 0;
	struct itimerspec when = {.it_value = {(time_t)(at / 1000000000), (long)(at % 1000000000)}};

	timerfd_settime(reactor.timer.fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void unlink_timer(struct reactor_timer *timer)
{
	*(timer->earlier ? &timer->earlier->later : &reactor.first) = timer->later;
	*(timer->later ? &timer->later->earlier : &reactor.last) = timer->earlier;
	timer->at = 0;
}

void vbn__reactor_timer_clear(struct reactor_timer *timer)
{
	if (timer->at)
		unlink_timer(timer); /* one that rings for nothing does no harm */
}

void vbn__reactor_timer_set(struct reactor_timer *timer, uint64_t at)
{
	struct reactor_timer *before;

	vbn__reactor_timer_clear(timer);
	before = reactor.last;
	while (before && before->at > at)
		before = before->earlier;
	timer->at = at;
	timer->earlier = before;
	timer->later = before ? before->later : reactor.first;
	*(timer->later ? &timer->later->earlier : &reactor.last) = timer;
	*(before ? &before->later : &reactor.first) = timer;
	if (reactor.first == timer)
		arm();
}

static void on_timer(struct reactor_io *io, uint32_t events)
{
	uint64_t count, now = clock_ns();

	(void)events;
	if (read(io->fd, &count, sizeof(count)) < 0)
		return; /* set anew meanwhile */
	while (reactor.first && reactor.first->at <= now) {
		struct reactor_timer *timer = reactor.first;

		unlink_timer(timer);
		timer->fn(timer);
	}
	arm();
}

/* ---- orders ---- */

void vbn__reactor_order(struct reactor_order *order)
{
	uint64_t one = 1;

	if (vbn__mailbox_put(&reactor.orders, &order->mail) &&
		write(reactor.bell.fd, &one, sizeof(one)) < 0)
		return; /* it rings already */
}

void vbn__reactor_settle(void)
{
	struct mail *mail = vbn__mailbox_take(&reactor.orders);

	while (mail) {
		struct reactor_order *order = container_of(mail, struct reactor_order, mail);

		mail = mail->next;
		order->fn(order);
	}
}

static void on_bell(struct reactor_io *io, uint32_t events)
{
	uint64_t count;

	(void)events;
	if (read(io->fd, &count, sizeof(count)) >= 0)
		vbn__reactor_settle();
}

/* ---- start and stop ---- */

/* One event at a time: what handles one may remove the socket of another. */
static void on_ready(int fd, void *arg)
{
	struct epoll_event event;

	(void)arg;
	for (int i = 0; i < TURN && epoll_wait(fd, &event, 1, 0) == 1; i++) {
		struct reactor_io *io = event.data.ptr;

		io->fn(io, event.events);
		free_garbage();
	}
}

static void stop(void)
{
	if (!reactor.started)
		return;
	vbn__sessions_abandon();
	free_garbage();
	vbn__control_unwatch(reactor.epoll_fd);
	close(reactor.bell.fd);
	close(reactor.timer.fd);
	close(reactor.epoll_fd);
	reactor.started = false;
}

static int make(void)
{
	int ret;

	reactor.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (reactor.epoll_fd < 0)
		return -errno;
	reactor.timer = (struct reactor_io){.fn = on_timer,
		.events = EPOLLIN,
		.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)};
	reactor.bell = (struct reactor_io){
		.fn = on_bell, .events = EPOLLIN, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	ret = reactor.timer.fd < 0 || reactor.bell.fd < 0 ? -errno : 0;
	if (!ret)
		ret = vbn__reactor_add(&reactor.timer);
	if (!ret)
		ret = vbn__reactor_add(&reactor.bell);
	if (!ret)
		ret = vbn__control_watch(reactor.epoll_fd, on_ready, NULL);
	if (!ret)
		return 0;
	if (reactor.timer.fd >= 0)
		close(reactor.timer.fd);
	if (reactor.bell.fd >= 0)
		close(reactor.bell.fd);
	close(reactor.epoll_fd);
	return ret;
}

static int start(void *arg)
{
	int ret;

	(void)arg;
	if (reactor.started)
		return 0;
	ret = make();
	if (ret)
		return fail(-ret,
			"exchange with peers cannot be started: its descriptors could not be made (%s); raise the limit on open files (ulimit -n)",
			strerror(-ret));
	reactor.started = true;
	vbn__control_at_stop(stop);
	return 0;
}

int vbn__reactor_start(void)
{
	int ret = vbn__control_call(-1, start, NULL);

	if (ret == -ESHUTDOWN)
		return fail(ESHUTDOWN,
			"exchange with peers cannot be started: vbn_init() was not called, or vbn_fini() was");
	return ret;
}
