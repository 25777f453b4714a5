/* net_input_fuzz.c - any bytes as frames for the whole stack: each is two bytes of its size, one that says
 * what the device knows of it and where it came, and the frame
 */

#include "net_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_net *net = fuzz_net();

	while (size > 3) {
		size_t frame = (size_t)(bytes[0] << 8 | bytes[1]) % 1600;
		uint8_t how = bytes[2];
		uint16_t flags = (uint16_t)(how >> 1 &
			(VBN_PACKET_IP_GOOD | VBN_PACKET_L4_GOOD | VBN_PACKET_VLAN));

		bytes += 3;
		size -= 3;
		frame = frame < size ? frame : size;
		fuzz_net_input(net, how & 1, flags, bytes, frame);
		bytes += frame;
		size -= frame;
	}
	fuzz_net_check(net);
	return 0;
}
