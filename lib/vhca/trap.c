/* trap.c - UAR pages that the program cannot write to, and the faults of its stores
 *
 * After each command, and every second, the context's pages are looked for in the process's own list
 * of mappings, since a program maps them however it likes, and made read-only. A doorbell that comes
 * by another mapping before that is heard as without the trap, and is the last one by it. A fault on one is a store: its
 * bytes are read off the instruction and handed to the device, with the device's lock held. An
 * instruction that is not known is done by the processor, alone, on a page that may be written to
 * for so long; what it has left there is then the store.
 */
#include "preload.h"

#include "vhca/guard.h"
#include "vhca/trap.h"

#include <inttypes.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

bool vhca_trapped;
int vhca_stores_waiting;

enum { MAX_PAGES = 4096, SINGLE_STEP = 0x100 /* of the flags register */ };

/* One page of the program's. */
struct trapped_page {
	uintptr_t start;
	struct vhca_context *context;
	uint64_t offset; /* in its UARs */
};

static struct trapped_page pages[MAX_PAGES];
static size_t n_pages;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the pages ---- */

static void forget(const struct vhca_context *context)
{
	size_t n = 0;

	for (size_t i = 0; i < n_pages; i++)
		if (pages[i].context != context)
			pages[n++] = pages[i];
	n_pages = n;
}

void vhca_trap_forget(struct vhca_context *context)
{
	pthread_mutex_lock(&lock);
	forget(context);
	pthread_mutex_unlock(&lock);
}

void vhca_trap_forked(void)
{
	pthread_mutex_init(&lock, NULL);
	n_pages = 0;
}

static void take_mapping(struct vhca_context *context, uintptr_t start, uintptr_t end,
	uint64_t offset, bool writable)
{
	static bool told;

	if (writable && mprotect((void *)start, end - start, PROT_READ))
		return;
	for (; start < end; start += VHCA_PAGE, offset += VHCA_PAGE) {
		if (n_pages == MAX_PAGES) {
			if (!told)
				log_warning(
					"vhca: more than %d UAR pages are mapped; the rest are not trapped",
					MAX_PAGES);
			told = true;
			mprotect((void *)start, end - start, PROT_READ | PROT_WRITE);
			return;
		}
		pages[n_pages++] = (struct trapped_page){start, context, offset};
	}
}

static void read_mappings(struct vhca_context *context, FILE *maps, dev_t dev, ino_t ino)
{
	uintptr_t bar = (uintptr_t)context->bar, start, end;
	unsigned int major, minor;
	uint64_t offset, inode;
	char line[512], rights[5];

	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %x:%x %" SCNu64, &start,
			    &end, rights, &offset, &major, &minor, &inode) != 7)
			continue;
		if (inode != ino || makedev(major, minor) != dev || !inode)
			continue;
		if ((start >= bar && start < bar + context->bar_size) ||
			offset >= (uint64_t)VHCA_N_UARS * VHCA_PAGE)
			continue;
		take_mapping(context, start, end, offset, rights[1] == 'w');
	}
}

void vhca_trap_pages(struct vhca_context *context)
{
	int saved = errno;
	struct stat bar;
	FILE *maps = real()->fopen("/proc/self/maps", "re");

	if (maps && !real()->fstat(context->bar_fd, &bar)) {
		pthread_mutex_lock(&lock);
		forget(context);
		read_mappings(context, maps, bar.st_dev, bar.st_ino);
		pthread_mutex_unlock(&lock);
	}
	if (maps)
		fclose(maps);
	errno = saved;
}

static bool find(uintptr_t address, struct trapped_page *page)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_pages && !found; i++) {
		found = address - pages[i].start < VHCA_PAGE;
		if (found)
			*page = pages[i];
	}
	pthread_mutex_unlock(&lock);
	return found;
}

/* ---- an instruction that is not known ---- */

#if defined(__x86_64__)

/* Of the thread that is about to do it. */
static __thread struct trapped_page stepped;
static struct sigaction before_step;
static pthread_mutex_t stepping = PTHREAD_MUTEX_INITIALIZER;

/* What is not 0 has been stored, run by run. The page is the device's registers, which read as 0.
 */
static void take_what_is_there(const struct trapped_page *page)
{
	uint8_t *bytes = page->context->bar + page->offset;
	uint32_t end;

	for (uint32_t at = 0; at < VHCA_PAGE; at = end) {
		end = at + 8;
		if (!load_once((uint64_t *)(void *)(bytes + at)))
			continue;
		while (end < VHCA_PAGE && end - at < VHCA_MAX_STORE && end % 0x100 &&
			load_once((uint64_t *)(void *)(bytes + end)))
			end += 8;
		vhca_trap_store(page->context, page->offset + at, bytes + at, end - at);
		memset(bytes + at, 0, end - at);
	}
}

static void on_step(int signo, siginfo_t *info, void *context)
{
	ucontext_t *machine = context;

	(void)signo;
	(void)info;
	mprotect((void *)stepped.start, VHCA_PAGE, PROT_READ);
	machine->uc_mcontext.gregs[REG_EFL] &= ~SINGLE_STEP;
	take_what_is_there(&stepped);
	vhca_unlock(stepped.context->device);
	real()->sigaction(SIGTRAP, &before_step, NULL);
	pthread_mutex_unlock(&stepping);
}

/* The device stays locked until the step is done, so that the engine sees nothing of it. */
static void step(const struct trapped_page *page, ucontext_t *machine)
{
	struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	pthread_mutex_lock(&stepping);
	vhca_lock(page->context->device);
	stepped = *page;
	real()->sigaction(SIGTRAP, &action, &before_step);
	sigdelset(&machine->uc_sigmask, SIGTRAP);
	mprotect((void *)page->start, VHCA_PAGE, PROT_READ | PROT_WRITE);
	machine->uc_mcontext.gregs[REG_EFL] |= SINGLE_STEP;
}

#else

static void step(const struct trapped_page *page, ucontext_t *machine)
{
	(void)machine;
	log_error("vhca: VHCA_TRAP cannot follow stores on this processor; the page is let go");
	mprotect((void *)page->start, VHCA_PAGE, PROT_READ | PROT_WRITE);
}

#endif

/* ---- the fault ---- */

bool vhca_trap_fault(const siginfo_t *info, ucontext_t *machine)
{
	uintptr_t address = (uintptr_t)info->si_addr;
	uint8_t bytes[VHCA_MAX_STORE];
	struct trapped_page page;
	int saved = errno;
	uint32_t size;

	if (info->si_code != SEGV_ACCERR || !find(address, &page))
		return false;
	__atomic_fetch_add(&vhca_stores_waiting, 1, __ATOMIC_RELAXED);
	size = vhca_decode_store(machine, bytes);
	if (size) {
		vhca_lock(page.context->device);
		vhca_trap_store(page.context, page.offset + (address - page.start), bytes, size);
		vhca_unlock(page.context->device);
	} else {
		step(&page, machine);
	}
	__atomic_fetch_sub(&vhca_stores_waiting, 1, __ATOMIC_RELAXED);
	errno = saved;
	return true;
}
