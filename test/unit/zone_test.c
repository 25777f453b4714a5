/* zone_test.c - zones: page sizes, nodes, fallbacks and their reasons, ids; no page is left to
 * fault */

#include "unit.h"

#include "mem/mem.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <numaif.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define KIB 1024ul
#define MIB (1024ul * KIB)

static size_t plain_page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static const struct vbn_mode *mode_of(const struct vbn_zone *zone, const char *name)
{
	static struct vbn_mode modes[8];
	int n = vbn_zone_modes(zone, modes, 8);

	for (int i = 0; i < n; i++)
		if (!strcmp(modes[i].name, name))
			return &modes[i];
	unit_fail("the zone reports no mode %s", name);
	return &modes[0];
}

static struct vbn_zone *make(const struct vbn_zone_conf *conf)
{
	struct vbn_zone *zone;

	unit_catch_log();
	if (vbn_zone_create(conf, &zone))
		unit_fail("no zone: %s", unit_log);
	return zone;
}

static int no_zone(const struct vbn_zone_conf *conf)
{
	struct vbn_zone *zone = (struct vbn_zone *)-1;
	int ret;

	unit_catch_log();
	ret = vbn_zone_create(conf, &zone);
	assert_null(zone);
	assert_string_not_equal(unit_log, "");
	return ret;
}

/* Every page is there, and writing to all of them faults none in. */
static void assert_populated(const struct vbn_zone *zone)
{
	const size_t page = plain_page(), n = zone->size / page;
	unsigned char *there = malloc(n);
	struct rusage before, after;

	assert_non_null(there);
	assert_int_equal(mincore(zone->base, zone->size, there), 0);
	for (size_t i = 0; i < n; i++)
		assert_true(there[i] & 1);
	free(there);
	getrusage(RUSAGE_SELF, &before);
	for (size_t i = 0; i < n; i++)
		*(volatile uint8_t *)(zone->base + i * page) = 1;
	getrusage(RUSAGE_SELF, &after);
	if (!UNIT_SHADOW) /* which has a shadow of its own that faults */
		assert_in_range(after.ru_minflt - before.ru_minflt, 0, 2);
}

static void assert_on_node(const struct vbn_zone *zone, int node)
{
	for (size_t at = 0; at < zone->size; at += plain_page()) {
		void *page = zone->base + at;
		int status = -1;

		assert_int_equal(move_pages(0, 1, &page, NULL, &status, 0), 0);
		assert_int_equal(status, node);
	}
}

/* ---- kinds of pages ---- */

static void plain(void **state)
{
	const struct vbn_zone_conf conf = {
		.size = 100 * KIB + 1, .pages = VBN_PAGES_PLAIN, .name = "plain"};
	struct vbn_zone *zone = make(&conf);

	(void)state;
	assert_int_equal(
		vbn_zone_size(zone), round_up(conf.size, plain_page())); /* to the page only */
	assert_int_equal(vbn_zone_free(zone), vbn_zone_size(zone));
	assert_int_equal(zone->page_size, plain_page());
	assert_int_equal(zone->memfd, -1);
	for (size_t i = 0; i < zone->size; i++)
		assert_int_equal(zone->base[i], 0);
	assert_populated(zone);
	assert_string_equal(mode_of(zone, "page_size")->requested, "plain");
	assert_string_equal(mode_of(zone, "page_size")->effective, "plain");
	assert_string_equal(mode_of(zone, "backing")->effective, "anonymous");
	vbn_zone_destroy(zone);
}

static void transparent(void **state)
{
	const struct vbn_zone_conf conf = {.size = 5 * MIB + 1, .pages = VBN_PAGES_TRANSPARENT};
	struct vbn_zone *zone = make(&conf);

	(void)state;
	assert_int_equal(vbn_zone_size(zone), round_up(conf.size, plain_page()));
	assert_int_equal((uintptr_t)zone->base % (2 * MIB), 0);
	assert_populated(zone);
	assert_has(mode_of(zone, "page_size")->effective, "transparent, ");
	vbn_zone_destroy(zone);
}

static void by_memfd(void **state)
{
	static const enum vbn_pages kinds[] = {VBN_PAGES_PLAIN, VBN_PAGES_TRANSPARENT};
	char byte;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		const struct vbn_zone_conf conf = {
			.size = 3 * MIB, .pages = kinds[i], .memfd = VBN_ON};
		struct vbn_zone *zone = make(&conf);

		assert_true(zone->memfd >= 0);
		assert_populated(zone);
		zone->base[MIB] = 'x';
		assert_int_equal(pread(zone->memfd, &byte, 1, MIB), 1);
		assert_int_equal(byte, 'x');
		assert_string_equal(mode_of(zone, "backing")->effective, "memfd");
		vbn_zone_destroy(zone);
	}
}

