/* reactor.h - sockets and deadlines on the control thread, and orders to it that nobody waits for
 *
 * The control thread watches one descriptor: the reactor's own epoll set, which holds the sockets,
 * a timer for the earliest deadline, and an eventfd that orders ring. It is made with its first use
 * and taken down when the control thread ends.
 *
 * Everything here is the control thread's, but vbn__reactor_order().
 */
#ifndef VBN_CHAN_REACTOR_H
#define VBN_CHAN_REACTOR_H

#include "chan/mailbox.h"

#include <sys/epoll.h>

struct reactor_io {
	int fd;
	uint32_t events; /* EPOLLIN, EPOLLOUT: what is waited for */
	void (*fn)(struct reactor_io *io, uint32_t events);
};

struct reactor_timer {
	uint64_t at; /* clock_ns(); 0: not set */
	void (*fn)(struct reactor_timer *timer);
	struct reactor_timer *earlier, *later;
};

/* What the control thread is to do; the memory is the order's until fn is called. */
struct reactor_order {
	struct mail mail;
	void (*fn)(struct reactor_order *order);
};

/* Makes it unless it is there. 0 or -errno with a sentence. */
int vbn__reactor_start(void);

/* Any thread, and without waiting. The reactor has been started. Orders are carried out in order. */
void vbn__reactor_order(struct reactor_order *order);

/* Carries out what has been ordered, for who does not want to wait for the bell. */
void vbn__reactor_settle(void);

int vbn__reactor_add(struct reactor_io *io);
void vbn__reactor_change(struct reactor_io *io, uint32_t events);
void vbn__reactor_remove(struct reactor_io *io);

void vbn__reactor_timer_set(struct reactor_timer *timer, uint64_t at);
void vbn__reactor_timer_clear(struct reactor_timer *timer);

/* Frees memory once the event that is being handled is over, so that whoever is on the stack may
 * still look at it. The block begins with room for a pointer. */
void vbn__reactor_free_later(void *block);

#endif
