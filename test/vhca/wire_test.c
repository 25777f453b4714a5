/* wire_test.c - two processes over UDP: every operation, exactly once and in order, with packets
 * lost, doubled, late and damaged
 *
 * The operations, sizes and contents follow from a message's number alone, so that each side knows
 * what the other must do.
 */

#include "two.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	WINDOW = 24, /* messages posted and not completed */
	AHEAD = 40,  /* messages posted and not checked by the peer */
};

/* Shared by both: how far the responder has checked. */
static _Atomic uint32_t *checked;

/* ---- what a message is ---- */

static uint32_t mix(uint32_t x)
{
	x = (x ^ x >> 16) * 0x45d9f3bu;
	x = (x ^ x >> 16) * 0x45d9f3bu;
	return x ^ x >> 16;
}

static const enum ibv_wr_opcode operations[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP};

static enum ibv_wr_opcode operation_of(uint32_t i)
{
	return operations[mix(i) % 8];
}

static bool is_atomic(uint32_t i)
{
	return operation_of(i) == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		operation_of(i) == IBV_WR_ATOMIC_CMP_AND_SWP;
}

static bool is_received(uint32_t i)
{
	return operation_of(i) == IBV_WR_SEND || operation_of(i) == IBV_WR_SEND_WITH_IMM ||
		operation_of(i) == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static uint32_t length_of(uint32_t i)
{
	uint32_t r = mix(i + 0x5eed);

	if (is_atomic(i))
		return 8;
	switch (r % 4) {
	case 0: return 1 + (r >> 8) % 64;
	case 1: return (r >> 8) % 1025;
	case 2: return 1024 * ((r >> 8) % 8 + 1);
	default: return (r >> 8) % (SLOT + 1);
	}
}

static void fill(uint8_t *to, uint32_t i, uint32_t length)
{
	uint32_t x = mix(i) | 1;

	for (uint32_t k = 0; k < length; k++)
		to[k] = (uint8_t)((x += 0x9e3779b9u) >> 24);
}

static void expect_filled(const uint8_t *bytes, uint32_t i, uint32_t length, const char *what)
{
	uint8_t wanted[SLOT];

	fill(wanted, i, length);
	for (uint32_t k = 0; k < length; k++)
		if (bytes[k] != wanted[k])
			fail_msg(
				"message %u, %s of %u bytes: byte %u is 0x%02x where 0x%02x was due",
				i, what, length, k, bytes[k], wanted[k]);
}

/* ---- the responder ---- */

static void expect_received(struct side *side, uint32_t i, uint32_t n, const struct ibv_wc *wc)
{
	bool write = operation_of(i) == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool imm = operation_of(i) != IBV_WR_SEND;

	if (wc->status || wc->wr_id != n || wc->byte_len != length_of(i) ||
		wc->opcode != (write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) ||
		!!(wc->wc_flags & IBV_WC_WITH_IMM) != imm || (imm && wc->imm_data != htobe32(i)))
		fail_msg("message %u, receive %u: %s, wr_id %llu, %u bytes of %u, imm %u", i, n,
			ibv_wc_status_str(wc->status), (unsigned long long)wc->wr_id, wc->byte_len,
			length_of(i), be32toh(wc->imm_data));
	expect_filled(slot(side, write ? WRITTEN : RECEIVED, write ? i : n), i, length_of(i),
		write ? "a write with immediate" : "a send");
}

/* Each message that consumes a receive proves those before it, which do not. */
static void respond(struct side *side)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < N_SLOTS; i++)
		fill(slot(side, READABLE, i), i + 77, SLOT);
	for (uint32_t i = 0; i < N_RECEIVES; i++)
		post_receive(side, i);
	rendezvous(side);
	for (uint32_t i = 0; i < side->n_messages; i++) {
		if (is_received(i)) {
			struct ibv_wc wc = wait_wc(side->recv_cq);

			for (uint32_t k = *checked; k < i; k++)
				if (operation_of(k) == IBV_WR_RDMA_WRITE)
					expect_filled(
						slot(side, WRITTEN, k), k, length_of(k), "a write");
			expect_received(side, i, n, &wc);
			post_receive(side, n + N_RECEIVES);
			n++;
			*checked = i + 1;
		}
	}
	rendezvous(side);
}

/* ---- the requester ---- */

