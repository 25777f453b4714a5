/* wire.c - frames and the greeting: packed, and unpacked from bytes that anyone may have sent */

#include "chan/wire.h"

#include <stdarg.h>
#include <stdio.h>

static const char frame_magic[4] = "VBNX";

int vbn__wire_fault(struct wire_fault *fault, int code, const char *fmt, ...)
{
	va_list args;

	fault->code = code;
	va_start(args, fmt);
	vsnprintf(fault->why, sizeof(fault->why), fmt, args);
	va_end(args);
	return -1;
}

void vbn__wire_text(const uint8_t *bytes, size_t len, char *text, size_t size)
{
	size_t n = min(len, size - 1);

	for (size_t i = 0; i < n; i++)
		text[i] = bytes[i] >= ' ' && bytes[i] <= '~' ? (char)bytes[i] : '?';
	text[n] = '\0';
}

/* ---- frames ---- */

void vbn__frame_pack(struct frame_header *header, enum frame_type type, uint32_t length)
{
	*header = (struct frame_header){.type = (uint8_t)type, .length = be32(length)};
	memcpy(header->magic, frame_magic, sizeof(header->magic));
}

static int check_length(enum frame_type type, uint32_t length, uint32_t least, uint32_t most,
	struct wire_fault *fault)
{
	if (length >= least && length <= most)
		return 0;
	return vbn__wire_fault(fault, type == FRAME_MESSAGE ? EMSGSIZE : EPROTO,
		"a frame of type %d has %u bytes, and %u to %u are taken", type, length, least,
		most);
}

int vbn__frame_unpack(const struct frame_header *header, bool greeted, uint32_t max_message,
	enum frame_type *type, uint32_t *length, struct wire_fault *fault)
{
	uint8_t code = header->type;
	char text[13];

	*length = from_be32(header->length);
	*type = (enum frame_type)code;
	if (memcmp(header->magic, frame_magic, sizeof(header->magic))) {
		vbn__wire_text((const uint8_t *)header, sizeof(*header), text, sizeof(text));
		return vbn__wire_fault(fault, EPROTO,
			"what came is not of this protocol, it begins \"%s\": connect Verbena to Verbena",
			text);
	}
	if (header->zero[0] | header->zero[1] | header->zero[2])
		return vbn__wire_fault(fault, EPROTO, "a frame's reserved bytes are not zero");
	if (!greeted && code != FRAME_HELLO && code != FRAME_REFUSE)
		return vbn__wire_fault(
			fault, EPROTO, "a frame of type %u came before the greeting", code);
	switch (code) {
	case FRAME_HELLO:
		if (greeted)
			return vbn__wire_fault(fault, EPROTO, "a second greeting came");
		return check_length(
			*type, *length, sizeof(struct hello_body), WIRE_MAX_HELLO, fault);
	case FRAME_MESSAGE: return check_length(*type, *length, 1, max_message, fault);
	case FRAME_REFUSE: return check_length(*type, *length, 1, WIRE_MAX_REFUSE, fault);
	case FRAME_BYE: return check_length(*type, *length, 0, 0, fault);
	default: return vbn__wire_fault(fault, EPROTO, "there is no frame of type %u", code);
	}
}

/* ---- the greeting ---- */

void vbn__hello_pack(const struct hello *hello, struct hello_body *body)
{
	*body = (struct hello_body){
		.version_min = be16(hello->version_min),
		.version_max = be16(hello->version_max),
		.role = (uint8_t)hello->role,
		.max_message = be32(hello->max_message),
		.service_min = be16(hello->service_min),
		.service_max = be16(hello->service_max),
	};
	memcpy(body->service, hello->service, strnlen(hello->service, sizeof(body->service) - 1));
}

/* Visible characters, then zeros to the end. */
static bool is_name(const char *name, size_t size)
{
	size_t len = strnlen(name, size);

	if (!len || len == size)
		return false;
	for (size_t i = 0; i < size; i++)
		if (i < len ? name[i] <= ' ' || name[i] > '~' : name[i] != '\0')
			return false;
	return true;
}

int vbn__hello_unpack(
	const uint8_t *bytes, uint32_t len, struct hello *hello, struct wire_fault *fault)
{
	struct hello_body body;

	if (len < sizeof(body))
		return vbn__wire_fault(
			fault, EPROTO, "the greeting has %u bytes of %zu", len, sizeof(body));
	memcpy(&body, bytes, sizeof(body));
	*hello = (struct hello){
		.version_min = from_be16(body.version_min),
		.version_max = from_be16(body.version_max),
		.role = (enum wire_role)body.role,
		.max_message = from_be32(body.max_message),
		.service_min = from_be16(body.service_min),
		.service_max = from_be16(body.service_max),
	};
	if (hello->version_min > WIRE_VERSION || hello->version_max < WIRE_VERSION)
		return vbn__wire_fault(fault, EPROTONOSUPPORT,
			"one end speaks versions %u to %u of the exchange and the other version %d: run the same release on both ends",
			hello->version_min, hello->version_max, WIRE_VERSION);
	if (body.role != WIRE_CONNECTS && body.role != WIRE_LISTENS)
		return vbn__wire_fault(fault, EPROTO, "the greeting has no role %u", body.role);
	if (body.zero[0] | body.zero[1] | body.zero[2])
		return vbn__wire_fault(fault, EPROTO, "the greeting's reserved bytes are not zero");
	if (!is_name(body.service, sizeof(body.service)))
		return vbn__wire_fault(fault, EPROTO, "the greeting names no service");
	if (!hello->max_message || hello->max_message > WIRE_MAX_TAKEN)
		return vbn__wire_fault(fault, EPROTO, "the greeting takes messages of %u bytes",
			hello->max_message);
	memcpy(hello->service, body.service, sizeof(hello->service));
	return 0;
}

int vbn__hello_agree(const struct hello *mine, const struct hello *theirs, uint16_t *version,
	struct wire_fault *fault)
{
	if (strcmp(mine->service, theirs->service))
		return vbn__wire_fault(fault, EPROTO,
			"one end is here for \"%s\" and the other for \"%s\": check the address and port",
			theirs->service, mine->service);
	if (mine->role == theirs->role)
		return vbn__wire_fault(fault, EPROTO, "both ends %s",
			mine->role == WIRE_LISTENS ? "listen" : "connect");
	*version = (uint16_t)min(mine->service_max, theirs->service_max);
	if (*version < mine->service_min || *version < theirs->service_min)
		return vbn__wire_fault(fault, EPROTONOSUPPORT,
			"one end speaks versions %u to %u of \"%s\" and the other %u to %u: run the same release on both ends",
			theirs->service_min, theirs->service_max, mine->service, mine->service_min,
			mine->service_max);
	return 0;
}
