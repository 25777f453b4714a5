/* life.h - a word of each process that the kernel writes when the process dies, for its peers to look at
 *
 * A hang-up of a socket comes late: behind the last thread and the whole memory of who died, and by
 * way of this end's control thread. The word is that of a robust futex which the control thread holds
 * all its life: the kernel marks it as the first thing that it does for a thread that ends. It is in a
 * page of its own that peers may map for reading and nothing else (F_SEAL_FUTURE_WRITE); an idle poll
 * looks at it, which is a load of a line that nobody writes.
 *
 * What a peer hands over as its word is only believed of itself: it can say that it is dead, or keep
 * quiet, and then the hang-up tells. Where a kernel has not what it takes, that is so of everyone.
 */
#ifndef VBN_SHM_LIFE_H
#define VBN_SHM_LIFE_H

#include "base/base.h"

#include <linux/futex.h>

/* A word of nobody, who does not die. */
extern const uint32_t vbn__shm_deathless;

static force_inline bool life_is_over(const uint32_t *word)
{
	return load_once(word) & FUTEX_OWNER_DIED;
}

/* ---- the control thread's ---- */

/* This process's own, from its first port to its last. */
void vbn__shm_life_begin(void);
void vbn__shm_life_end(void);
/* To hand to peers; -1: there is none, and `why` says so. */
int vbn__shm_life_fd(const char **why);

/* A peer's, as long as somebody may look at it. */
struct shm_life {
	const uint32_t *word;
	uint32_t refs;
};

/* With one ref; takes the descriptor, whatever comes of it. NULL: it cannot be one. */
struct shm_life *vbn__shm_life_map(int fd);
/* NULL is allowed. */
void vbn__shm_life_put(struct shm_life *life);

#endif
