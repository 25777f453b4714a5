/* mailbox.h - a list that any thread puts into and one thread empties: orders between the control
 * thread and a worker
 *
 * Any thread puts, with one compare-and-swap; the owner takes all there is, oldest first, for the
 * price of a load where there is nothing. What was written before vbn__mailbox_put() is seen by who
 * took it. Not for the path of messages: an order is a connection made or ended.
 */
#ifndef VBN_CHAN_MAILBOX_H
#define VBN_CHAN_MAILBOX_H

#include "base/base.h"

struct mail {
	struct mail *next;
};

struct mailbox {
	struct mail *newest;
};

/* True where the box was empty, so that its owner may have to be woken. */
static inline bool vbn__mailbox_put(struct mailbox *box, struct mail *mail)
{
	struct mail *newest = load_once(&box->newest);

	do
		mail->next = newest;
	while (!__atomic_compare_exchange_n(
		&box->newest, &newest, mail, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	return !newest;
}

/* Oldest first, linked by `next`. The owner's thread. */
static inline struct mail *vbn__mailbox_take(struct mailbox *box)
{
	struct mail *newest, *oldest = NULL;

	if (likely(!load_once(&box->newest)))
		return NULL;
	newest = __atomic_exchange_n(&box->newest, NULL, __ATOMIC_ACQUIRE);
	while (newest) {
		struct mail *before = newest->next;

		newest->next = oldest;
		oldest = newest;
		newest = before;
	}
	return oldest;
}

#endif