/* ---- huge pages: reserved for the test where it may, given back after it ---- */

static long read_long(const char *path)
{
	FILE *in = fopen(path, "r");
	long value = -1;

	if (!in)
		return -1;
	if (fscanf(in, "%ld", &value) != 1)
		value = -1;
	fclose(in);
	return value;
}

static void write_long(const char *path, long value)
{
	FILE *out = fopen(path, "w");

	if (!out)
		return;
	fprintf(out, "%ld\n", value);
	fclose(out);
}

static char nr_path[128], free_path[128];

/* What there was before this program: kept from the first time, for a test that failed may still
 * hold pages. */
static struct {
	char nr_path[128];
	long nr;
} before[2];

static void name_paths(size_t page)
{
	static const char directory[] = "/sys/devices/system/node/node0/hugepages/hugepages";

	snprintf(nr_path, sizeof(nr_path), "%s-%zukB/nr_hugepages", directory, page / KIB);
	snprintf(free_path, sizeof(free_path), "%s-%zukB/free_hugepages", directory, page / KIB);
}

static void remember(size_t page, long nr)
{
	const size_t i = page == 2 * MIB ? 0 : 1;

	if (before[i].nr_path[0])
		return;
	strcpy(before[i].nr_path, nr_path);
	before[i].nr = nr;
}

/* Makes node 0 have at least `need` free pages; false where it may not or cannot. */
static bool reserve(size_t page, long need)
{
	long have, nr;

	name_paths(page);
	nr = read_long(nr_path);
	have = read_long(free_path);
	if (nr < 0 || have < 0)
		return false;
	remember(page, nr);
	if (have < need)
		write_long(nr_path, nr + need - have);
	return read_long(free_path) >= need;
}

static int unreserve(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(before); i++)
		if (before[i].nr_path[0] && read_long(before[i].nr_path) != before[i].nr)
			write_long(before[i].nr_path, before[i].nr);
	return 0;
}

static void check_huge(
	enum vbn_pages kind, size_t page, long n, const char *text, enum vbn_switch memfd)
{
	const struct vbn_zone_conf conf = {.size = (size_t)(n - 1) * page + 1,
		.pages = kind,
		.memfd = memfd,
		.node = VBN_NUM(0)};
	const long free_before = read_long(free_path);
	struct vbn_zone *zone = make(&conf);

	assert_int_equal(vbn_zone_size(zone), (size_t)n * page);
	assert_int_equal(zone->page_size, page);
	assert_int_equal(read_long(free_path), free_before - n);
	assert_string_equal(mode_of(zone, "page_size")->effective, text);
	assert_int_equal(zone->node, 0);
	assert_populated(zone);
	vbn_zone_destroy(zone);
	assert_int_equal(read_long(free_path), free_before);
}

static void huge_2m(void **state)
{
	(void)state;
	if (!reserve(2 * MIB, 3))
		unit_skip("zone_2m",
			"node 0 has no 3 free pages of 2 MiB, and they cannot be reserved");
	check_huge(VBN_PAGES_2M, 2 * MIB, 3, "2 MiB", VBN_OFF);
	check_huge(VBN_PAGES_2M, 2 * MIB, 3, "2 MiB", VBN_ON);
	check_huge(VBN_PAGES_AUTO, 2 * MIB, 2, "2 MiB", VBN_AUTO);
}

static void huge_1g(void **state)
{
	(void)state;
	if (!reserve(1024 * MIB, 1))
		unit_skip("zone_1g", "node 0 has no free page of 1 GiB, and none can be reserved");
	check_huge(VBN_PAGES_1G, 1024 * MIB, 1, "1 GiB", VBN_OFF);
}

/* The free pages of sysfs include those that others have reserved and not touched: they are not to
 * be had. */
