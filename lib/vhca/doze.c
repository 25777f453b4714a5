/* doze.c - the engine sleeps until a page is touched: userfaultfd on the program's UAR and clock
 * pages
 *
 * The UAR pages are write-protected, so that the first doorbell wakes the engine, and waits for as
 * long as it takes to let the page go. The page of the free-running clock is taken out of its file:
 * whoever reads it waits likewise, and reads the time of its waking. One page more is for the
 * program's own threads where they are in vhca: a command ends with a store there.
 *
 * The program maps its pages however it likes, so they are looked for in the process's list of
 * mappings, anew after commands and every second. While a UAR or clock page has no mapping, because
 * it is about to be made, nothing dozes. What the list said may be wrong by the time it is used:
 * nothing that is done to another page harms it, it is at most let go a moment later.
 */
#include "vhca/doze.h"

#include "vhca/device.h"
#include "vhca/trap.h"

#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of headers before Linux 5.11 and 5.19. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

#define FEATURES                                                            \
	(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM | \
		UFFD_FEATURE_MISSING_SHMEM)

enum {
	MAX_CONTEXTS = 64,
	MAX_RANGES = 512,
	HIGH_FD = 512,                /* out of the way of programs that count on small numbers */
	LOOK_NS = 1000 * 1000 * 1000, /* the list of mappings is read so often at least */
	SETTLED_NS =
		100 * 1000 * 1000, /* a command is this long ago: its mappings have been made */
};

/* Pages of one of the program's mappings. */
struct range {
	uintptr_t start;
	size_t size;
	bool is_clock;
};

/* A context, as it was when its pages were looked for. */
struct mapped {
	uint8_t *bar;
	size_t bar_size;
	uint64_t inode;
	uint64_t uars[ARRAY_SIZE(((struct vhca_context *)0)->uars_used)]; /* not found yet */
	bool clock;                                                       /* found */
};

static uint32_t word_of_nobody;
uint32_t *vhca_doze_word = &word_of_nobody;

static struct {
	int fd, maps;
	const char *refused;
	char text[128];                          /* for it */
	uint64_t n;                              /* dozes */
	uint64_t changes, seen_changes, seen_at; /* of the program's pages; clock_ns() */
	uint64_t looked_at;
	bool known; /* all pages, by the last look */
	struct range ranges[MAX_RANGES];
	size_t n_ranges;
	uint64_t *clocks[MAX_CONTEXTS]; /* to be set at the end of the doze */
	size_t n_clocks;
} doze = {.fd = -1, .maps = -1, .refused = "no device is open"};

/* ---- what it asks of the kernel ---- */

/* By system calls: a library's wrapper may have a lock. */
static bool control(unsigned long request, void *argument)
{
	return !syscall(SYS_ioctl, doze.fd, request, argument);
}

static bool watch(const struct range *range)
{
	struct uffdio_register wanted = {.range = {range->start, range->size},
		.mode = range->is_clock ? UFFDIO_REGISTER_MODE_MISSING : UFFDIO_REGISTER_MODE_WP};

	return control(UFFDIO_REGISTER, &wanted);
}

static bool protect(uintptr_t start, size_t size, bool on)
{
	struct uffdio_writeprotect wanted = {
		.range = {start, size}, .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};

	return control(UFFDIO_WRITEPROTECT, &wanted);
}

/* Where some of the range has gone meanwhile, its other pages one by one. */
static void let_go(uintptr_t start, size_t size)
{
	if (protect(start, size, false))
		return;
	for (size_t at = 0; at < size; at += VHCA_PAGE)
		protect(start + at, VHCA_PAGE, false);
}

static void wake_readers(const struct range *range)
{
	struct uffdio_range wanted = {range->start, range->size};

	control(UFFDIO_WAKE, &wanted);
}

/* ---- whether it can be had ---- */

static int find_valgrind(struct dl_phdr_info *info, size_t size, void *found)
{
	(void)size;
	if (info->dlpi_name && strstr(info->dlpi_name, "/vgpreload_"))
		*(bool *)found = true;
	return 0;
}

