/* raw_fault_test.c - VHCA_FAULT on raw frames: lost, doubled, damaged, late and out of order, each of them
 * accounted for
 *
 * The port is alone on the switch of the process, so what it sends comes back to it.
 */

#include "../unit/vhca_ask.h"
#include "child.h"
#include "network.h"
#include "raw.h"

#include <stdlib.h>

enum { FRAMES = 24, FIRST_RECEIVE = FRAMES, RECEIVES = RAW_SLOTS - FRAMES, PAYLOAD = 100 };

/* What has come of the frames that were sent. */
struct heard {
	uint32_t lost; /* by the device's own account */
	uint32_t n, damaged, bits, out_of_order, copies[FRAMES];
	double first; /* seconds from the doorbell on */
};

static uint32_t make(uint8_t *to, uint32_t i)
{
	return raw_make(to, &(struct raw_frame){.payload = PAYLOAD, .seed = i});
}

/* How many bits of it are wrong, if it is frame `i`; none of them in the Ethernet header. */
static uint32_t wrong_bits(const uint8_t *bytes, uint32_t size, uint32_t i)
{
	uint8_t due[256];
	uint32_t n = 0;

	if (size != make(due, i) || memcmp(bytes, due, 14))
		return 8 * size;
	for (uint32_t at = 0; at < size; at++)
		n += (uint32_t)__builtin_popcount(bytes[at] ^ due[at]);
	return n;
}

static void hear_one(struct raw *raw, struct heard *heard, uint32_t *newest)
{
	struct mlx5_cqe64 *cqe = raw_wait(raw);
	const uint8_t *bytes = raw_slot(raw, FIRST_RECEIVE + be16toh(cqe->wqe_counter));
	uint32_t which = 0, bits = UINT32_MAX;

	for (uint32_t i = 0; i < FRAMES; i++) {
		uint32_t wrong = wrong_bits(bytes, be32toh(cqe->byte_cnt), i);

		if (wrong < bits) {
			bits = wrong;
			which = i;
		}
	}
	heard->n++;
	heard->damaged += bits > 0;
	heard->bits += bits;
	heard->copies[which]++;
	heard->out_of_order += which < *newest;
	*newest = which > *newest ? which : *newest;
}

/* Frames that the device says it has lost. */
static uint32_t lost_frames(void)
{
	static char answer[1 << 16];
	const char *at;

	vhca_ask("status", answer, sizeof(answer));
	at = strstr(answer, "\"tx_fault\":");
	return at ? (uint32_t)strtoul(at + 11, NULL, 10) : 0;
}

static struct heard send_all(const char *fault, uint32_t copies)
{
	struct heard heard = {.n = 0};
	uint32_t newest = 0;
	struct raw raw;
	double began;

	setenv("VHCA_WIRE", "udp", 1);
	setenv("VHCA_FAULT", fault, 1);
	raw_open(&raw, &(struct raw_conf){.receiver = RAW_WQ, .max_wr = 128});
	for (uint32_t i = 0; i < RECEIVES; i++)
		raw_post_plain(&raw, FIRST_RECEIVE + i, RAW_SLOT);
	began = seconds();
	for (uint32_t i = 0; i < FRAMES; i++)
		raw_post_send(&raw, i, i, make(raw_slot(&raw, i), i), 0);
	for (uint32_t i = 0; i < FRAMES; i++)
		expect_wc(raw.side.send_cq, i, IBV_WC_SUCCESS);
	heard.lost = lost_frames();
	while (heard.n < copies * FRAMES - heard.lost) {
		hear_one(&raw, &heard, &newest);
		if (heard.n == 1)
			heard.first = seconds() - began;
	}
	raw_expect_quiet(&raw);
	raw_close(&raw);
	return heard;
}

/* Each of them that often. */
static bool each(const struct heard *heard, uint32_t copies)
{
	for (uint32_t i = 0; i < FRAMES; i++)
		if (heard->copies[i] != copies)
			return false;
	return true;
}

/* ---- cases, each in a process of its own: 0 where what came is right ---- */

static int none(void)
{
	struct heard heard = send_all("loss=0,duplicate=0,reorder=0", 1);

	return heard.lost || heard.damaged || heard.out_of_order || !each(&heard, 1);
}

static int lost(void)
{
	struct heard heard = send_all("loss=0.5", 1);

	return !heard.lost || heard.lost == FRAMES || heard.damaged || heard.out_of_order;
}

static int all_lost(void)
{
	return send_all("loss=1", 1).lost != FRAMES;
}

static int doubled(void)
{
	struct heard heard = send_all("duplicate=1", 2);

	return heard.damaged || heard.out_of_order || !each(&heard, 2);
}

static int damaged(void)
{
	struct heard heard = send_all("corrupt=1", 1);

	return heard.damaged != FRAMES || heard.bits != FRAMES || heard.lost;
}

static int late(void)
{
	struct heard heard = send_all("delay=50ms", 1);

	return heard.first < 0.05 || heard.out_of_order || !each(&heard, 1);
}

static int out_of_order(void)
{
	struct heard heard = send_all("reorder=0.5", 1);

	return !heard.out_of_order || heard.damaged || !each(&heard, 1);
}

static void fault(void **state)
{
	int (*const *run)(void) = *state;
	char said[4096];

	if (child_run(*run, "abort", said, sizeof(said)))
		fail_msg("what came is not what that fault leaves: %s", said);
}

int main(void)
{
	static int (*const runs[])(void) = {
		none, lost, all_lost, doubled, damaged, late, out_of_order};
	static const char *const names[] = {
		"none", "lost", "all_lost", "doubled", "damaged", "late", "out_of_order"};
	struct CMUnitTest tests[sizeof(runs) / sizeof(runs[0])];

	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		tests[i] = (struct CMUnitTest){.name = names[i],
			.test_func = fault,
			.initial_state = (void *)(uintptr_t)&runs[i]};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
