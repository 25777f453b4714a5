/* packet_capture.h - --pcap: what is received and sent, copied for a thread that writes it as pcapng
 *
 * A worker has a tap. It copies a frame's first bytes into a slot and puts that into a ring; where no slot is
 * free the frame is not captured, which is counted, and nothing waits. The writer filters, writes, and gives
 * the slot back by another ring.
 */
#ifndef PACKET_CAPTURE_H
#define PACKET_CAPTURE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <verbena.h>

struct capture;
struct capture_tap;

enum capture_direction { CAPTURE_RECEIVED = 1, CAPTURE_SENT = 2 }; /* as pcapng's flags have them */

/* `option` is FILE[,FILTER]. 0 or an exit status. */
int capture_open(struct capture **capture, const char *option, uint32_t snaplen);
/* An interface, by the name of its device; in the order of their indices. */
void capture_interface(struct capture *capture, const char *name, const uint8_t mac[6]);
/* One for each worker, before the writer starts; NULL: no memory. */
struct capture_tap *capture_tap(struct capture *capture);
int capture_start(struct capture *capture);
/* The workers are done: writes what is left, and the statistics. 0 or an exit status. */
int capture_finish(struct capture *capture);
void capture_destroy(struct capture *capture);
/* Of a finished one. */
json_t *capture_json(const struct capture *capture);
void capture_print(const struct capture *capture);

/* On the tap's worker: the frames of one burst. */
void capture_burst(struct capture_tap *tap, uint32_t interface, enum capture_direction direction,
	struct vbn_buf **bufs, int n);

#endif
