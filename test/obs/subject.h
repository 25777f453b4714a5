/* subject.h - what a process to look at has beside its two queues, where it is asked for */
#ifndef SUBJECT_H
#define SUBJECT_H

#include <verbena.h>

/* A shared receive ring, a queue that has failed, channels to itself, of which one gets to know that
 * nobody listens. 0 or -1. */
int more_make(struct vbn_worker *worker, struct vbn_port *port, struct vbn_pool *pool);
/* Takes what comes. */
void more_turn(void);
void more_end(void);

/* The control thread stays in one call until it is let go, and another one waits for it. */
int stuck_begin(void);
void stuck_end(void);

#endif
