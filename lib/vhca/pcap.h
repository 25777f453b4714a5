/* pcap.h - a capture of the wire, as VHCA_PCAP asks for: pcapng that tshark reads */
#ifndef VHCA_PCAP_H
#define VHCA_PCAP_H

#include "base/base.h"

/* Set once, before the engine runs. Ask it before each call, so that no capture costs nothing. */
extern bool vhca_pcap_on;

void vhca_pcap_open(void);

/* A RoCEv2 packet as it leaves or comes in: `bytes` are all from the BTH to the ICRC, addresses
 * IPv6 or mapped IPv4. Ethernet, IP and UDP headers are made for it. Engine thread. */
void vhca_pcap_packet(bool sent, const uint8_t source[16], const uint8_t dest[16],
	uint16_t source_port, const void *bytes, size_t size);

/* An Ethernet frame, without its check sequence. Engine thread. */
void vhca_pcap_frame(bool sent, const void *frame, size_t size);

#endif
