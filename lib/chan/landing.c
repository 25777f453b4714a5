/* landing.c - memory that peers write large messages to: places in one export, first fit */

#include "chan/chan.h"

#include <stdlib.h>

struct place {
	struct landing *landing;
	uint64_t offset, size;
	struct place *next;
};

int vbn__landing_create(struct vbn_channel_group *group)
{
	struct vbn_export_conf conf = {
		.size = (size_t)group->conf.landing_size, .access = VBN_REMOTE_WRITE};

	conf.node = (struct vbn_num){
		(uint32_t)vbn_worker_node(group->worker), vbn_worker_node(group->worker) >= 0};
	group->landing.size = group->conf.landing_size;
	return conf.size ? vbn_export_create(group->port, &conf, &group->landing.exported) : 0;
}

void vbn__landing_destroy(struct landing *landing)
{
	struct place *place;

	while ((place = landing->first)) {
		landing->first = place->next;
		free(place);
	}
	vbn_export_destroy(landing->exported);
}

struct place *vbn__landing_take(struct landing *landing, uint64_t size)
{
	struct place **link = &landing->first, *place;
	uint64_t at = 0;

	size = round_up(size, CACHE_LINE);
	while (*link && (*link)->offset - at < size) {
		at = (*link)->offset + (*link)->size;
		link = &(*link)->next;
	}
	if (!*link && landing->size - at < size)
		return NULL;
	place = malloc(sizeof(*place));
	if (!place)
		return NULL;
	*place = (struct place){landing, at, size, *link};
	*link = place;
	landing->used += size;
	return place;
}

void vbn__landing_give(struct place *place)
{
	struct place **link = &place->landing->first;

	while (*link != place)
		link = &(*link)->next;
	*link = place->next;
	place->landing->used -= place->size;
	free(place);
}

struct vbn_remote vbn__place_remote(const struct place *place)
{
	return vbn_export_remote(place->landing->exported, (size_t)place->offset);
}

uint8_t *vbn__place_data(const struct place *place)
{
	return (uint8_t *)vbn_export_addr(place->landing->exported) + place->offset;
}
