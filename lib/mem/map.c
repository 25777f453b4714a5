/* map.c - mapping memory: pages of a chosen size, bound to a node, populated before anyone uses
 * them */

#include "mem/mem.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/mman.h>
#include <numa.h>
#include <numaif.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older ones answer EINVAL */
#endif

#define KIB 1024ul
#define MIB (1024ul * KIB)
#define THP_SIZE \
	(2 * MIB) /* where a transparent huge page may start; a larger one of another CPU only \
		     goes unused */
#define MAX_NODES  1024
#define NODE_WORDS (MAX_NODES / (8 * sizeof(unsigned long)))
#define N_SAMPLES  64 /* places of a mapping that are asked for their node */

/* What kernel and sysfs call a page size. */
struct pages {
	size_t size;
	unsigned int log2;
	const char *name;
};

static struct pages pages_of(enum vbn_pages pages)
{
	if (pages == VBN_PAGES_1G)
		return (struct pages){1024 * MIB, 30, "1 GiB"};
	if (pages == VBN_PAGES_2M)
		return (struct pages){2 * MIB, 21, "2 MiB"};
	return (struct pages){(size_t)sysconf(_SC_PAGESIZE), 0, "plain"};
}

static bool is_hugetlb(enum vbn_pages pages)
{
	return pages == VBN_PAGES_2M || pages == VBN_PAGES_1G;
}

/* ---- nodes ---- */

static int this_node(void)
{
	unsigned int cpu, node;

	return getcpu(&cpu, &node) ? 0 : (int)node;
}

/* True where this process may take memory from the node. */
static bool node_usable(int node)
{
	if (numa_available() < 0)
		return node == 0;
	return node >= 0 && node <= numa_max_node() &&
		numa_bitmask_isbitset(numa_all_nodes_ptr, (unsigned int)node);
}

static char *usable_nodes(char *text, size_t size)
{
	int nodes[MAX_NODES], n = 0;

	for (int node = 0; node < MAX_NODES; node++)
		if (node_usable(node))
			nodes[n++] = node;
	return vbn__cpulist_format(nodes, n, text, size);
}

static int pick_node(const struct map_request *request, struct mapping *map)
{
	char nodes[256];
	long long size;

	map->node = request->node < 0 ? this_node() : request->node;
	if (node_usable(map->node)) {
		size = numa_available() < 0 ? 0 : numa_node_size64(map->node, NULL);
		if (size > 0 && request->size > (unsigned long long)size)
			return fail(ENOMEM,
				"%s: cannot map %zu MiB on NUMA node %d: the node has %lld MiB in all; ask for less",
				request->object, request->size / MIB, map->node,
				size / (long long)MIB);
		if (request->node < 0)
			strcpy(map->node_why, "the calling thread runs on it");
		return 0;
	}
	usable_nodes(nodes, sizeof(nodes));
	if (request->node >= 0)
		return fail(EINVAL,
			"%s: cannot take memory from NUMA node %d: this process may use node %s; name that, or none",
			request->object, map->node, nodes);
	snprintf(map->node_why, sizeof(map->node_why),
		"node %d, where the calling thread runs, has no memory for it", map->node);
	map->node = atoi(nodes);
	return 0;
}

/* Pages that come later lie on map->node. Strictly where the caller named the node or the pages
 * were counted there; a mere default prefers it, so that a full node costs speed and not the
 * process. A refusal by the sandbox is reported in the modes. */
static int bind_pages(
	const struct map_request *request, struct mapping *map, char *why, size_t why_size)
{
	bool strict = request->node >= 0 || is_hugetlb(map->pages);
	unsigned long nodes[NODE_WORDS] = {0};
	int code;

	if (numa_available() < 0) {
		strcpy(map->node_why, "the kernel offers no choice of node");
		return 0;
	}
	nodes[(size_t)map->node / (8 * sizeof(long))] = 1ul
		<< ((size_t)map->node % (8 * sizeof(long)));
	if (!mbind(map->base, map->size, strict ? MPOL_BIND : MPOL_PREFERRED, nodes, MAX_NODES + 1,
		    0))
		return 0;
	code = errno;
	if (code == EPERM || code == ENOSYS) {
		snprintf(map->node_why, sizeof(map->node_why),
			"mbind: %s: a sandbox forbids binding, so pages lie where the kernel put them",
			strerror(code));
		return 0;
	}
	snprintf(why, why_size, "mbind: %s", strerror(code));
	return -code;
}

