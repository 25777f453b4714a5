/* cm.h - between the two files of rdma_cm: the port's listener and clock, and its queues' calls */
#ifndef VBN_VERBS_CM_H
#define VBN_VERBS_CM_H

#include "drv/verbs/iwarp.h"
#include "drv/verbs/verbs.h"

#include <rdma/rdma_cma.h>

#define CM_MOST_WORDS 64 /* of what a peer says that are kept */

/* A call for a queue that is not to be connected yet: call.c's. */
struct call_kept;

enum cm_counter { CM_TAKEN, CM_STRANGERS, CM_TOO_LATE, CM_UNANSWERED, CM_CUT_OFF, N_CM_COUNTERS };

struct verbs_cm {
	struct verbs_port *port;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct sockaddr_storage address;
	struct link_name name; /* its token is each queue's own */
	struct call_kept *kept;
	int timer_fd;
	bool ticking;
	bool counted;
	uint64_t counts[N_CM_COUNTERS];
	struct counter_set counters;
};

/* What an event said; the event itself is given back at once, since an id cannot end before its
 * events are. */
struct heard {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	uint8_t words[CM_MOST_WORDS];
	size_t n_words;
};

/* cm.c: whether the id is on the port's device; asks for a look at what waits, by and by, or not. */
bool vbn__cm_is_here(const struct verbs_cm *cm, const struct rdma_cm_id *id);
void vbn__cm_tick(struct verbs_cm *cm, bool wanted);

/* call.c: what comes of an event; gives up what has waited too long, and says whether something
 * waits; drops what is kept. */
void vbn__cm_hear(struct verbs_cm *cm, const struct heard *heard);
bool vbn__cm_look(struct verbs_cm *cm, uint64_t now);
void vbn__cm_drop_kept(struct verbs_cm *cm);

#endif