static void post(struct side *side, uint32_t i)
{
	enum ibv_wr_opcode opcode = operation_of(i);
	bool read = opcode == IBV_WR_RDMA_READ;
	struct ibv_sge sge = {(uintptr_t)slot(side, SENT, i), length_of(i), side->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = i,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htobe32(i),
		.sg_list = &sge,
		.num_sge = length_of(i) ? 1 : 0};
	struct ibv_send_wr *bad;

	if (is_atomic(i)) {
		bool swap = opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

		wr.wr.atomic.remote_addr = side->remote.memory + WORDS + (swap ? 8 : 0);
		wr.wr.atomic.rkey = side->remote.rkey;
		wr.wr.atomic.compare_add = swap ? side->atomics >> 32 : 1;
		wr.wr.atomic.swap = (side->atomics >> 32) + 1;
		side->atomics += swap ? 1ull << 32 : 1;
	} else {
		wr.wr.rdma.remote_addr = side->remote.memory +
			((size_t)(read ? READABLE : WRITTEN) * N_SLOTS + i % N_SLOTS) * SLOT;
		wr.wr.rdma.rkey = side->remote.rkey;
		fill(slot(side, SENT, i), i, length_of(i));
	}
	assert_int_equal(ibv_post_send(side->qp, &wr, &bad), 0);
}

static void expect_completed(struct side *side, uint32_t i, uint64_t *atomics)
{
	struct ibv_wc wc = wait_wc(side->send_cq);
	bool swap = operation_of(i) == IBV_WR_ATOMIC_CMP_AND_SWP;
	uint64_t value;

	if (wc.status || wc.wr_id != i)
		fail_msg("message %u: wr_id %llu completed with %s", i,
			(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
	if (operation_of(i) == IBV_WR_RDMA_READ)
		expect_filled(slot(side, SENT, i), i % N_SLOTS + 77, length_of(i), "a read");
	if (!is_atomic(i))
		return;
	memcpy(&value, slot(side, SENT, i), sizeof(value));
	if (value != (swap ? *atomics >> 32 : *atomics & 0xffffffff))
		fail_msg("message %u: an atomic brought %llu", i, (unsigned long long)value);
	*atomics += swap ? 1ull << 32 : 1;
}

/* The peer must have checked what a slot holds before it is used again. */
static uint32_t may_post(uint32_t done, uint32_t n_messages)
{
	uint32_t limit = done + WINDOW, checked_limit = *checked + AHEAD;

	limit = limit < checked_limit ? limit : checked_limit;
	return limit < n_messages ? limit : n_messages;
}

static void request(struct side *side)
{
	uint32_t posted = 0;
	uint64_t atomics = 0;

	rendezvous(side);
	for (uint32_t done = 0; done < side->n_messages; done++) {
		do {
			while (posted < may_post(done, side->n_messages))
				post(side, posted++);
		} while (posted == done);
		expect_completed(side, done, &atomics);
	}
	rendezvous(side);
}

static const struct manner patient = {.retry_cnt = 7, .rnr_retry = 7};

static void request_reliably(struct side *side)
{
	side_open(side, &patient);
	request(side);
	side_close(side);
}

static void respond_reliably(struct side *side)
{
	side_open(side, &patient);
	respond(side);
	side_close(side);
}

/* How many, unless by hand VHCA_TEST_MESSAGES asks for more. */
static uint32_t messages(uint32_t n)
{
	const char *text = getenv("VHCA_TEST_MESSAGES");

	return text ? (uint32_t)strtoul(text, NULL, 0) : n;
}

static void exchange(uint32_t n, const char *fault)
{
	*checked = 0;
	run_two(request_reliably, respond_reliably, IBV_QPT_RC, n, fault, false);
}

static void all_operations(void **state)
{
	(void)state;
	exchange(messages(10000), "");
}

static void with_loss(void **state)
{
	(void)state;
	exchange(messages(2000), "loss=0.01");
}

static void with_reordering_and_duplicates(void **state)
{
	(void)state;
	exchange(messages(3000), "reorder=0.01,duplicate=0.01");
}

static void with_everything(void **state)
{
	(void)state;
	exchange(messages(2000), "loss=0.01,reorder=0.01,duplicate=0.01,corrupt=0.01");
}

static void with_delay(void **state)
{
	(void)state;
	exchange(messages(300), "delay=1ms");
}

/* An argument is the one test to run, or a pattern of some. */
int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_operations),
		cmocka_unit_test(with_loss),
		cmocka_unit_test(with_reordering_and_duplicates),
		cmocka_unit_test(with_everything),
		cmocka_unit_test(with_delay),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	checked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(checked != MAP_FAILED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
