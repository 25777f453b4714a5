/* packet_pcapng.h - a pcapng file that is written: a section, interfaces, packets, the interfaces' statistics
 *
 * What reads it may be slow, or stop: then a write waits, until it is told that all is over; then only a
 * while. After an error nothing is written, and `error` says why. A packet counts as written once it is in the
 * file, whole.
 */
#ifndef PACKET_PCAPNG_H
#define PACKET_PCAPNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PCAPNG_BUFFER = 1 << 18, PCAPNG_INTERFACES = 2 };

struct pcapng {
	int fd, error;                       /* error: an errno value */
	const bool *over;                    /* atomic: by another thread */
	uint64_t written[PCAPNG_INTERFACES]; /* packets of each */
	size_t n_out;
	uint8_t out[PCAPNG_BUFFER]; /* whole blocks */
};

struct pcapng_interface {
	const char *name, *filter; /* filter: NULL */
	const uint8_t *mac;
	uint32_t snaplen;
};

struct pcapng_packet {
	uint32_t interface, direction, captured, original;
	uint64_t ns;
	const uint8_t *bytes;
};

struct pcapng_statistics {
	uint64_t from_ns, to_ns, received, dropped, accepted, written;
};

/* 0 or an errno value. */
int pcapng_open(struct pcapng *file, const char *path, const bool *over);
void pcapng_section(struct pcapng *file);
void pcapng_interface(struct pcapng *file, const struct pcapng_interface *interface);
void pcapng_packet(struct pcapng *file, const struct pcapng_packet *packet);
void pcapng_statistics(
	struct pcapng *file, uint32_t interface, const struct pcapng_statistics *statistics);
void pcapng_flush(struct pcapng *file);
/* 0 or the errno value of what failed first. */
int pcapng_close(struct pcapng *file);

#endif
