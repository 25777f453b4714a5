/* mini_ring.c - a completion ring with a device that compresses at random, and a reader that checks
 * what it reads */

#include "mini_ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* splitmix64 */
uint64_t mini_random(struct mini_ring *ring)
{
	uint64_t x = ring->seed += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static uint32_t below(struct mini_ring *ring, uint32_t n)
{
	return (uint32_t)(mini_random(ring) % n);
}

static uint32_t ring_size(const struct mini_ring *ring)
{
	return ring->cq.mask + 1;
}

bool mini_ring_open(struct mini_ring *ring, const struct mini_decoder *decoder, uint8_t log2_count,
	uint8_t log2_stride, bool at_end, uint64_t seed)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t size = (size_t)1 << (log2_count + log2_stride);
	const size_t inside = (size + page - 1) / page * page;
	uint8_t *start;

	*ring = (struct mini_ring){.seed = seed, .mapped = inside + 2 * page};
	ring->mapping = mmap(
		NULL, ring->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ring->mapping == MAP_FAILED)
		return false;
	mprotect(ring->mapping, page, PROT_NONE);
	mprotect(ring->mapping + page + inside, page, PROT_NONE);
	start = ring->mapping + page + (at_end ? inside - size : 0);
	memset(start, 0, size);
	ring->cq = (struct cq){.first = start + ((size_t)1 << log2_stride) - 64,
		.mask = (1u << log2_count) - 1,
		.log2_stride = log2_stride,
		.log2_count = log2_count,
		.record = &ring->record};
	ring->session.decoder = decoder;
	ring->session.decode = decoder->decode;
	for (uint32_t i = 0; i < ring_size(ring); i++)
		ring->cq.first[((size_t)i << log2_stride) + 63] = MINI_DONE | 1;
	return true;
}

void mini_ring_close(struct mini_ring *ring)
{
	munmap(ring->mapping, ring->mapped);
}

/* ---- the device ---- */

static uint8_t *slot(struct mini_ring *ring, uint32_t index)
{
	return ring->cq.first + ((size_t)(index & ring->cq.mask) << ring->cq.log2_stride);
}

static void expect(struct mini_ring *ring, uint32_t len, uint32_t info, bool of_session)
{
	ring->expected[ring->head++ % RING_MAX] = (struct expected){len, info, of_session};
}

static void write_entry(
	struct mini_ring *ring, uint8_t opcode, uint8_t format, uint32_t info, uint32_t byte_cnt)
{
	const uint8_t owner = ring->written >> ring->cq.log2_count & 1;
	struct mlx5_cqe64 cqe = {.srqn_uidx = be32(info), .byte_cnt = be32(byte_cnt)};

	cqe.op_own = (uint8_t)(opcode << 4 | format << 2 | owner);
	memcpy(slot(ring, ring->written), &cqe, sizeof(cqe));
}

/* The arrays of a session, 1, 8, 16 and so on behind the title. What is past the last completion,
 * and the last byte of an array, is anything. */
static void write_arrays(struct mini_ring *ring, uint32_t n)
{
	__be32 array[MINI_CQES][2];

	for (uint32_t i = 0; i < n; i += MINI_CQES) {
		for (uint32_t k = 0; k < MINI_CQES; k++) {
			uint32_t info = (uint32_t)mini_random(ring);
			uint32_t len = (uint32_t)mini_random(ring);

			array[k][0] = be32(info);
			array[k][1] = be32(len);
			if (i + k < n)
				expect(ring, len, info, true);
		}
		memcpy(slot(ring, ring->written + max(i, 1u)), array, sizeof(array));
	}
}

static void write_session(struct mini_ring *ring, uint32_t n)
{
	const uint8_t opcode = mini_random(ring) & 1 ? MLX5_CQE_RESP_SEND : MLX5_CQE_REQ;

	write_arrays(ring, n);
	write_entry(ring, opcode, 3, 0, n);
	ring->seen[ring->written & ring->cq.mask][n] = 1;
	ring->written += n;
	ring->n_sessions++;
	ring->n_compressed += n;
}

static void write_plain(struct mini_ring *ring)
{
	uint32_t info = (uint32_t)mini_random(ring), len = (uint32_t)mini_random(ring);

	expect(ring, len, info, false);
	write_entry(ring, MLX5_CQE_RESP_SEND, 0, info, len);
	ring->written++;
}

