/* lend.c - zones offered to a process that a queue is connected to, and asked for back */

#include "drv/shm/lend.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct shm_loans *vbn__shm_loans_make(int socket, struct shm_views *views)
{
	struct shm_loans *loans = calloc(1, sizeof(*loans));

	if (!loans)
		return NULL;
	loans->refs = 1;
	loans->socket = socket;
	loans->views = views;
	return loans;
}

void vbn__shm_loans_put(struct shm_loans *loans)
{
	if (!loans || --loans->refs)
		return;
	vbn__shm_views_put(loans->views);
	free(loans);
}

/* ---- what is said to the other process ---- */

static bool say(const struct shm_loans *loans, const struct shm_offer *offer, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)offer, .iov_len = sizeof(*offer)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		struct cmsghdr *header;

		message.msg_control = control.bytes;
		message.msg_controllen = sizeof(control.bytes);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	}
	return loans->socket >= 0 &&
		sendmsg(loans->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*offer);
}

static bool ask_back(const struct shm_loans *loans, uint32_t slot)
{
	const struct shm_offer offer = {
		.magic = SHM_OFFER_MAGIC, .slot = (uint16_t)slot, .is_over = 1};

	/* Who has hung up has let go of it. */
	return loans->socket < 0 || say(loans, &offer, -1);
}

/* What the socket had no room for before: until then the slot is taken. */
static void settle_debts(struct shm_loans *loans)
{
	for (uint32_t i = 0; i < SHM_VIEWS; i++)
		if (loans->slots[i].lent == LOAN_OWED && ask_back(loans, i))
			loans->slots[i].lent = LOAN_NONE;
}

/* ---- one zone ---- */

static void made(struct shm_loans *loans, uint32_t slot)
{
	const struct vbn_zone *zone = loans->slots[slot].zone;
	struct shm_loan *loan = &loans->of[zone->id];

	loans->slots[slot].lent = LOAN_MADE;
	loan->base = zone->base;
	store_release(&loan->slot, slot + 1); /* pairs with vbn__shm_is_lent(): the base is there */
}

static void lend_here(struct shm_loans *loans, uint32_t slot, const struct vbn_zone *zone)
{
	const int fd = fcntl(zone->memfd, F_DUPFD_CLOEXEC, 0);
	const char *why;

	if (fd >= 0 && vbn__shm_view_add(loans->views, slot, fd, zone->size, &why))
		made(loans, slot);
	else
		loans->slots[slot].lent = LOAN_REFUSED;
}

static void offer(struct shm_loans *loans, uint32_t slot, const struct vbn_zone *zone)
{
	const struct shm_offer what = {.magic = SHM_OFFER_MAGIC,
		.slot = (uint16_t)slot,
		.number = ++loans->next_number,
		.size = zone->size};

	loans->slots[slot].number = what.number;
	loans->slots[slot].lent = say(loans, &what, zone->memfd) ? LOAN_OFFERED : LOAN_NONE;
}

/* The slot that a zone has, or a free one; SHM_VIEWS: neither. */
static uint32_t find_slot(const struct shm_loans *loans, const struct vbn_zone *zone)
{
	uint32_t unused = SHM_VIEWS;

	for (uint32_t i = 0; i < SHM_VIEWS; i++) {
		if (loans->slots[i].lent == LOAN_NONE)
			unused = min(unused, i);
		else if (loans->slots[i].zone == zone && loans->slots[i].lent != LOAN_OWED)
			return i;
	}
	return unused;
}

void vbn__shm_lend(struct shm_loans *loans, const struct vbn_zone *zone)
{
	uint32_t slot;

	if (!zone->lasting)
		return;
	settle_debts(loans);
	slot = find_slot(loans, zone);
	if (slot == SHM_VIEWS || loans->slots[slot].lent != LOAN_NONE)
		return;
	loans->slots[slot].zone = zone;
	if (loans->views)
		lend_here(loans, slot, zone);
	else
		offer(loans, slot, zone);
}

void vbn__shm_lend_all(struct shm_loans *loans, const struct shm_port *port)
{
	for (int i = 0; i < MEM_MAX_ZONES; i++)
		if (port->port.zones[i].region)
			vbn__shm_lend(loans, port->port.zones[i].region);
}

void vbn__shm_take_back(struct shm_loans *loans, const struct vbn_zone *zone)
{
	const uint32_t slot = find_slot(loans, zone);
	const enum shm_lent lent = slot < SHM_VIEWS ? loans->slots[slot].lent : LOAN_NONE;

	if (lent == LOAN_NONE)
		return;
	store_release(&loans->of[zone->id].slot, 0);
	loans->slots[slot].zone = NULL;
	loans->slots[slot].lent = LOAN_NONE;
	if (lent == LOAN_REFUSED)
		return;
	if (loans->views)
		vbn__shm_view_drop(loans->views, slot);
	else if (!ask_back(loans, slot))
		loans->slots[slot].lent = LOAN_OWED;
}

void vbn__shm_lend_answered(struct shm_loans *loans, const struct shm_offer_answer *answer)
{
	for (uint32_t i = 0; i < SHM_VIEWS; i++) {
		if (loans->slots[i].lent != LOAN_OFFERED ||
			loans->slots[i].number != answer->number)
			continue;
		if (answer->is_mapped)
			made(loans, i);
		else
			loans->slots[i].lent = LOAN_REFUSED;
	}
	settle_debts(loans);
}

bool vbn__shm_lend_waits(const struct shm_loans *loans)
{
	for (uint32_t i = 0; i < SHM_VIEWS; i++)
		if (loans->slots[i].lent == LOAN_OFFERED)
			return true;
	return false;
}
