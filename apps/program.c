/* program.c - what a command is, and whether the dynamic linker will preload a library into it
 *
 * A preload is silently left out by the kernel and the dynamic linker for set-id programs, for file
 * capabilities, for programs without a dynamic linker, and for another class of program. A silent
 * run on no emulator helps nobody: each is a sentence.
 */
#include "cmd.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#error "verbena runs on x86-64 and arm64 only"
#endif

#define MAX_INTERPRETERS 4 /* as the kernel follows "#!" */

static int refused(const char *path, const char *why, const char *remedy)
{
	say("%s cannot run on the emulator: %s; %s", path, why, remedy);
	return STATUS_CANNOT_EXEC;
}

/* ---- finding it ---- */

static int try_path(const char *path)
{
	struct stat info;

	if (stat(path, &info))
		return -errno;
	if (S_ISDIR(info.st_mode))
		return -EISDIR;
	return access(path, X_OK) ? -errno : 0;
}

/* As a shell would: a name with a slash is a path, another is looked for along PATH. */
static int search(const char *name, char *path, size_t size)
{
	const char *dirs = getenv("PATH");
	int err = -ENOENT;

	if (strchr(name, '/')) {
		if (snprintf(path, size, "%s", name) >= (int)size)
			return -ENAMETOOLONG;
		return try_path(path);
	}
	if (!dirs)
		dirs = "/usr/local/bin:/usr/bin:/bin";
	for (size_t n;; dirs += n + 1) {
		int trial;

		n = strcspn(dirs, ":");
		if (snprintf(path, size, "%.*s%s%s", (int)n, dirs, n ? "/" : "", name) <
			(int)size) {
			trial = try_path(path);
			if (!trial)
				return 0;
			if (trial == -EACCES)
				err = -EACCES;
		}
		if (!dirs[n])
			return err;
	}
}

/* ---- ELF: a hostile file, so every offset is checked ---- */

struct image {
	const uint8_t *bytes;
	size_t size;
};

static const void *image_at(const struct image *image, uint64_t offset, uint64_t length)
{
	if (offset > image->size || length > image->size - offset)
		return NULL;
	return image->bytes + offset;
}

static bool image_open(const char *path, struct image *image)
{
	struct stat info;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *bytes = MAP_FAILED;

	*image = (struct image){0};
	if (fd < 0)
		return false;
	if (!fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size > 0)
		bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (bytes == MAP_FAILED)
		return false;
	*image = (struct image){bytes, (size_t)info.st_size};
	return true;
}

static void image_close(struct image *image)
{
	munmap((void *)(uintptr_t)image->bytes, image->size);
}

static const Elf64_Phdr *segment(const struct image *image, const Elf64_Ehdr *head, size_t i)
{
	return image_at(image, head->e_phoff + i * sizeof(Elf64_Phdr), sizeof(Elf64_Phdr));
}

/* The file offset of a virtual address; past the file's end where no segment has it. */
static uint64_t offset_of(const struct image *image, const Elf64_Ehdr *head, uint64_t address)
{
	for (size_t i = 0; i < head->e_phnum; i++) {
		const Elf64_Phdr *load = segment(image, head, i);

		if (load && load->p_type == PT_LOAD && address >= load->p_vaddr &&
			address - load->p_vaddr < load->p_filesz)
			return address - load->p_vaddr + load->p_offset;
	}
	return UINT64_MAX;
}

/* Whether the file has all that its program headers say. */
static bool is_whole(const struct image *image, const Elf64_Ehdr *head)
{
	for (size_t i = 0; i < head->e_phnum; i++) {
		const Elf64_Phdr *header = segment(image, head, i);

		if (!header ||
			(header->p_type == PT_LOAD &&
				!image_at(image, header->p_offset, header->p_filesz)))
			return false;
	}
	return true;
}

/* What a dynamic section says that matters here. */
struct dynamic {
	bool has_soname; /* a shared object: the dynamic linker itself, run by name */
	char sanitizer[128];
};

static void look_at_needed(const struct image *image, uint64_t offset, struct dynamic *dynamic)
{
	const char *name = image_at(image, offset, 1);

	if (!name || !memchr(name, '\0', image->size - offset) || !is_sanitizer(name))
		return;
	snprintf(dynamic->sanitizer, sizeof(dynamic->sanitizer), "%s", name);
}

