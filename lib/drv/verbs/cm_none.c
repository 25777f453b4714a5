/* cm_none.c - no connections by rdma_cm: the library was built without librdmacm */

#include "drv/verbs/iwarp.h"

int vbn__cm_start(struct verbs_port *port)
{
	return fail(EPROTONOSUPPORT,
		"port %s cannot be opened: it is iWARP, whose connections are made by rdma_cm alone, and this library was built without it: install librdmacm's development files (Debian: librdmacm-dev) and build again",
		port->rdma.port.info.name);
}

void vbn__cm_stop(struct verbs_port *port)
{
	(void)port;
}

void vbn__cm_name(const struct verbs_port *port, struct link_name *name)
{
	(void)port, (void)name;
}

int vbn__cm_connect(struct verbs_queue *vq)
{
	(void)vq;
	return -EPROTONOSUPPORT;
}

void vbn__cm_end(struct verbs_queue *vq)
{
	(void)vq;
}