/* Where the pages are now: one node, several, or not known. */
static void report_node(struct mapping *map)
{
	size_t step = round_up(map->size / N_SAMPLES + 1, (uint64_t)sysconf(_SC_PAGESIZE));
	int first = -1, node;

	for (size_t at = 0; at < map->size; at += step) {
		if (get_mempolicy(&node, NULL, 0, map->base + at, MPOL_F_NODE | MPOL_F_ADDR)) {
			strcpy(map->node_text, numa_available() < 0 ? "0" : "unknown");
			return;
		}
		if (first < 0)
			first = node;
		if (node != first) {
			snprintf(
				map->node_text, sizeof(map->node_text), "%d and others", map->node);
			snprintf(map->node_why, sizeof(map->node_why),
				"node %d had not enough free memory", map->node);
			return;
		}
	}
	if (first != map->node && !map->node_why[0])
		snprintf(map->node_why, sizeof(map->node_why), "node %d had no free memory",
			map->node);
	map->node = first;
	snprintf(map->node_text, sizeof(map->node_text), "%d", first);
}

/* ---- huge pages: how many there are ---- */

#define POOL_DIR     "/sys/kernel/mm/hugepages/hugepages-%zukB/%s"
#define NODE_DIR     "/sys/devices/system/node/node%d/hugepages/hugepages-%zukB/%s"
#define NODE_DIR_MAX 128

static const char *root = ""; /* a test's */

void vbn__map_root(const char *other)
{
	root = other ? other : "";
}

/* False where there is no such file, or nothing in it. */
static bool read_sysfs(const char *path, char *text, size_t size)
{
	char file[256];
	ssize_t got;
	int fd;

	snprintf(file, sizeof(file), "%s%s", root, path);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	got = read(fd, text, size - 1);
	close(fd);
	text[max(got, (ssize_t)0)] = '\0';
	return got > 0;
}

static long read_number(const char *path)
{
	char text[32];

	return read_sysfs(path, text, sizeof(text)) ? strtol(text, NULL, 10) : -1;
}

static long pool_number(size_t page, const char *name)
{
	char path[NODE_DIR_MAX];

	snprintf(path, sizeof(path), POOL_DIR, page / KIB, name);
	return read_number(path);
}

static long node_number(int node, size_t page, const char *name)
{
	char path[NODE_DIR_MAX];

	snprintf(path, sizeof(path), NODE_DIR, node, page / KIB, name);
	return read_number(path);
}

/* Pages of this size that the node can give now; -1 where the kernel has no such size. A page that
 * another mapping has reserved is free in sysfs and yet not to be had; reservations are not kept by
 * node, so they count against every node. */
static long free_pages(int node, size_t page)
{
	long in_pool = pool_number(page, "free_hugepages"), on_node;

	if (in_pool < 0)
		return -1;
	in_pool -= max(pool_number(page, "resv_hugepages"), 0l);
	on_node = node_number(node, page, "free_hugepages");
	return on_node < 0 ? max(in_pool, 0l) : max(min(in_pool, on_node), 0l);
}

/* Pages that the kernel may make on demand. */
static long overcommit_pages(size_t page)
{
	return max(pool_number(page, "nr_overcommit_hugepages") -
			pool_number(page, "surplus_hugepages"),
		0l);
}

/* What the others have, for whoever wonders where the pages are. */
static void add_other_nodes(int node, size_t page, char *why, size_t why_size)
{
	for (int other = 0; other < MAX_NODES; other++) {
		const size_t len = strlen(why);
		long have = other == node || !node_usable(other) ? 0 : free_pages(other, page);

		if (have > 0)
			snprintf(why + len, why_size - len, "; node %d has %ld", other, have);
	}
}

