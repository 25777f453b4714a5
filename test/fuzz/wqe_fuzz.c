/* wqe_fuzz.c - any bytes in the rings and records of two queue pairs: the device stays within the
 * memory that is registered, and within the rings
 *
 * An input is a few bytes that choose the queues, then what lies in the rings. Where it says so, WQEs
 * get the index and number that they must have, so that decoding goes on behind them.
 */

#include "queue_fuzz.h"

enum { SWEEPS = 6 };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_device_init("loopback");
	fuzz_queues_init();
	return 0;
}

static void go(struct fuzz_queue *a, struct fuzz_queue *b, struct fuzz_bytes *input, uint8_t choice)
{
	fuzz_queue_fill(a, input);
	fuzz_queue_fill(b, input);
	if (choice & CHOOSE_MEND) {
		fuzz_queue_mend(a, b);
		fuzz_queue_mend(b, a);
	}
	fuzz_queue_ring(a, fuzz_take(input, 1));
	fuzz_queue_ring(b, fuzz_take(input, 1));
	for (int i = 0; i < SWEEPS; i++)
		fuzz_sweep();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_bytes input = {bytes, size};
	uint8_t choice = (uint8_t)fuzz_take(&input, 1);
	struct vhca_device *device = fuzz_device();
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct fuzz_queue a, b;

	fuzz_memory_reset();
	vhca_lock(device);
	fuzz_queue_make(&a, choice);
	fuzz_queue_make(&b, choice);
	fuzz_queue_connect(&a, &b, NULL);
	fuzz_queue_connect(&b, &a, NULL);
	vhca_unlock(device);
	go(&a, &b, &input, choice);
	if (choice & CHOOSE_TWICE) {
		vhca_lock(device);
		fuzz_demand(!vhca_qp_modify(a.qp, &reset, IBV_QP_STATE, 0));
		a.records[2] = a.records[3] = 0;
		fuzz_queue_connect(&a, &b, NULL);
		vhca_unlock(device);
		go(&a, &b, &input, choice);
	}
	fuzz_memory_check();
	vhca_lock(device);
	fuzz_queue_end(&a);
	fuzz_queue_end(&b);
	vhca_unlock(device);
	return 0;
}
