/* rcu.c - liburcu's QSBR for workers, and callbacks after a grace period */

/* Its small functions may be had inline by anyone; they show where a reader's state lies. */
#define _LGPL_SOURCE

#if defined(__SANITIZE_THREAD__)
#define RCU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RCU_TSAN 1
/* Nor is it to look into those: two readers that wake whoever waits for them write the same word. */
#pragma clang attribute push(__attribute__((no_sanitize("thread"))), apply_to = function)
#include <urcu-qsbr.h>
#pragma clang attribute pop
#endif
#endif

#include "run/rcu.h"
#include "run/run.h"

#include <pthread.h>

/* ---- what a thread sanitizer cannot see, for liburcu is not built with it ---- */

#ifdef RCU_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
static char grace; /* stands for all grace periods: reading before one is before what follows it */
#define reading_ends()  __tsan_release(&grace)
#define grace_is_over() __tsan_acquire(&grace)
#else
#define reading_ends()  ((void)0)
#define grace_is_over() ((void)0)
#endif

/* ---- readers ---- */

static bool is_registered(void)
{
	return URCU_TLS(urcu_qsbr_reader).registered;
}

void vbn__rcu_enter(struct rcu_self *self)
{
	self->current = &urcu_qsbr_gp.ctr;
	self->seen = &URCU_TLS(urcu_qsbr_reader).ctr;
	self->ours = !is_registered();
	if (self->ours)
		urcu_qsbr_register_thread();
	else
		urcu_qsbr_thread_online();
}

void vbn__rcu_leave(struct rcu_self *self)
{
	reading_ends();
	if (self->ours)
		urcu_qsbr_unregister_thread();
}

bool vbn__rcu_pause(void)
{
	if (!is_registered() || !urcu_qsbr_read_ongoing())
		return false;
	reading_ends();
	urcu_qsbr_thread_offline();
	return true;
}

void vbn__rcu_resume(bool paused)
{
	if (paused)
		urcu_qsbr_thread_online();
}

cold void vbn__rcu_quiescent(void)
{
	reading_ends();
	urcu_qsbr_quiescent_state();
}

/* ---- updaters ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t in_use; /* whether there is a thread for callbacks; atomic */

/* The thread inherits the signals that are blocked here. */
static void start_thread(void)
{
	sigset_t before;

	vbn__block_signals(&before);
	urcu_qsbr_get_default_call_rcu_data();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	store_release(&in_use, 1);
}

static void call(struct rcu_head *head)
{
	struct rcu_later *later = container_of(head, struct rcu_later, head);

	grace_is_over();
	later->fn(later->arg);
}

void vbn__rcu_call(struct rcu_later *later, void (*fn)(void *arg), void *arg)
{
	later->fn = fn;
	later->arg = arg;
	pthread_once(&once, start_thread);
	reading_ends(); /* what the caller did is before the callback */
	urcu_qsbr_call_rcu(&later->head, call);
}

void vbn__rcu_wait(void)
{
	bool paused = vbn__rcu_pause();

	urcu_qsbr_synchronize_rcu();
	vbn__rcu_resume(paused);
	grace_is_over();
}

/* The thread takes callbacks in the order in which they were asked for, so one behind all others
 * says that they have been made. */
struct mark {
	struct rcu_later later;
	bool passed;
};

static pthread_mutex_t mark_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t mark_passed = PTHREAD_COND_INITIALIZER;

static void pass(void *arg)
{
	struct mark *mark = arg;

	pthread_mutex_lock(&mark_lock);
	mark->passed = true;
	pthread_cond_broadcast(&mark_passed);
	pthread_mutex_unlock(&mark_lock);
}

void vbn__rcu_barrier(void)
{
	struct mark mark = {.passed = false};
	bool paused;

	if (!load_acquire(&in_use))
		return;
	paused = vbn__rcu_pause();
	vbn__rcu_call(&mark.later, pass, &mark);
	pthread_mutex_lock(&mark_lock);
	while (!mark.passed)
		pthread_cond_wait(&mark_passed, &mark_lock);
	pthread_mutex_unlock(&mark_lock);
	vbn__rcu_resume(paused);
}