static int check_hugetlb(
	const struct mapping *map, const struct pages *pages, char *why, size_t why_size)
{
	long need = (long)(map->size / pages->size), have = free_pages(map->node, pages->size);

	if (have < 0) {
		snprintf(why, why_size, "this kernel has no pages of %s", pages->name);
		return -ENOMEM;
	}
	if (have + overcommit_pages(pages->size) >= need)
		return 0;
	snprintf(why, why_size, "node %d needs %ld page%s of %s and has %ld free", map->node, need,
		need == 1 ? "" : "s", pages->name, have);
	add_other_nodes(map->node, pages->size, why, why_size);
	return -ENOMEM;
}

/* How a person makes up for the shortage. */
static void hugetlb_remedy(
	const struct mapping *map, const struct pages *pages, char *text, size_t size)
{
	long have = free_pages(map->node, pages->size),
	     total = node_number(map->node, pages->size, "nr_hugepages");
	char path[NODE_DIR_MAX];

	if (have < 0) {
		snprintf(text, size, "ask for another page size");
		return;
	}
	if (total >= 0) {
		snprintf(
			path, sizeof(path), NODE_DIR, map->node, pages->size / KIB, "nr_hugepages");
	} else {
		snprintf(path, sizeof(path), POOL_DIR, pages->size / KIB, "nr_hugepages");
		total = max(pool_number(pages->size, "nr_hugepages"), 0l);
	}
	snprintf(text, size, "as root: echo %ld > %s",
		total + max((long)(map->size / pages->size) - have, 1l), path);
}

/* ---- transparent huge pages ---- */

static bool transparent_off(bool memfd)
{
	const char *path = memfd ? "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
				 : "/sys/kernel/mm/transparent_hugepage/enabled";
	char text[128];

	return !read_sysfs(path, text, sizeof(text)) || strstr(text, "[never]") ||
		strstr(text, "[deny]");
}

/* How much of the mapping the kernel backs by huge pages: what smaps says of the line that starts
 * it. */
static size_t huge_bytes(const struct mapping *map)
{
	unsigned long start, end, kib, found = 0;
	FILE *smaps = fopen("/proc/self/smaps", "re");
	bool inside = false;
	char line[512];

	if (!smaps)
		return 0;
	while (fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = start < (uintptr_t)map->base + map->size &&
				end > (uintptr_t)map->base;
		else if (inside &&
			(sscanf(line, "AnonHugePages: %lu", &kib) == 1 ||
				sscanf(line, "ShmemPmdMapped: %lu", &kib) == 1))
			found += kib * KIB;
	}
	fclose(smaps);
	return min(found, map->size); /* neighbours of the same kind share a line */
}

static void report_pages(struct mapping *map, const struct pages *pages)
{
	if (map->pages != VBN_PAGES_TRANSPARENT) {
		snprintf(map->page_text, sizeof(map->page_text), "%s", pages->name);
		return;
	}
	snprintf(map->page_text, sizeof(map->page_text), "transparent, %zu of %zu KiB huge",
		huge_bytes(map) / KIB, map->size / KIB);
}

/* ---- mapping ---- */

static int open_memfd(struct mapping *map, const struct pages *pages, char *why, size_t why_size)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int code;

	if (is_hugetlb(map->pages))
		flags |= MFD_HUGETLB | pages->log2 << MFD_HUGE_SHIFT;
	map->memfd = memfd_create("verbena", flags);
	if (map->memfd < 0) {
		code = errno;
		snprintf(why, why_size, "memfd_create: %s", strerror(code));
		return -code;
	}
	if (!ftruncate(map->memfd, (off_t)map->size))
		return 0;
	code = errno;
	snprintf(why, why_size, "a memfd of that size: %s", strerror(code));
	return -code;
}

/* Behind the mapping, which stays writable. Its size is for good, so that nobody who has it makes an
 * access of ours a SIGBUS; F_SEAL_FUTURE_WRITE keeps everyone from punching pages out of it, too, the
 * owner included (Linux 5.1; there is none before). */
