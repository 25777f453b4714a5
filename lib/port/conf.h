/* conf.h - checking a queue's conf before a driver sees it */
#ifndef VBN_PORT_CONF_H
#define VBN_PORT_CONF_H

#include "port/port.h"

/* Bytes a WQE of 1,024 can carry inline behind its control, address and inline headers, rounded
 * down. */
#define QUEUE_MAX_INLINE 960

/* Fills in defaults. -EINVAL or -ENOMEM with a sentence that names the field. */
int vbn__queue_conf_check(const struct vbn_port_info *port, struct vbn_queue_conf *conf);
int vbn__srq_conf_check(const struct vbn_port_info *port, struct vbn_srq_conf *conf);

/* Whether the port has raw Ethernet. */
bool vbn__port_has_packets(const struct vbn_port_info *port);

#endif