void mini_ring_write(struct mini_ring *ring)
{
	while (below(ring, 4)) {
		const uint32_t consumed = from_be32(ring->record);
		const uint32_t room = ring_size(ring) - ((ring->written - consumed) & 0xffffff);

		if (!room)
			return;
		if (room >= MINI_LEAST && below(ring, 3))
			write_session(ring, MINI_LEAST + below(ring, room - MINI_LEAST + 1));
		else
			write_plain(ring);
	}
}

/* ---- the reader ---- */

static int complain(struct mini_ring *ring, const char *what, uint64_t is, uint64_t should)
{
	snprintf(ring->complaint, sizeof(ring->complaint),
		"%s decoder, ring of %u x %u bytes, completion %llu: %s is %#llx and should be %#llx",
		ring->session.decoder->name, ring_size(ring), 1u << ring->cq.log2_stride,
		(unsigned long long)ring->n_completions, what, (unsigned long long)is,
		(unsigned long long)should);
	return -1;
}

static int check_one(struct mini_ring *ring, struct completion read, bool of_session)
{
	const struct expected *wanted = &ring->expected[ring->tail % RING_MAX];

	if (ring->tail == ring->head)
		return complain(ring, "an entry that nobody wrote", 1, 0);
	if (read.len != wanted->len)
		return complain(ring, "its length", read.len, wanted->len);
	if (read.info != wanted->info)
		return complain(ring, "its info", read.info, wanted->info);
	if (of_session != wanted->of_session)
		return complain(ring, "whether it came compressed", of_session, !of_session);
	ring->tail++;
	ring->n_completions++;
	return 0;
}

/* What a reader of sends takes of a session: the newest, at one look. */
static int check_newest(struct mini_ring *ring, uint32_t index, uint32_t n)
{
	const struct expected *newest = &ring->expected[(ring->tail + n - 1) % RING_MAX];
	const uint16_t read = session_newest(&ring->cq, index, n);

	if (read != newest->info >> 16)
		return complain(ring, "its session's newest", read, newest->info >> 16);
	return 0;
}

/* As a driver reads: up to n, from the session under way, from a new one, or alone. */
int mini_ring_read(struct mini_ring *ring, uint32_t n)
{
	struct session *session = &ring->session;
	uint32_t index = ring->cq.index, got = 0;

	while (got < n) {
		const struct mlx5_cqe64 *cqe;
		uint32_t ready = min(session_ready(session), n - got);
		uint8_t seen;

		for (uint32_t i = 0; i < ready; i++)
			if (check_one(ring, session_next(session)[i], true))
				return -1;
		if (ready) {
			session_take(session, &ring->cq, ready);
			got += ready;
			continue;
		}
		seen = cq_look(&ring->cq, index, &cqe);
		if (cqe_absent(seen))
			break;
		if (cqe_is_title(seen)) {
			if (!session_begin(session, &ring->cq, index, ring_size(ring)))
				return complain(ring, "a session's length",
					from_be32(cqe->byte_cnt), MINI_LEAST);
			if (check_newest(ring, index, session->n))
				return -1;
			index += session->n;
			continue;
		}
		if (check_one(ring,
			    (struct completion){
				    from_be32(cqe->byte_cnt), from_be32(cqe->srqn_uidx)},
			    false))
			return -1;
		index++;
		got++;
	}
	ring->cq.index = index;
	store_once(&ring->record, be32(session_consumed(session, index) & 0xffffff));
	return (int)got;
}

/* ---- hostile rings ---- */

void mini_ring_spoil(struct mini_ring *ring)
{
	for (uint32_t i = 0; i < ring_size(ring); i++) {
		uint8_t *at = slot(ring, i);
		uint32_t byte_cnt = below(ring, 2) ? (uint32_t)mini_random(ring)
						   : below(ring, 2 * ring_size(ring));

		for (uint32_t k = 0; k < 64; k += 8) {
			uint64_t word = mini_random(ring);

			memcpy(at + k, &word, sizeof(word));
		}
		byte_cnt = htobe32(byte_cnt);
		memcpy(at + offsetof(struct mlx5_cqe64, byte_cnt), &byte_cnt, sizeof(byte_cnt));
		if (below(ring, 2))
			at[63] = (uint8_t)(MLX5_CQE_RESP_SEND << 4 | 3 << 2 | below(ring, 2));
	}
}

