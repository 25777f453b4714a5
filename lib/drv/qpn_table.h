/* qpn_table.h - from a QPN, 24 bits, to the queue that has it: two loads
 *
 * For completions of queues that share a CQ. Changed on the control thread while the worker waits.
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

struct qpn_table {
	struct vbn_queue **leaves[QPN_TABLE_TOP];
};

/* NULL: none has it. */
static force_inline struct vbn_queue *qpn_find(const struct qpn_table *table, uint32_t qpn)
{
	struct vbn_queue **leaf = table->leaves[qpn >> QPN_TABLE_LEAF_BITS & (QPN_TABLE_TOP - 1)];

	return likely(leaf) ? leaf[qpn & (QPN_TABLE_LEAF - 1)] : NULL;
}

/* 0 or -ENOMEM. */
static inline int qpn_add(struct qpn_table *table, uint32_t qpn, struct vbn_queue *queue)
{
	struct vbn_queue ***leaf = &table->leaves[qpn >> QPN_TABLE_LEAF_BITS & (QPN_TABLE_TOP - 1)];

	if (!*leaf)
		*leaf = calloc(QPN_TABLE_LEAF, sizeof(**leaf));
	if (!*leaf)
		return -ENOMEM;
	(*leaf)[qpn & (QPN_TABLE_LEAF - 1)] = queue;
	return 0;
}

static inline void qpn_remove(struct qpn_table *table, uint32_t qpn)
{
	struct vbn_queue **leaf = table->leaves[qpn >> QPN_TABLE_LEAF_BITS & (QPN_TABLE_TOP - 1)];

	if (leaf)
		leaf[qpn & (QPN_TABLE_LEAF - 1)] = NULL;
}

static inline void qpn_free(struct qpn_table *table)
{
	for (size_t i = 0; i < ARRAY_SIZE(table->leaves); i++)
		free(table->leaves[i]);
}

#endif
