/* disturb.h - packets and raw frames lost, doubled, damaged, late or out of order, as VHCA_FAULT asks for */
#ifndef VHCA_DISTURB_H
#define VHCA_DISTURB_H

#include "vhca/flow.h"

/* Set once, before the engine runs: packets also go to peers in this process. */
extern bool vhca_disturb_any;

/* The packet in wire->out is whole and about to leave: it does, or not, or later. */
void vhca_disturb(struct vhca_packet_wire *wire);
/* A raw frame is about to leave: the same. */
void vhca_disturb_frame(struct vhca_packet_wire *wire, const uint8_t *bytes, uint32_t size);
/* Packets that were held and are due leave; *next becomes the earliest of the others, in
 * clock_cycles(). */
void vhca_disturb_release(struct vhca_packet_wire *wire, uint64_t now, uint64_t *next);
/* What is held never leaves. */
void vhca_disturb_end(struct vhca_packet_wire *wire);

#endif
