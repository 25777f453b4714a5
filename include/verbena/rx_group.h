/* verbena/rx_group.h - an rx group: the receive side of raw Ethernet, queues of several workers behind
 * one RSS table, and the rules that say what comes to them
 *
 * A group is made for a number of queues, of any workers. Each joins when it is created with
 * conf.rx_group; their order is that of the table. The group is built (the table, the hash, the rules)
 * when the last of them is connected: until then nothing is received. When one of them is reset or
 * destroyed, the others receive nothing either until another one has taken its place; the rules stay.
 *
 * What the port's device shares with the kernel (mlx5) comes only where a rule takes it: with no rule
 * nothing does. An interface (xdp) gives what comes by the group's queues: all of it where there is no
 * rule, else what a rule takes, and the kernel keeps the rest; it has no marks, counts for each rule but
 * a lone EVERYTHING, and sees the tags that are in the frame. A port that has a device or a file to itself
 * (tap, pcap) gets everything, with and without VBN_RULE_EVERYTHING, and answers -EOPNOTSUPP to other
 * rules.
 *
 * Functions: any thread; the work is done on the control thread.
 */
#ifndef VERBENA_RX_GROUP_H
#define VERBENA_RX_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <verbena/mode.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_port;
struct vbn_rx_group;

/* What of a packet chooses its queue; packets of which nothing does come to the first one. */
enum vbn_hash {
	VBN_HASH_IPV4 = 1 << 0, /* addresses */
	VBN_HASH_IPV6 = 1 << 1,
	VBN_HASH_UDP4 = 1 << 2, /* addresses and ports */
	VBN_HASH_TCP4 = 1 << 3,
	VBN_HASH_UDP6 = 1 << 4,
	VBN_HASH_TCP6 = 1 << 5,
};

#define VBN_RX_KEY_SIZE 40

struct vbn_rx_group_conf {
	/* 1 to the port's max_rx_queues; default 1. */
	uint32_t n_queues;

	/* enum vbn_hash; 0: all that the port has. */
	uint32_t hash;

	/* Both directions of a flow come to the same queue. AUTO: off. */
	enum vbn_switch symmetric;

	/* Of Toeplitz, VBN_RX_KEY_SIZE bytes, copied; NULL: the library's. */
	const uint8_t *key;
};

/* conf may be NULL. -EINVAL: out of range; -EOPNOTSUPP: the port has no raw Ethernet; -ENOTSUP: a hash,
 * key or symmetry that it cannot be told. */
int vbn_rx_group_create(
	struct vbn_port *port, const struct vbn_rx_group_conf *conf, struct vbn_rx_group **group);

/* With its rules. Its queues must be gone, else it stays and a sentence says so. NULL is allowed. */
void vbn_rx_group_destroy(struct vbn_rx_group *group);

/* Whether the last queue has been connected, so that packets come. */
bool vbn_rx_group_is_built(const struct vbn_rx_group *group);

/* "rss", "hash", "symmetric", and what the driver has to say. Writes at most n and returns how many
 * there are. */
int vbn_rx_group_modes(const struct vbn_rx_group *group, struct vbn_mode *modes, int n);

enum vbn_rule_kind {
	VBN_RULE_EVERYTHING,    /* promiscuous: what no other rule takes */
	VBN_RULE_ALL_MULTICAST, /* every frame to a group address */
	VBN_RULE_MATCH,         /* what has everything that is set below */
};

enum vbn_rule_action {
	VBN_RULE_TAKE, /* to the group's queues, by the hash */
	VBN_RULE_DROP,
};

/* A field that is zero, or whose mask, prefix or `set` is, matches everything. What is of a packet
 * implies what the packet must be: a port needs `protocol` 6 or 17, an address or a protocol an
 * `ip_version`. */
struct vbn_rx_rule {
	enum vbn_rule_kind kind;
	enum vbn_rule_action action;
	uint32_t priority; /* lower ones are asked first; default 0; mlx5: 0 to 3 */
	uint32_t mark;     /* 1 to 0xffffff: in buf->mark of what it takes; 0: none */
	uint8_t dst_mac[6], dst_mac_mask[6];
	uint8_t src_mac[6], src_mac_mask[6];
	uint16_t ethertype;
	struct vbn_num vlan; /* VID, 0 to 4095 */
	uint8_t ip_version;  /* 4, 6 */
	uint8_t src_prefix, dst_prefix;
	uint8_t src_ip[16], dst_ip[16]; /* network order; IPv4 in the first 4 bytes */
	struct vbn_num protocol;        /* IP's: 6 TCP, 17 UDP, … */
	struct vbn_num src_port, dst_port;
};

/* A rule holds from its adding on, or once the group is built; *id names it, from 1. -EINVAL: it
 * contradicts itself; -EOPNOTSUPP: the port has not such rules; -EPERM: the device shares them with the
 * kernel, and this process may not; what else the device answers. */
int vbn_rx_rule_add(struct vbn_rx_group *group, const struct vbn_rx_rule *rule, uint32_t *id);

/* -ENOENT: there is none of that name. */
int vbn_rx_rule_remove(struct vbn_rx_group *group, uint32_t id);

/* What it has taken or dropped since it was added, also after the group's queues are gone; either may
 * be NULL. -ENOENT; -EOPNOTSUPP: the port does not count. */
int vbn_rx_rule_count(
	const struct vbn_rx_group *group, uint32_t id, uint64_t *packets, uint64_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
