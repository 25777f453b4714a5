/* msgrate_op.h - the operations of a run, and what follows from each
 *
 *                 counted where    what --verify looks at
 *    send         it is received   each message
 *    send-imm     it is received   each message, and its immediate data
 *    write        it completes     the last message of each slot of the target, at the end
 *    write-imm    it is received   each message in its slot, and its immediate data
 *    read         it completes     each message that was read, against the slot it must be from
 *    fetch-add    it completes     that no value comes twice; the final value
 *    cmp-swap     it completes     that each finds what the one before left; the final value
 */
#ifndef MSGRATE_OP_H
#define MSGRATE_OP_H

#include "cmd.h"

enum msg_op { OP_SEND, OP_SEND_IMM, OP_WRITE, OP_WRITE_IMM, OP_READ, OP_FETCH_ADD, OP_CMP_SWAP };

#define OP_WORDS         "send send-imm write write-imm read fetch-add cmp-swap"
#define CONNECTION_WORDS "rc uc ud"

enum { ATOMIC_SIZE = 8 };

/* Its messages take receives, and count where they come. */
static force_inline bool op_is_received(const enum msg_op op)
{
	return op == OP_SEND || op == OP_SEND_IMM || op == OP_WRITE_IMM;
}

static force_inline bool op_is_atomic(const enum msg_op op)
{
	return op == OP_FETCH_ADD || op == OP_CMP_SWAP;
}

/* It reaches into memory that the other end exports. */
static force_inline bool op_has_target(const enum msg_op op)
{
	return op != OP_SEND && op != OP_SEND_IMM;
}

static force_inline bool op_writes(const enum msg_op op)
{
	return op == OP_WRITE || op == OP_WRITE_IMM;
}

static force_inline bool op_has_imm(const enum msg_op op)
{
	return op == OP_SEND_IMM || op == OP_WRITE_IMM;
}

/* A queue's bufs carry the pattern out, so that the sender fills them. */
static force_inline bool op_sends_bytes(const enum msg_op op)
{
	return op_is_received(op) || op == OP_WRITE;
}

/* Whether each message is seen, so that one that comes twice or late is known. */
static force_inline bool op_sees_order(const enum msg_op op)
{
	return op_is_received(op) || op == OP_FETCH_ADD;
}

#endif
