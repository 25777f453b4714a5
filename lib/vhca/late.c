/* late.c - completions that come late, and whose bytes come in pieces: VHCA_FAULT's delay-cqe and
 * torn
 *
 * A CQE is kept here until its time. Torn, some of its bytes are in its slot before, some as late as
 * the others, and the word with the owner bit is always the last: a program that looks there first
 * sees nothing of it.
 */

#include "vhca/device.h"

#include <stdlib.h>

enum {
	TORN_NS = 2000, /* from the first piece to the last, where no other delay is asked for */
	PIECE = 4,
};

struct vhca_late {
	struct vhca_late *next;
	struct vhca_cq *cq;
	uint64_t due; /* clock_cycles() */
	struct vhca_cqe cqe;
};

bool vhca_late_any;

static uint64_t delay_ns;
static bool torn;

bool vhca_late_word(const char *word)
{
	if (!strcmp(word, "torn"))
		torn = true;
	else if (strncmp(word, "delay-cqe=", 10) || !vhca_parse_time(word + 10, &delay_ns))
		return false;
	vhca_late_any = true;
	return true;
}

/* As good as any, and the same in each run. */
static uint32_t draw(struct vhca_tables *tables)
{
	tables->chance = tables->chance * 6364136223846793005ull + vhca_options()->seed * 2 + 1;
	return (uint32_t)(tables->chance >> 33);
}

/* Some pieces go where the CQE will be, unless the program still has that slot. */
static void tear(struct vhca_tables *tables, const struct vhca_cq *cq, const struct vhca_cqe *cqe)
{
	uint32_t index = cq->pi + cq->n_late, chosen = draw(tables);
	uint8_t *slot = vhca_cqe_slot(cq, index);

	if (cq->dead || index - cq->ci > cq->mask)
		return;
	for (uint32_t at = 0; at < sizeof(cqe->body) - PIECE; at += PIECE, chosen >>= 1)
		if (chosen & 1)
			vhca_memory_write(slot + at, cqe->body + at, PIECE);
}

bool vhca_late_put(struct vhca_cq *cq, const struct vhca_cqe *cqe)
{
	struct vhca_tables *tables = vhca_tables_of(&cq->object);
	struct vhca_late *late = malloc(sizeof(*late));

	if (!late)
		return false;
	if (torn)
		tear(tables, cq, cqe);
	*late = (struct vhca_late){
		.cq = cq, .due = vhca_deadline(delay_ns ? delay_ns : TORN_NS), .cqe = *cqe};
	if (!tables->late)
		tables->last_late = &tables->late;
	*tables->last_late = late;
	tables->last_late = &late->next;
	cq->n_late++;
	return true;
}

static void release(struct vhca_late *late)
{
	late->cq->n_late--;
	vhca_cqe_write(late->cq, &late->cqe);
	free(late);
}

/* All have the same delay, so the first in is the first due. */
void vhca_late_run(struct vhca_tables *tables, uint64_t now, uint64_t *next)
{
	struct vhca_late *late;

	while ((late = tables->late) && late->due <= now) {
		tables->late = late->next;
		release(late);
	}
	if (late)
		*next = min(*next, late->due);
}

void vhca_late_flush(struct vhca_tables *tables)
{
	struct vhca_late *late = tables->late;

	tables->late = NULL;
	while (late) {
		struct vhca_late *next = late->next;

		release(late);
		late = next;
	}
}
