/* lend.h - zones that another process may read, so that a large message need not pass the ring: what
 * is lent, and what has been borrowed
 *
 * A zone that is backed by a memfd (verbena/zone.h) is offered to each process that a queue of the port
 * is connected to, by its socket; the other one maps it for reading, and says so. From then on records
 * of the ring name bytes of it (ring.h). Until then, and where it is refused, messages go in pieces.
 * Between two queues of one process it is the same without a socket: a zone that is destroyed then
 * takes nothing away from a worker that still copies.
 *
 *   lend.c   who lends: offers, answers, and asking for it back when the zone goes
 *   view.c   who borrows: what comes is checked, mapped and counted
 *   ref.c    the worker's part: bytes are named, and fetched
 *
 * A view is of the peer's memory, which it writes as it likes: bytes are copied once and looked at
 * afterwards. What it cannot do is take pages away: its memfd is sealed against shrinking and against
 * holes, has all its pages when it comes, and these are in the page tables before it is used.
 */
#ifndef VBN_SHM_LEND_H
#define VBN_SHM_LEND_H

#include "drv/shm/shm.h"
#include "drv/shm/wire.h"
#include "run/rcu.h"

enum {
	SHM_VIEWS = 32,          /* zones of one process that another has at once */
	SHM_VIEWS_IN_ALL = 1024, /* that a process has of all the others, as many bytes as follow */
	SHM_REF_MIN = 4096, /* shorter ones are copied into the ring: of this both cost the same */
	SHM_REF_PIECE = 256 << 10, /* bytes that one record names, at the most */
	SHM_REFS = 30,             /* segments of a chain */
};
#define SHM_VIEWS_BYTES (16ull << 30)

/* ---- who lends ---- */

/* What workers see of it. */
struct shm_loan {
	const uint8_t *base;
	uint32_t slot; /* of the peer's views, from 1; 0: it has not mapped it */
};

enum shm_lent { LOAN_NONE, LOAN_OFFERED, LOAN_MADE, LOAN_REFUSED, LOAN_OWED };

struct shm_loans {
	struct shm_loan of[MEM_MAX_ZONES]; /* by the zone's id */
	/* the control thread's */
	struct {
		const struct vbn_zone *zone;
		uint32_t number;    /* of the offer */
		enum shm_lent lent; /* OWED: to be asked for back */
	} slots[SHM_VIEWS];
	uint32_t refs, next_number;
	int socket;              /* of the one connection; -1: it has gone, or there is none */
	struct shm_views *views; /* of this process itself */
};

/* With one ref; to the process behind the socket, or, with `views`, to this one. NULL: no memory. */
struct shm_loans *vbn__shm_loans_make(int socket, struct shm_views *views);
/* NULL is allowed. */
void vbn__shm_loans_put(struct shm_loans *loans);
/* Offers a zone, and all that the port has registered; what is lent or cannot be is left out. */
void vbn__shm_lend(struct shm_loans *loans, const struct vbn_zone *zone);
void vbn__shm_lend_all(struct shm_loans *loans, const struct shm_port *port);
/* No buf of it is in flight. */
void vbn__shm_take_back(struct shm_loans *loans, const struct vbn_zone *zone);
void vbn__shm_lend_answered(struct shm_loans *loans, const struct shm_offer_answer *answer);
/* Whether an answer is still to come. */
bool vbn__shm_lend_waits(const struct shm_loans *loans);
/* To all that the port lends to: meet.h has the peers. */
void vbn__shm_lend_to_peers(struct shm_port *port, const struct vbn_zone *zone);
void vbn__shm_take_back_from_peers(struct shm_port *port, const struct vbn_zone *zone);

/* ---- who borrows ---- */

struct shm_view {
	const uint8_t *base;
	size_t size;
	struct rcu_later later;
};

struct shm_views {
	struct shm_view *at[SHM_VIEWS]; /* read by workers: rcu */
	uint32_t refs;                  /* the control thread's */
};

struct shm_views *vbn__shm_views_make(void);
/* NULL is allowed. */
void vbn__shm_views_put(struct shm_views *views);
/* Takes the descriptor, whatever comes of it. False: it may not be, and `why` says so. */
bool vbn__shm_view_add(
	struct shm_views *views, uint32_t slot, int fd, uint64_t size, const char **why);
/* It is unmapped when no worker is at it. */
void vbn__shm_view_drop(struct shm_views *views, uint32_t slot);

/* ---- the worker's: ref.c ---- */

/* Bytes that a record names, checked. */
struct shm_borrowed {
	const uint8_t *from[SHM_REFS];
	uint32_t len[SHM_REFS];
	uint32_t n, total;
};

/* Whether the peer can read all of a chain. */
bool vbn__shm_is_lent(const struct shm_loans *loans, const struct vbn_buf *buf);
/* Names `len` bytes of it, from `skip` on: how many refs. */
uint32_t vbn__shm_name(const struct shm_loans *loans, const struct vbn_buf *buf, uint32_t skip,
	uint32_t len, struct shm_ref refs[SHM_REFS]);
/* False: what the record says cannot be. */
bool vbn__shm_borrow(const struct shm_queue *sq, const uint8_t *refs, uint32_t size,
	struct shm_borrowed *borrowed);
/* False: the peer has closed, so that it may have used the bytes for something else meanwhile. */
bool vbn__shm_fetch(const struct shm_queue *sq, const struct shm_borrowed *borrowed, uint8_t *to);

#endif
