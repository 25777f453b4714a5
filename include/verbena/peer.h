/* verbena/peer.h - a peer: where datagrams go, as the device wants it, made once and kept
 *
 * A datagram received says where it came from: vbn_buf_is_from() compares without a call, and
 * vbn_peer_from_buf() makes a peer to answer to. Credits are the application's: a datagram that
 * finds no receive posted is lost.
 *
 * On shm, memory of this host, each queue has a ring in the memory of each peer that it sends to, of a
 * quarter of a MiB: vbn_port_info's datagram_room says how much may be on its way. A queue is sent to by
 * 128 others at a time at the most, 64 of one process. What is lost is counted (vbn_queue_drops(), verbena/packet.h):
 * `tx_no_room`, `tx_no_peer`, `rx_no_receive`, `rx_too_long`; what was sent is what was received and
 * those. The two queues meet when the peer is made, so that the other one must be there, and have the key
 * that the address has; by `tx_no_peer` is told that it has ended since. A queue that uses a peer made by
 * way of another one meets it with its first datagram, and waits for the control thread then.
 */
#ifndef VERBENA_PEER_H
#define VERBENA_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <verbena/buf.h>
#include <verbena/queue.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Read only; made by the functions below. */
struct vbn_peer {
	uint64_t handle;               /* what a buf that goes there carries: the driver's */
	uint32_t number;               /* its QPN */
	uint8_t source_at, source_len; /* its address in the network header of what it sends */
	uint8_t source[16];
};

/* The peer at an address of a UD queue, for all UD queues of this queue's port that have the same
 * service level, traffic class and hop limit; asked for again it is the same one, and wants as many
 * releases. System calls on the control thread: not for the data path. -EINVAL: no address of a UD
 * queue; -EHOSTUNREACH: the device does not find the way there. On shm: -ECONNREFUSED, -ENOENT: it is
 * gone; -EACCES: its Q_Key is another, or its process another user's; -ENOSPC: too many send to it.
 * A worker's thread. */
int vbn_peer_create(
	struct vbn_queue *queue, const struct vbn_address *address, struct vbn_peer **peer);

/* The peer that a datagram came from, supposed to have this queue's Q_Key. The buf is as received:
 * its headroom not written. */
int vbn_peer_from_buf(struct vbn_queue *queue, const struct vbn_buf *buf, struct vbn_peer **peer);

/* Sends that are staged with it go out all the same. NULL is allowed. */
void vbn_peer_release(struct vbn_peer *peer);

/* Where a buf is sent to by a UD queue. One that has come as a datagram names its source and has no
 * peer: to send it back, give it one. */
static inline void vbn_buf_set_peer(struct vbn_buf *buf, const struct vbn_peer *peer)
{
	buf->peer[0] = peer->handle;
}

/* Whether a datagram, its headroom not written, came from there. */
static inline bool vbn_buf_is_from(const struct vbn_buf *buf, const struct vbn_peer *peer)
{
	const uint8_t *header = (const uint8_t *)(uintptr_t)buf->peer[1];

	return buf->peer[0] == peer->number &&
		!memcmp(header + peer->source_at, peer->source, peer->source_len);
}

#ifdef __cplusplus
}
#endif

#endif