static int seal(const struct map_request *request, struct mapping *map, char *why, size_t why_size)
{
	const int size = F_SEAL_SHRINK | F_SEAL_GROW;
	int code;

	map->lasting = request->read_only &&
		!fcntl(map->memfd, F_ADD_SEALS, size | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
	if (map->lasting || !fcntl(map->memfd, F_ADD_SEALS, size | F_SEAL_SEAL))
		return 0;
	code = errno;
	snprintf(why, why_size, "sealing a memfd: %s", strerror(code));
	return -code;
}

/* Address space for the mapping whose start has the alignment of a transparent huge page. */
static uint8_t *reserve_aligned(size_t size)
{
	size_t all = size + THP_SIZE, before;
	uint8_t *at =
		mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return MAP_FAILED;
	before = (size_t)(-(uintptr_t)at & (THP_SIZE - 1));
	if (before)
		munmap(at, before);
	munmap(at + before + size, all - before - size);
	return at + before;
}

static int map_pages(struct mapping *map, const struct pages *pages, char *why, size_t why_size)
{
	int flags = map->memfd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	uint8_t *at = NULL, *base;

	if (is_hugetlb(map->pages))
		flags |= MAP_HUGETLB | (int)(pages->log2 << MAP_HUGE_SHIFT);
	if (map->pages == VBN_PAGES_TRANSPARENT) {
		at = reserve_aligned(map->size);
		flags |= MAP_FIXED;
	}
	base = at == MAP_FAILED ? at
				: mmap(at, map->size, PROT_READ | PROT_WRITE, flags, map->memfd, 0);
	if (base == MAP_FAILED) {
		snprintf(why, why_size, "mmap: %s", strerror(errno));
		if (at && at != MAP_FAILED)
			munmap(at, map->size);
		return -ENOMEM;
	}
	map->base = base;
	if (map->pages == VBN_PAGES_TRANSPARENT)
		madvise(base, map->size,
			MADV_HUGEPAGE); /* refused where the kernel has none: then they are plain */
	return 0;
}

/* Kernels before 5.14: has the kernel write each page, for it reports a page that cannot be had
 * where our own store would be a SIGBUS. */
static int populate_by_reads(const struct mapping *map, size_t page)
{
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC), ret = 0;

	if (zero < 0)
		return -errno;
	for (size_t at = 0; at < map->size && !ret; at += page)
		if (read(zero, map->base + at, 1) != 1)
			ret = errno == EFAULT ? -ENOMEM : -errno;
	close(zero);
	return ret;
}

static int populate(
	const struct mapping *map, const struct pages *pages, char *why, size_t why_size)
{
	int ret;

	do
		ret = madvise(map->base, map->size, MADV_POPULATE_WRITE) ? -errno : 0;
	while (ret == -EINTR || ret == -EAGAIN);
	if (ret == -EINVAL || ret == -ENOSYS || ret == -EPERM)
		ret = populate_by_reads(map, pages->size);
	if (!ret)
		return 0;
	if (is_hugetlb(map->pages))
		snprintf(why, why_size,
			"pages of %s ran out on node %d, or the control group may have no more of them",
			pages->name, map->node);
	else
		snprintf(why, why_size, "filling the pages: %s", strerror(-ret));
	return -ENOMEM;
}

static void discard(struct mapping *map)
{
	if (map->base)
		munmap(map->base, map->size);
	if (map->memfd >= 0)
		close(map->memfd);
	map->base = NULL;
	map->memfd = -1;
}

/* One kind of pages: 0, or -errno with a clause that says why not. */
static int try_pages(const struct map_request *request, enum vbn_pages kind, struct mapping *map,
	char *why, size_t why_size)
{
	const struct pages pages = pages_of(kind);
	int ret = 0;

	map->pages = kind;
	map->page_size = pages.size;
	map->size = round_up(request->size, pages.size);
	if (is_hugetlb(kind))
		ret = check_hugetlb(map, &pages, why, why_size);
	if (!ret && request->memfd)
		ret = open_memfd(map, &pages, why, why_size);
	if (!ret)
		ret = map_pages(map, &pages, why, why_size);
	if (!ret && request->memfd)
		ret = seal(request, map, why, why_size);
	if (!ret)
		ret = bind_pages(request, map, why, why_size);
	if (!ret)
		ret = populate(map, &pages, why, why_size);
	if (ret) {
		discard(map);
		return ret;
	}
	report_node(map);
	report_pages(map, &pages);
	return 0;
}

