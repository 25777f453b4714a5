/* wire.h - what two control threads say to each other, in packets of fixed sizes on a socket of this
 * host
 *
 * About a queue: one request, one reply; the reply brings descriptors: the segment's, and behind it the
 * one of the owner's life word (life.h), where its process has one. From then on the asker offers zones
 * (lend.h): each offer brings a zone's descriptor, and is answered when it is mapped or refused; one that
 * takes an offer back brings and expects nothing.
 *
 * Both are of one machine, so in host order.
 */
#ifndef VBN_SHM_WIRE_H
#define VBN_SHM_WIRE_H

#include "drv/shm/shm.h"

/* 1 had no life word, and the lines of the box one behind the other; 2 no word of who sleeps; 3 no
 * datagrams; 4 no references. */
enum { SHM_VERSION = 5, SHM_VERSION_MIN = 5 };

enum { SHM_REPLY_FDS = 2 };

#define SHM_MAGIC       0x534e4256u /* "VBNS" */
#define SHM_OFFER_MAGIC 0x4c4e4256u /* "VBNL" */

enum shm_order {
	SHM_MEET,
	SHM_LEAVE, /* of datagrams: nothing is answered */
};

/* "I want to write into the ring of that queue", or want to no more. */
struct shm_request {
	uint32_t magic;
	uint16_t version_min, version_max; /* that the asker speaks */
	uint32_t number;                   /* of the queue */
	uint32_t transport;
	uint64_t nonce;
	char name[SHM_NAME]; /* of the port */
	/* datagrams: what the asker is called, the key, and the ring that it leaves */
	uint8_t from_gid[16];
	uint32_t from;
	uint32_t qkey;
	uint32_t ring;
	uint32_t order;
};
static_assert(sizeof(struct shm_request) == 56 + SHM_NAME, "no byte is left to chance");

enum shm_status {
	SHM_OK,
	SHM_OTHER_VERSION,
	SHM_OTHER_NAME,
	SHM_NO_QUEUE,
	SHM_TAKEN, /* somebody else writes into it already */
	SHM_OTHER_KEY,
	SHM_FULL, /* too many write to it */
};

struct shm_reply {
	uint32_t magic;
	uint16_t version_min, version_max; /* that the owner speaks */
	uint32_t status;
	uint32_t version; /* that holds: the highest that both speak */
	uint32_t ring_size;
	uint32_t max_message;
	uint32_t ring, zero;
};
static_assert(sizeof(struct shm_reply) == 32, "no byte is left to chance");

/* "You may read this zone, which records call by that slot." */
struct shm_offer {
	uint32_t magic;
	uint16_t slot;
	uint16_t is_over; /* 1: what was offered by the slot is taken back */
	uint32_t number;  /* for the answer */
	uint32_t zero;
	uint64_t size;
};
static_assert(sizeof(struct shm_offer) == 24, "no byte is left to chance");

struct shm_offer_answer {
	uint32_t magic;
	uint32_t number;
	uint32_t is_mapped, zero;
};
static_assert(sizeof(struct shm_offer_answer) == 16, "no byte is left to chance");

#endif
