/* modes.c - requested against effective: the block of modes that a run prints when it starts */
#include "cmd.h"

#include <stdlib.h>

void mode_list_init(struct mode_list *list)
{
	pthread_mutex_init(&list->lock, NULL);
}

void mode_list_free(struct mode_list *list)
{
	free(list->modes);
}

static bool same_mode(const struct vbn_mode *a, const struct vbn_mode *b)
{
	return !strcmp(a->requested, b->requested) && !strcmp(a->effective, b->effective);
}

static const struct vbn_mode *find_mode(const struct mode_list *list, const char *name)
{
	for (int i = 0; i < list->n; i++)
		if (!strcmp(list->modes[i].name, name))
			return &list->modes[i];
	return NULL;
}

/* With the lock held. The first of a name has it plain; another one that differs is named after
 * whose it is. */
static void add_one(struct mode_list *list, const struct vbn_mode *mode, const char *who)
{
	const struct vbn_mode *known = find_mode(list, mode->name);
	struct vbn_mode *more;
	char name[sizeof(mode->name)];

	snprintf(name, sizeof(name), "%.31s", mode->name);
	if (known) {
		if (same_mode(known, mode))
			return;
		snprintf(name, sizeof(name), "%.18s, %.11s", mode->name, who);
		if (find_mode(list, name))
			return;
	}
	more = realloc(list->modes, (size_t)(list->n + 1) * sizeof(*more));
	if (!more)
		return;
	list->modes = more;
	more[list->n] = *mode;
	memcpy(more[list->n++].name, name, sizeof(name));
}

void mode_list_add(struct mode_list *list, const struct vbn_mode *modes, int n, const char *who)
{
	pthread_mutex_lock(&list->lock);
	for (int i = 0; i < n; i++)
		add_one(list, &modes[i], who);
	pthread_mutex_unlock(&list->lock);
}

void mode_list_add_one(struct mode_list *list, const char *name, const char *requested,
	const char *effective, const char *why)
{
	struct vbn_mode mode = {0};

	snprintf(mode.name, sizeof(mode.name), "%s", name);
	snprintf(mode.requested, sizeof(mode.requested), "%s", requested);
	snprintf(mode.effective, sizeof(mode.effective), "%s", effective);
	snprintf(mode.why, sizeof(mode.why), "%s", why);
	mode_list_add(list, &mode, 1, "");
}

void mode_list_print(const struct mode_list *list)
{
	fprintf(stderr, "%-24s %-14s %-24s %s\n", "mode", "requested", "effective", "why");
	for (int i = 0; i < list->n; i++) {
		const struct vbn_mode *mode = &list->modes[i];

		fprintf(stderr, "%-24s %-14s %-24s %s\n", mode->name, mode->requested,
			mode->effective, mode->why);
	}
}

json_t *mode_list_json(const struct mode_list *list)
{
	json_t *map = json_object();

	for (int i = 0; i < list->n; i++) {
		const struct vbn_mode *mode = &list->modes[i];

		json_object_set_new(map, mode->name,
			json_pack("{s:s, s:s, s:s}", "requested", mode->requested, "effective",
				mode->effective, "why", mode->why));
	}
	return map;
}
