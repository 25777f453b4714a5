/* guard.c - faults on the program's memory: a handler of SIGSEGV and SIGBUS in front of the
 * program's
 *
 * The handler takes the faults that happen within a guard, on the guard's thread, and hands
 * everything else to what the program has installed, as if it were not there: the program's own
 * sigaction() and signal() are answered from a record of what it wants (preload_signal.c).
 */
#include "preload.h"

#include "vhca/guard.h"
#include "vhca/trap.h"

#include <sys/syscall.h>

enum { LOWEST = 65536 }; /* below it nothing can be mapped: a null pointer of our own */

__thread struct vhca_guard *vhca_guard_now __attribute__((tls_model("initial-exec")));

/* What the program wants for a signal. The handler reads it at any time, so that it is never
 * changed but put in another slot. */
struct wish {
	unsigned int current;
	struct sigaction slots[2];
};

static struct wish segv, bus;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
bool vhca_guard_installed;

static struct wish *wish_of(int signo)
{
	return signo == SIGBUS ? &bus : &segv;
}

static const struct sigaction *wanted(const struct wish *wish)
{
	return &wish->slots[load_acquire(&wish->current)];
}

static void want(struct wish *wish, const struct sigaction *action)
{
	unsigned int next = !wish->current;

	wish->slots[next] = *action;
	store_release(&wish->current, next);
}

/* ---- the handler ---- */

/* The way out of the handler leaves the signal blocked. */
static void unblock(int signo)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, signo);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* As the kernel would: a fault comes again when the handler returns, a signal that was sent is sent
 * again. */
static void act_by_default(int signo, const siginfo_t *info, const struct sigaction *action)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};
	bool sent = info->si_code <= 0;

	if (sent && action->sa_handler == SIG_IGN)
		return;
	real()->sigaction(signo, &dfl, NULL);
	if (sent)
		syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signo);
}

static void hand_on(int signo, siginfo_t *info, void *context)
{
	struct wish *wish = wish_of(signo);
	struct sigaction action = *wanted(wish);

	if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
		act_by_default(signo, info, &action);
		return;
	}
	if (action.sa_flags & (int)SA_RESETHAND)
		want(wish, &(struct sigaction){.sa_handler = SIG_DFL});
	if (action.sa_flags & SA_SIGINFO)
		action.sa_sigaction(signo, info, context);
	else
		action.sa_handler(signo);
}

static void on_fault(int signo, siginfo_t *info, void *context)
{
	struct vhca_guard *guard = vhca_guard_now;

	if (unlikely(vhca_trapped) && vhca_trap_fault(info, context))
		return;
	if (!guard || info->si_code <= 0 || (uintptr_t)info->si_addr < LOWEST) {
		hand_on(signo, info, context);
		return;
	}
	guard->address = (uintptr_t)info->si_addr;
	unblock(signo);
	vhca_guard_jump(guard);
}

/* ---- installing ---- */

static bool is_ours(const struct sigaction *action)
{
	return action->sa_flags & SA_SIGINFO && action->sa_sigaction == on_fault;
}

/* Ours, with what of the program's the kernel itself has to know. */
static int put_in_front(int signo, const struct sigaction *program)
{
	struct sigaction ours = *program;

	if (program->sa_handler == SIG_DFL || program->sa_handler == SIG_IGN)
		sigemptyset(&ours.sa_mask);
	ours.sa_sigaction = on_fault;
	ours.sa_flags = (ours.sa_flags & (SA_NODEFER | SA_RESTART)) | SA_SIGINFO | SA_ONSTACK;
	return real()->sigaction(signo, &ours, NULL);
}

static void install(int signo)
{
	struct sigaction now;

	if (real()->sigaction(signo, NULL, &now) || is_ours(&now))
		return;
	want(wish_of(signo), &now);
	put_in_front(signo, &now);
}

void vhca_guard_install(void)
{
	int saved = errno;

	pthread_mutex_lock(&lock);
	install(SIGSEGV);
	install(SIGBUS);
	vhca_guard_installed = true;
	pthread_mutex_unlock(&lock);
	errno = saved;
}

bool vhca_guard_sigaction(
	int signo, const struct sigaction *new_action, struct sigaction *old_action, int *result)
{
	struct wish *wish = wish_of(signo);
	struct sigaction before;
	bool ours;

	if (likely(signo != SIGSEGV && signo != SIGBUS))
		return false;
	pthread_mutex_lock(&lock);
	ours = vhca_guard_installed;
	if (ours) {
		before = *wanted(wish);
		*result = new_action ? put_in_front(signo, new_action) : 0;
		if (!*result && new_action)
			want(wish, new_action);
		if (!*result && old_action)
			*old_action = before;
	}
	pthread_mutex_unlock(&lock);
	return ours;
}
