/* hook.c - what hangs on a worker: poll and exit functions, flushes, ports that count */

#include "run/internal.h"

#include <stdlib.h>

/* Makes room for one more in an array of n that grows by powers of two from 4. */
static int grow(void *array, uint32_t n, size_t size)
{
	void *old, *grown;

	if (n && (n < 4 || !is_pow2(n)))
		return 0;
	memcpy(&old, array, sizeof(old));
	grown = realloc(old, max(2 * n, 4u) * size);
	if (!grown)
		return -ENOMEM;
	memcpy(array, &grown, sizeof(grown));
	return 0;
}

/* The loop walks the arrays without a lock. */
static int check_hook(const struct vbn_worker *worker, bool has_fn)
{
	if (!worker || worker != vbn__self)
		return fail(EPERM,
			"worker: a function can only be added to it on its own thread: do so in its set-up, or vbn_post() one that does");
	if (!has_fn)
		return fail(EINVAL,
			"worker %d: a function cannot be added to it: it is NULL; name one",
			worker->index);
	return 0;
}

VBN_API int vbn_worker_add_poll(struct vbn_worker *worker, vbn_poll_fn *fn, void *arg)
{
	int ret = check_hook(worker, fn);

	if (!ret)
		ret = grow(&worker->polls, worker->n_polls, sizeof(*worker->polls));
	if (!ret)
		worker->polls[worker->n_polls++] = (struct poll_hook){.fn = fn, .arg = arg};
	return ret;
}

VBN_API int vbn_worker_add_exit(
	struct vbn_worker *worker, void (*fn)(struct vbn_worker *worker, void *arg), void *arg)
{
	int ret = check_hook(worker, fn);

	if (!ret)
		ret = grow(&worker->exits, worker->n_exits, sizeof(*worker->exits));
	if (!ret)
		worker->exits[worker->n_exits++] = (struct exit_hook){.fn = fn, .arg = arg};
	return ret;
}

int vbn__worker_add_last_exit(
	struct vbn_worker *worker, void (*fn)(struct vbn_worker *worker, void *arg), void *arg)
{
	int ret = grow(&worker->last_exits, worker->n_last_exits, sizeof(*worker->last_exits));

	if (!ret)
		worker->last_exits[worker->n_last_exits++] =
			(struct exit_hook){.fn = fn, .arg = arg};
	return ret;
}

int vbn__worker_add_flush(struct vbn_worker *worker, void (*fn)(void *arg), void *arg)
{
	int ret = grow(&worker->flushes, worker->n_flushes, sizeof(*worker->flushes));

	if (!ret)
		worker->flushes[worker->n_flushes++] = (struct flush_hook){.fn = fn, .arg = arg};
	return ret;
}

int vbn__worker_add_port(struct vbn_worker *worker, uint32_t (*in_flight)(void *arg),
	void (*traffic)(void *arg, struct worker_traffic *sum), void *arg)
{
	int ret;

	pthread_mutex_lock(&worker->ports_lock);
	ret = grow(&worker->ports, worker->n_ports, sizeof(*worker->ports));
	if (!ret)
		worker->ports[worker->n_ports++] =
			(struct port_hook){.in_flight = in_flight, .traffic = traffic, .arg = arg};
	pthread_mutex_unlock(&worker->ports_lock);
	return ret;
}

void vbn__worker_sleeps_by(
	struct vbn_worker *worker, bool (*sleep)(void *arg, uint64_t ns), void *arg)
{
	for (uint32_t i = 0; i < worker->n_ports; i++)
		if (worker->ports[i].arg == arg)
			worker->ports[i].sleep = sleep;
}

static void remove_last_exits(struct vbn_worker *worker, const void *arg)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < worker->n_last_exits; i++)
		if (worker->last_exits[i].arg != arg)
			worker->last_exits[kept++] = worker->last_exits[i];
	worker->n_last_exits = kept;
}

static void remove_flushes(struct vbn_worker *worker, const void *arg)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < worker->n_flushes; i++)
		if (worker->flushes[i].arg != arg)
			worker->flushes[kept++] = worker->flushes[i];
	worker->n_flushes = kept;
}

/* What a port has carried stays counted when it goes. */
static void remove_ports(struct vbn_worker *worker, const void *arg)
{
	uint32_t kept = 0;

	pthread_mutex_lock(&worker->ports_lock);
	for (uint32_t i = 0; i < worker->n_ports; i++) {
		if (worker->ports[i].arg != arg)
			worker->ports[kept++] = worker->ports[i];
		else
			worker->ports[i].traffic(worker->ports[i].arg, &worker->gone);
	}
	worker->n_ports = kept;
	pthread_mutex_unlock(&worker->ports_lock);
}

void vbn__worker_remove(struct vbn_worker *worker, void *arg)
{
	remove_last_exits(worker, arg);
	remove_flushes(worker, arg);
	remove_ports(worker, arg);
}

void vbn__worker_lock_traffic(struct vbn_worker *worker)
{
	pthread_mutex_lock(&worker->ports_lock);
}

void vbn__worker_unlock_traffic(struct vbn_worker *worker)
{
	pthread_mutex_unlock(&worker->ports_lock);
}

void **vbn__worker_port_slot(struct vbn_worker *worker)
{
	return &worker->port_slot;
}