static void look_at_dynamic(const struct image *image, const Elf64_Ehdr *head,
	const Elf64_Phdr *section, struct dynamic *dynamic)
{
	const Elf64_Dyn *entries = image_at(image, section->p_offset, section->p_filesz);
	size_t n = section->p_filesz / sizeof(*entries);
	uint64_t strings = UINT64_MAX;

	if (!entries)
		return;
	for (size_t i = 0; i < n && entries[i].d_tag != DT_NULL; i++)
		if (entries[i].d_tag == DT_STRTAB)
			strings = offset_of(image, head, entries[i].d_un.d_ptr);
	for (size_t i = 0; i < n && entries[i].d_tag != DT_NULL; i++) {
		if (entries[i].d_tag == DT_SONAME)
			dynamic->has_soname = true;
		if (entries[i].d_tag == DT_NEEDED && strings < image->size)
			look_at_needed(image, strings + entries[i].d_un.d_val, dynamic);
	}
}

static int check_elf(const char *path, const struct image *image, struct program *program)
{
	const Elf64_Ehdr *head = image_at(image, 0, sizeof(*head));
	struct dynamic dynamic = {0};
	bool interpreted = false;

	if (!head)
		return refused(path, "it is cut short", "copy or build it again");
	if (head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_machine != OWN_MACHINE)
		return refused(path,
			"it is a program for another kind of machine than the emulator",
			"build it for this one, 64-bit");
	if (!is_whole(image, head))
		return refused(path, "it is cut short", "copy or build it again");
	for (size_t i = 0; i < head->e_phnum; i++) {
		const Elf64_Phdr *header = segment(image, head, i);

		if (header->p_type == PT_INTERP)
			interpreted = true;
		if (header->p_type == PT_DYNAMIC)
			look_at_dynamic(image, head, header, &dynamic);
	}
	if (!interpreted && !dynamic.has_soname)
		return refused(path, "it is linked statically, so nothing can be preloaded into it",
			"link it dynamically");
	memcpy(program->sanitizer, dynamic.sanitizer, sizeof(program->sanitizer));
	return 0;
}

/* ---- privileges: with them the dynamic linker ignores preloads by path ---- */

static int check_privileges(const char *path)
{
	struct stat info;

	if (stat(path, &info))
		return 0;
	if ((info.st_mode & S_ISUID && info.st_uid != geteuid()) ||
		((info.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
			info.st_gid != getegid()))
		return refused(path, "its set-id bits make the dynamic linker ignore a preload",
			"run a copy without them, or run it as its owner");
	if (geteuid() && getxattr(path, "security.capability", NULL, 0) > 0)
		return refused(path,
			"its file capabilities make the dynamic linker ignore a preload",
			"run a copy without them, or run it as root");
	return 0;
}

/* ---- scripts ---- */

/* The interpreter of "#!interpreter argument". False where the file is no script. */
static bool interpreter_of(const struct image *image, char *path, size_t size)
{
	size_t at = 2, length, end = image->size < 256 ? image->size : 256;
	const char *text = (const char *)image->bytes;

	if (end < 3 || memcmp(text, "#!", 2))
		return false;
	while (at < end && (text[at] == ' ' || text[at] == '\t'))
		at++;
	for (length = 0; at + length < end && !strchr(" \t\n", text[at + length]); length++)
		;
	if (!length || length >= size)
		return false;
	memcpy(path, text + at, length);
	path[length] = '\0';
	return true;
}

/* One file of the chain from a script to the program that the kernel starts. 1: *path is now its
 * interpreter. */
static int check_file(char *path, size_t size, struct program *program)
{
	struct image image;
	char next[PATH_MAX];
	int status = check_privileges(path);

	/* Executable and not readable: the kernel may run it, and there is nothing to look at. */
	if (status || !image_open(path, &image))
		return status;
	if (image.size >= SELFMAG && !memcmp(image.bytes, ELFMAG, SELFMAG))
		status = check_elf(path, &image, program);
	else if (interpreter_of(&image, next, sizeof(next)) && strlen(next) < size)
		status = strcpy(path, next) ? 1 : 0;
	image_close(&image);
	return status;
}

int program_find(const char *name, struct program *program)
{
	char path[PATH_MAX];
	int err, status = 1;

	program->sanitizer[0] = '\0';
	if (!*name) {
		say("\"\" cannot be run: the name of a command is not empty; give a path or a name "
		    "along PATH");
		return STATUS_NO_COMMAND;
	}
	err = search(name, program->path, sizeof(program->path));
	if (err == -ENOENT || err == -ENOTDIR) {
		say("%s cannot be run: there is no such command; give a path or a name along PATH",
			name);
		return STATUS_NO_COMMAND;
	}
	if (err) {
		say("%s cannot be run: %s; see that it is a program that you may execute", name,
			strerror(-err));
		return STATUS_CANNOT_EXEC;
	}
	snprintf(path, sizeof(path), "%s", program->path);
	for (int i = 0; i < MAX_INTERPRETERS && status == 1; i++)
		status = check_file(path, sizeof(path), program);
	return status == 1 ? 0 : status;
}
