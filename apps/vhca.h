/* vhca.h - between vhca.c, which runs a command on the emulator, and vhca_check.c, which judges its
 * options */
#ifndef VHCA_H
#define VHCA_H

#include "cmd.h"

/* As they are given; NULL: not. Those of each device are comma lists. */
struct vhca_options {
	int64_t devices, seed, strict;
	const char *address, *wire, *fault, *trace, *pcap;
	const char *mtu, *node, *profile, *speed;
};

/* 0, or an exit status after a sentence. */
int vhca_check(const struct vhca_options *conf);

#endif
