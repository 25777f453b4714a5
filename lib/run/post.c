/* post.c - functions that one thread has another thread's worker run */

#include "run/internal.h"

static struct lane_kind kind = {
	.link = offsetof(struct vbn_post, next), .lock = PTHREAD_MUTEX_INITIALIZER};

int vbn__posts_open(struct vbn_worker *worker)
{
	return vbn__lane_open(&kind, &worker->posts);
}

VBN_API fast_path void vbn_post(struct vbn_worker *worker, struct vbn_post *post)
{
	const struct vbn_worker *self = vbn__self;

	if (likely(self))
		lane_send(self->posts, worker->posts, (void **)&post, 1);
	else
		vbn__lane_push(worker->posts, post);
}

struct turn {
	struct vbn_worker *worker;
	int n;
};

/* A function may free its post or post it again. */
static void run_posts(void *arg, void **items, uint32_t n)
{
	struct turn *turn = arg;

	for (uint32_t i = 0; i < n; i++) {
		const struct vbn_post *post = items[i];

		post->fn(turn->worker, post->arg);
	}
	turn->n += (int)n;
}

fast_path int vbn__posts_run(struct vbn_worker *worker)
{
	struct turn turn = {.worker = worker};

	lane_receive(worker->posts, run_posts, &turn);
	return turn.n;
}

static void drop(void *arg, void **items, uint32_t n)
{
	(void)items;
	*(uint32_t *)arg += n;
}

void vbn__posts_close(struct vbn_worker *worker)
{
	uint32_t n = 0;

	vbn__lane_close(worker->posts, drop, &n);
	if (n)
		log_warning(
			"worker %d: ended with %u posts that it did not run: they came when its loop was over; post to it while it runs",
			worker->index, n);
	worker->posts = NULL;
}
