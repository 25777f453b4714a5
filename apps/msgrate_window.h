/* msgrate_window.h - how much may be sent now: credits between processes, what the receiver has room for, the pace
 *
 * Inlined into the loop of msgrate_loop.c, which asks for each burst.
 */
#ifndef MSGRATE_WINDOW_H
#define MSGRATE_WINDOW_H

#include "msgrate.h"

/* What has not come by then when all else has is lost. Where that is taken for lost which only waits
 * for a core, RC waits for the receiver, but a datagram too many is lost indeed, and a write goes over
 * one that has not been looked at. */
#define LATE           (SECOND / 100)
#define LATE_FOR_SURE  (SECOND / 4)
#define LATE_ELSEWHERE SECOND /* of another process, whose looks are not known here */
#define ENOUGH_LOOKS   8      /* in vain */

/* ---- credits ---- */

/* Between processes: an empty message with immediate data of this bit and, below it, how many have
 * been received. Where the port has no immediate data a message has that word, and is of a length
 * that no other has. */
#define CREDIT         0x80000000u
#define CREDIT_MASK    0x7fffffffu

/* The count goes on from the last one, of which the credit has the lower bits. */
static void take_credit(struct end *end, uint32_t imm)
{
	uint32_t more = (imm - (uint32_t)end->peer_received) & CREDIT_MASK;

	if (more < CREDIT_MASK / 2)
		store_once(&end->peer_received, end->peer_received + more);
}

static uint32_t credit_of(const struct run *run, const struct vbn_buf *buf)
{
	uint32_t word = buf->mark;

	if (run->credit_len && buf->len == run->credit_len)
		memcpy(&word, buf->data, sizeof(word));
	return word;
}

static bool is_credit(const struct run *run, const struct vbn_event *event)
{
	return run->credit_len ? event->len == run->credit_len
			       : event->has_imm && event->imm & CREDIT;
}

static int send_credit(struct side *side, struct end *end, struct vbn_buf *buf, uint32_t word)
{
	buf->len = side->run->credit_len;
	if (!buf->len)
		return vbn_send_imm(end->queue, &buf, &word, 1);
	memset(buf->data, 0, buf->len);
	memcpy(buf->data, &word, sizeof(word));
	return vbn_send(end->queue, &buf, 1);
}

/* What cannot go now goes with the next. */
static void __attribute__((noinline)) give_credit(struct side *side, struct end *end)
{
	uint32_t word = CREDIT | ((uint32_t)end->received & CREDIT_MASK);
	struct vbn_buf *buf;

	if (vbn_buf_alloc(side->tx_pool, &buf, 1) < 0)
		return;
	if (end->datagram_peer)
		vbn_buf_set_peer(buf, end->datagram_peer);
	if (send_credit(side, end, buf, word) != 1) {
		vbn_buf_free(&buf, 1);
		return;
	}
	vbn_flush(end->queue);
	end->credited = end->received;
}

/* ---- room ---- */

/* --rate: how many messages may go now. What could not go in time is not made up for, but for a
 * millisecond's worth, or a burst where that is within a hundredth of a second: a worker is not
 * always there at the right moment. */
static uint64_t pace_room(struct side *side)
{
	uint64_t now = now_ns();
	double due = (double)(now - side->pace_start) * side->pace_per_ns - (double)side->pace_sent;
	double burst = (double)side->run->conf.post_list, in_10_ms = side->pace_per_ns * 1e7;
	double most = side->pace_per_ns * 1e6;

	burst = burst < in_10_ms ? burst : in_10_ms;
	most = most > burst ? most : burst;
	if (most < 1)
		most = 1;
	if (due > most) {
		side->pace_start = now - (uint64_t)(most / side->pace_per_ns);
		side->pace_sent = 0;
		due = most;
	}
	return due > 0 ? (uint64_t)due : 0;
}

static uint64_t late_after(const struct end *end)
{
	const struct msgrate_options *conf = &end->side->run->conf;
	bool harmless = end->peer && conf->connection == VBN_RC && conf->op != OP_WRITE_IMM;

	if (harmless)
		return LATE;
	return end->peer ? LATE_FOR_SURE : LATE_ELSEWHERE;
}

/* Of the side that is to receive; of another process's nothing is known here but what this one has
 * heard. */
static uint64_t receiver_turns(const struct end *end)
{
	return load_once(end->peer ? &end->peer->side->turns : &end->side->turns);
}

/* The window to the peer is shut. What is lost would keep it shut for ever: where the device is
 * done with all that was sent and still nothing comes, it is not counted as on its way any more. But
 * time alone does not tell: a receiver that was kept from its core has not looked meanwhile, and
 * what is sent on top of a full ring is lost on a transport that does not send again. TCP, under iWARP,
 * loses nothing, and its device is done long before all has come. */
static void __attribute__((cold, noinline)) wait_for_window(struct end *end, uint64_t received)
{
	uint64_t now = now_ns(), turns = receiver_turns(end);

	if (end->side->run->port_info.link == VBN_LINK_IWARP)
		return;
	if (received != end->shut_at || end->n_held || vbn_queue_outstanding(end->queue)) {
		end->shut_at = received;
		end->shut_since = now;
		end->shut_turns = turns;
	} else if (now - end->shut_since > late_after(end) &&
		turns - end->shut_turns > ENOUGH_LOOKS) {
		end->given_up = end->staged - received;
	}
}

/* How many messages the peer has receives for: at least a good part of a burst, or none. A sender
 * that goes on regardless makes its queue wait for the receiver by RNR timers, which is slower. */
static force_inline uint64_t receive_room(const struct side *side, struct end *end)
{
	uint64_t received = end_received_by_peer(end);
	int64_t on_the_way = (int64_t)(end->staged - end->given_up - received);
	int64_t room;

	if (unlikely(on_the_way < 0)) { /* what was given up has come after all */
		end->given_up = end->staged > received ? end->staged - received : 0;
		on_the_way = 0;
	}
	room = side->window - on_the_way;

	if (likely(room >= side->least_room))
		return (uint64_t)room;
	wait_for_window(end, received);
	return 0;
}

static force_inline uint64_t send_room(
	struct side *side, struct end *end, const enum msg_op op, const bool paced)
{
	uint64_t room = op_is_received(op) ? receive_room(side, end) : UINT64_MAX;

	if (paced) {
		uint64_t due = pace_room(side);

		room = room < due ? room : due;
	}
	return room;
}

#endif