static void huge_2m_reserved_by_another(void **state)
{
	const struct vbn_zone_conf conf = {
		.size = 4 * MIB, .pages = VBN_PAGES_2M, .node = VBN_NUM(0)};
	long spare;
	void *other;

	(void)state;
	if (!reserve(2 * MIB, 3))
		unit_skip("zone_2m",
			"node 0 has no 3 free pages of 2 MiB, and they cannot be reserved");
	spare = read_long("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages") -
		read_long("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages") - 1;
	other = mmap(NULL, (size_t)spare * 2 * MIB, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);
	assert_ptr_not_equal(other, MAP_FAILED);
	assert_int_equal(no_zone(&conf), -ENOMEM);
	assert_logged("node 0 needs 2 pages of 2 MiB and has 1 free; as root: echo ");
	munmap(other, (size_t)spare * 2 * MIB);
}

/* ---- pages of 1 GiB on a machine that is described by files ---- */

static char fake[] = "/tmp/zone_test.XXXXXX";

static void write_fake(const char *folder, const char *name, const char *text)
{
	char path[300];
	FILE *file;

	snprintf(path, sizeof(path), "mkdir -p %s%s", fake, folder);
	assert_int_equal(system(path), 0);
	snprintf(path, sizeof(path), "%s%s/%s", fake, folder, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void fake_1g(const char *free_pages)
{
	static const char *const folders[] = {"/sys/kernel/mm/hugepages/hugepages-1048576kB",
		"/sys/devices/system/node/node0/hugepages/hugepages-1048576kB"};

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		write_fake(folders[i], "free_hugepages", free_pages);
		write_fake(folders[i], "nr_hugepages", free_pages);
	}
}

static int make_fake(void **state)
{
	(void)state;
	strcpy(fake + sizeof(fake) - sizeof("XXXXXX"), "XXXXXX");
	if (!mkdtemp(fake))
		return -1;
	vbn__map_root(fake);
	return 0;
}

static int remove_fake(void **state)
{
	char command[64];

	(void)state;
	vbn__map_root(NULL);
	vbn__zone_default_pages(VBN_PAGES_AUTO);
	snprintf(command, sizeof(command), "rm -r %s", fake);
	return system(command);
}

/* A zone for which pages of 1 GiB are preferred gets smaller ones; its report says both. */
static void falls_from_1g(const char *why)
{
	const struct vbn_zone_conf conf = {.size = 100 * KIB, .node = VBN_NUM(0)};
	struct vbn_zone *zone = make(&conf);
	const struct vbn_mode *mode = mode_of(zone, "page_size");

	assert_string_equal(mode->requested, "1 GiB");
	assert_string_equal(mode->effective, "plain");
	assert_has(mode->why, why);
	assert_has(mode->why, "; this kernel has no pages of 2 MiB; too small for a transparent");
	vbn_zone_destroy(zone);
}

static void prefers_1g_and_says_why_not(void **state)
{
	(void)state;
	vbn__zone_default_pages(VBN_PAGES_1G);
	falls_from_1g("too small for a page of 1 GiB");
	assert_int_equal(no_zone(&(struct vbn_zone_conf){.size = 100 * KIB, .pages = VBN_PAGES_1G}),
		-ENOMEM);
	assert_logged("this kernel has no pages of 1 GiB; ask for another page size");
	fake_1g("0");
	assert_int_equal(no_zone(&(struct vbn_zone_conf){
				 .size = 100 * KIB, .pages = VBN_PAGES_1G, .node = VBN_NUM(0)}),
		-ENOMEM);
	assert_logged("node 0 needs 1 page of 1 GiB and has 0 free; as root: echo 1 > ");
}

/* What the conf of a zone asks for it gets, or the call fails; and a page that sysfs names free and
 * that cannot be mapped is a reason like others. */
static void a_page_of_1g_that_is_not_there_after_all(void **state)
{
	const struct vbn_zone_conf conf = {
		.size = 100 * KIB, .pages = VBN_PAGES_1G, .node = VBN_NUM(0)};
	struct vbn_zone *zone;

	(void)state;
	fake_1g("1");
	unit_catch_log();
	if (!vbn_zone_create(&conf, &zone)) {
		vbn_zone_destroy(zone);
		unit_skip("zone_1g", "there is a page of 1 GiB");
	}
	assert_logged("zone zone: cannot map 100 KiB of 1 GiB pages on NUMA node 0: mmap: ");
}

/* Too few pages: a sentence with the figures and the remedy, or the next kind of pages; never a
 * SIGBUS. */
static void huge_2m_short(void **state)
{
	const long spare = read_long(
		"/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages");
	struct vbn_zone_conf conf = {.pages = VBN_PAGES_2M, .node = VBN_NUM(0), .name = "short"};
	struct vbn_zone *zone;
	char needs[64];

	(void)state;
	if (spare < 0 || spare > 64 || read_long("/proc/sys/vm/nr_overcommit_hugepages"))
		unit_skip("zone_2m_short",
			"no sysfs that says how many pages of 2 MiB are free, very many of them, or no end");
	conf.size = (size_t)(spare + 1) * 2 * MIB;
	assert_int_equal(no_zone(&conf), -ENOMEM);
	snprintf(needs, sizeof(needs), "node 0 needs %ld page%s of 2 MiB and has %ld free",
		spare + 1, spare + 1 == 1 ? "" : "s", spare);
	assert_logged("zone short: cannot map");
	assert_logged(needs);
	assert_logged("nr_hugepages");

	conf.pages = VBN_PAGES_AUTO;
	zone = make(&conf);
	assert_has(mode_of(zone, "page_size")->why, needs);
	assert_string_equal(mode_of(zone, "page_size")->requested, "auto");
	assert_string_not_equal(mode_of(zone, "page_size")->effective, "2 MiB");
	assert_populated(zone);
	vbn_zone_destroy(zone);
}

static void small_is_plain(void **state)
{
	const struct vbn_zone_conf conf = {.size = 64 * KIB};
	struct vbn_zone *zone;

	(void)state;
	if (read_long("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages") > 0)
		unit_skip("zone_small_is_plain", "there are pages of 2 MiB to take");
	zone = make(&conf);
	assert_int_equal(vbn_zone_size(zone), 64 * KIB);
	assert_string_equal(mode_of(zone, "page_size")->effective, "plain");
	assert_has(mode_of(zone, "page_size")->why, "too small for a transparent huge page");
	vbn_zone_destroy(zone);
}

static void default_pages(void **state)
{
	const struct vbn_zone_conf conf = {.size = 4 * MIB},
				   explicit = {.size = 4 * MIB, .pages = VBN_PAGES_TRANSPARENT};
	struct vbn_zone *zone;

	(void)state;
	vbn__zone_default_pages(VBN_PAGES_PLAIN);
	zone = make(&conf);
	assert_string_equal(mode_of(zone, "page_size")->requested, "plain");
	assert_string_equal(mode_of(zone, "page_size")->effective, "plain");
	vbn_zone_destroy(zone);
	zone = make(&explicit);
	assert_string_equal(mode_of(zone, "page_size")->requested, "transparent");
	vbn_zone_destroy(zone);
	vbn__zone_default_pages(VBN_PAGES_AUTO);
}

/* ---- nodes ---- */

static void bound_to_its_node(void **state)
{
	const struct vbn_zone_conf conf = {
		.size = MIB, .pages = VBN_PAGES_PLAIN, .node = VBN_NUM(0)};
	unsigned long nodes[16] = {0};
	struct vbn_zone *zone;
	int policy = -1;

	(void)state;
	if (get_mempolicy(NULL, NULL, 0, NULL, 0))
		unit_skip("zone_node", "the kernel or a sandbox has no NUMA policy");
	zone = make(&conf);
	assert_int_equal(get_mempolicy(&policy, nodes, 1024, zone->base, MPOL_F_ADDR), 0);
	assert_int_equal(policy, MPOL_BIND);
	assert_int_equal(nodes[0], 1);
	assert_on_node(zone, 0);
	assert_string_equal(mode_of(zone, "zone_node")->requested, "0");
	assert_string_equal(mode_of(zone, "zone_node")->effective, "0");
	vbn_zone_destroy(zone);
}

static void default_node_is_the_threads(void **state)
{
	const struct vbn_zone_conf conf = {.size = MIB, .pages = VBN_PAGES_PLAIN};
	struct vbn_zone *zone = make(&conf);
	unsigned int cpu, node;

	(void)state;
	assert_int_equal(getcpu(&cpu, &node), 0);
	assert_int_equal(zone->node, node);
	assert_string_equal(mode_of(zone, "zone_node")->requested, "auto");
	assert_string_not_equal(mode_of(zone, "zone_node")->why, "");
	vbn_zone_destroy(zone);
}

static void bad_confs(void **state)
{
	const struct vbn_zone_conf no_node = {.size = MIB, .node = VBN_NUM(900)},
				   odd_node = {.size = MIB, .node = VBN_NUM(UINT32_MAX)};
	const struct vbn_zone_conf empty = {.size = 0}, vast = {.size = SIZE_MAX},
				   big = {.size = 1ul << 46};
	const struct vbn_zone_conf odd = {.size = MIB, .pages = (enum vbn_pages)17};

	(void)state;
	assert_int_equal(no_zone(&no_node), -EINVAL);
	assert_logged("cannot take memory from NUMA node 900: this process may use node ");
	assert_int_equal(no_zone(&odd_node), -EINVAL);
	assert_int_equal(no_zone(&empty), -EINVAL);
	assert_int_equal(no_zone(&vast), -EINVAL);
	assert_int_equal(no_zone(&big), -ENOMEM);
	assert_int_equal(no_zone(&odd), -EINVAL);
	vbn_zone_destroy(NULL);
}

/* ---- sandboxes and old kernels: a filter answers for the kernel, in a child ---- */

/* From here on, system call `number` fails with `code`; where `arg2` is not -1, only with that
 * third argument. */
static bool forbid(uint32_t number, int code, int arg2)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | (arg2 < 0 ? BPF_JGE : BPF_JEQ) | BPF_K,
			arg2 < 0 ? 0u : (uint32_t)arg2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)code),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {.len = ARRAY_SIZE(filter), .filter = filter};

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
		!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#define NO_FILTERS 77

