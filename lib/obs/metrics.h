/* metrics.h - every object's counters as OpenMetrics text, and the HTTP server that hands it out */
#ifndef VBN_OBS_METRICS_H
#define VBN_OBS_METRICS_H

#include "base/base.h"

/* All there is now, as one text; any thread. The caller frees it. NULL: no memory. */
char *vbn__metrics_text(size_t *len);

/* "ADDR:PORT", ":PORT" and "PORT" on the loopback address. 0 or -errno with a sentence. Start and stop
 * while the telemetry thread does not run. */
int vbn__http_start(const char *address);
void vbn__http_stop(void);

#endif
