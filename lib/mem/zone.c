/* zone.c - zones: mappings with an id, a name and a report of what they are made of */

#include "mem/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct destroy_hook {
	void (*fn)(struct vbn_zone *zone, void *arg);
	void *arg;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vbn_zone *zones[MEM_MAX_ZONES];
static uint64_t last_generation;
static enum vbn_pages default_pages;
static struct destroy_hook *hooks;
static size_t n_hooks;

static const char *const pages_name[] = {
	[VBN_PAGES_AUTO] = "auto",
	[VBN_PAGES_PLAIN] = "plain",
	[VBN_PAGES_TRANSPARENT] = "transparent",
	[VBN_PAGES_2M] = "2 MiB",
	[VBN_PAGES_1G] = "1 GiB",
};

void vbn__zone_default_pages(enum vbn_pages pages)
{
	pthread_mutex_lock(&lock);
	default_pages = pages;
	pthread_mutex_unlock(&lock);
}

enum vbn_pages vbn__zone_pages(void)
{
	enum vbn_pages pages;

	pthread_mutex_lock(&lock);
	pages = default_pages;
	pthread_mutex_unlock(&lock);
	return pages;
}

/* A zone's own conf insists, what holds for all of them is a preference. */
static void ask_pages(const struct vbn_zone_conf *conf, struct map_request *request)
{
	request->pages = conf->pages;
	if (conf->pages != VBN_PAGES_AUTO)
		return;
	request->preferred = true;
	request->pages = vbn__zone_pages();
}

/* ---- hooks ---- */

static struct destroy_hook *find_hook(void (*fn)(struct vbn_zone *zone, void *arg), void *arg)
{
	for (size_t i = 0; i < n_hooks; i++)
		if (hooks[i].fn == fn && hooks[i].arg == arg)
			return &hooks[i];
	return NULL;
}

int vbn__zone_on_destroy(void (*fn)(struct vbn_zone *zone, void *arg), void *arg)
{
	struct destroy_hook *grown;
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (find_hook(fn, arg))
		goto out;
	grown = realloc(hooks, (n_hooks + 1) * sizeof(*hooks));
	if (!grown) {
		ret = -ENOMEM;
		goto out;
	}
	hooks = grown;
	hooks[n_hooks++] = (struct destroy_hook){fn, arg};
out:
	pthread_mutex_unlock(&lock);
	return ret;
}

void vbn__zone_not_on_destroy(void (*fn)(struct vbn_zone *zone, void *arg), void *arg)
{
	struct destroy_hook *hook;

	pthread_mutex_lock(&lock);
	hook = find_hook(fn, arg);
	if (hook)
		*hook = hooks[--n_hooks];
	if (!n_hooks) {
		free(hooks);
		hooks = NULL;
	}
	pthread_mutex_unlock(&lock);
}

/* One hook after the other, each called without the lock, so that it may take locks of its own. */
static void call_hooks(struct vbn_zone *zone)
{
	struct destroy_hook hook;

	for (size_t i = 0;; i++) {
		pthread_mutex_lock(&lock);
		hook = i < n_hooks ? hooks[i] : (struct destroy_hook){NULL, NULL};
		pthread_mutex_unlock(&lock);
		if (!hook.fn)
			return;
		hook.fn(zone, hook.arg);
	}
}

/* ---- create and destroy ---- */

