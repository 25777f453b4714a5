/* wire.h - what two control threads say to each other about a queue: one request, one reply, each a
 * packet of fixed size on a socket of this host; the reply brings descriptors: the segment's, and
 * behind it the one of the owner's life word (life.h), where its process has one
 *
 * Both are of one machine, so in host order.
 */
#ifndef VBN_SHM_WIRE_H
#define VBN_SHM_WIRE_H

#include "drv/shm/shm.h"

/* 1 had no life word, and the lines of the box one behind the other; 2 no word of who sleeps; 3 no
 * whole line in the box. */
enum { SHM_VERSION = 4, SHM_VERSION_MIN = 4 };

enum { SHM_REPLY_FDS = 2 };

#define SHM_MAGIC 0x534e4256u /* "VBNS" */

/* "I want to write into the ring of that queue." */
struct shm_request {
	uint32_t magic;
	uint16_t version_min, version_max; /* that the asker speaks */
	uint32_t number;                   /* of the queue */
	uint32_t transport;
	uint64_t nonce;
	char name[SHM_NAME]; /* of the port */
};
static_assert(sizeof(struct shm_request) == 24 + SHM_NAME, "no byte is left to chance");

enum shm_status {
	SHM_OK,
	SHM_OTHER_VERSION,
	SHM_OTHER_NAME,
	SHM_NO_QUEUE,
	SHM_TAKEN, /* somebody else writes into it already */
};

struct shm_reply {
	uint32_t magic;
	uint16_t version_min, version_max; /* that the owner speaks */
	uint32_t status;
	uint32_t version; /* that holds: the highest that both speak */
	uint32_t ring_size;
	uint32_t max_message;
};
static_assert(sizeof(struct shm_reply) == 24, "no byte is left to chance");

#endif
