/* child.h - a case in a process of its own: VHCA_* is read once, and what is said is looked at */
#ifndef TEST_VHCA_CHILD_H
#define TEST_VHCA_CHILD_H

#include <stddef.h>

enum {
	CHILD_WRONG = 0x7f,
	CHILD_STOPPED = 0x80, /* by SIGABRT */
};

/* What `run` answers, or one of the above; `said` is its standard error. */
int child_run(int (*run)(void), const char *strict, char *said, size_t size);
/* In the child: until something has been said, for some seconds at most. */
void child_wait_until_told(void);

#endif