static void run_child(int (*fn)(void), const char *name)
{
	int status = -1;
	pid_t child = fork();

	if (!child)
		_exit(fn());
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_FILTERS) {
		printf("SKIP %s: system calls cannot be filtered here\n", name);
		skip();
	}
	assert_int_equal(status, 0);
}

/* A result that says which line went wrong. */
#define child_check(x)                                                                   \
	do {                                                                             \
		if (!(x)) {                                                              \
			fprintf(stderr, "%s:%d: not so: %s\n%s", __FILE__, __LINE__, #x, \
				unit_log);                                               \
			return 1;                                                        \
		}                                                                        \
	} while (0)

static int binding_forbidden(void)
{
	const struct vbn_zone_conf conf = {.size = 4 * MIB, .node = VBN_NUM(0)};
	struct vbn_zone *zone;

	unit_catch_log();
	if (!forbid(SYS_mbind, EPERM, -1))
		return NO_FILTERS;
	child_check(!vbn_zone_create(&conf, &zone));
	child_check(strstr(mode_of(zone, "zone_node")->why, "mbind: Operation not permitted"));
	vbn_zone_destroy(zone);
	return 0;
}

static void where_mbind_is_forbidden(void **state)
{
	(void)state;
	run_child(binding_forbidden, "zone_sandbox");
}

