/* mini.h - compressed completions: a session of mini CQEs, and the completions it stands for
 *
 * A device that compresses writes one CQE, the title, for a run of completions that differ in
 * little, and behind it arrays of 8 mini CQEs with what differs. Of n completions whose title is
 * at index T of the ring, array 0 lies at T + 1, array k at T + 8k, and the entry after the session
 * at T + n. The title has n in the place of its byte count; the rest of it holds for all n, which
 * are thus of one queue pair. The WQE counter of receives goes up by one from the title's; that of
 * sends is in each mini CQE, whatever format the CQ was made with for its receives. As one completes
 * all before it, only the newest of a session of sends is read. Errors come whole.
 *
 * The device writes no other slot between T and T + n, and an array's bytes are no entry. A slot
 * that a session covers is therefore marked invalid once taken: otherwise what an earlier pass left
 * there would be taken for an entry two passes on, when the owner bit is the same again.
 *
 * Layouts: "Compressed CQEs" in NVIDIA's Adapters Programmer's Reference Manual. The enhanced form,
 * with an iteration count in each array, cannot be asked for by mlx5dv.
 */
#ifndef VBN_MLX5_MINI_H
#define VBN_MLX5_MINI_H

#include "drv/mlx5/cq.h"

enum {
	MINI_CQES = 8,   /* of an array */
	MINI_LEAST = 2,  /* completions of a session: with one, its array would lie behind it */
	MINI_DONE = 0xf0 /* the opcode of an entry that is none, whichever its owner bit */
};
static_assert(MINI_DONE >> 4 == MLX5_CQE_INVALID, "a slot that was taken is absent");

/* What a mini CQE says, in host order. `info` depends on the CQ's format: the receive hash; the
 * checksum above a stride index; of a requester's session the WQE counter above its opcode. */
struct completion {
	uint32_t len;
	uint32_t info;
};
static_assert(sizeof(struct completion) * MINI_CQES == sizeof(struct mlx5_cqe64),
	"an array takes one slot");

static force_inline uint32_t completion_hash(const struct completion *completion)
{
	return completion->info;
}

static force_inline uint16_t completion_checksum(const struct completion *completion)
{
	return (uint16_t)(completion->info >> 16);
}

static force_inline uint16_t completion_stride(const struct completion *completion)
{
	return (uint16_t)completion->info;
}

/* Of a requester's session. */
static force_inline uint16_t completion_wqe(const struct completion *completion)
{
	return (uint16_t)(completion->info >> 16);
}

static force_inline uint8_t completion_opcode(const struct completion *completion)
{
	return (uint8_t)(completion->info >> 8);
}

/* Reads the 8 mini CQEs of one array. All decoders yield the same. */
typedef void mini_decode(const void *array, struct completion *completions);

struct mini_decoder {
	const char *name; /* "avx2", for reports */
	mini_decode *decode;
};

/* The reference. */
extern const struct mini_decoder vbn__mini_scalar;

/* The fastest that this CPU runs. */
const struct mini_decoder *vbn__mini_decoder(void);

/* The session of receives under way on a CQ. All zero but its decoder: none is. */
struct session {
	/* line 0: of the array that is being taken */
	struct completion decoded[MINI_CQES];
	/* line 1 */
	uint32_t first; /* index of the title */
	uint32_t n;
	uint32_t taken;
	/* the title's */
	uint32_t source; /* of datagrams */
	uint32_t qpn;
	uint16_t wqe; /* that of the first completion */
	mini_decode *decode;
	const struct mini_decoder *decoder;
};

/* Completions that are decoded and not taken; 0 where no session is under way. */
static force_inline uint32_t session_ready(const struct session *session)
{
	uint32_t taken = session->taken;

	return min(session->n, (taken | (MINI_CQES - 1)) + 1) - taken;
}

/* The next one; session_ready() lie side by side. */
static force_inline const struct completion *session_next(const struct session *session)
{
	return &session->decoded[session->taken & (MINI_CQES - 1)];
}

/* Begins the session with the title at `index`; none is under way. `most` is how many completions
 * it can have, at most the ring's. False: it says another number, and is not to be believed. */
static force_inline bool session_begin(
	struct session *session, const struct cq *cq, uint32_t index, uint32_t most)
{
	uint32_t n = from_be32(load_once(&cq_entry(cq, index)->byte_cnt));

	if (unlikely(n < MINI_LEAST || n > most))
		return false;
	session->first = index;
	session->n = n;
	session->taken = 0;
	session->decode(cq_entry(cq, index + 1), session->decoded);
	return true;
}

