/* life.c - this process's word that the kernel writes when it dies, and peers' words */

#include "drv/shm/life.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

const uint32_t vbn__shm_deathless;

/* The list of what the control thread holds, with one entry. Entries stand at one distance from their
 * words, whatever it is: so this one need not be where peers can write it, nor see it. */
static struct {
	struct robust_list_head head;
	struct robust_list entry;
	void *before; /* the list that was the thread's: libc's */
	size_t before_size;
	uint32_t *word;
	int fd;
	const char *why;
} life = {.fd = -1, .why = "no port is open"};

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static bool hold(void)
{
	life.head = (struct robust_list_head){
		.list = {.next = &life.entry},
		.futex_offset = (long)((uintptr_t)life.word - (uintptr_t)&life.entry),
	};
	life.entry.next = &life.head.list;
	store_release(life.word, (uint32_t)syscall(SYS_gettid));
	return !syscall(SYS_get_robust_list, 0, &life.before, &life.before_size) &&
		!syscall(SYS_set_robust_list, &life.head, sizeof(life.head));
}

static const char *make_page(void)
{
	life.fd = memfd_create("verbena life", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (life.fd < 0 || ftruncate(life.fd, (off_t)page_size()))
		return "no memory can be had for its word";
	life.word = mmap(
		NULL, page_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, life.fd, 0);
	if (life.word == MAP_FAILED) {
		life.word = NULL;
		return "no memory can be had for its word";
	}
	if (fcntl(life.fd, F_ADD_SEALS,
		    F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		return "this kernel does not keep others from writing its word";
	return hold() ? NULL : "this kernel keeps no list of robust futexes";
}

static void drop_page(void)
{
	if (life.word)
		munmap(life.word, page_size());
	if (life.fd >= 0)
		close(life.fd);
	life.word = NULL;
	life.fd = -1;
}

void vbn__shm_life_begin(void)
{
	life.why = make_page();
	if (life.why)
		drop_page();
}

void vbn__shm_life_end(void)
{
	if (life.word)
		syscall(SYS_set_robust_list, life.before, life.before_size);
	drop_page();
	life.why = "no port is open";
}

int vbn__shm_life_fd(const char **why)
{
	*why = life.why;
	return life.fd;
}

/* ---- a peer's ---- */

/* It cannot go away under the eyes of who reads it; what is punched out reads as 0. */
static bool is_lasting(int fd)
{
	struct stat stat;
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && seals & F_SEAL_SHRINK && !fstat(fd, &stat) && S_ISREG(stat.st_mode) &&
		stat.st_size == (off_t)page_size() && !fstatfs(fd, &fs) &&
		fs.f_type != HUGETLBFS_MAGIC;
}

struct shm_life *vbn__shm_life_map(int fd)
{
	struct shm_life *peer = calloc(1, sizeof(*peer));
	void *page = MAP_FAILED;

	if (peer && is_lasting(fd))
		page = mmap(NULL, page_size(), PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	close(fd);
	if (page == MAP_FAILED) {
		free(peer);
		return NULL;
	}
	*peer = (struct shm_life){.word = page, .refs = 1};
	return peer;
}

void vbn__shm_life_put(struct shm_life *peer)
{
	if (!peer || --peer->refs)
		return;
	munmap((void *)(uintptr_t)peer->word, page_size());
	free(peer);
}
