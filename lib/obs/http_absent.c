/* http_absent.c - what stands for http.c in a build without libmicrohttpd */

#include "obs/metrics.h"

int vbn__http_start(const char *address)
{
	return fail(ENOTSUP,
		"option --vbn-metrics=%.80s: cannot be had: this library was built without libmicrohttpd; install its development files (libmicrohttpd-dev) and build again",
		address);
}

void vbn__http_stop(void)
{
}