/* The same, and what else the title says: it is the entry `cqe`, of which cq_look() said `seen`. */
static force_inline bool session_open(
	struct cq *cq, uint32_t index, const struct mlx5_cqe64 *cqe, uint8_t seen, uint32_t posted)
{
	struct session *session = cq->session;

	if (unlikely(seen != (CQE_IS(MLX5_CQE_RESP_SEND) | CQE_COMPRESSED) ||
		    !session_begin(session, cq, index, min(posted, cq->mask + 1))))
		return false;
	session->source = from_be32(cqe->flags_rqpn) & 0xffffff;
	session->qpn = cqe_qpn(cqe);
	session->wqe = from_be16(cqe->wqe_counter);
	return true;
}

/* The slots of completions that have been taken: at most the ring's. */
static force_inline void slots_done(const struct cq *cq, uint32_t index, uint32_t n)
{
	const size_t stride = (size_t)1 << cq->log2_stride;
	const uint32_t at = index & cq->mask;
	uint8_t *op_own =
		cq->first + ((size_t)at << cq->log2_stride) + offsetof(struct mlx5_cqe64, op_own);

	if (likely(n == MINI_CQES && at + n <= cq->mask + 1)) {
#pragma GCC unroll 8
		for (uint32_t i = 0; i < MINI_CQES; i++, op_own += stride)
			store_once(op_own, (uint8_t)MINI_DONE);
		return;
	}
	for (uint32_t i = at; i < at + n; i++, op_own += stride) {
		if (i == cq->mask + 1) /* over the ring's end */
			op_own -= stride << cq->log2_count;
		store_once(op_own, (uint8_t)MINI_DONE);
	}
}

/* n of session_ready() have been taken. What is needed of their slots has been read by then: array k
 * when completion 8k comes to its turn. */
static force_inline void session_take(struct session *session, const struct cq *cq, uint32_t n)
{
	slots_done(cq, session->first + session->taken, n);
	session->taken += n;
	if (session->taken != session->n && !(session->taken & (MINI_CQES - 1)))
		session->decode(cq_entry(cq, session->first + session->taken), session->decoded);
}

/* The index that the device may be told of: nothing before it is needed any more. `index` is the
 * entry behind the session's. A session that is cut must not hold more slots than it has completions
 * left, or the CQ would be overrun by what is posted again. */
static force_inline uint32_t session_consumed(const struct session *session, uint32_t index)
{
	return index - (session->n - session->taken);
}

/* What is left of a session is not wanted any more. */
static force_inline void session_drop(struct session *session, const struct cq *cq)
{
	slots_done(cq, session->first + session->taken, session->n - session->taken);
	session->taken = session->n;
}

/* ---- sends ---- */

/* The WQE of the newest completion of a session whose title is at `index`. */
static force_inline uint16_t session_newest(const struct cq *cq, uint32_t index, uint32_t n)
{
	const uint32_t last = n - 1, array = last & ~(uint32_t)(MINI_CQES - 1);
	const __be32(*mini)[2] = (const void *)cq_entry(cq, index + max(array, 1u));

	return completion_wqe(
		&(struct completion){.info = from_be32(mini[last & (MINI_CQES - 1)][0])});
}

/* A title of sends, of at most so many completions: how many, or 0 where it is no such, or not to be
 * believed. */
static force_inline uint32_t session_of_sends(
	const struct mlx5_cqe64 *cqe, uint8_t seen, uint32_t most)
{
	const uint32_t n = from_be32(cqe->byte_cnt);

	return seen == (CQE_IS(MLX5_CQE_REQ) | CQE_COMPRESSED) && n >= MINI_LEAST && n <= most ? n
											       : 0;
}

/* mini_sq.c: the entry at `index` as if it were whole, of a session of sends its newest. How many
 * entries it stands for; 0: there is none. */
uint32_t vbn__mini_newest(const struct cq *cq, uint32_t index, struct mlx5_cqe64 *whole);

/* What vbn__sq_reap() does, of a queue whose own CQ is compressed. */
int vbn__mini_reap(struct mlx5_queue *mq, struct vbn_event *events, int n);

/* mini_rq.c: the form in which a device compresses CQEs of so many bytes (0: as libmlx5 makes them), one
 * that tells the stride where the ring has those, or 0 with a sentence where it does not. Then the session
 * of a receive CQ, whoever has the CQ frees it; the ops of a queue with such CQs of its own. */
uint8_t vbn__mini_format(struct rdma_port *port, uint32_t cqe_size, bool strided);
struct session *vbn__mini_session(void);
void vbn__mini_ops(struct queue_ops *ops, bool datagrams);
int vbn__mini_take(struct mlx5_queue *mq, struct vbn_buf **bufs, struct vbn_event *events, int n);

#endif
