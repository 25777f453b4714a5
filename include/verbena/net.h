/* verbena/net.h - an IP stack of one's own on packet queues: Ethernet, VLAN, ARP and neighbour
 * discovery, IPv4 and IPv6 with routes, ICMP, and what verbena/udp.h adds
 *
 *	vbn_net_create(&conf, &net);                      interfaces, their addresses, routes
 *	in each worker's set-up:
 *		vbn_net_attach(net, &(struct vbn_net_end_conf){.worker = worker, .queue = queue,
 *			.pool = pool}, &end);
 *		vbn_worker_add_poll(worker, vbn_net_poll, end);
 *		vbn_udp_open(end, &udp_conf, &udp);
 *
 * A net is shared by all workers: its interfaces, routes, neighbours and sockets are tables that they read
 * without a lock. A link is what frames come and go by, numbered by the program: a port. An end is one
 * worker's packet queue on a link; an interface is a link with a MAC, an MTU, addresses and perhaps a VLAN,
 * so several may be on one link. What arrives at a worker is answered, delivered or forwarded on that worker.
 *
 * Every frame has one fate, and a counter for it (vbn_net_counters()): received = delivered + answered +
 * consumed + forwarded + merged + handed over + drops by name + what is held; vbn_net_balance() checks it.
 *
 * What arrives is not trusted. All tables are bounded when the net is made; nothing is allocated later but
 * bufs of the end's pool.
 *
 * Which RFCs it follows, and where it does not, is in lib/net/README.md.
 */
#ifndef VERBENA_NET_H
#define VERBENA_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <verbena/buf.h>
#include <verbena/mode.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_worker;
struct vbn_queue;
struct vbn_pool;
struct vbn_net;
struct vbn_net_end;

/* ---- addresses ---- */

/* Of either version, network order; IPv4 as ::ffff:a.b.c.d. All zero: none, any. */
struct vbn_ip {
	uint8_t bytes[16];
};

/* "10.0.0.1", "fd00::1". -EINVAL: it is no address. Logs nothing. */
int vbn_ip_parse(const char *text, struct vbn_ip *ip);

/* As vbn_ip_parse() reads it; returns text. */
#define VBN_IP_TEXT 46
const char *vbn_ip_text(const struct vbn_ip *ip, char text[VBN_IP_TEXT]);

static inline bool vbn_ip_is_v4(const struct vbn_ip *ip)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return !memcmp(ip->bytes, mapped, sizeof(mapped));
}

/* ---- the net ---- */

#define VBN_NET_INTERFACES 64
#define VBN_NET_LINKS      16
#define VBN_NET_ADDRESSES  16 /* of an interface, both versions, with its link-local one */

struct vbn_net_interface_conf {
	const char *name;      /* for reports; copied; default "if0" … */
	uint32_t link;         /* 0 to VBN_NET_LINKS - 1: several interfaces may be on one */
	uint8_t mac[6];        /* required: unicast; vbn_port_info's, mostly */
	struct vbn_num vlan;   /* VID, 1 to 4094: frames with this tag; default: untagged ones */
	uint32_t mtu;          /* bytes of an IP packet, 68 (IPv6: 1280) to 9216; default 1500 */
	const char *addresses; /* "10.0.0.2/24,fd00::2/64"; may be NULL */
	/* An IPv6 link-local address worked out from the MAC (EUI-64). AUTO: where the MTU is 1280 or more. */
	enum vbn_switch link_local;
};

struct vbn_net_route {
	struct vbn_ip prefix;
	uint32_t length;       /* bits of its own version: 0 to 32, or to 128 */
	struct vbn_ip gateway; /* none: the destinations are on the link */
	uint32_t interface;    /* index in conf.interfaces */
	uint32_t mtu;          /* 0: the interface's */
};

struct vbn_net_conf {
	const char *name; /* for counters; copied; default "net" */
	const struct vbn_net_interface_conf *interfaces;
	uint32_t n_interfaces; /* 1 to VBN_NET_INTERFACES */

	/* Packets for others are forwarded by the routes: a router (RFC 1812). Default: a host. */
	bool forward;

	uint32_t max_routes;     /* with the interfaces' own; default 1024, up to 65536 */
	uint32_t max_neighbours; /* default 1024; the oldest that is not in use makes room */
	uint32_t max_sockets;    /* default 1024 */
	uint32_t max_groups;     /* joined groups of all interfaces; default 256 */
	uint32_t max_paths;      /* destinations whose path MTU is remembered; default 256 */

	/* Packets that wait for a neighbour's MAC: for each neighbour (default 64, which is a datagram of
	 * 64 KiB in fragments), and of a worker (default 256). The oldest of a neighbour makes room for a new one. */
	uint32_t max_waiting_each;
	uint32_t max_waiting;

	/* Of a worker: datagrams in pieces (default 64), and bufs that they hold (default 1024). The
	 * oldest makes room. They are given up after reassembly_ms (default 15000). */
	uint32_t max_datagrams;
	uint32_t max_fragments;
	uint32_t reassembly_ms;

	/* RFC 4861's ReachableTime (default 30000), RetransTimer (1000), DELAY_FIRST_PROBE_TIME (5000), for
	 * both versions; a neighbour not used for stale_ms (default 600000) is forgotten. */
	uint32_t reachable_ms, retransmit_ms, delay_ms, stale_ms;

	/* ICMP errors that a worker sends in a second; default 100, at most as many at once. */
	uint32_t icmp_rate;

	/* Whether addresses are probed before they are used (RFC 5227, 4862). AUTO: they are used at once, and
	 * announced and probed meanwhile; ON: not before nobody has objected; OFF: neither. Who else claims
	 * one is answered once in 10 s, and counted. */
	enum vbn_switch probe_addresses;
};

