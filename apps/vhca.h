/* vhca.h - between vhca.c, which runs a command on the emulator, and vhca_check.c, which judges its
 * options and the variables that mirror them */
#ifndef VHCA_H
#define VHCA_H

#include "cmd.h"

/* As they are given; NULL: not. Those of each device are comma lists. */
struct vhca_options {
	int64_t devices, seed, strict, idle;
	bool trap, devx;
	const char *address, *gateway, *wire, *fault, *trace, *pcap;
	const char *mtu, *node, *profile, *speed;
	uint64_t inherited; /* which are variables of the environment */
};

/* What a sentence calls the value: "option --mtu", or "VHCA_MTU in the environment". */
const char *vhca_called(const struct vhca_options *conf, const char *option, char text[64]);

/* 0, or an exit status after a sentence. */
int vhca_check(const struct vhca_options *conf);

#endif
