/* peer.h - how full the sockets of peers on this host are
 *
 * RoCE's transports without acknowledgements count on an Ethernet that pauses a sender before it
 * drops. Between sockets of one host the kernel can be asked how much waits at the receiver.
 */
#ifndef VHCA_PEER_H
#define VHCA_PEER_H

#include "base/base.h"

enum { VHCA_N_PEERS = 16 };

struct vhca_peer {
	uint8_t address[16];
	uint32_t sent; /* bytes since the kernel was asked */
	bool full;
};

struct vhca_peers {
	int fd; /* netlink; -1: not asked yet, -2: the kernel does not tell */
	uint32_t next;
	struct vhca_peer peer[VHCA_N_PEERS];
};

/* Whether `bytes` more had better wait. An address of another host never is full. */
bool vhca_peer_full(struct vhca_peers *peers, const uint8_t address[16], uint32_t bytes);
void vhca_peers_end(struct vhca_peers *peers);

#endif
