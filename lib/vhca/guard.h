/* guard.h - accesses to memory that the program may have taken away
 *
 * A device reaches registered memory whatever the program does with it: its pages are pinned. Here
 * the program may unmap it, protect it, or cut the file behind it, and the access faults. Within a
 * guard such a fault ends the access, not the process:
 *
 *	struct vhca_guard guard;
 *
 *	if (likely(!vhca_guarded(&guard)))
 *		touch(memory);
 *	else
 *		lost(guard.address);
 *	vhca_unguarded(&guard);
 *
 * A guard costs 3 nanoseconds and is of one thread; guards nest. What is in local variables and was
 * changed within is unknown after a fault, unless it is volatile.
 */
#ifndef VHCA_GUARD_H
#define VHCA_GUARD_H

#include "base/base.h"

#include <setjmp.h>
#include <signal.h>

/* The compiler's own way there and back does without saving what a function may use anyway, which
 * takes a fifth of the time. ThreadSanitizer wants to be told of a jump. */
#if defined(__SANITIZE_THREAD__)
#define VHCA_GUARD_BY_LIBC
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VHCA_GUARD_BY_LIBC
#endif
#endif

struct vhca_guard {
	struct vhca_guard *outer;
	uintptr_t address; /* that faulted */
#ifdef VHCA_GUARD_BY_LIBC
	sigjmp_buf jump;
#else
	void *jump[5];
#endif
};

extern __thread struct vhca_guard *vhca_guard_now __attribute__((tls_model("initial-exec")));

/* 0, or, as if it returned again, not 0 after a fault. */
#ifdef VHCA_GUARD_BY_LIBC
#define vhca_guarded(guard_)    (vhca_guard_begin(guard_), sigsetjmp((guard_)->jump, 0))
#define vhca_guard_jump(guard_) siglongjmp((guard_)->jump, 1)
#else
#define vhca_guarded(guard_)    (vhca_guard_begin(guard_), __builtin_setjmp((guard_)->jump))
#define vhca_guard_jump(guard_) __builtin_longjmp((guard_)->jump, 1)
#endif

/* The compiler may not move accesses across the ends of a guard. */
static force_inline void vhca_guard_begin(struct vhca_guard *guard)
{
	guard->outer = vhca_guard_now;
	vhca_guard_now = guard;
	compiler_barrier();
}

static force_inline void vhca_unguarded(struct vhca_guard *guard)
{
	compiler_barrier();
	vhca_guard_now = guard->outer;
}

/* Hands a fault on to the guard around this one, as if it had happened there. */
static inline void vhca_guard_raise(uintptr_t address)
{
	vhca_guard_now->address = address;
	vhca_guard_jump(vhca_guard_now);
}

/* Puts the handler for SIGSEGV and SIGBUS in front of the program's; again where the program has
 * got past the hooks of sigaction() and signal() since. Any thread; costs two system calls. */
void vhca_guard_install(void);
extern bool vhca_guard_installed;

/* What the hooks do. False: the signal is none of the two, or nothing is installed. */
bool vhca_guard_sigaction(
	int signo, const struct sigaction *new_action, struct sigaction *old_action, int *result);

#endif
