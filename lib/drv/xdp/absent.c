/* absent.c - ports by AF_XDP, where the library was built without libxdp: a sentence */

#include "drv/frame_queue.h"

extern const struct driver vbn__driver_xdp;

static int open_port(
	const char *name, int number, const struct vbn_port_conf *conf, struct vbn_port **result)
{
	(void)number, (void)conf, (void)result;
	return fail(EPROTONOSUPPORT,
		"port xdp:%s cannot be opened: this library was built without libxdp: install libxdp-dev and libbpf-dev, and build it anew",
		name);
}

const struct driver vbn__driver_xdp = {
	.name = "xdp",
	FRAME_DRIVER,
	.list = vbn__frame_nothing_to_list,
	.open = open_port,
};
