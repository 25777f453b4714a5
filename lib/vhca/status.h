/* status.h - between status.c, which talks to those who ask, and status_json.c, which has the
 * answer */
#ifndef VHCA_STATUS_H
#define VHCA_STATUS_H

#include "vhca/vhca.h"

/* Text that grows; `failed` once there was no memory. */
struct vhca_text {
	char *at;
	size_t n, room;
	bool failed;
};

void vhca_text_add(struct vhca_text *text, const char *fmt, ...) printf_like(2, 3);

/* The whole process as one JSON object on one line. */
void vhca_status_json(struct vhca_text *text);

bool vhca_gid_parse(const char *text, uint8_t raw[16]);

#endif
