/* box.h - lone messages: two lines that both ends read and write by turns (ring.h says why)
 *
 * A send that finds nothing staged is kept here until the flush; another one moves it into the ring.
 *
 * Who waits for an answer must not look too early: between the peer's read and its answer a look takes
 * the lines away from it, and they have to be fetched twice more. So the first look is after about a
 * round trip, and others follow by quarters of it. How long that is is learned: after an early look it
 * is taken for longer, else for a quarter as much shorter, so that one look in five is early; the best
 * place is just behind the edge, and the edge moves with where the two cores are.
 */
#ifndef VBN_SHM_BOX_H
#define VBN_SHM_BOX_H

#include "base/copy.h"
#include "drv/shm/shm.h"

enum { BOX_PATIENCE_RANGE = 16 }; /* the longest, by the least */

/* Up to 56 bytes share the word's line; more have the other one, so that nothing lies across both. */
static force_inline uint8_t *box_data(struct shm_box *box, uint32_t len)
{
	return len <= sizeof(box->few) ? box->few : box->many;
}

/* ---- sending ---- */

/* Whether a send of so many bytes may go by the box: it is alone, and the ring has room for it, should
 * it not stay so. */
static force_inline bool box_takes(const struct shm_queue *sq, size_t len)
{
	const struct shm_tx *tx = &sq->tx;

	return sq->talk.turn && !sq->talk.staged && len <= SHM_BOX_DATA && len <= tx->longest &&
		tx->ring.pos == tx->ring.begin && tx->put == tx->head &&
		tx->head - tx->tail <= tx->mask &&
		ring_room(&tx->ring, record_size(0, (uint32_t)len));
}

static force_inline void box_stage(struct shm_queue *sq, const void *data, size_t len)
{
	struct shm_tx *tx = &sq->tx;

	sq->talk.staged = true;
	sq->talk.len = (uint32_t)len;
	copy_few(sq->talk.data, data, len);
	tx->slots[tx->head & tx->mask] = SLOT_PLAIN;
	tx->put = ++tx->head;
}

/* Shows it to the peer, whose turn it then is. */
static force_inline void box_send(struct shm_queue *sq)
{
	struct shm_talk *talk = &sq->talk;
	struct shm_box *box = talk->box;

	copy_few(box_data(box, talk->len), talk->data, talk->len);
	talk->staged = talk->turn = false;
	talk->waits = true;
	talk->early = false;
	talk->sequence++;
	/* Pairs with box_look(): the data is there, and what was in the ring before. */
	store_release(&box->word, box_word(talk->sequence, talk->len, sq->tx.ring.pos));
	sq->tx.ring.behind_box = true;
	talk->look_at = clock_cycles() + talk->patience;
}

/* ---- receiving ---- */

/* The word of a message that is in the box, or 0. */
static force_inline uint64_t box_word_now(const struct shm_talk *talk)
{
	const uint64_t word = load_acquire(&talk->box->word);

	return box_sequence(word) == (uint16_t)(talk->sequence + 1) && !talk->turn ? word : 0;
}

/* The same, where it is time to look. */
static force_inline uint64_t box_look(struct shm_talk *talk)
{
	uint64_t now, word;

	if (talk->turn)
		return 0;
	if (!talk->waits)
		return box_word_now(talk);
	now = clock_cycles();
	if ((int64_t)(now - talk->look_at) < 0)
		return 0;
	talk->look_at = now + max(talk->patience / 4, talk->least);
	word = box_word_now(talk);
	talk->early |= !word;
	return word;
}

/* What the last wait for an answer was like. */
static force_inline void box_learn(struct shm_talk *talk)
{
	const uint32_t patience = talk->patience;

	talk->patience = talk->early
		? min(patience + patience / 32, BOX_PATIENCE_RANGE * talk->least)
		: max(patience - patience / 128, talk->least);
}

/* Whether everything before it has been taken from the ring. */
static force_inline bool box_is_next(uint64_t word, uint64_t pos)
{
	return (uint32_t)word == (uint32_t)pos;
}

/* Whether it may be behind something that has not been taken, which is as much as a ring at the most. */
static force_inline bool box_may_be(uint64_t word, uint64_t pos, uint32_t mask)
{
	return (uint32_t)word - (uint32_t)pos <= mask + 1;
}

/* The message has been copied: the box is this end's. */
static force_inline void box_taken(struct shm_queue *sq)
{
	if (sq->talk.waits)
		box_learn(&sq->talk);
	sq->talk.turn = true;
	sq->talk.waits = false;
	sq->talk.sequence++;
	sq->tx.ring.behind_box = false;
}

#endif
