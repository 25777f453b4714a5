/* peer.h - how much waits in the sockets of peers on this host
 *
 * RoCE's transports without acknowledgements count on an Ethernet that pauses a sender before it
 * drops, and those with on a peer that answers while its processor does other things. Between
 * sockets of one host the kernel can be asked how much waits at the receiver.
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

enum vhca_backlog {
	VHCA_BACKLOG_NONE, /* or it is not known, or nobody is there */
	VHCA_BACKLOG_SOME,
	VHCA_BACKLOG_FULL, /* more than half of the room is taken */
};

struct vhca_peers {
	int fd; /* netlink; -1: not asked yet, -2: the kernel does not tell */
	uint32_t next;
	struct vhca_peer peer[VHCA_N_PEERS];
};

/* Whether `bytes` more had better wait. An address of another host never is full. */
bool vhca_peer_full(struct vhca_peers *peers, const uint8_t address[16], uint32_t bytes);
/* What its process has not read yet: asks the kernel, which takes a microsecond or two. */
enum vhca_backlog vhca_peer_backlog(struct vhca_peers *peers, const uint8_t address[16]);
void vhca_peers_end(struct vhca_peers *peers);

#endif
