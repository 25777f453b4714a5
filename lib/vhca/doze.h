/* doze.h - the engine's long sleep: until the program stores to a page that is protected meanwhile
 *
 * The engine begins a doze when nothing has happened for a while, sleeps, and ends it, all on its own
 * thread. In between it takes no lock and no memory: a thread of the program may wait in such a store
 * and have any of them.
 */
#ifndef VHCA_DOZE_H
#define VHCA_DOZE_H

#include "vhca/vhca.h"

/* Before the engine runs, and after. */
void vhca_doze_start(void);
void vhca_doze_stop(void);
/* In a child of fork. */
void vhca_doze_forked(void);

/* True: the pages are protected, and nothing waited for the engine when they were; a store to one of
 * them makes the descriptor readable. */
bool vhca_doze_begin(int n_devices);
int vhca_doze_fd(void);
void vhca_doze_end(void);

/* A command may have brought or taken pages. The device's lock is held. */
void vhca_doze_pages_changed(void);

/* NULL: the engine can doze; else why it cannot. Of the process, after the engine's start. */
const char *vhca_doze_refused(void);
uint64_t vhca_doze_count(void);

/* The word whose page is one of those. */
extern uint32_t *vhca_doze_word;

/* The engine has something to do, or is to see something: returns when it is not dozing. Without the
 * locks that it takes to begin. */
static inline void vhca_doze_wake(void)
{
	__atomic_store_n(load_acquire(&vhca_doze_word), 1, __ATOMIC_RELEASE);
}

#endif
