/* msgrate_meet.c - how workers wait for one another outside the loop */
#include "msgrate.h"

#include <time.h>

#define SLICE (SECOND / 50) /* between looks at whether the run still goes on */

void give_up(struct run *run, int err)
{
	struct meeting *meeting = &run->meeting;

	pthread_mutex_lock(&meeting->lock);
	if (!meeting->given_up)
		meeting->error = err;
	meeting->given_up = true;
	pthread_cond_broadcast(&meeting->change);
	pthread_mutex_unlock(&meeting->lock);
}

void arrive(struct run *run, enum stage stage)
{
	struct meeting *meeting = &run->meeting;

	pthread_mutex_lock(&meeting->lock);
	store_release(&meeting->arrived[stage], meeting->arrived[stage] + 1);
	pthread_cond_broadcast(&meeting->change);
	pthread_mutex_unlock(&meeting->lock);
}

void arrive_all(struct run *run, enum stage stage)
{
	struct meeting *meeting = &run->meeting;

	pthread_mutex_lock(&meeting->lock);
	store_release(&meeting->arrived[stage], run->n_sides);
	pthread_cond_broadcast(&meeting->change);
	pthread_mutex_unlock(&meeting->lock);
}

bool all_arrived(const struct run *run, enum stage stage)
{
	return load_acquire(&run->meeting.arrived[stage]) == run->n_sides;
}

static struct timespec deadline_in(uint64_t ns)
{
	uint64_t at = now_ns() + ns;

	return (struct timespec){.tv_sec = (time_t)(at / SECOND), .tv_nsec = (long)(at % SECOND)};
}

int meet(struct run *run, enum stage stage, uint64_t timeout_ns)
{
	struct vbn_worker *worker = vbn_worker_self();
	struct meeting *meeting = &run->meeting;
	uint64_t end = now_ns() + timeout_ns;
	bool stopping = false;
	int err = 0;

	pthread_mutex_lock(&meeting->lock);
	while (meeting->arrived[stage] < run->n_sides && !meeting->given_up && !err) {
		struct timespec deadline = deadline_in(SLICE);

		pthread_cond_timedwait(&meeting->change, &meeting->lock, &deadline);
		/* A worker that could not even begin its set-up stops the run, and never comes
		 * here. */
		if (worker && !stopping && vbn_worker_stopping(worker)) {
			stopping = true;
			end = end < now_ns() + SECOND / 4 ? end : now_ns() + SECOND / 4;
		}
		if (now_ns() >= end)
			err = -ETIMEDOUT;
	}
	if (meeting->arrived[stage] == run->n_sides)
		err = 0; /* whatever came of it later */
	else if (meeting->given_up)
		err = -ECANCELED;
	pthread_mutex_unlock(&meeting->lock);
	return err;
}
