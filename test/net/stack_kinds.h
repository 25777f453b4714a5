/* stack_kinds.h - a frame of each kind that the stack looks into, to be cut and changed */
#ifndef TEST_NET_STACK_KINDS_H
#define TEST_NET_STACK_KINDS_H

#include "stack_fixture.h"

/* A query is answered at a time that nobody knows before. */
enum { KIND_QUERY4 = 12, KIND_QUERY6 = 16, KINDS = 38 };
#define KINDS_GROUP "239.1.2.3"

void kind_make(struct frame *frame, int kind);

/* The sums of IPv4's header and of what is behind IP's, so that what they are of is looked at, too. UDP over IPv4
 * goes without. */
void kind_put_sums_right(struct frame *frame);

/* IP's length is as much as there is. */
void kind_put_length_right(struct frame *frame);

#endif
