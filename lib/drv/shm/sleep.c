/* sleep.c - a worker that sleeps until a peer sends: the word that says so, and who wakes it
 *
 * Who is about to sleep stores the word, and then looks into the ring once more; who sends stores into
 * the ring, and then looks at the word. One of the two must see the other's store, which takes a fence
 * on both sides. The sender's would cost each burst: so the sleeper has the kernel fence every CPU that
 * a possible sender runs on (membarrier), and the sender has none.
 *
 * It is a futex in the sleeper's segment. A peer that lies there can wake its owner for nothing, or let
 * it sleep on: that ends by itself, since no sleep is long (port/sleep.c), and takes no more than the
 * peer could take by sending nothing. An eventfd that both hold would be worse: its flags and its count
 * are the peer's, too, and who writes into a full one waits.
 */

#include "drv/shm/box.h"

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

/* More than once is as once. Where it cannot be, a worker that sleeps is woken a little later. */
void vbn__shm_sleep_begin(void)
{
	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
}

/* ---- the sender ---- */

cold bool vbn__shm_wake(struct shm_queue *sq)
{
	struct shm_head *peer = sq->tx.peer;

	if (!load_once(&peer->open)) {
		vbn__shm_peer_closed(sq);
		return false;
	}
	if (!load_once(&peer->sleeps))
		return true;
	store_once(&peer->sleeps, 0);
	syscall(SYS_futex, &peer->sleeps, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	return true;
}

/* ---- the sleeper ---- */

/* A queue for datagrams has no one word that all its senders could look at. What waits for the peer to take something is not woken by that, nor is a failed queue that has not
 * said so. */
uint32_t *vbn__shm_sleep(struct vbn_queue *queue)
{
	struct shm_queue *sq = shm_queue(queue);

	if (sq->ud || sq->tx.tail != sq->tx.head || sq->rx.pending_head != sq->rx.pending_tail ||
		(queue->failed && !sq->failure.reported))
		return NULL;
	store_once(&sq->rx.head->sleeps, 1);
	return &sq->rx.head->sleeps;
}

bool vbn__shm_may_sleep(const struct vbn_queue *queue)
{
	const struct shm_queue *sq = shm_queue(queue);

	if (!queue->connected || queue->failed)
		return true;
	return !ring_look(sq->rx.ring, sq->rx.mask, sq->rx.pos) && !box_word_now(&sq->talk);
}

void vbn__shm_sleep_over(struct vbn_queue *queue)
{
	store_once(&shm_queue(queue)->rx.head->sleeps, 0);
}
