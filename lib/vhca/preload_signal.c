/* preload_signal.c - libc calls that install handlers of the two signals that guard.c stands in
 * front of */
#include "preload.h"

#include "vhca/guard.h"

/* libc's own, which no one stands in front of. */
int __sigaction(int signo, const struct sigaction *new_action, struct sigaction *old_action);

/* The runtime of a sanitizer installs handlers before it can be asked for anything itself: until
 * this library is set up, nothing else is called, and nothing is told to the sanitizer. Where this
 * library is itself instrumented for threads, that runtime may come later still, and there is nothing
 * to stand in front of before a device is open. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define is_set_up vhca_guard_installed
#endif
#endif
#ifndef is_set_up
static bool is_set_up;

__attribute__((constructor)) static void set_up(void)
{
	is_set_up = true;
}
#endif

#if defined(__SANITIZE_THREAD__)
#define uninstrumented __attribute__((no_sanitize("thread")))
#elif defined(__clang__)
#define uninstrumented __attribute__((disable_sanitizer_instrumentation))
#else
#define uninstrumented
#endif

HOOK uninstrumented int sigaction(
	int signo, const struct sigaction *new_action, struct sigaction *old_action)
{
	int result;

	if (unlikely(!is_set_up))
		return __sigaction(signo, new_action, old_action);
	if (vhca_guard_sigaction(signo, new_action, old_action, &result))
		return result;
	return real()->sigaction(signo, new_action, old_action);
}

/* What signal() and its kin mean, in terms of sigaction(). */
static bool simple(int signo, sighandler_t handler, int flags, sighandler_t *result)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, before;
	int failed;

	if (likely(signo != SIGSEGV && signo != SIGBUS) || handler == SIG_ERR)
		return false;
	if (!(flags & SA_NODEFER))
		sigaddset(&action.sa_mask, signo);
	if (!vhca_guard_sigaction(signo, &action, &before, &failed))
		return false;
	*result = failed ? SIG_ERR : before.sa_handler;
	return true;
}

#define SIGNAL_HOOK(name_, flags_)                                \
	HOOK sighandler_t name_(int signo, sighandler_t handler); \
	sighandler_t name_(int signo, sighandler_t handler)       \
	{                                                         \
		sighandler_t before;                              \
                                                                  \
		if (simple(signo, handler, flags_, &before))      \
			return before;                            \
		return real()->name_(signo, handler);             \
	}

SIGNAL_HOOK(signal, SA_RESTART)
SIGNAL_HOOK(bsd_signal, SA_RESTART)
SIGNAL_HOOK(ssignal, SA_RESTART)
SIGNAL_HOOK(sysv_signal, (int)SA_RESETHAND | SA_NODEFER)
SIGNAL_HOOK(__sysv_signal, (int)SA_RESETHAND | SA_NODEFER)

/* ---- blocking: a fault whose signal is blocked ends the process, and where UAR pages are trapped
 * every doorbell is one ---- */

static const sigset_t *without_faults(int how, const sigset_t *set, sigset_t *fewer)
{
	if (likely(!set || how == SIG_UNBLOCK || !vhca_options()->trap))
		return set;
	*fewer = *set;
	sigdelset(fewer, SIGSEGV);
	sigdelset(fewer, SIGTRAP);
	return fewer;
}

HOOK int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
	sigset_t fewer;

	return real()->pthread_sigmask(how, without_faults(how, set, &fewer), before);
}

HOOK int sigprocmask(int how, const sigset_t *set, sigset_t *before)
{
	sigset_t fewer;

	return real()->sigprocmask(how, without_faults(how, set, &fewer), before);
}
