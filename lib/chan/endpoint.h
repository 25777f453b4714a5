/* endpoint.h - "ADDR:PORT" and what the socket calls take */
#ifndef VBN_CHAN_ENDPOINT_H
#define VBN_CHAN_ENDPOINT_H

#include "base/base.h"

#include <sys/socket.h>

#define ENDPOINT_TEXT 64
#define ENDPOINT_MAX  8 /* addresses of one name that are tried */

struct endpoint {
	struct sockaddr_storage address;
	socklen_t len;
};

/* At most ENDPOINT_MAX of them; how many, or -EINVAL with a sentence. Names are looked up, which
 * may take seconds, only where `lookup`; without it they are refused. */
int vbn__endpoint_parse(
	const char *text, bool listens, bool lookup, struct endpoint endpoints[ENDPOINT_MAX]);

/* "127.0.0.1:80", "[::1]:80". Returns text. */
char *vbn__endpoint_text(const struct endpoint *endpoint, char text[ENDPOINT_TEXT]);

/* Of a connected or bound socket; "" where it is neither. */
void vbn__endpoint_of_socket(int fd, bool peer, char text[ENDPOINT_TEXT]);

#endif