/* Parses, checks and makes all tables. -EINVAL: the sentence names the field; -ENOMEM. Any thread. */
int vbn_net_create(const struct vbn_net_conf *conf, struct vbn_net **net);

/* Its ends must be detached, else it stays and a sentence says so. Not on the control thread, nor in a
 * worker's loop. NULL is allowed. */
void vbn_net_destroy(struct vbn_net *net);

/* Hold for packets from the next iteration of each worker on. -EEXIST: there is one for the prefix; -ENOENT:
 * there is none; -ENOSPC: max_routes; -EINVAL; -ENOMEM. Any thread; takes a lock and allocates. */
int vbn_net_route_add(struct vbn_net *net, const struct vbn_net_route *route);
int vbn_net_route_remove(struct vbn_net *net, const struct vbn_net_route *route);

/* "10.1.0.0/16 via 10.0.0.1", "default via fe80::1 dev if0", "10.2.0.0/16 dev if1 mtu 1400", for the function above:
 * the interface is that whose subnet has the gateway, where none is named. -EINVAL. Any thread. */
int vbn_net_route_parse(struct vbn_net *net, const char *text, struct vbn_net_route *route);

/* ---- a worker's end ---- */

struct vbn_net_end_conf {
	/* The calling thread's. NULL: a thread that is none, see vbn_net_tick(); then it is the net's only one,
	 * and nobody changes routes or sockets meanwhile. */
	struct vbn_worker *worker;
	uint32_t link; /* one end a worker and link */

	/* Where frames come from and go to: a packet queue of the worker's, connected. NULL: frames are handed
	 * in by vbn_net_input() and out to `output`. */
	struct vbn_queue *queue;

	/* Takes up to n frames to send, returns how many; they are the taker's. The rest is offered again. */
	int (*output)(struct vbn_buf **bufs, int n, void *arg);
	void *arg;

	/* Where answers, fragments and copies are made. Required: data_size at least 128 bytes (with
	 * VBN_NET_HEADROOM; an MTU and 14 bytes where larger packets are to be sent in fragments). */
	struct vbn_pool *pool;

	/* Checksums of what is sent are left to the queue (VBN_PACKET_TX_*). AUTO: where there is one; OFF: the
	 * stack fills them in. */
	enum vbn_switch checksum_offload;
};

/* Room before the data of what is sent that spares a copy or a second segment: Ethernet, VLAN, IPv6, UDP. */
#define VBN_NET_HEADROOM 80

/* Addresses are announced from here on. -EEXIST: the worker has one on this link; -EINVAL; -ENOMEM. The
 * worker's thread. */
int vbn_net_attach(
	struct vbn_net *net, const struct vbn_net_end_conf *conf, struct vbn_net_end **end);

/* With the worker's sockets, if it is its last end; what waits is freed. The worker's thread, not from a
 * callback. Its poll function must not be called any more: in an exit function of the worker. */
void vbn_net_detach(struct vbn_net_end *end);

/* A vbn_poll_fn: receives a burst, has it handled, stages the answers. `end` is the vbn_net_end. */
int vbn_net_poll(struct vbn_worker *worker, void *end);

/* The same with frames that the caller has received (or made): they are the stack's from here on. What they
 * cause to be sent is staged; vbn_net_flush() hands it to the queue, which vbn_net_poll() does by itself. What
 * other workers have handed to this one is looked after here, too: to be called with no frames as well. */
void vbn_net_input(struct vbn_net_end *end, struct vbn_buf **bufs, int n);
void vbn_net_flush(struct vbn_net_end *end);

/* An end with no worker has no timers: this is its clock, in ms, which never goes back; called each 10 ms or
 * so. */
void vbn_net_tick(struct vbn_net_end *end, uint64_t now_ms);

/* ---- what can be seen ---- */

enum vbn_neighbour_state {
	VBN_NEIGHBOUR_INCOMPLETE,
	VBN_NEIGHBOUR_REACHABLE,
	VBN_NEIGHBOUR_STALE,
	VBN_NEIGHBOUR_DELAY,
	VBN_NEIGHBOUR_PROBE,
	VBN_NEIGHBOUR_FAILED,
};

struct vbn_neighbour {
	struct vbn_ip ip;
	uint32_t interface;
	uint8_t mac[6];
	uint8_t state; /* enum vbn_neighbour_state */
};

/* Writes at most n and returns how many there are. Any thread; takes a lock. */
int vbn_net_neighbours(struct vbn_net *net, struct vbn_neighbour *neighbours, int n);

struct vbn_net_address {
	struct vbn_ip ip;
	uint32_t length;
	uint32_t interface;
	bool tentative; /* nobody has been asked long enough */
	bool duplicate; /* somebody else has it: it is not used */
};
int vbn_net_addresses(struct vbn_net *net, struct vbn_net_address *addresses, int n);

/* The path MTU to a destination as it is known. Any thread. */
uint32_t vbn_net_path_mtu(struct vbn_net *net, const struct vbn_ip *ip);

/* Calls fn for each counter of the end's worker, all its ends together: drops are those whose name begins
 * with "drop_". Returns what fn returns when it is not 0. Any thread: values of a moment. */
int vbn_net_counters(const struct vbn_net_end *end,
	int (*fn)(const char *name, const char *help, uint64_t value, void *arg), void *arg);

/* One by its name; UINT64_MAX: there is none. */
uint64_t vbn_net_counter(const struct vbn_net_end *end, const char *name);

/* True where each frame received has one fate, and each packet that was to be sent. The worker's thread,
 * between two bursts. What is missing (may be below 0) is added up there; both may be NULL. */
bool vbn_net_balance(const struct vbn_net_end *end, int64_t *received, int64_t *sent);

#ifdef __cplusplus
}
#endif

#endif
