/* steer.h - flow steering: which frames of a port go to which receive queues
 *
 * Lives here: rules, each a value under a mask of the fields that a NIC looks at, in the layout that
 * mlx5's match parameters have (PRM, Flow Table Entry Match Parameters Format, outer headers), and
 * what becomes of a frame that fits. Verbs' flow specs are turned into the same (command_flow.c), so
 * that there is one way of matching. May touch it: the device side, and those commands. With the
 * device's lock held; 0 or a positive errno.
 *
 * A frame goes by the first rule that fits, in the order of their classes, then of their priorities,
 * then as they were made. Rules of one priority, value and mask are one entry with several
 * destinations: each gets a copy. What no rule fits is the host's.
 */
#ifndef VHCA_STEER_H
#define VHCA_STEER_H

#include "vhca/raw_queue.h"

/* Outer headers: struct fte_match_set_lyr_2_4 of the PRM, as bytes lie there. */
#define VHCA_MATCH_BYTES 64u
#define VHCA_MAX_TAG     0xffffffu /* of a flow tag */

enum vhca_match_at {
	VHCA_AT_SMAC = 0,
	VHCA_AT_TYPE = 6,
	VHCA_AT_DMAC = 8,
	VHCA_AT_TAG = 14, /* priority, CFI and VLAN of the first tag */
	VHCA_AT_PROTOCOL = 16,
	VHCA_AT_TOS = 17,
	VHCA_AT_FLAGS = 18, /* 16 bits: VHCA_MATCH_* and nine of TCP's */
	VHCA_AT_TCP = 20,   /* ports: source, destination */
	VHCA_AT_TTL = 27,
	VHCA_AT_UDP = 28,
	VHCA_AT_SOURCE = 32, /* IPv4 addresses are in the last four bytes */
	VHCA_AT_DEST = 48,
};

#define VHCA_MATCH_CVLAN      0x8000u /* the first tag is 802.1Q's */
#define VHCA_MATCH_SVLAN      0x4000u /* or 802.1ad's */
#define VHCA_MATCH_FRAGMENT   0x2000u
#define VHCA_MATCH_IP_VERSION 9 /* its lowest bit */

struct vhca_match {
	union {
		uint8_t bytes[VHCA_MATCH_BYTES];
		uint64_t words[VHCA_MATCH_BYTES / 8];
	};
};

static_assert(sizeof(struct vhca_match) == VHCA_MATCH_BYTES, "the layout of the PRM");

/* Those of a class come before those of the next. */
enum vhca_steer_class {
	VHCA_STEER_NORMAL,
	VHCA_STEER_MULTICAST, /* what can only be a multicast address */
	VHCA_STEER_REST,      /* promiscuous and all-multicast: whoever wants it gets it */
};

/* What a rule counts. */
struct vhca_tally {
	uint64_t packets, bytes;
};

/* The host's part of the port is what a kernel would get. */
enum vhca_steer_action { VHCA_STEER_TO_TIR, VHCA_STEER_DROP, VHCA_STEER_TO_HOST };

struct vhca_steer_attr {
	enum vhca_steer_class class;
	uint32_t priority; /* the lowest comes first */
	struct vhca_match value, mask;
	enum vhca_steer_action action;
	bool dont_trap; /* the frame goes on to the rules behind, too */
	bool tagged;
	uint32_t tag;
	struct vhca_tir *tir;
	struct vhca_object *tir_holder; /* a QP, or the TIR itself: it is held */
	struct vhca_tally *tally;       /* NULL: it does not count */
	struct vhca_object *tally_holder;
};

struct vhca_steer_rule;

/* EEXIST: the same entry does something else; EOPNOTSUPP: a mask over what is not looked at. */
int vhca_steer_rule_create(struct vhca_context *context, const struct vhca_steer_attr *attr,
	struct vhca_steer_rule **rule);
void vhca_steer_rule_destroy(struct vhca_steer_rule *rule);

/* All of a device's, in the order in which frames meet them. */
void vhca_steer_each(const struct vhca_device *device,
	void (*each)(void *arg, const struct vhca_steer_attr *attr), void *arg);

/* Where rules for the QP lead; NULL: it does not receive raw frames. */
struct vhca_tir *vhca_steer_tir(struct vhca_qp *qp);

struct vhca_frame;

/* What rules compare with. */
void vhca_steer_key(const struct vhca_frame *frame, struct vhca_match *key);

static inline void vhca_match_put(struct vhca_match *match, enum vhca_match_at at, uint16_t value)
{
	match->bytes[at] = (uint8_t)(value >> 8);
	match->bytes[at + 1] = (uint8_t)value;
}

static inline uint16_t vhca_match_get(const struct vhca_match *match, enum vhca_match_at at)
{
	return (uint16_t)(match->bytes[at] << 8 | match->bytes[at + 1]);
}

/* ---- what commands make of it ---- */

/* ibv_create_counters(): what each of the program's numbers is the sum of. */
#define VHCA_MAX_COUNTERS 32u

struct vhca_counter_set {
	struct vhca_object object;
	struct vhca_tally tally;
	bool bound;
	uint32_t n, n_values;
	struct {
		uint32_t bytes; /* else packets */
		uint32_t index;
	} what[VHCA_MAX_COUNTERS];
};

int vhca_counter_set_create(struct vhca_context *context, struct vhca_counter_set **set);

/* mlx5dv_create_flow_matcher(). */
struct vhca_matcher {
	struct vhca_object object;
	struct vhca_match mask;
	uint16_t priority;
	uint8_t criteria;
};

int vhca_matcher_create(struct vhca_context *context, const struct vhca_match *mask,
	uint8_t criteria, uint16_t priority, struct vhca_matcher **matcher);

#endif
