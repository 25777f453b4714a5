/* duo.h - two queues of one worker on an mlx5 device, emulated where this is linked with vhca, connected to each other, with what
 * tests of them need: pools, an export, patterns, waits with a deadline
 *
 * Every buf must be home at duo_close(), whatever happened to the queues.
 */
#ifndef DUO_H
#define DUO_H

#include "drv/mlx5/group.h"

#include "unit.h"

#include <verbena.h>

enum { DUO_DEPTH = 64, DUO_BUFS = 1024, DUO_DATA = 4096, DUO_EVENTS = 256 };

/* How the queues get at their completions. */
enum duo_kind { DUO_OWN, DUO_SHARED, DUO_SRQ, DUO_KINDS };

struct duo {
	struct vbn_worker *worker;
	struct vbn_port *port;
	struct vbn_pool *pool;
	struct vbn_export *target;
	struct vbn_srq *srq;
	struct vbn_queue *a, *b;
	struct vbn_peer *to_a, *to_b;
	struct vbn_event events[DUO_EVENTS];
	struct vbn_event failures[8];
	int n_failures;
};
extern struct duo duo;

/* Whether the driver is mlx5, or VBN_TEST_DEVICE names one by plain verbs. */
bool duo_is_direct(void);

/* Whether the device is the emulated one that this is linked with, and can be told to fail. */
bool duo_is_emulated(void);

/* cmocka's set-up and tear-down. */
int duo_open(void **state);
int duo_close(void **state);

struct vbn_queue_conf duo_conf(enum vbn_transport transport, enum duo_kind kind);

/* Makes duo.a and duo.b; duo_meet() connects what is there. */
void duo_connect(const struct vbn_queue_conf *conf);
void duo_meet(void);
void duo_disconnect(void);

/* Fails the test when 30 s are over. */
void duo_patience(uint64_t since);

struct vbn_buf *duo_buf(uint64_t message, uint32_t len);
void duo_fill(struct vbn_buf *buf, uint64_t message, uint32_t len);
void duo_check(const uint8_t *data, uint64_t message, uint32_t len);

/* n events of `queue` (NULL: of any), into duo.events. What comes of others is let go, their bufs
 * freed, but for failures, which are kept for who asks. */
void duo_wait(struct vbn_queue *queue, int n);

/* n messages from a to b, or from b to a, in bursts; each looked at. All that was sent completes. */
void duo_stream(struct vbn_queue *from, struct vbn_queue *to, uint64_t n);

/* Polls until the queue can be reset, and resets it. */
void duo_reset(struct vbn_queue *queue);

/* ---- duo_cases.c ---- */

/* The queue's one event of its failure; what had arrived before is let go. */
void duo_expect_failed(struct vbn_queue *queue, enum vbn_status status, const char *words);

/* What fails comes back with the status, as do reads and atomics whatever their bufs say. */
void duo_expect_returned(struct vbn_queue *queue, enum vbn_op op, enum vbn_status status);

/* A queue at work is reset: what it had comes back in order, and its rings begin anew; over and over,
 * at any place of the rings. */
void duo_reset_at_work(enum vbn_transport transport, enum duo_kind kind);

/* The pool runs short: said once by an event, and again only after the ring was full. */
void duo_srq_limit(void **state);

/* ---- duo_datagrams.c: cases ---- */

void duo_peers(void **state);
void duo_no_peer(void **state);
void duo_headroom(void **state);
void duo_peer_misuse(void **state);

#endif