static int old_kernel(void)
{
	static const enum vbn_pages kinds[] = {VBN_PAGES_PLAIN, VBN_PAGES_TRANSPARENT};
	struct vbn_zone *zone;

	unit_catch_log();
	if (!forbid(SYS_madvise, EINVAL, 23)) /* MADV_POPULATE_WRITE */
		return NO_FILTERS;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		const struct vbn_zone_conf conf = {.size = 3 * MIB, .pages = kinds[i]};
		unsigned char there[3 * MIB / KIB];

		child_check(!vbn_zone_create(&conf, &zone));
		child_check(!mincore(zone->base, zone->size, there));
		for (size_t page = 0; page < zone->size / plain_page(); page++)
			child_check(there[page] & 1);
		vbn_zone_destroy(zone);
	}
	return 0;
}

static void where_populate_is_unknown(void **state)
{
	(void)state;
	run_child(old_kernel, "zone_old_kernel");
}

/* ---- ids, hooks, the table ---- */

static struct vbn_zone *told[4];
static int n_told;

static void tell(struct vbn_zone *zone, void *arg)
{
	struct vbn_zone *other;

	assert_ptr_equal(arg, told);
	told[n_told++] = zone;
	zone->base[0] = 1; /* still mapped */
	assert_int_equal(vbn_zone_create(&(struct vbn_zone_conf){.size = 1}, &other),
		0); /* no lock is held */
	vbn__zone_not_on_destroy(tell, told);
	vbn_zone_destroy(other);
}

static void tell_too(struct vbn_zone *zone, void *arg)
{
	assert_ptr_equal(arg, &n_told);
	told[n_told++] = zone;
}

