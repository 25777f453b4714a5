/* pcap.h - a capture of the wire, as VHCA_PCAP asks for: pcapng that tshark reads */
#ifndef VHCA_PCAP_H
#define VHCA_PCAP_H

#include "vhca/route.h"

/* Set once, before the engine runs. Ask it before each call, so that no capture costs nothing. */
extern bool vhca_pcap_on;

void vhca_pcap_open(void);

/* A packet as it leaves or comes in: `bytes` are all from the BTH to the ICRC. The headers in front of
 * it are made of its route, with MACs that the emulation makes of the addresses. Engine thread. */
void vhca_pcap_packet(bool sent, const struct vhca_route *route, const void *bytes, size_t size);
/* A raw frame, whole. */
void vhca_pcap_frame(bool sent, const void *bytes, size_t size);

#endif
