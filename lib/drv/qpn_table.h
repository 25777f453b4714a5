/* qpn_table.h - from a QPN, 24 bits, to the queue that has it: two loads
 *
 * For completions of queues that share a CQ. Changed on the worker's thread, or while the worker waits.
 */
#ifndef VBN_QPN_TABLE_H
#define VBN_QPN_TABLE_H

#include "drv/drv.h"

#include <stdlib.h>

enum {
	QPN_TABLE_LEAF_BITS = 12, /* of 24 */
	QPN_TABLE_LEAF = 1 << QPN_TABLE_LEAF_BITS,
	QPN_TABLE_TOP = 1 << (24 - QPN_TABLE_LEAF_BITS),
};

/* There as long as it has a queue: QPNs go round all 24 bits in time. */
struct qpn_leaf {
	uint32_t n_queues;
	struct vbn_queue *queues[QPN_TABLE_LEAF];
};

struct qpn_table {
	struct qpn_leaf *leaves[QPN_TABLE_TOP];
};

static force_inline uint32_t qpn_top(uint32_t qpn)
{
	return qpn >> QPN_TABLE_LEAF_BITS & (QPN_TABLE_TOP - 1);
}

/* NULL: none has it. */
static force_inline struct vbn_queue *qpn_find(const struct qpn_table *table, uint32_t qpn)
{
	const struct qpn_leaf *leaf = table->leaves[qpn_top(qpn)];

	return likely(leaf) ? leaf->queues[qpn & (QPN_TABLE_LEAF - 1)] : NULL;
}

/* 0 or -ENOMEM. */
static inline int qpn_add(struct qpn_table *table, uint32_t qpn, struct vbn_queue *queue)
{
	struct qpn_leaf **leaf = &table->leaves[qpn_top(qpn)];
	struct vbn_queue **place;

	if (!*leaf)
		*leaf = calloc(1, sizeof(**leaf));
	if (!*leaf)
		return -ENOMEM;
	place = &(*leaf)->queues[qpn & (QPN_TABLE_LEAF - 1)];
	(*leaf)->n_queues += !*place;
	*place = queue;
	return 0;
}

static inline void qpn_remove(struct qpn_table *table, uint32_t qpn)
{
	struct qpn_leaf **leaf = &table->leaves[qpn_top(qpn)];
	struct vbn_queue **place;

	if (!*leaf)
		return;
	place = &(*leaf)->queues[qpn & (QPN_TABLE_LEAF - 1)];
	(*leaf)->n_queues -= !!*place;
	*place = NULL;
	if (!(*leaf)->n_queues) {
		free(*leaf);
		*leaf = NULL;
	}
}

static inline void qpn_free(struct qpn_table *table)
{
	for (size_t i = 0; i < ARRAY_SIZE(table->leaves); i++)
		free(table->leaves[i]);
}

#endif
