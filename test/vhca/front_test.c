/* front_test.c - what a program sees of the emulated devices through libibverbs, and through libc's
 * calls on files */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <pthread.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/held.h"

#define CLASS_IB     "/sys/class/infiniband"
#define CLASS_UVERBS "/sys/class/infiniband_verbs"
#define DEVICE0      CLASS_IB "/mlx5_0"
#define CDEV0        "/dev/infiniband/uverbs0"

const char *vhca_present(void);

/* One test leaves objects of libibverbs to the end of their context on purpose. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
	return "leak:libmlx5\nleak:ibv_create_comp_channel\n";
}

/* Reads a whole small file by open; its length, or -errno. */
static int slurp(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, text, size - 1);
	assert_int_equal(close(fd), 0);
	assert_true(n >= 0);
	text[n] = '\0';
	return (int)n;
}

static void assert_content(const char *path, const char *wanted)
{
	char text[4096];
	int n = slurp(path, text, sizeof(text));

	if (n < 0)
		fail_msg("%s: %s", path, strerror(-n));
	assert_string_equal(text, wanted);
}

/* ---- libibverbs ---- */

static void test_devices_are_found(void **state)
{
	struct ibv_device **list;
	int n;

	(void)state;
	assert_non_null(vhca_present());
	list = ibv_get_device_list(&n);
	assert_non_null(list);
	assert_int_equal(n, 2);
	for (int i = 0; i < n; i++) {
		char name[16];
		bool found = false;

		snprintf(name, sizeof(name), "mlx5_%d", i);
		for (int j = 0; j < n; j++)
			found |= !strcmp(ibv_get_device_name(list[j]), name);
		assert_true(found);
		assert_true(mlx5dv_is_supported(list[i]));
		assert_int_not_equal(ibv_get_device_guid(list[i]), 0);
	}
	assert_int_not_equal(ibv_get_device_guid(list[0]), ibv_get_device_guid(list[1]));
	ibv_free_device_list(list);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	assert_non_null(list);
	for (int i = 0; list[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	assert_non_null(context);
	return context;
}

static void test_port_is_active_rocev2(void **state)
{
	struct ibv_context *context = open_device("mlx5_0");
	struct ibv_gid_entry entries[16];
	struct ibv_port_attr port;
	ssize_t n;
	int v2 = 0;

	(void)state;
	assert_int_equal(ibv_query_port(context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(ibv_query_port(context, 2, &port), EINVAL);
	n = ibv_query_gid_table(context, entries, 16, 0);
	assert_true(n >= 4);
	for (ssize_t i = 0; i < n; i++)
		v2 += entries[i].gid_type == IBV_GID_TYPE_ROCE_V2;
	assert_true(v2 >= 2);
	assert_int_equal(ibv_close_device(context), 0);
}

/* libibverbs asks by command, other programs read sysfs: both must say the same. */
static void test_gids_agree_with_sysfs(void **state)
{
	struct ibv_context *context = open_device("mlx5_0");

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		char path[128], text[64], wanted[64];
		struct ibv_gid_entry entry;
		int n = 0;

		assert_int_equal(ibv_query_gid_ex(context, 1, i, &entry, 0), 0);
		for (int b = 0; b < 16; b += 2)
			n += snprintf(wanted + n, sizeof(wanted) - (size_t)n, "%02x%02x%c",
				entry.gid.raw[b], entry.gid.raw[b + 1], b < 14 ? ':' : '\n');
		snprintf(path, sizeof(path), DEVICE0 "/ports/1/gids/%u", i);
		assert_true(slurp(path, text, sizeof(text)) > 0);
		assert_string_equal(text, wanted);
		snprintf(path, sizeof(path), DEVICE0 "/ports/1/gid_attrs/types/%u", i);
		assert_content(path,
			entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2\n" : "IB/RoCE v1\n");
	}
	assert_int_equal(ibv_close_device(context), 0);
}

/* Objects made by one context are used by another on a duplicate of its command fd. */
static void test_import(void **state)
{
	struct ibv_context *context = open_device("mlx5_1"), *imported;
	struct ibv_pd *pd = ibv_alloc_pd(context), *pd2;
	static char memory[4096] __attribute__((aligned(4096)));
	struct ibv_mr *mr, *mr2;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	(void)state;
	assert_non_null(pd);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	imported = ibv_import_device(dup(context->cmd_fd));
	assert_non_null(imported);
	pd2 = ibv_import_pd(imported, pd->handle);
	assert_non_null(pd2);
	mr2 = ibv_import_mr(pd2, mr->handle);
	assert_non_null(mr2);
	assert_int_equal(mr2->lkey, mr->lkey);
	assert_int_equal(mr2->length, sizeof(memory));
	cq = ibv_create_cq(imported, 10, NULL, NULL, 0);
	assert_non_null(cq);
	qp = ibv_create_qp(pd2,
		&(struct ibv_qp_init_attr){.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_RC,
			.cap = {8, 8, 1, 1, 0}});
	assert_non_null(qp);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	ibv_unimport_mr(mr2);
	ibv_unimport_pd(pd2);
	assert_int_equal(ibv_close_device(imported), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(context), 0);
}

/* ---- sysfs ---- */

static void test_attributes(void **state)
{
	char text[64];

	(void)state;
	assert_content(CLASS_UVERBS "/abi_version", "6\n");
	assert_content(CLASS_UVERBS "/uverbs1/ibdev", "mlx5_1\n");
	assert_content(CLASS_UVERBS "/uverbs0/abi_version", "1\n");
	assert_content(DEVICE0 "/node_type", "1: CA\n");
	assert_content(DEVICE0 "/ports/1/state", "4: ACTIVE\n");
	assert_content(DEVICE0 "/ports/1/link_layer", "Ethernet\n");
	assert_content(DEVICE0 "/device/vendor", "0x15b3\n");
	assert_content(DEVICE0 "/device/device", "0x1017\n");
	assert_content("/sys/class//infiniband/./mlx5_1/ports/../node_type", "1: CA\n");
	assert_true(slurp(DEVICE0 "/device/local_cpulist", text, sizeof(text)) > 0);
}

static void test_missing_and_forbidden(void **state)
{
	char text[16];

	(void)state;
	assert_int_equal(slurp(DEVICE0 "/absent", text, sizeof(text)), -ENOENT);
	assert_int_equal(slurp(CLASS_IB "/mlx5_2/node_type", text, sizeof(text)), -ENOENT);
	assert_int_equal(slurp(CLASS_IB "/mlx5_01/node_type", text, sizeof(text)), -ENOENT);
	assert_int_equal(
		slurp("/sys/class/infiniband_mad/abi_version", text, sizeof(text)), -ENOENT);
	assert_int_equal(slurp("/dev/infiniband/rdma_cm", text, sizeof(text)), -ENOENT);
	assert_int_equal(slurp(DEVICE0 "/node_type/x", text, sizeof(text)), -ENOTDIR);
	assert_int_equal(slurp(DEVICE0 "/ports/1/gids/256", text, sizeof(text)), -ENOENT);
	assert_int_equal(open(DEVICE0 "/node_type", O_WRONLY), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(open(DEVICE0, O_RDWR), -1);
	assert_int_equal(errno, EISDIR);
	assert_int_equal(open(DEVICE0, O_RDONLY | O_NOFOLLOW), -1);
	assert_int_equal(errno, ELOOP);
	assert_int_equal(open(DEVICE0 "/node_type", O_RDONLY | O_DIRECTORY), -1);
	assert_int_equal(errno, ENOTDIR);
	assert_null(fopen(DEVICE0 "/absent", "r"));
	assert_int_equal(errno, ENOENT);
	assert_null(fopen(DEVICE0 "/node_type", "w"));
	assert_null(opendir(DEVICE0 "/node_type"));
	assert_int_equal(errno, ENOTDIR);
	assert_int_equal(access(DEVICE0 "/node_type", R_OK), 0);
	assert_int_equal(access(DEVICE0 "/absent", F_OK), -1);
	assert_int_equal(access(CDEV0, R_OK | W_OK), 0);
}

static void test_an_attribute_cannot_be_written_to(void **state)
{
	int fd = open(DEVICE0 "/node_type", O_RDONLY);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "x", 1), -1);
	close(fd);
	assert_content(DEVICE0 "/node_type", "1: CA\n");
}

static void test_streams(void **state)
{
	FILE *stream = fopen(DEVICE0 "/fw_ver", "re");
	unsigned int major, minor, build;

	(void)state;
	assert_non_null(stream);
	assert_int_equal(fscanf(stream, "%u.%u.%u", &major, &minor, &build), 3);
	assert_int_equal(major, 16);
	assert_int_equal(fclose(stream), 0);
}

static void test_directories(void **state)
{
	DIR *dir = opendir(CLASS_UVERBS);
	struct dirent *entry, **list;
	int n = 0, fd;
	long second = 0;
	char text[16];

	(void)state;
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		if (n++ == 0)
			second = telldir(dir);
		if (!strcmp(entry->d_name, "uverbs0"))
			assert_int_equal(entry->d_type, DT_LNK);
	}
	assert_int_equal(n, 5); /* ., .., abi_version, two devices */
	seekdir(dir, second);
	assert_string_equal(readdir(dir)->d_name, "..");
	rewinddir(dir);
	assert_string_equal(readdir(dir)->d_name, ".");
	fd = openat(dirfd(dir), "uverbs1/ibdev", O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, text, sizeof(text)), 7);
	close(fd);
	assert_int_equal(closedir(dir), 0);

	n = scandir(DEVICE0 "/ports/1/gids", &list, NULL, alphasort);
	assert_int_equal(n, 256 + 2);
	assert_string_equal(list[2]->d_name, "0");
	assert_string_equal(list[257]->d_name, "99");
	while (n)
		free(list[--n]);
	free(list);

	fd = open(DEVICE0 "/ports/1", O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	dir = fdopendir(fd);
	assert_non_null(dir);
	assert_int_equal(dirfd(dir), fd);
	assert_int_equal(closedir(dir), 0);
	assert_int_equal(close(fd), -1);
}

static void test_stat_says_what_a_kernel_would(void **state)
{
	struct stat st, link;
	struct statx stx;
	unsigned int major, minor;
	char text[32];
	int fd = open(CDEV0, O_RDWR | O_CLOEXEC);

	(void)state;
	assert_true(fd >= 0);
	assert_true(slurp(CLASS_UVERBS "/uverbs0/dev", text, sizeof(text)) > 0);
	assert_int_equal(sscanf(text, "%u:%u", &major, &minor), 2);
	assert_int_equal(stat(CDEV0, &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(st.st_rdev, makedev(major, minor));
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(st.st_rdev, makedev(major, minor));
	assert_int_equal(fstatat(fd, "", &st, AT_EMPTY_PATH), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(statx(AT_FDCWD, CDEV0, 0, STATX_BASIC_STATS, &stx), 0);
	assert_int_equal(stx.stx_rdev_minor, minor);
	close(fd);

	assert_int_equal(lstat(DEVICE0, &link), 0);
	assert_true(S_ISLNK(link.st_mode));
	assert_int_equal(stat(DEVICE0, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(stat(DEVICE0 "/device/infiniband/mlx5_0", &link), 0);
	assert_int_equal(st.st_ino, link.st_ino);
}

static void test_real_path_is_pci_like(void **state)
{
	char text[PATH_MAX], again[PATH_MAX], *resolved = realpath(DEVICE0, NULL);
	ssize_t n;

	(void)state;
	assert_non_null(resolved);
	assert_ptr_equal(strstr(resolved, "/sys/devices/pci"), resolved);
	assert_string_equal(strrchr(resolved, '/'), "/mlx5_0");
	n = readlink(DEVICE0, text, sizeof(text) - 1);
	assert_true(n > 0);
	text[n] = '\0';
	snprintf(again, sizeof(again), CLASS_IB "/%.200s", text);
	assert_string_equal(realpath(again, text), resolved);
	assert_int_equal(readlink(DEVICE0 "/device", text, 4), 4); /* cut, as readlink does */
	assert_int_equal(readlink(DEVICE0 "/node_type", text, sizeof(text)), -1);
	assert_int_equal(errno, EINVAL);
	assert_null(realpath(DEVICE0 "/absent", NULL));
	assert_int_equal(errno, ENOENT);
	free(resolved);
}

/* ---- the real system ---- */

/* A directory that both trees have lists what either has, each name once, again after rewinding. */
static void test_directory_of_both(void **state)
{
	DIR *dir = opendir("/sys/bus/pci/devices");
	const struct dirent *entry;

	(void)state;
	if (!dir) /* a machine without PCI has nothing to be laid over */
		return;
	for (int round = 0; round < 2; round++) {
		int ours = 0, dots = 0;

		while ((entry = readdir(dir))) {
			ours += !strcmp(entry->d_name, "00fe:01:00.0");
			dots += !strcmp(entry->d_name, "..");
		}
		assert_int_equal(ours, 1);
		assert_int_equal(dots, 1);
		rewinddir(dir);
	}
	closedir(dir);
}

static void test_everything_else_passes(void **state)
{
	int (*volatile open_any)(const char *, int, ...) =
		open; /* NULL too, which open() is declared not to take */
	char text[4096], path[PATH_MAX];
	struct stat st;
	DIR *dir;
	int fd, n = 0;

	(void)state;
	assert_true(slurp("/proc/self/status", text, sizeof(text)) > 0);
	assert_int_equal(stat("/sys", &st), 0);
	dir = opendir("/");
	assert_non_null(dir);
	while (readdir(dir))
		n++;
	assert_true(n > 2);
	assert_true(dirfd(dir) >= 0);
	assert_int_equal(closedir(dir), 0);
	if (!access("/sys/devices/system/cpu/online", R_OK))
		assert_true(slurp("/sys/devices/system/cpu/online", text, sizeof(text)) > 0);
	assert_int_equal(slurp("/sys/class/no such class", text, sizeof(text)), -ENOENT);
	fd = open("/dev/null", O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_rdev, makedev(1, 3));
	assert_int_equal(ioctl(fd, RDMA_VERBS_IOCTL, path), -1);
	assert_int_equal(errno, ENOTTY);
	close(fd);
	assert_int_equal(open_any(NULL, O_RDONLY), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(open("", O_RDONLY), -1);
	assert_int_equal(errno, ENOENT);
	assert_non_null(realpath(".", path));
	fd = openat(AT_FDCWD, ".", O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	assert_int_equal(fstatat(fd, ".", &st, 0), 0);
	close(fd);
}

static void test_rdma_netlink_is_refused(void **state)
{
	int fd;

	(void)state;
	assert_int_equal(socket(AF_NETLINK, SOCK_RAW, 20), -1);
	assert_int_equal(errno, EPROTONOSUPPORT);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_true(fd >= 0);
	close(fd);
}

/* ---- descriptors ---- */

/* What a command fd answers to an ioctl that is no command; ENOTTY is what other descriptors say.
 */
static int probe(int fd)
{
	struct ib_uverbs_ioctl_hdr header = {.length = sizeof(header), .object_id = 0xfff};

	return ioctl(fd, RDMA_VERBS_IOCTL, &header) ? errno : 0;
}

static void test_duplicates_are_the_device_too(void **state)
{
	int fd = open(CDEV0, O_RDWR | O_CLOEXEC), other = open("/dev/null", O_RDONLY), copies[4];
	struct stat st;

	(void)state;
	assert_true(fd >= 0 && other >= 0);
	copies[0] = dup(fd);
	copies[1] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
	copies[2] = dup2(fd, other);
	copies[3] = dup3(fd, copies[1] + 1, O_CLOEXEC);
	assert_true(copies[1] >= 100);
	assert_int_equal(copies[2], other);
	assert_int_equal(close(fd), 0);
	assert_int_equal(probe(fd), EBADF);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(probe(copies[i]), EPROTONOSUPPORT);
		assert_int_equal(fstat(copies[i], &st), 0);
		assert_true(S_ISCHR(st.st_mode));
		assert_int_equal(close(copies[i]), 0);
	}
	/* a number that was ours and is another's now */
	fd = open(CDEV0, O_RDWR);
	other = open("/dev/null", O_RDONLY);
	assert_int_equal(dup2(other, fd), fd);
	assert_int_equal(probe(fd), ENOTTY);
	close(fd);
	close(other);
}

/* Streams, posix_spawn and raw system calls close descriptors without libc's close. */
static void test_a_number_reused_behind_our_back(void **state)
{
	int fd = open(CDEV0, O_RDWR), reused;

	(void)state;
	assert_true(fd >= 0);
	syscall(SYS_close, fd);
	reused = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY, 0);
	assert_int_equal(reused, fd);
	assert_int_equal(probe(fd), ENOTTY);
	assert_int_equal(close(fd), 0);
}

/* A channel that gets the number of a device closed unseen: the device then ends inside the command
 * that makes the channel, and must wait for its end. */
static void test_a_channel_on_a_stale_number(void **state)
{
	struct ibv_context *context = open_device("mlx5_0");
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	int fd = open(CDEV0, O_RDWR);

	(void)state;
	assert_true(fd >= 0);
	syscall(SYS_close, fd);
	channel = ibv_create_comp_channel(context);
	assert_non_null(channel);
	assert_int_equal(channel->fd, fd);
	cq = ibv_create_cq(context, 10, NULL, channel, 0);
	assert_non_null(cq);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
	assert_int_equal(ibv_close_device(context), 0);
}

/* The child of a fork closes what it inherited, as Python's subprocess does: the parent's device
 * stays. */
static void test_a_child_that_closes(void **state)
{
	struct ibv_context *context = open_device("mlx5_0");
	struct ibv_pd *pd;
	int status;
	pid_t child;

	(void)state;
	child = fork();
	if (!child) {
		char text[32];

		for (int fd = 3; fd < 64; fd++)
			close(fd);
		_exit(slurp(DEVICE0 "/node_type", text, sizeof(text)) == 6 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	child = vfork(); // NOLINT: this is the case in point
	if (!child) {
		close(context->cmd_fd);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	pd = ibv_alloc_pd(context);
	assert_non_null(pd);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(context), 0);
}

static void *open_and_close(void *arg)
{
	(void)arg;
	for (int i = 0; i < 200; i++) {
		int fd = open(i % 2 ? CDEV0 : DEVICE0 "/node_guid", i % 2 ? O_RDWR : O_RDONLY),
		    copy;
		DIR *dir = opendir(DEVICE0 "/ports");

		assert_true(fd >= 0);
		assert_non_null(dir);
		copy = dup(fd);
		assert_non_null(readdir(dir));
		close(fd);
		close(copy);
		closedir(dir);
	}
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void *make_objects(void *arg)
{
	struct ibv_context *context = arg;

	for (int i = 0; i < 50; i++) {
		struct ibv_pd *pd = ibv_alloc_pd(context);
		struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
		struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0);
		struct ibv_qp_init_attr attr = {.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_RC,
			.cap = {8, 8, 1, 1, 0}};
		struct ibv_qp *qp;

		assert_non_null(pd);
		assert_non_null(cq);
		qp = ibv_create_qp(pd, &attr);
		assert_non_null(qp);
		assert_int_equal(ibv_destroy_qp(qp), 0);
		assert_int_equal(ibv_destroy_cq(cq), 0);
		assert_int_equal(ibv_destroy_comp_channel(channel), 0);
		assert_int_equal(ibv_dealloc_pd(pd), 0);
	}
	return NULL;
}

static void test_threads_share_a_context(void **state)
{
	struct ibv_context *context = open_device("mlx5_0");
	pthread_t threads[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, make_objects, context), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(ibv_close_device(context), 0);
}

static void test_nothing_is_left_open(void **state)
{
	int before, after;

	(void)state;
	assert_int_equal(ibv_close_device(open_device("mlx5_0")), 0);
	before = held_descriptors();
	for (int i = 0; i < 10; i++) {
		struct ibv_context *context = open_device("mlx5_0");
		struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
		struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, channel, 0);

		assert_non_null(channel);
		assert_non_null(cq);
		if (i % 2) {
			assert_int_equal(ibv_destroy_cq(cq), 0);
			assert_int_equal(ibv_destroy_comp_channel(channel), 0);
		} else { /* a program that leaves its objects to the end of the context */
			close(channel->fd);
		}
		assert_int_equal(ibv_close_device(context), 0);
	}
	after = held_descriptors();
	assert_int_equal(after, before);
}

/* ---- options ---- */

/* Counts devices in a process of its own, with an option set; its standard error is in `said`. */
static int devices_with(const char *name, const char *value, char *said, size_t size)
{
	int fds[2], status;
	ssize_t n;
	pid_t child;

	assert_int_equal(pipe(fds), 0);
	child = fork();
	if (!child) {
		setenv(name, value, 1);
		dup2(fds[1], 2);
		execl("/proc/self/exe", "front_test", "count", (char *)NULL);
		_exit(99);
	}
	close(fds[1]);
	n = read(fds[0], said, size - 1);
	said[n > 0 ? n : 0] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_options(void **state)
{
	static const struct {
		const char *name, *value;
		int n;
		bool warns;
	} cases[] = {
		{"VHCA_DEVICES", "1", 1, false},
		{"VHCA_DEVICES", "16", 16, false},
		{"VHCA_DEVICES", "17", 1, true},
		{"VHCA_DEVICES", "two", 1, true},
		{"VHCA_DEVICES", "", 1, false},
		{"VHCA_WIRE", "carrier-pigeon", 2, true},
		{"VHCA_WIRE", "loopback", 2, false},
		{"VHCA_MTU", "1000", 2, true},
		{"VHCA_MTU", "4096", 2, false},
		{"VHCA_NODE", "-2", 2, true},
		{"VHCA_ADDRESS", "localhost", 2, true},
		{"VHCA_ADDRESS", "fd00::7", 2, false},
		{"VHCA_ADDRESS", "224.0.0.1", 2, true},
		{"VHCA_ADDRESS", "255.255.255.255", 2, true},
		{"VHCA_ADDRESS", "ff02::1", 2, true},
		{"VHCA_ADDRESS", "::", 2, true},
		{"VHCA_WIRE", "tap:abcdefghijklmnopqrstuvwxyz", 2, true},
		{"VHCA_PROFILE", "connectx4lx", 2, false},
		{"VHCA_PROFILE", "connectx9", 2, true},
		{"VHCA_STRICT", "maybe", 2, true},
		{"VHCA_SEED", "0x10", 2, false},
		{"VHCA_SEED", "-1", 2, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char said[512];
		int n = devices_with(cases[i].name, cases[i].value, said, sizeof(said));

		if (n != cases[i].n || (said[0] != '\0') != cases[i].warns)
			fail_msg("%s=%s: %d devices, said \"%s\"", cases[i].name, cases[i].value, n,
				said);
		if (cases[i].warns)
			assert_non_null(strstr(said, cases[i].name));
	}
}

static int count(void)
{
	struct ibv_device **list;
	int n = 0;

	list = ibv_get_device_list(&n);
	if (list)
		ibv_free_device_list(list);
	return n;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_devices_are_found),
		cmocka_unit_test(test_port_is_active_rocev2),
		cmocka_unit_test(test_gids_agree_with_sysfs),
		cmocka_unit_test(test_import),
		cmocka_unit_test(test_attributes),
		cmocka_unit_test(test_missing_and_forbidden),
		cmocka_unit_test(test_an_attribute_cannot_be_written_to),
		cmocka_unit_test(test_streams),
		cmocka_unit_test(test_directories),
		cmocka_unit_test(test_stat_says_what_a_kernel_would),
		cmocka_unit_test(test_real_path_is_pci_like),
		cmocka_unit_test(test_directory_of_both),
		cmocka_unit_test(test_everything_else_passes),
		cmocka_unit_test(test_rdma_netlink_is_refused),
		cmocka_unit_test(test_duplicates_are_the_device_too),
		cmocka_unit_test(test_a_number_reused_behind_our_back),
		cmocka_unit_test(test_a_channel_on_a_stale_number),
		cmocka_unit_test(test_a_child_that_closes),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_threads_share_a_context),
		cmocka_unit_test(test_nothing_is_left_open),
		cmocka_unit_test(test_options),
	};

	if (argc > 1 && !strcmp(argv[1], "count"))
		return count();
	setenv("VHCA_DEVICES", "2", 1);
	setenv("VHCA_WIRE", "loopback", 1); /* addresses are as asked for, whoever else runs */
	return cmocka_run_group_tests_name("front", tests, NULL, NULL);
}
