/* fault_test.c - VHCA_FAULT: the message or WQE that was asked for is lost, doubled, altered or
 * failed, and no other */

#include "pair.h"

#include <stdlib.h>

/* Messages count from 1, so do WQEs; the words that are none are said and ignored. */
static const char spec[] = "msg-drop=3,nonsense,msg-double=5,msg-alter=7,msg-alter=,syndrome=15@12";

static void send_number(struct pair *pair, uint64_t number)
{
	memset(pair->a.memory, (int)number, 64);
	post_recv(&pair->b, number, 64 * (size_t)number, 64);
	post_send(&pair->a, number, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
}

/* How many of the bytes are not those of the message. */
static int altered(const uint8_t *memory, uint64_t number)
{
	int n = 0;

	for (int i = 0; i < 64; i++)
		n += memory[i] != number;
	return n;
}

static void every_fault(void **state)
{
	struct pair_conf conf = {.no_scatter = true};
	struct pair pair;
	uint64_t receive = 0;

	(void)state;
	pair_open(&pair, &conf);
	post_recv(&pair.b, 0, 0, 64); /* one more than messages, for the double */
	for (uint64_t number = 1; number <= 10; number++) {
		int copies = number == 3 ? 0 : number == 5 ? 2 : 1;

		send_number(&pair, number);
		expect_wc(pair.a.send_cq, number, IBV_WC_SUCCESS);
		for (int copy = 0; copy < copies; copy++, receive++) {
			expect_wc(pair.b.recv_cq, receive, IBV_WC_SUCCESS);
			assert_int_equal(
				altered(pair.b.memory + 64 * receive, number), number == 7);
		}
		expect_quiet(pair.b.recv_cq);
	}
	/* WQE 11 is a write. */
	post_send(&pair.a, 11, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 64, &pair.b, 0);
	post_send(&pair.a, 12, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
	post_send(&pair.a, 13, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
	expect_wc(pair.a.send_cq, 11, IBV_WC_SUCCESS);
	expect_wc(pair.a.send_cq, 12, IBV_WC_RETRY_EXC_ERR);
	expect_wc(pair.a.send_cq, 13, IBV_WC_WR_FLUSH_ERR);
	pair_close(&pair);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(every_fault)};

	setenv("VHCA_FAULT", spec, 1); /* before the device is looked for, which reads it */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