/* Where threads take turns, one that waits in a store would keep the engine from its own. */
static const char *why_not_here(void)
{
	bool valgrind = false;

	if (!vhca_options()->doze)
		return "asked for";
	if (vhca_trapped)
		return "UAR pages are trapped";
	dl_iterate_phdr(find_valgrind, &valgrind);
	if (valgrind)
		return "valgrind runs one thread at a time";
	if (getenv("RUNNING_UNDER_RR"))
		return "rr runs one thread at a time";
	if (sysconf(_SC_PAGESIZE) != VHCA_PAGE)
		return "pages of this machine are not of 4096 bytes";
	return NULL;
}

static int to_high(int fd)
{
	int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);

	if (high < 0)
		return fd;
	close(fd);
	return high;
}

static cold const char *refused_by_kernel(const char *what)
{
	snprintf(doze.text, sizeof(doze.text), "%s: %s", what, strerror(errno));
	return doze.text;
}

static const char *open_userfaultfd(void)
{
	struct uffdio_api api = {.api = UFFD_API, .features = FEATURES};

	doze.fd = to_high(
		(int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
	if (doze.fd < 0)
		return refused_by_kernel("userfaultfd is refused");
	if (!control(UFFDIO_API, &api))
		return "userfaultfd of this kernel does not protect shared memory: Linux 5.19 does";
	doze.maps = to_high(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
	if (doze.maps < 0)
		return refused_by_kernel("/proc/self/maps cannot be read");
	return NULL;
}

/* The page stays for good: a thread may be about to store there. */
static const char *watch_word(void)
{
	struct range word = {.size = VHCA_PAGE};

	if (vhca_doze_word == &word_of_nobody) {
		void *page = mmap(NULL, VHCA_PAGE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (page == MAP_FAILED)
			return refused_by_kernel("there is no page");
		store_once((uint32_t *)page, 0);
		store_release(&vhca_doze_word, (uint32_t *)page);
	}
	word.start = (uintptr_t)vhca_doze_word;
	return watch(&word) ? NULL : refused_by_kernel("a page cannot be watched");
}

/* A child of fork has its own address space, of which the parent's userfaultfd knows nothing. What
 * the program has put in a closed one's place stays. */
static void close_all(void)
{
	struct uffdio_range nowhere = {
		(uintptr_t)vhca_doze_word & ~(uintptr_t)(VHCA_PAGE - 1), VHCA_PAGE};

	if (doze.fd >= 0 && control(UFFDIO_WAKE, &nowhere))
		close(doze.fd);
	if (doze.maps >= 0)
		close(doze.maps);
	doze.fd = doze.maps = -1;
}

static cold void refuse(const char *why)
{
	close_all();
	store_release(&doze.refused, why);
}

void vhca_doze_start(void)
{
	const char *why = why_not_here();

	doze.n_ranges = doze.n_clocks = 0;
	doze.looked_at = 0;
	doze.known = false;
	if (!why)
		why = open_userfaultfd();
	if (!why)
		why = watch_word();
	if (why)
		refuse(why);
	else
		store_release(&doze.refused, (const char *)NULL);
}

void vhca_doze_stop(void)
{
	refuse("no device is open");
}

void vhca_doze_forked(void)
{
	vhca_doze_stop();
	doze.n_clocks = 0;
}

const char *vhca_doze_refused(void)
{
	return load_acquire(&doze.refused);
}

uint64_t vhca_doze_count(void)
{
	return load_once(&doze.n);
}

void vhca_doze_pages_changed(void)
{
	__atomic_fetch_add(&doze.changes, 1, __ATOMIC_RELAXED);
}

/* ---- the program's mappings ---- */

static struct mapped contexts[MAX_CONTEXTS];
static size_t n_contexts;

/* False: there are too many. */
static bool take_contexts(struct vhca_device *device)
{
	bool all = true;

	pthread_mutex_lock(&device->lock);
	for (struct vhca_context *context = device->contexts; context && all;
		context = context->next) {
		struct mapped *mapped = &contexts[n_contexts];

		all = n_contexts < MAX_CONTEXTS;
		if (!all)
			break;
		*mapped = (struct mapped){.bar = context->bar, .bar_size = context->bar_size};
		memcpy(mapped->uars, context->uars_used, sizeof(mapped->uars));
		n_contexts++;
	}
	pthread_mutex_unlock(&device->lock);
	return all;
}

/* A line of the list. */
struct mapping {
	uintptr_t start, end;
	uint64_t offset, inode;
};

static bool parse(const char *line, struct mapping *mapping)
{
	return strstr(line, "/memfd:infiniband/uverbs") &&
		sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64 " %*x:%*x %" SCNu64,
			&mapping->start, &mapping->end, &mapping->offset, &mapping->inode) == 4;
}

static void take_range(const struct mapping *mapping, uint64_t from, uint64_t to, bool is_clock)
{
	struct range *range = &doze.ranges[doze.n_ranges];
	uint64_t end = mapping->offset + (mapping->end - mapping->start);

	from = max(from, mapping->offset);
	to = min(to, end);
	if (from >= to || doze.n_ranges == MAX_RANGES)
		return;
	range->start = mapping->start + (uintptr_t)(from - mapping->offset);
	range->size = (size_t)(to - from);
	range->is_clock = is_clock;
	doze.n_ranges++;
}

static void found(struct mapped *mapped, const struct mapping *mapping)
{
	uint64_t first = mapping->offset / VHCA_PAGE;
	uint64_t end = first + (mapping->end - mapping->start) / VHCA_PAGE;

	for (uint64_t page = first; page < min(end, (uint64_t)VHCA_N_UARS); page++)
		mapped->uars[page / 64] &= ~(1ull << (page % 64));
	mapped->clock |= first <= VHCA_BAR_CLOCK / VHCA_PAGE && VHCA_BAR_CLOCK / VHCA_PAGE < end;
	take_range(mapping, 0, (uint64_t)VHCA_N_UARS * VHCA_PAGE, false);
	take_range(mapping, VHCA_BAR_CLOCK, VHCA_BAR_CLOCK + VHCA_PAGE, true);
}

/* Our own mapping of the file says which context it is of. */
static void take_own(const struct mapping *mapping)
{
	for (size_t i = 0; i < n_contexts; i++)
		if (mapping->start == (uintptr_t)contexts[i].bar)
			contexts[i].inode = mapping->inode;
}

static void take_programs(const struct mapping *mapping)
{
	for (size_t i = 0; i < n_contexts; i++) {
		uintptr_t bar = (uintptr_t)contexts[i].bar;

		if (contexts[i].inode == mapping->inode &&
			mapping->start - bar >= contexts[i].bar_size)
			found(&contexts[i], mapping);
	}
}

/* Each line that is about a device's file; false: the list cannot be read. */
static bool read_list(void (*take)(const struct mapping *mapping))
{
	static char text[16384];
	struct mapping mapping;
	off_t at = 0;

	for (;;) {
		ssize_t n = pread(doze.maps, text, sizeof(text) - 1, at);
		char *line = text, *end;

		if (n <= 0)
			return !n;
		text[n] = '\0';
		for (; (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			if (parse(line, &mapping))
				take(&mapping);
		}
		if (line == text)
			return false; /* no list of mappings has such a line */
		at += line - text;
	}
}

static bool all_found(void)
{
	for (size_t i = 0; i < n_contexts; i++) {
		if (!contexts[i].clock)
			return false;
		for (size_t k = 0; k < ARRAY_SIZE(contexts[i].uars); k++)
			if (contexts[i].uars[k])
				return false;
	}
	return true;
}

/* Looks for all pages and has them watched. What is watched already stays so. */
static bool look(int n_devices)
{
	n_contexts = doze.n_ranges = 0;
	for (int i = 0; i < n_devices; i++)
		if (!take_contexts(vhca_device(i)))
			return false;
	if (!read_list(take_own) || !read_list(take_programs))
		return false;
	if (!all_found() || doze.n_ranges == MAX_RANGES)
		return false;
	for (size_t i = 0; i < doze.n_ranges; i++)
		if (!watch(&doze.ranges[i]))
			return false;
	return true;
}

static bool pages_known(int n_devices)
{
	uint64_t now = clock_ns(), changes = __atomic_load_n(&doze.changes, __ATOMIC_RELAXED);

	if (changes != doze.seen_changes) {
		doze.seen_changes = changes;
		doze.seen_at = now;
		doze.looked_at = 0;
	}
	if (now - doze.seen_at < SETTLED_NS)
		return false;
	if (!doze.looked_at || now - doze.looked_at >= LOOK_NS) {
		doze.looked_at = now;
		doze.known = look(n_devices);
	}
	return doze.known;
}

/* ---- whether there is anything to do ---- */

/* What needs sweeps. Receives that are posted to a QP in ERR come without a doorbell, and so do
 * those that a held wire waits for. */
static bool device_busy(const struct vhca_device *device)
{
	const struct vhca_tables *tables = device->tables;

	if (device->fatal)
		return false;
	for (const struct vhca_link *link = tables->pages.next; link != &tables->pages;
		link = link->next)
		if (vhca_page_rung(container_of(link, struct vhca_page, link)))
			return true;
	return !vhca_list_empty(&tables->active) || !vhca_list_empty(&tables->sessions) ||
		!vhca_list_empty(&tables->errored) || device->wire->held;
}

/* A thread that has a lock may be in a store that waits: it is not waited for. */
static bool lock_all(int n_devices)
{
	for (int i = 0; i < n_devices; i++) {
		if (!pthread_mutex_trylock(&vhca_device(i)->lock))
			continue;
		while (i--)
			pthread_mutex_unlock(&vhca_device(i)->lock);
		return false;
	}
	return true;
}

static void unlock_all(int n_devices)
{
	for (int i = n_devices - 1; i >= 0; i--)
		pthread_mutex_unlock(&vhca_device(i)->lock);
}

static bool all_quiet(int n_devices)
{
	bool busy = __atomic_load_n(&doze.changes, __ATOMIC_RELAXED) != doze.seen_changes;

	for (int i = 0; i < n_devices && !busy; i++)
		busy = device_busy(vhca_device(i));
	return !busy;
}

/* ---- the clock pages ---- */

/* Out of their file, by our own mapping: that of a descriptor could be another's by now. A mapping
 * that the program has locked in memory is unlocked for it. */
static bool take_out(uint8_t *page)
{
	if (!madvise(page, VHCA_PAGE, MADV_REMOVE))
		return true;
	return errno == EINVAL && !munlock(page, VHCA_PAGE) &&
		!madvise(page, VHCA_PAGE, MADV_REMOVE);
}

static bool stop_clocks(int n_devices)
{
	for (int i = 0; i < n_devices; i++)
		for (struct vhca_context *context = vhca_device(i)->contexts; context;
			context = context->next) {
			uint8_t *page = context->bar + VHCA_BAR_CLOCK;

			if (doze.n_clocks == MAX_CONTEXTS || !take_out(page))
				return false;
			doze.clocks[doze.n_clocks++] = (uint64_t *)(void *)page;
		}
	return true;
}

static void start_clocks(void)
{
	for (size_t i = 0; i < doze.n_clocks; i++)
		store_once(doze.clocks[i], htobe64(vhca_clock()));
	doze.n_clocks = 0;
}

/* ---- the doze ---- */

/* The word's page first: from then on a command, which may end a context, waits for the end. */
static bool protect_all(void)
{
	if (!protect((uintptr_t)vhca_doze_word, VHCA_PAGE, true))
		return false;
	for (size_t i = 0; i < doze.n_ranges; i++) {
		const struct range *range = &doze.ranges[i];

		if (!range->is_clock && !protect(range->start, range->size, true))
			return false;
	}
	return true;
}

/* A doorbell that came before its page was protected is seen by the second look at the devices. */
bool vhca_doze_begin(int n_devices)
{
	bool quiet;

	if (doze.refused || !pages_known(n_devices) || !lock_all(n_devices))
		return false;
	quiet = all_quiet(n_devices);
	unlock_all(n_devices);
	if (!quiet)
		return false;
	if (protect_all() && lock_all(n_devices)) {
		quiet = all_quiet(n_devices) && stop_clocks(n_devices);
		unlock_all(n_devices);
		if (quiet) {
			store_once(&doze.n, doze.n + 1);
			return true;
		}
	}
	doze.looked_at = 0; /* it may be the pages */
	vhca_doze_end();
	return false;
}

int vhca_doze_fd(void)
{
	return doze.fd;
}

static bool someone_waits(void)
{
	struct pollfd fd = {.fd = doze.fd, .events = POLLIN};

	return poll(&fd, 1, 0) > 0;
}

void vhca_doze_end(void)
{
	start_clocks();
	for (size_t i = 0; i < doze.n_ranges; i++)
		if (doze.ranges[i].is_clock)
			wake_readers(&doze.ranges[i]);
		else
			let_go(doze.ranges[i].start, doze.ranges[i].size);
	let_go((uintptr_t)vhca_doze_word, VHCA_PAGE);
	if (unlikely(someone_waits())) /* at a page that is not among them any more */
		refuse("a page was lost");
}
