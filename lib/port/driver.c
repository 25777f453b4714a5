/* driver.c - the table of drivers */

#include "port/port.h"

extern const struct driver vbn__driver_mlx5, vbn__driver_verbs, vbn__driver_shm, vbn__driver_tap,
	vbn__driver_xdp, vbn__driver_pcap;

const struct driver *const vbn__drivers[] = {&vbn__driver_mlx5, &vbn__driver_verbs,
	&vbn__driver_shm, &vbn__driver_tap, &vbn__driver_xdp, &vbn__driver_pcap, NULL};
