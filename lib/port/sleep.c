/* sleep.c - an idle worker sleeps on all its queues, where each of them can wake it */

#include "port/port.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Says of each queue that its worker is about to sleep: of how many it could be said. */
static uint32_t announce(const struct queue_list *list, struct futex_waitv *waits)
{
	uint32_t n = 0;

	for (; n < list->n_queues; n++) {
		struct vbn_queue *queue = list->queues[n];
		const struct driver *driver = queue->port->driver;
		const uint32_t *word = driver->queue_sleep ? driver->queue_sleep(queue) : NULL;

		if (!word)
			break;
		waits[n] =
			(struct futex_waitv){.val = 1, .uaddr = (uintptr_t)word, .flags = FUTEX_32};
	}
	return n;
}

/* Who has sent before the fence has not seen what was announced. */
static bool still_idle(const struct queue_list *list)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0))
		return false;
	for (uint32_t i = 0; i < list->n_queues; i++)
		if (!list->queues[i]->port->driver->queue_may_sleep(list->queues[i]))
			return false;
	return !load_once(&list->news);
}

bool vbn__queues_sleep(void *arg, uint64_t ns)
{
	struct queue_list *list = arg;
	struct futex_waitv waits[FUTEX_WAITV_MAX];
	const uint64_t until = clock_ns() + ns;
	const struct timespec time = {
		.tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000)};
	uint32_t n;
	bool sleeps;

	if (!list->n_queues || list->n_queues > FUTEX_WAITV_MAX || list->groups || list->n_dirty)
		return false;
	n = announce(list, waits);
	sleeps = n == list->n_queues && still_idle(list);
	if (sleeps)
		syscall(SYS_futex_waitv, waits, n, 0, &time, CLOCK_MONOTONIC);
	for (uint32_t i = 0; i < n; i++)
		list->queues[i]->port->driver->queue_sleep_over(list->queues[i]);
	return sleeps;
}
