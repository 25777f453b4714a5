/* neighbor.h - which MAC an IP address of the own link has: ARP and IPv6 neighbor discovery, asked
 * and answered
 */
#ifndef VHCA_NEIGHBOR_H
#define VHCA_NEIGHBOR_H

#include "vhca/vhca.h"

enum {
	VHCA_N_NEIGHBORS = 64,
	VHCA_MAC = 6,
	VHCA_ETHERNET = 14,
	VHCA_NEIGHBOR_FRAME = VHCA_ETHERNET + 40 + 32, /* the longest that is made here */
};

struct vhca_neighbor {
	uint8_t address[16]; /* IPv4 is mapped into IPv6 */
	uint16_t vlan;       /* 0: none */
	uint8_t mac[VHCA_MAC];
	bool known;
	uint64_t asked; /* clock_ns() */
};

struct vhca_neighbors {
	const struct vhca_gid *gids; /* the own addresses, VHCA_N_GIDS of them */
	uint8_t mac[VHCA_MAC];       /* the own one */
	uint32_t next;
	struct vhca_neighbor neighbor[VHCA_N_NEIGHBORS];
};

/* Frames are without the tag of their VLAN, which is told beside them. */

/* Its MAC, or NULL while it is not known. */
const uint8_t *vhca_neighbor_find(
	struct vhca_neighbors *neighbors, const uint8_t address[16], uint16_t vlan);
void vhca_neighbor_learn(struct vhca_neighbors *neighbors, const uint8_t address[16], uint16_t vlan,
	const uint8_t mac[VHCA_MAC]);
/* Writes the frame by which the own address `source` asks for it; its size, or 0 where it was asked
 * for just now. */
size_t vhca_neighbor_ask(struct vhca_neighbors *neighbors, const uint8_t source[16],
	const uint8_t address[16], uint16_t vlan, uint8_t *frame);
/* Learns from an ARP or neighbor discovery frame; the size of the answer, or 0. Any other frame is
 * none of its. */
size_t vhca_neighbor_heard(struct vhca_neighbors *neighbors, uint16_t vlan, const uint8_t *frame,
	size_t size, uint8_t *answer);

#endif
