/* disturb.c - packets and raw frames lost, doubled, damaged, late or out of order, as VHCA_FAULT asks
 * for; by a generator that VHCA_SEED starts, so that a run can be had again
 */

#include "vhca/disturb.h"
#include "vhca/raw.h"

#include <stdlib.h>

enum {
	MAX_HELD = 4096,
	REORDER_NS = 200 * 1000, /* at most so long others may overtake a packet */
};

struct vhca_held {
	struct vhca_held *next;
	uint64_t due; /* clock_cycles() */
	bool is_frame;
	struct vhca_route route; /* of a packet */
	uint32_t size;
	uint8_t bytes[];
};

bool vhca_disturb_any;

/* Shares of 2^32. */
static struct {
	uint64_t loss, reorder, duplicate, corrupt;
	uint64_t delay_ns;
} wanted;

/* ---- the specification ---- */

static bool parse_share(const char *text, uint64_t *share)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= 0 && value <= 1))
		return false;
	*share = (uint64_t)(value * 4294967296.0);
	return true;
}

bool vhca_disturb_word(const char *word)
{
	static const struct {
		const char *name;
		uint64_t *share;
	} known[] = {{"loss=", &wanted.loss}, {"reorder=", &wanted.reorder},
		{"duplicate=", &wanted.duplicate}, {"corrupt=", &wanted.corrupt}};
	bool understood = false;

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (!strncmp(word, known[i].name, strlen(known[i].name)))
			understood = parse_share(word + strlen(known[i].name), known[i].share);
	if (!strncmp(word, "delay=", 6))
		understood = vhca_parse_time(word + 6, &wanted.delay_ns);
	vhca_disturb_any |= understood;
	return understood;
}

/* ---- chance ---- */

static uint32_t draw(struct vhca_packet_wire *wire)
{
	uint64_t x = wire->chance;

	if (!x)
		x = (vhca_options()->seed + 1) * 0x9e3779b97f4a7c15ull ^
			(unsigned int)(wire->wire.device->index + 1);
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	wire->chance = x;
	return (uint32_t)((x * 0x2545f4914f6cdd1dull) >> 32);
}

static bool chosen(struct vhca_packet_wire *wire, uint64_t share)
{
	return share && draw(wire) < share;
}

/* ---- what happens ---- */

/* What is about to leave. */
struct leaving {
	const struct vhca_route *route; /* NULL: it is a raw frame */
	uint8_t *bytes;
	uint32_t size, first; /* no byte before `first` is damaged */
};

static void send_packet(struct vhca_packet_wire *wire, const struct vhca_route *route,
	const uint8_t *bytes, uint32_t size)
{
	struct vhca_carrier *carrier = wire->carrier;
	uint8_t *to = carrier->ops->reserve(carrier, route, size);

	if (!to)
		return;
	memcpy(to, bytes, size);
	carrier->ops->commit(carrier);
}

/* In the order of their times, and of arrival where these are the same. False: no room. */
static bool hold(struct vhca_packet_wire *wire, const struct leaving *leaving, uint64_t ns)
{
	uint32_t size = leaving->size;
	struct vhca_held *held = wire->n_held < MAX_HELD ? malloc(sizeof(*held) + size) : NULL;
	struct vhca_held **place = &wire->held;

	if (!held)
		return false;
	held->due = vhca_deadline(ns);
	held->is_frame = !leaving->route;
	if (leaving->route)
		held->route = *leaving->route;
	held->size = size;
	memcpy(held->bytes, leaving->bytes, size);
	if (wire->last_held && wire->last_held->due <= held->due)
		place = &wire->last_held->next;
	while (*place && (*place)->due <= held->due)
		place = &(*place)->next;
	held->next = *place;
	*place = held;
	if (!held->next)
		wire->last_held = held;
	wire->n_held++;
	return true;
}

static bool held_back(struct vhca_packet_wire *wire, const struct leaving *leaving)
{
	uint64_t ns = wanted.delay_ns;

	if (chosen(wire, wanted.reorder))
		ns += 1 + draw(wire) % REORDER_NS;
	return ns && hold(wire, leaving, ns);
}

/* False: it does not leave now. */
static bool leaves_now(struct vhca_packet_wire *wire, const struct leaving *leaving)
{
	if (chosen(wire, wanted.loss)) {
		vhca_wire_drop(wire, VHCA_DROP_FAULT);
		return false;
	}
	if (chosen(wire, wanted.corrupt)) {
		uint32_t bit = draw(wire) % (8 * (leaving->size - leaving->first));

		leaving->bytes[leaving->first + bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	return !held_back(wire, leaving);
}

/* The second one as the first was, even where that is damaged. */
static void double_packet(struct vhca_packet_wire *wire)
{
	uint8_t copy[VHCA_MAX_PACKET];
	uint32_t size = wire->out.size + VHCA_ICRC_BYTES;

	memcpy(copy, wire->out.bytes, size);
	send_packet(wire, wire->out.route, copy, size);
}

void vhca_disturb(struct vhca_packet_wire *wire)
{
	struct vhca_carrier *carrier = wire->carrier;
	bool twice = chosen(wire, wanted.duplicate);
	const struct leaving leaving = {
		wire->out.route, wire->out.bytes, wire->out.size + VHCA_ICRC_BYTES, 0};

	if (!leaves_now(wire, &leaving))
		return;
	carrier->ops->commit(carrier);
	if (twice)
		double_packet(wire);
}

/* A damaged frame still finds its way, as one does that was damaged in a switch: whoever gets it has to
 * see it. */
void vhca_disturb_frame(struct vhca_packet_wire *wire, const uint8_t *bytes, uint32_t size)
{
	uint8_t copy[VHCA_MAX_FRAME];
	bool twice = chosen(wire, wanted.duplicate);
	const struct leaving leaving = {NULL, copy, size, VHCA_MIN_FRAME};

	memcpy(copy, bytes, size);
	if (!leaves_now(wire, &leaving))
		return;
	vhca_wire_frame(wire, copy, size);
	if (twice)
		vhca_wire_frame(wire, copy, size);
}

void vhca_disturb_release(struct vhca_packet_wire *wire, uint64_t now, uint64_t *next)
{
	while (wire->held && wire->held->due <= now) {
		struct vhca_held *held = wire->held;

		wire->held = held->next;
		if (!wire->held)
			wire->last_held = NULL;
		wire->n_held--;
		if (held->is_frame)
			vhca_wire_frame(wire, held->bytes, held->size);
		else
			send_packet(wire, &held->route, held->bytes, held->size);
		free(held);
	}
	if (wire->held)
		*next = min(*next, wire->held->due);
}

void vhca_disturb_end(struct vhca_packet_wire *wire)
{
	while (wire->held) {
		struct vhca_held *held = wire->held;

		wire->held = held->next;
		free(held);
	}
}
