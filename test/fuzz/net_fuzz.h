/* net_fuzz.h - a net for any bytes: what comes in, and the clock, are the input's */
#ifndef TEST_FUZZ_NET_FUZZ_H
#define TEST_FUZZ_NET_FUZZ_H

#include <stdint.h>
#include <stdlib.h>
#include <verbena.h>

struct fuzz_net {
	struct vbn_net *net;
	struct vbn_net_end *ends[2];
	struct vbn_pool *pool;
	struct vbn_udp *udp;
	uint64_t now;
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Made once a process: what one input leaves behind, the next one finds. */
struct fuzz_net *fuzz_net(void);
/* A frame of `size` bytes on a link; `flags` are enum vbn_packet_flag, as a device gives them. */
void fuzz_net_input(
	struct fuzz_net *net, uint32_t link, uint16_t flags, const uint8_t *bytes, size_t size);
/* Ends the process where a frame has no fate, or more bufs are held than may be. */
void fuzz_net_check(struct fuzz_net *net);
/* Writes Ethernet's header and, for IPv4 and IPv6, IP's, with sums that are right, from the peer to us, with
 * this transport. Returns their size. */
size_t fuzz_net_headers(uint8_t *at, int version, uint8_t protocol, size_t payload);

#endif
