/* flow_fuzz.c - two queue pairs on a wire of packets that an input loses, doubles, swaps, changes and
 * makes up: the device stays within the memory that is registered
 *
 * Both QPs have their peer at another address, and what is sent there comes back from there. An input
 * is what wqe_fuzz.c has, then what happens to the packets.
 */

#include "queue_fuzz.h"
#include "vhca/flow.h"

#include <stdlib.h>

enum { MAX_PACKET = 8192, MAX_QUEUED = 64, MAX_STEPS = 200 };

static const uint8_t far_away[16] = {[10] = 0xff, 0xff, 127, 0, 0, 9};

static struct {
	uint8_t bytes[MAX_PACKET];
	uint32_t size;
} queued[MAX_QUEUED], reserved;

static uint32_t n_queued;
static struct vhca_packet_wire *wire;

/* ---- the carrier, in the place of UDP's ---- */

static struct vhca_carrier *create(struct vhca_device *device, const char *argument)
{
	struct vhca_carrier *carrier = calloc(1, sizeof(*carrier));

	(void)argument;
	fuzz_demand(carrier != NULL);
	carrier->ops = &vhca_carrier_udp;
	carrier->device = device;
	carrier->fd = -1;
	carrier->address[10] = carrier->address[11] = 0xff;
	carrier->address[12] = 127;
	carrier->address[15] = 1;
	return carrier;
}

static void destroy(struct vhca_carrier *carrier)
{
	free(carrier);
}

static uint8_t *reserve(struct vhca_carrier *carrier, const struct vhca_route *route, uint32_t size)
{
	(void)carrier;
	(void)route;
	if (size > MAX_PACKET)
		return NULL;
	reserved.size = size;
	return reserved.bytes;
}

static void commit(struct vhca_carrier *carrier)
{
	(void)carrier;
	if (n_queued < MAX_QUEUED) /* else it is lost */
		queued[n_queued++] = reserved;
}

static bool full(struct vhca_carrier *carrier, const struct vhca_route *route, uint32_t bytes)
{
	(void)carrier;
	(void)route;
	(void)bytes;
	return false;
}

static void flush(struct vhca_carrier *carrier)
{
	(void)carrier;
}

static unsigned int receive(struct vhca_carrier *carrier, struct vhca_packet_wire *from)
{
	(void)carrier;
	wire = from;
	return 0;
}

const struct vhca_carrier_ops vhca_carrier_udp = {
	.name = "udp",
	.create = create,
	.destroy = destroy,
	.reserve = reserve,
	.commit = commit,
	.full = full,
	.flush = flush,
	.receive = receive,
};

/* ---- what happens to packets ---- */

/* From the far end, with an ICRC that is right. */
static void arrive(const uint8_t *bytes, uint32_t size)
{
	struct vhca_route route = {.source_port = 50000};
	uint8_t *copy = malloc(size); /* of just that size */

	fuzz_demand(copy != NULL);
	memcpy(copy, bytes, size);
	memcpy(route.source, far_away, 16);
	memcpy(route.dest, wire->carrier->address, 16);
	if (size >= 12 + VHCA_ICRC_BYTES)
		vhca_icrc_write(0, copy, size - VHCA_ICRC_BYTES);
	vhca_lock(fuzz_device());
	vhca_wire_receive(wire, &route, 0, copy, size);
	vhca_unlock(fuzz_device());
	free(copy);
}

static void take_out(uint32_t i)
{
	n_queued--;
	memmove(&queued[i], &queued[i + 1], (n_queued - i) * sizeof(queued[0]));
}

static void change(struct fuzz_bytes *input, uint32_t i)
{
	uint32_t at = (uint32_t)fuzz_take(input, 1), value = (uint32_t)fuzz_take(input, 1);

	queued[i].bytes[at % queued[i].size] ^= (uint8_t)value;
}

static void make_up(struct fuzz_bytes *input, const struct fuzz_queue *to)
{
	uint32_t size = (uint32_t)fuzz_take(input, 1);
	__be32 number = be32(to->qp->number);
	uint8_t bytes[256];

	fuzz_copy(input, bytes, size);
	if (size >= 12) {
		memcpy(bytes + 4, &number, sizeof(number));
		bytes[2] = bytes[3] = 0xff; /* the P_Key */
	}
	arrive(bytes, size);
}

static void step(struct fuzz_bytes *input, const struct fuzz_queue *a, const struct fuzz_queue *b)
{
	uint8_t what = (uint8_t)fuzz_take(input, 1);
	uint32_t i = n_queued ? (what >> 3) % n_queued : 0;

	switch (what & 7) {
	case 0: make_up(input, what & 8 ? a : b); return;
	case 1: fuzz_sweep(); return;
	case 2: fuzz_queue_ring(what & 8 ? a : b, what >> 4); return;
	}
	if (!n_queued)
		return;
	if ((what & 7) == 3)
		change(input, i);
	if ((what & 7) != 4)
		arrive(queued[i].bytes, queued[i].size);
	if ((what & 7) != 5)
		take_out(i);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_device_init("udp");
	fuzz_queues_init();
	fuzz_sweep();
	fuzz_demand(wire != NULL);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_bytes input = {bytes, size};
	uint8_t choice = (uint8_t)fuzz_take(&input, 1);
	struct fuzz_queue a, b;

	n_queued = 0;
	fuzz_memory_reset();
	vhca_lock(fuzz_device());
	fuzz_queue_make(&a, choice);
	fuzz_queue_make(&b, choice);
	fuzz_queue_connect(&a, &b, far_away);
	fuzz_queue_connect(&b, &a, far_away);
	vhca_unlock(fuzz_device());
	fuzz_queue_fill(&a, &input);
	fuzz_queue_fill(&b, &input);
	fuzz_queue_mend(&a, &b);
	fuzz_queue_mend(&b, &a);
	fuzz_queue_ring(&a, fuzz_take(&input, 1));
	fuzz_queue_ring(&b, fuzz_take(&input, 1));
	fuzz_sweep();
	for (int i = 0; i < MAX_STEPS && input.left; i++)
		step(&input, &a, &b);
	fuzz_sweep();
	fuzz_memory_check();
	vhca_lock(fuzz_device());
	fuzz_queue_end(&a);
	fuzz_queue_end(&b);
	vhca_unlock(fuzz_device());
	return 0;
}