uint32_t mini_ring_read_spoilt(struct mini_ring *ring, uint32_t n)
{
	struct session *session = &ring->session;
	uint32_t got = 0, sum = 0;

	while (got < n) {
		const struct mlx5_cqe64 *cqe;
		uint32_t ready = min(session_ready(session), n - got);
		uint8_t seen;

		for (uint32_t i = 0; i < ready; i++)
			sum += session_next(session)[i].len;
		if (ready) {
			session_take(session, &ring->cq, ready);
			got += ready;
			continue;
		}
		seen = cq_look(&ring->cq, ring->cq.index, &cqe);
		if (cqe_absent(seen))
			break;
		if (cqe_is_title(seen)) {
			if (!session_begin(session, &ring->cq, ring->cq.index, ring_size(ring)))
				break;
			ring->cq.index += session->n;
			continue;
		}
		ring->cq.index++;
		got++;
	}
	ring->seed ^= sum; /* so that the bytes are read */
	return got;
}

/* ---- checks ---- */

static const char *through_ring(struct mini_ring *ring, uint64_t n_sessions)
{
	while (ring->n_sessions < n_sessions) {
		mini_ring_write(ring);
		if (mini_ring_read(ring, below(ring, 2 * MINI_CQES + 2)) < 0)
			return ring->complaint;
	}
	while (ring->tail != ring->head) {
		int got = mini_ring_read(ring, RING_MAX);

		if (!got)
			complain(ring, "what is left unread", ring->head - ring->tail, 0);
		if (got <= 0)
			return ring->complaint;
	}
	return NULL;
}

const char *mini_check_sessions(const struct mini_decoder *decoder, uint64_t n_sessions)
{
	static struct mini_ring ring;
	const uint8_t largest = (uint8_t)log2_floor(RING_MAX);

	for (uint8_t log2_stride = 6; log2_stride <= 7; log2_stride++) {
		for (uint8_t log2_count = 1; log2_count <= largest; log2_count++) {
			const char *complaint;

			if (!mini_ring_open(&ring, decoder, log2_count, log2_stride, log2_count & 1,
				    1 + log2_count))
				return "no memory for a ring";
			complaint = through_ring(&ring, n_sessions / (2u * largest));
			mini_ring_close(&ring);
			if (complaint)
				return complaint;
		}
	}
	return NULL;
}

const char *mini_check_lengths(const struct mini_decoder *decoder)
{
	enum { LOG2 = 4, COUNT = 1 << LOG2 };
	static struct mini_ring ring;
	const char *complaint;
	uint32_t missing = 0;

	if (!mini_ring_open(&ring, decoder, LOG2, 6, false, 7))
		return "no memory for a ring";
	complaint = through_ring(&ring, 100000);
	for (uint32_t at = 0; at < COUNT; at++)
		for (uint32_t n = MINI_LEAST; n <= COUNT; n++)
			missing += !ring.seen[at][n];
	if (!complaint && missing) {
		complain(&ring, "pairs of slot and length never tried", missing, 0);
		complaint = ring.complaint;
	}
	mini_ring_close(&ring);
	return complaint;
}

const char *mini_check_spoilt(const struct mini_decoder *decoder, uint32_t rounds)
{
	static struct mini_ring ring;
	uint64_t taken = 0;

	for (uint32_t round = 0; round < rounds; round++) {
		const uint8_t log2_count = (uint8_t)(1 + round % 8);

		if (!mini_ring_open(
			    &ring, decoder, log2_count, 6 + (round & 8 ? 1 : 0), round & 16, round))
			return "no memory for a ring";
		for (int i = 0; i < 20; i++) {
			mini_ring_spoil(&ring);
			taken += mini_ring_read_spoilt(&ring, below(&ring, 3 * RING_MAX));
		}
		mini_ring_close(&ring);
	}
	return taken ? NULL : "no hostile ring had anything to take, so nothing was tried";
}

const char *mini_check_equal(
	const struct mini_decoder *one, const struct mini_decoder *other, uint32_t n_arrays)
{
	static struct mini_ring ring;
	static uint64_t array[MINI_CQES];
	struct completion a[MINI_CQES], b[MINI_CQES];

	ring.seed = n_arrays;
	ring.session.decoder = other;
	for (uint32_t i = 0; i < n_arrays; i++) {
		for (int k = 0; k < MINI_CQES; k++)
			array[k] = mini_random(&ring);
		one->decode(array, a);
		other->decode(array, b);
		for (int k = 0; k < MINI_CQES; k++) {
			if (a[k].len == b[k].len && a[k].info == b[k].info)
				continue;
			complain(&ring, "what another decoder reads of the same array", b[k].len,
				a[k].len);
			return ring.complaint;
		}
	}
	return NULL;
}