static void ids_come_again_with_a_new_generation(void **state)
{
	const struct vbn_zone_conf conf = {.size = 1};
	struct vbn_zone *a = make(&conf), *b = make(&conf);
	const uint64_t generation = vbn__zone_generation(a);
	const int id = a->id;

	(void)state;
	assert_int_not_equal(b->id, id);
	assert_int_not_equal(vbn__zone_generation(b), generation);
	vbn_zone_destroy(a);
	a = make(&conf);
	assert_int_equal(a->id, id);
	assert_int_not_equal(vbn__zone_generation(a), generation);
	vbn_zone_destroy(a);
	vbn_zone_destroy(b);
}

static void ports_are_told(void **state)
{
	const struct vbn_zone_conf conf = {.size = 1};
	struct vbn_zone *zone = make(&conf);

	(void)state;
	assert_int_equal(vbn__zone_on_destroy(tell_too, &n_told), 0);
	assert_int_equal(vbn__zone_on_destroy(tell_too, &n_told), 0); /* once is enough */
	vbn_zone_destroy(zone);
	assert_int_equal(n_told, 1);
	assert_ptr_equal(told[0], zone);
	vbn__zone_not_on_destroy(tell_too, &n_told);
	vbn__zone_not_on_destroy(tell_too, &n_told);

	n_told = 0;
	zone = make(&conf);
	assert_int_equal(vbn__zone_on_destroy(tell, told), 0);
	vbn_zone_destroy(zone);
	assert_int_equal(n_told, 1);
	vbn_zone_destroy(make(&conf));
	assert_int_equal(n_told, 1);
}

static void as_many_as_there_can_be(void **state)
{
	struct vbn_zone *zones[MEM_MAX_ZONES];
	const struct vbn_zone_conf conf = {.size = 1, .pages = VBN_PAGES_PLAIN};

	(void)state;
	for (int i = 0; i < MEM_MAX_ZONES; i++) {
		zones[i] = make(&conf);
		assert_int_equal(zones[i]->id, i);
	}
	assert_int_equal(no_zone(&conf), -ENOSPC);
	vbn_zone_destroy(zones[100]);
	zones[100] = make(&conf);
	assert_int_equal(zones[100]->id, 100);
	for (int i = 0; i < MEM_MAX_ZONES; i++)
		vbn_zone_destroy(zones[i]);
}

static void a_zone_with_pools_stays(void **state)
{
	const struct vbn_zone_conf conf = {.size = MIB, .name = "busy"};
	struct vbn_zone *zone = make(&conf);
	struct vbn_pool *pool;

	(void)state;
	assert_int_equal(
		vbn_pool_create(&(struct vbn_pool_conf){.n_bufs = 8, .zone = zone}, &pool), 0);
	vbn_zone_destroy(zone);
	assert_logged("zone busy: cannot destroy it: it has pools");
	vbn_pool_destroy(pool);
	vbn_zone_destroy(zone);
}

static void exports_memory(void **state)
{
	size_t mapped = 0;
	uint8_t *base = vbn__map_on_node(100 * KIB, -1, &mapped);

	(void)state;
	assert_non_null(base);
	assert_true(mapped >= 100 * KIB);
	for (size_t i = 0; i < mapped; i++)
		assert_int_equal(base[i], 0);
	vbn__unmap(base, mapped);
	vbn__unmap(NULL, 0);
	unit_catch_log();
	assert_null(vbn__map_on_node(1, 900, &mapped));
	assert_logged("NUMA node 900");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain),
		cmocka_unit_test(transparent),
		cmocka_unit_test(by_memfd),
		cmocka_unit_test_teardown(huge_2m, unreserve),
		cmocka_unit_test_teardown(huge_1g, unreserve),
		cmocka_unit_test_setup_teardown(
			prefers_1g_and_says_why_not, make_fake, remove_fake),
		cmocka_unit_test_setup_teardown(
			a_page_of_1g_that_is_not_there_after_all, make_fake, remove_fake),
		cmocka_unit_test_teardown(huge_2m_reserved_by_another, unreserve),
		cmocka_unit_test(huge_2m_short),
		cmocka_unit_test(small_is_plain),
		cmocka_unit_test(default_pages),
		cmocka_unit_test(bound_to_its_node),
		cmocka_unit_test(default_node_is_the_threads),
		cmocka_unit_test(bad_confs),
		cmocka_unit_test(where_mbind_is_forbidden),
		cmocka_unit_test(where_populate_is_unknown),
		cmocka_unit_test(ids_come_again_with_a_new_generation),
		cmocka_unit_test(ports_are_told),
		cmocka_unit_test(as_many_as_there_can_be),
		cmocka_unit_test(a_zone_with_pools_stays),
		cmocka_unit_test(exports_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
