/* xdp.h - the driver for interfaces by AF_XDP: a socket on each queue of the interface
 *
 * Lives here: ports that are an interface of this network namespace, queues that are an AF_XDP socket
 * each. May come in: libxdp's sockets, libbpf. May touch it: port, through struct driver.
 *
 *   port.c      the driver's table, open, drops
 *   program.c   the program that gives packets to sockets, and its map
 *   rules.c     the program where there are rules
 *   features.c  what the interface's driver has of XDP
 *   socket.c    memory and rings of a queue, by libxdp
 *   queue.c     create, groups, free; modes
 *   data.c      stage, flush, receive
 *   absent.c    says what is missing, where the library was built without libxdp
 *
 * The program belongs to a bpf link, and that to a descriptor of this process: it is gone with the
 * process, whatever ends it. It gives the packets of a queue that has a socket in the map to that socket,
 * as far as there are no rules or they take them, and leaves all others to the kernel.
 *
 * Memory (umem): the zone of the queue's receive pool, whole, in unaligned chunks of which each is a buf,
 * header and all, so that an address that the kernel gives back says which buf it is. The kernel leaves
 * the first 256 bytes of a chunk alone. What is sent from elsewhere, and a chain, is copied into a buf of
 * the pool first.
 *
 * A flush hands descriptors over by a store, and by a system call where the kernel asks to be woken, which
 * it always does but for zero-copy under load; a receive does likewise when there is nothing.
 *
 * What the kernel holds is marked in the buf (`peer[1]`), so that nothing is lost with a socket.
 */
#ifndef VBN_XDP_H
#define VBN_XDP_H

#include "drv/frame_queue.h"
#include "drv/netdev.h"

#include <linux/if_xdp.h>
#include <xdp/xsk.h>

enum {
	XDP_MAX_QUEUES = 64,
	XDP_GATHER = 16,
	XDP_LEFT_ALONE = 256, /* bytes of a chunk that the kernel keeps for programs */
	XDP_MIN_CHUNK = 2048,
	XDP_MAX_CHUNK = 4096,
	XDP_MAX_MTU = XDP_MAX_CHUNK - XDP_LEFT_ALONE - FRAME_HEADER - FRAME_TAG,
	XDP_BURST = 64,
	XDP_MAX_RULES = 64,
};

/* In the map `counts`. */
struct xdp_rule_count {
	uint64_t packets, bytes;
};

struct xdp_program {
	int map, program, link; /* descriptors; -1 */
	int counts;             /* of rules, by their slots; -1: there has been none */
	bool has_rules;
	bool native;
	char why[128]; /* not native */
};

struct xdp_port {
	struct vbn_port port;
	char name[16];
	int index;
	uint32_t mtu; /* of the interface */
	struct xdp_program program;
	bool taken[XDP_MAX_QUEUES]; /* of the interface's queues */
	uint64_t rule_slots;        /* that are in use */
	enum vbn_switch native_asked;
	struct netdev_since since; /* it was opened */
};

static inline struct xdp_port *xdp_port(const struct vbn_port *port)
{
	return container_of((struct vbn_port *)(uintptr_t)port, struct xdp_port, port);
}

struct xdp_queue {
	struct frame_queue fq;
	/* each burst */
	struct xsk_ring_cons rx cache_aligned;
	struct xsk_ring_prod fill;
	struct xsk_ring_prod tx cache_aligned;
	struct xsk_ring_cons done;
	uint8_t *base;           /* of the umem */
	struct vbn_pool *pool;   /* whose bufs are its chunks; what is copied goes there, too */
	uint64_t received, sent; /* marks of bufs that the kernel has */
	uint32_t posted;         /* bufs in the kernel's hands to receive into */
	uint32_t staged;         /* not submitted yet */
	uint32_t longest;        /* bytes of a frame */
	uint32_t idle;           /* receives that found nothing */
	uint16_t ids[2];         /* of the pools in the umem */
	int fd;
	/* control path */
	struct xsk_umem *umem;
	struct xsk_socket *socket;
	struct xdp_statistics lost; /* of sockets before this one */
	uint32_t index, chunk;
	bool zero_copy;
	char zero_copy_why[128];
};

static force_inline struct xdp_queue *xdp_queue(const struct vbn_queue *queue)
{
	return container_of(frame_queue(queue), struct xdp_queue, fq);
}

extern const struct driver vbn__driver_xdp;

/* port.c: the program is on the interface, be it one that has come back. 0, or -errno with a sentence. */
int vbn__xdp_renew(struct xdp_port *port);

/* features.c: " native", and " zero-copy" too where the driver has it, or " generic"; "": the kernel does not
 * say. */
const char *vbn__xdp_words(int index);

/* program.c: 0, or -errno with a sentence. */
int vbn__xdp_program_load(struct xdp_port *port, uint32_t n_queues, enum vbn_switch native);
void vbn__xdp_program_unload(struct xdp_program *program);
int vbn__xdp_program_give(const struct xdp_port *port, uint32_t index, int fd);
void vbn__xdp_program_keep(const struct xdp_port *port, uint32_t index);

/* The program without rules; or another one, which is the callee's. */
int vbn__xdp_program_plain(struct xdp_program *program);
int vbn__xdp_program_replace(struct xdp_program *program, int fd);

/* rules.c */
int vbn__xdp_rules_build(struct vbn_rx_group *group);
void vbn__xdp_rules_unbuild(struct vbn_rx_group *group);
int vbn__xdp_rule_check(const struct vbn_rx_group *group, const struct vbn_rx_rule *rule);
int vbn__xdp_rule_add(struct vbn_rx_group *group, struct rx_rule *added);
void vbn__xdp_rule_remove(struct vbn_rx_group *group, struct rx_rule *removed);
int vbn__xdp_rule_count(const struct vbn_rx_group *group, const struct rx_rule *counted,
	uint64_t *packets, uint64_t *bytes);

/* socket.c */
int vbn__xdp_socket_open(struct xdp_queue *xq, const struct vbn_queue_conf *conf);
void vbn__xdp_socket_close(struct xdp_queue *xq);
/* What the kernel dropped of this queue's, with those of sockets before. */
void vbn__xdp_socket_lost(const struct xdp_queue *xq, struct xdp_statistics *lost);

/* queue.c */
int vbn__xdp_queue_create(struct vbn_port *port, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue);
int vbn__xdp_queue_connect(struct vbn_queue *queue, const struct address *peer);
int vbn__xdp_queue_fail(struct vbn_queue *queue);
int vbn__xdp_queue_reset(struct vbn_queue *queue);
void vbn__xdp_queue_stop(struct vbn_queue *queue);
void vbn__xdp_queue_free(struct vbn_queue *queue);
void vbn__xdp_queue_modes(const struct vbn_queue *queue, struct mode_report *report);
void vbn__xdp_queue_drops(const struct vbn_queue *queue, struct drop_list *list);
int vbn__xdp_group_build(struct vbn_rx_group *group);
void vbn__xdp_group_unbuild(struct vbn_rx_group *group);

/* data.c */
void vbn__xdp_ops(struct xdp_queue *xq);
void vbn__xdp_queue_news(struct vbn_queue *queue, uint32_t news);
/* Posts what is missing; how many the pool had not. */
uint32_t vbn__xdp_refill(struct xdp_queue *xq);
/* What the kernel held comes back, once its socket is no more. */
void vbn__xdp_reclaim(struct xdp_queue *xq);

#endif
