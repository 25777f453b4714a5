/* packet_filter.h - expressions as tcpdump's, of which a capture has what they let through */
#ifndef PACKET_FILTER_H
#define PACKET_FILTER_H

#include <stdbool.h>
#include <stdint.h>

struct filter;

/* 0 or an exit status. */
int filter_compile(struct filter **filter, const char *expression, uint32_t snaplen);
/* NULL lets everything through. */
bool filter_matches(
	const struct filter *filter, const uint8_t *bytes, uint32_t captured, uint32_t original);
void filter_free(struct filter *filter);

#endif