/* What plain pages are taken for instead of transparent ones, or NULL. */
static const char *no_transparent(const struct map_request *request)
{
	if (request->size < THP_SIZE)
		return "too small for a transparent huge page";
	if (transparent_off(request->memfd))
		return request->memfd ? "the kernel makes no transparent huge pages for a memfd"
				      : "transparent huge pages are off";
	return NULL;
}

/* A page of 1 GiB of which a zone uses less than half is better kept for another one. */
static bool too_small(const struct map_request *request, enum vbn_pages kind)
{
	return kind == VBN_PAGES_1G && request->size < pages_of(kind).size / 2;
}

static void add_reason(char *reasons, size_t size, const char *reason)
{
	size_t len = strlen(reasons);

	snprintf(reasons + len, size - len, "%s%s", len ? "; " : "", reason);
}

/* The best kind of pages that can be had, from `kind` down; why it is no better one. */
static int try_best(const struct map_request *request, enum vbn_pages kind, struct mapping *map,
	char *why, size_t why_size)
{
	const char *plain_why = no_transparent(request);
	char reasons[sizeof(map->page_why)] = "";
	int ret = -ENOMEM;

	for (; is_hugetlb(kind) && ret; kind--) {
		if (too_small(request, kind))
			snprintf(why, why_size, "too small for a page of 1 GiB");
		else
			ret = try_pages(request, kind, map, why, why_size);
		if (ret)
			add_reason(reasons, sizeof(reasons), why);
	}
	if (ret && plain_why) {
		add_reason(reasons, sizeof(reasons), plain_why);
		ret = try_pages(request, VBN_PAGES_PLAIN, map, why, why_size);
	} else if (ret) {
		ret = try_pages(request, VBN_PAGES_TRANSPARENT, map, why, why_size);
	}
	strcpy(map->page_why, reasons[0] ? reasons : "the best there is");
	return ret;
}

static int try_requested(
	const struct map_request *request, struct mapping *map, char *why, size_t why_size)
{
	if (request->pages == VBN_PAGES_AUTO)
		return try_best(request, VBN_PAGES_2M, map, why, why_size);
	if (request->preferred && is_hugetlb(request->pages))
		return try_best(request, request->pages, map, why, why_size);
	if (request->pages == VBN_PAGES_TRANSPARENT && transparent_off(request->memfd))
		strcpy(map->page_why, "the kernel is set to make no transparent huge pages");
	return try_pages(request, request->pages, map, why, why_size);
}

int vbn__map(const struct map_request *request, struct mapping *map)
{
	const struct pages pages = pages_of(request->pages);
	char why[160] = "",
	     remedy[256] =
		     "free memory, or raise the limits on it (ulimit -v, the control group's)";
	int ret;

	*map = (struct mapping){.memfd = -1};
	if (!request->size || request->size > SIZE_MAX / 2)
		return fail(EINVAL,
			"%s: cannot map %zu bytes: the size is out of range; ask for 1 to %zu",
			request->object, request->size, SIZE_MAX / 2);
	if (request->pages > VBN_PAGES_1G)
		return fail(EINVAL,
			"%s: cannot map pages of kind %d: there is none; take one of enum vbn_pages",
			request->object, (int)request->pages);
	ret = pick_node(request, map);
	if (ret)
		return ret;
	ret = try_requested(request, map, why, sizeof(why));
	if (!ret)
		return 0;
	if (is_hugetlb(request->pages))
		hugetlb_remedy(map, &pages, remedy, sizeof(remedy));
	return fail(-ret, "%s: cannot map %zu KiB of %s pages on NUMA node %d: %s; %s",
		request->object, request->size / KIB + !!(request->size % KIB),
		request->pages == VBN_PAGES_AUTO ? "any" : pages.name, map->node, why, remedy);
}

void *vbn__map_on_node(size_t size, int node, size_t *mapped)
{
	const struct map_request request = {.object = "export", .size = size, .node = node};
	struct mapping map;

	if (vbn__map(&request, &map))
		return NULL;
	*mapped = map.size;
	return map.base;
}

void vbn__unmap(void *base, size_t mapped)
{
	if (base)
		munmap(base, mapped);
}
