/* segment.c - segments: a sealed memfd each, mapped by the queue that reads its ring and by the one that
 * writes it
 *
 * Pages are plain unless the process asks for a size: a ring takes a fraction of a huge page, and
 * what a peer punches out of a huge page's memfd need not be there to be had again, which would be
 * a SIGBUS. Plain pages come back as zeros.
 */

#include "drv/shm/lend.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static bool may_be_huge(void)
{
	const enum vbn_pages pages = vbn__zone_pages();

	return pages == VBN_PAGES_2M || pages == VBN_PAGES_1G;
}

const char *vbn__shm_pages_asked(void)
{
	return may_be_huge() ? "2 MiB" : "auto";
}

/* What a larger page leaves over is ring. */
static uint32_t widen(uint32_t ring_size, size_t mapped)
{
	while (ring_size < SHM_RING_MAX && SHM_HEAD + 2 * (size_t)ring_size <= mapped)
		ring_size *= 2;
	return ring_size;
}

int vbn__shm_segment_make(uint32_t ring_size, int node, struct shm_segment **result)
{
	const struct map_request request = {.object = "queue's segment",
		.size = SHM_HEAD + (size_t)ring_size,
		.node = node,
		.pages = may_be_huge() ? VBN_PAGES_2M : VBN_PAGES_PLAIN,
		.preferred = true,
		.memfd = true};
	struct shm_segment *segment = calloc(1, sizeof(*segment));
	struct mapping map;
	int ret;

	if (!segment)
		return -ENOMEM;
	ret = vbn__map(&request, &map);
	if (ret) {
		free(segment);
		return ret;
	}
	*segment = (struct shm_segment){.base = map.base,
		.size = map.size,
		.ring_size = widen(ring_size, map.size),
		.refs = 1,
		.fd = map.memfd};
	snprintf(segment->pages, sizeof(segment->pages), "%.60s", map.page_text);
	snprintf(segment->why, sizeof(segment->why), "%.155s",
		may_be_huge()
			? map.page_why
			: "a ring takes a fraction of a huge page; --vbn-page-size=2M asks for them");
	store_once(&segment_head(segment)->open, 1);
	*result = segment;
	return 0;
}

/* What keeps every later access within the mapping. */
static const char *check_fd(int fd, size_t size, struct stat *stat)
{
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || fstat(fd, stat) || !S_ISREG(stat->st_mode) || fstatfs(fd, &fs))
		return "it is no memfd";
	if (!(seals & F_SEAL_SHRINK))
		return "it is not sealed against shrinking";
	if (fs.f_type == HUGETLBFS_MAGIC && !may_be_huge())
		return "it is of huge pages, which the peer could punch out; --vbn-page-size=2M trusts it not to";
	if (stat->st_size < (off_t)size || stat->st_size > (off_t)size + (2 << 20))
		return "its size is not what was said";
	return NULL;
}

int vbn__shm_segment_map(int fd, uint32_t ring_size, struct shm_segment **result, const char **why)
{
	const size_t size = SHM_HEAD + (size_t)ring_size;
	struct shm_segment *segment = calloc(1, sizeof(*segment));
	struct stat stat;
	void *base;

	*why = "there is no memory for it";
	if (!segment)
		goto failed;
	*why = "its ring is of no size that there is";
	if (!is_pow2(ring_size) || ring_size < SHM_RING_MIN || ring_size > SHM_RING_MAX)
		goto failed;
	*why = check_fd(fd, size, &stat);
	if (*why)
		goto failed;
	*why = "it cannot be mapped";
	base = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
		fd, 0);
	if (base == MAP_FAILED)
		goto failed;
	close(fd);
	*segment = (struct shm_segment){.base = base,
		.size = (size_t)stat.st_size,
		.ring_size = ring_size,
		.refs = 1,
		.fd = -1};
	*result = segment;
	return 0;

failed:
	close(fd);
	free(segment);
	return -EPROTO;
}

void vbn__shm_segment_put(struct shm_segment *segment)
{
	if (!segment || --segment->refs)
		return;
	vbn__shm_views_put(segment->views);
	munmap(segment->base, segment->size);
	if (segment->fd >= 0)
		close(segment->fd);
	free(segment);
}
