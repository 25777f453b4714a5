/* net_icmp6_fuzz.c - any bytes as ICMPv6 messages to us: neighbour discovery, MLD, errors */

#include "net_fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_net *net = fuzz_net();
	uint8_t frame[1600] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1};
	size_t n;

	size = size < 1500 ? size : 1500;
	n = fuzz_net_headers(frame, 6, 58, size);
	memcpy(frame + n, bytes, size);
	fuzz_net_input(net, 0, VBN_PACKET_IP_GOOD | VBN_PACKET_L4_GOOD, frame, n + size);
	fuzz_net_input(net, 0, VBN_PACKET_IP_GOOD, frame, n + size);
	fuzz_net_check(net);
	return 0;
}