static int take_id(struct vbn_zone *zone)
{
	int ret = -ENOSPC;

	pthread_mutex_lock(&lock);
	for (int id = 0; id < MEM_MAX_ZONES && ret; id++) {
		if (zones[id])
			continue;
		zones[id] = zone;
		zone->id = id;
		zone->generation = ++last_generation;
		ret = 0;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

static const char *backing_why(const struct vbn_zone_conf *conf, const struct mapping *map)
{
	if (conf->memfd != VBN_ON)
		return conf->memfd == VBN_AUTO ? "nobody shares it by descriptor" : "";
	return map->lasting
		? "peers of this host may map it for reading, and nothing else"
		: "this kernel does not keep others from writing it, so no peer gets it";
}

static void add_modes(struct vbn_zone *zone, const struct vbn_zone_conf *conf,
	const struct map_request *request, const struct mapping *map)
{
	struct mode_report report = {.modes = zone->modes, .max = ARRAY_SIZE(zone->modes)};

	vbn__mode_add(&report, "page_size", pages_name[request->pages], map->page_text, "%s",
		map->page_why);
	vbn__mode_add(&report, "zone_node",
		conf->node.set ? vbn__mode_number(conf->node.value, "") : "auto", map->node_text,
		"%s", map->node_why);
	vbn__mode_add(&report, "backing", vbn__mode_switch(conf->memfd),
		request->memfd ? "memfd" : "anonymous", "%s", backing_why(conf, map));
	zone->n_modes = report.n;
}

VBN_API int vbn_zone_create(const struct vbn_zone_conf *conf, struct vbn_zone **created)
{
	static const struct vbn_zone_conf defaults;
	char object[48];
	struct map_request request = {.object = object, .node = -1};
	struct vbn_zone *zone;
	struct mapping map;
	int ret;

	*created = NULL;
	if (!conf)
		conf = &defaults;
	request.size = conf->size;
	request.memfd = request.read_only = conf->memfd == VBN_ON;
	snprintf(object, sizeof(object), "zone %.31s", conf->name ? conf->name : "zone");
	ask_pages(conf, &request);
	if (conf->node.set)
		request.node = conf->node.value > INT16_MAX ? INT16_MAX : (int)conf->node.value;
	zone = calloc(1, sizeof(*zone));
	if (!zone)
		return fail(ENOMEM, "%s: cannot create it: no memory; free some", object);
	snprintf(zone->name, sizeof(zone->name), "%s", conf->name ? conf->name : "zone");
	ret = vbn__map(&request, &map);
	if (ret)
		goto no_mapping;
	zone->base = map.base;
	zone->size = map.size;
	zone->page_size = map.page_size;
	zone->node = map.node;
	zone->memfd = map.memfd;
	zone->lasting = map.lasting;
	add_modes(zone, conf, &request, &map);
	ret = take_id(zone);
	if (ret) {
		ret = fail(ENOSPC,
			"%s: cannot create it: %d zones exist, which is the most; put several pools into one zone",
			object, MEM_MAX_ZONES);
		goto no_id;
	}
	*created = zone;
	return 0;

no_id:
	vbn__unmap(map.base, map.size);
	if (map.memfd >= 0)
		close(map.memfd);
no_mapping:
	free(zone);
	return ret;
}

VBN_API void vbn_zone_destroy(struct vbn_zone *zone)
{
	if (!zone)
		return;
	if (load_once(&zone->pools)) {
		log_error(
			"zone %s: cannot destroy it: it has pools; destroy them first", zone->name);
		return;
	}
	call_hooks(zone);
	pthread_mutex_lock(&lock);
	zones[zone->id] = NULL;
	pthread_mutex_unlock(&lock);
	vbn__unmap(zone->base, zone->size);
	if (zone->memfd >= 0)
		close(zone->memfd);
	free(zone);
}

/* ---- questions ---- */

uint64_t vbn__zone_generation(const struct vbn_zone *zone)
{
	return zone->generation;
}

VBN_API int vbn_zone_modes(const struct vbn_zone *zone, struct vbn_mode *modes, int n)
{
	for (int i = 0; i < min(n, zone->n_modes); i++)
		modes[i] = zone->modes[i];
	return zone->n_modes;
}

VBN_API size_t vbn_zone_size(const struct vbn_zone *zone)
{
	return zone->size;
}

VBN_API size_t vbn_zone_free(const struct vbn_zone *zone)
{
	return zone->size - load_once(&zone->used);
}
