/* verbena/udp.h - UDP sockets of a net (verbena/net.h): bursts to a callback, run to completion, or polled
 *
 * A socket is one worker's, and its callback runs there. Several workers may each open one for the same port: a
 * datagram is delivered to the socket of the worker that it has come to. Where that has none, it is handed to
 * the worker that has, which costs more. Of a group's datagrams each member has one, whoever's it is.
 *
 * A datagram is a buf, or a chain where it came in fragments: data is the payload, and in front of it are still
 * the headers that it came with: where it came from and to is read from them (vbn_udp_source()), and
 * vbn_udp_reply() uses them, so both want them untouched.
 */
#ifndef VERBENA_UDP_H
#define VERBENA_UDP_H

#include <stdint.h>
#include <string.h>
#include <verbena/buf.h>
#include <verbena/mode.h>
#include <verbena/net.h>
#include <verbena/packet.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_udp;

struct vbn_udp_address {
	struct vbn_ip ip;
	uint16_t port; /* host order */
	uint16_t
		interface; /* index + 1; 0: by the routes. Link-local and multicast destinations want one where
			       there are several interfaces */
};

/* The bufs are the callee's: it frees, keeps, sends or replies with them. On the worker's thread, in
 * vbn_net_input(). */
typedef void vbn_udp_recv_fn(struct vbn_udp *udp, struct vbn_buf **bufs, int n, void *arg);

struct vbn_udp_conf {
	struct vbn_udp_address
		local; /* bound to; port 0: any that is free, from 49152 on; no ip: all addresses */
	vbn_udp_recv_fn *recv; /* NULL: what comes waits for vbn_udp_recv() */
	void *arg;
	uint32_t
		depth; /* datagrams that wait, where there is no callback; a power of two; default 256 */
	struct vbn_num ttl; /* 1 to 255; default 64; of multicast 1 */
	uint8_t traffic_class;
	enum vbn_switch broadcast; /* ON: may send to broadcast addresses. AUTO: off */
	enum vbn_switch
		dont_fragment; /* IPv4: DF, and -EMSGSIZE above the path MTU. AUTO: DF where it fits, so that
					  the path MTU is found, fragments above it. IPv6: fragments at the source, or with
					  ON none */
};

/* Opens and binds. -EADDRINUSE: the worker has one there; -EADDRNOTAVAIL: no such address of the net's; -ENOSPC:
 * max_sockets, or no port is free; -EINVAL. The end's worker; takes a lock. */
int vbn_udp_open(struct vbn_net_end *end, const struct vbn_udp_conf *conf, struct vbn_udp **udp);

/* What waits in it is freed; not from its own callback. NULL is allowed. */
void vbn_udp_close(struct vbn_udp *udp);

/* From here on it receives from this address alone, and sends there what has no other. An unbound ip of its own
 * is chosen by the route. All zero: no more. -EHOSTUNREACH: no route; -EADDRINUSE; -EINVAL. */
int vbn_udp_connect(struct vbn_udp *udp, const struct vbn_udp_address *peer);

void vbn_udp_local(const struct vbn_udp *udp, struct vbn_udp_address *local);

/* Of multicast: reports are sent (IGMPv2, MLDv1), and datagrams to the group are delivered on this socket. The
 * interface is an index + 1, or 0 for the first. -EINVAL: no multicast address; -EADDRINUSE: it has; -ENOSPC:
 * max_groups; -EADDRNOTAVAIL: it has not. */
int vbn_udp_join(struct vbn_udp *udp, const struct vbn_ip *group, uint32_t interface);
int vbn_udp_leave(struct vbn_udp *udp, const struct vbn_ip *group, uint32_t interface);

/* Sends bufs[i] to to[i], or all to the connected peer where to is NULL. Each buf (or chain) is one datagram of
 * up to 65,507 bytes (IPv6: 65,527) and the stack's once taken; it wants VBN_NET_HEADROOM before the data,
 * else a segment is put in front. Returns how many were taken: the rest stays with the caller, and may be tried
 * again in the next iteration (the queue is full). Or, where the first cannot be sent: -EMSGSIZE, -EHOSTUNREACH (no
 * route), -EDESTADDRREQ, -EACCES (broadcast), -EADDRNOTAVAIL (no source address), -EINVAL (versions differ);
 * then none is taken. What the peer's host answers later is counted, and in vbn_udp_error(). */
int vbn_udp_send(
	struct vbn_udp *udp, const struct vbn_udp_address *to, struct vbn_buf **bufs, int n);

/* Sends bufs that this socket has received back to where they came from, from the address that they came to;
 * data and len may have been changed, not what is before the data. As vbn_udp_send(). */
int vbn_udp_reply(struct vbn_udp *udp, struct vbn_buf **bufs, int n);

/* Of a socket with no callback: up to n datagrams that have come. */
int vbn_udp_recv(struct vbn_udp *udp, struct vbn_buf **bufs, int n);

/* What an ICMP error said of the last datagrams, once: 0, -ECONNREFUSED (connected sockets), -EHOSTUNREACH,
 * -ENETUNREACH, -EMSGSIZE (the path MTU is smaller). */
int vbn_udp_error(struct vbn_udp *udp);

/* Any thread: values of a moment. */
struct vbn_udp_stats {
	uint64_t received, sent, dropped; /* datagrams; dropped: no room to wait */
};
void vbn_udp_stats(const struct vbn_udp *udp, struct vbn_udp_stats *stats);

/* The IP header that a received datagram still has in front. */
static inline const uint8_t *vbn_udp_ip_header(struct vbn_buf *buf)
{
	return buf->data - 8 - vbn_buf_packet(buf)->l3_len;
}

static inline void vbn_udp_ends(struct vbn_buf *buf, uint32_t v4_at, uint32_t v6_at,
	uint32_t port_at, struct vbn_udp_address *address)
{
	const uint8_t *ip = vbn_udp_ip_header(buf), *port = buf->data - 8 + port_at;

	memset(address, 0, sizeof(*address));
	address->port = (uint16_t)(port[0] << 8 | port[1]);
	address->interface = vbn_buf_packet(buf)->l2_len;
	if (ip[0] >> 4 == 4) {
		address->ip.bytes[10] = address->ip.bytes[11] = 0xff;
		memcpy(address->ip.bytes + 12, ip + v4_at, 4);
	} else {
		memcpy(address->ip.bytes, ip + v6_at, 16);
	}
}

/* Where a received datagram came from, and what it was sent to; the interface is that which it came by. */
static inline void vbn_udp_source(struct vbn_buf *buf, struct vbn_udp_address *source)
{
	vbn_udp_ends(buf, 12, 8, 0, source);
}

static inline void vbn_udp_destination(struct vbn_buf *buf, struct vbn_udp_address *destination)
{
	vbn_udp_ends(buf, 16, 24, 2, destination);
}

#ifdef __cplusplus
}
#endif

#endif
