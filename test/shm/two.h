/* two.h - a queue in this process and one in another, for tests: the other is this program again, and
 * the two tell each other addresses and rkeys by pipes */
#ifndef SHM_TWO_H
#define SHM_TWO_H

#include "drv/shm/shm.h"

#include "../unit/unit.h"

#include <verbena.h>

enum { TWO_DEPTH = 64, TWO_DATA = 9000, TWO_BUFS = 512, TWO_EXPORT = 1 << 20 };

#define SECOND_NS 1000000000ull

struct two {
	struct vbn_worker *worker;
	struct vbn_port *port;
	struct vbn_pool *pool;
	struct vbn_export *exported;
	struct vbn_queue *queue;
	struct vbn_remote remote; /* the other's export */
	int from, to;             /* pipes */
	pid_t pid;
};
extern struct two two;
extern struct vbn_worker_conf two_worker_conf; /* of both */
extern struct vbn_pool_conf two_pool_conf;     /* of both: TWO_BUFS of TWO_DATA, not shared */

/* What each side tells the other. */
struct two_word {
	struct vbn_address address;
	struct vbn_remote remote;
	uint64_t word;
};

/* cmocka's: this side with its port, pool and export; every buf must be home at the end. */
int two_open(void **state);
int two_close(void **state);

/* Starts this program again, with `what` as its argument. */
void two_start(const char *what);
/* The other has ended: its exit status. */
int two_wait(void);
void two_kill(void);

/* In the other process. */
void two_is_other(void);

/* A queue, connected to the other's: both sides call it. */
void two_connect(void);
/* The same, but which side is the first. */
void two_connect_after(bool other_first);
void two_disconnect(void);

void two_say(const struct two_word *word);
/* False: the other has gone. */
bool two_hear(struct two_word *word);
/* It has said something, or has gone. */
bool two_may_hear(void);

/* Ends a process that waits too long. */
void two_patience(uint64_t since);

int two_segments(void);

#endif
