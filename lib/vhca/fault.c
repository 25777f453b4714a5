/* fault.c - misbehaviour on request: VHCA_FAULT */

#include "vhca/device.h"

#include <stdio.h>
#include <stdlib.h>

struct fault {
	enum vhca_fault_kind kind; /* NONE: a syndrome */
	uint8_t syndrome;
	uint64_t at; /* counting from 1 */
};

bool vhca_fault_any, vhca_fault_rnr;

static struct fault *faults;
static size_t n_faults;
static uint64_t n_messages, n_wqes, n_receives;

static bool parse_count(const char *text, uint64_t *count)
{
	char *end;

	errno = 0;
	*count = strtoull(text, &end, 0);
	return text[0] >= '0' && text[0] <= '9' && !*end && !errno && *count;
}

static bool parse_syndrome(char *text, struct fault *fault)
{
	char *at = strchr(text, '@'), *end;
	unsigned long syndrome;

	if (!at)
		return false;
	*at = 0;
	syndrome = strtoul(text, &end, 16);
	if (end == text || *end || !syndrome || syndrome > 0xff)
		return false;
	fault->syndrome = (uint8_t)syndrome;
	return parse_count(at + 1, &fault->at);
}

static bool parse_word(char *word, struct fault *fault)
{
	static const struct {
		const char *name;
		enum vhca_fault_kind kind;
	} known[] = {{"msg-drop=", VHCA_FAULT_DROP}, {"msg-double=", VHCA_FAULT_DOUBLE},
		{"msg-alter=", VHCA_FAULT_ALTER}, {"rnr=", VHCA_FAULT_RNR}};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		size_t length = strlen(known[i].name);

		if (strncmp(word, known[i].name, length))
			continue;
		fault->kind = known[i].kind;
		return parse_count(word + length, &fault->at);
	}
	return !strncmp(word, "syndrome=", 9) && parse_syndrome(word + 9, fault);
}

static void parse_words(char *rest)
{
	char *word;

	while ((word = strsep(&rest, ","))) {
		struct fault fault = {0};
		char shown[64];

		if (!*word || vhca_port_fault(word) || vhca_disturb_word(word) ||
			vhca_late_word(word))
			continue;
		snprintf(shown, sizeof(shown), "%s", word);
		if (!parse_word(word, &fault)) {
			log_warning(
				"vhca: fault \"%s\" is ignored: it is none of msg-drop=N, msg-double=N, msg-alter=N, "
				"syndrome=HEX@N, rnr=N, delay-cqe=TIME, torn, loss=P, reorder=P, duplicate=P, corrupt=P, delay=TIME, "
				"port-flap=TIME and device-fatal=TIME: correct VHCA_FAULT",
				shown);
			continue;
		}
		faults[n_faults++] = fault;
		vhca_fault_rnr |= fault.kind == VHCA_FAULT_RNR;
		vhca_fault_any |= fault.kind != VHCA_FAULT_RNR;
	}
}

void vhca_fault_parse(const char *spec)
{
	size_t n = 1;
	char *copy = strdup(spec);

	for (const char *c = spec; *c; c++)
		n += *c == ',';
	faults = calloc(n, sizeof(*faults));
	if (faults && copy)
		parse_words(copy);
	else
		log_warning("vhca: there is no memory for VHCA_FAULT: free some");
	free(copy);
}

static bool counts(const struct vhca_message *message)
{
	return message->opcode != MLX5_OPCODE_NOP;
}

enum vhca_fault_kind vhca_fault_message(struct vhca_message *message)
{
	enum vhca_fault_kind kind = VHCA_FAULT_NONE;

	for (size_t i = 0; counts(message) && i < n_faults && kind == VHCA_FAULT_NONE; i++)
		if (faults[i].kind != VHCA_FAULT_RNR && faults[i].at == n_messages + 1)
			kind = faults[i].kind;
	message->fault = (uint8_t)kind;
	return kind;
}

/* Puts a byte of its own in front of the rest of the first one's segment. A WQE has room for one
 * segment less than the list, which the control segment takes. */
void vhca_fault_alter(struct vhca_message *message)
{
	static uint8_t byte;
	struct vhca_sge *first = message->sge;

	if (!message->length)
		return;
	while (!first->length)
		first++;
	vhca_memory_read(&byte, first->addr, 1);
	byte ^= 0x10;
	memmove(first + 1, first, (size_t)(message->sge + message->n_sge - first) * sizeof(*first));
	message->n_sge++;
	first[0] = (struct vhca_sge){&byte, 1};
	first[1].addr++;
	first[1].length--;
}

void vhca_fault_alter_brought(const struct vhca_message *message)
{
	const struct vhca_sge *first = message->sge;
	uint8_t byte;

	if (!message->length)
		return;
	while (!first->length)
		first++;
	vhca_memory_read(&byte, first->addr, 1);
	byte ^= 0x10;
	vhca_memory_write(first->addr, &byte, 1);
}

void vhca_fault_delivered(const struct vhca_message *message)
{
	n_messages += counts(message);
}

uint8_t vhca_fault_syndrome(void)
{
	n_wqes++;
	for (size_t i = 0; i < n_faults; i++)
		if (faults[i].kind == VHCA_FAULT_NONE && faults[i].at == n_wqes)
			return faults[i].syndrome;
	return 0;
}

bool vhca_fault_not_ready(void)
{
	n_receives++;
	for (size_t i = 0; i < n_faults; i++)
		if (faults[i].kind == VHCA_FAULT_RNR && faults[i].at == n_receives)
			return true;
	return false;
}
