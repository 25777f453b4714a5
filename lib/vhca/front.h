/* front.h - the seams among the files that stand for the kernel
 *
 * preload*.c answer libc's calls and ask the others; sysfs.c knows names and contents and no file
 * descriptor; uverbs.c and command.c know commands and neither paths nor descriptors of their own.
 * Nothing of the device side includes this.
 */
#ifndef VHCA_FRONT_H
#define VHCA_FRONT_H

#include "vhca/vhca.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/stat.h>

/* ---- sysfs.c: a path resolves to a place, a place has a content ---- */

#define VHCA_PATH_MAX 512

struct vhca_entry;

struct vhca_place {
	const struct vhca_entry *entry;
	int device;               /* of the emulated devices; what the path says of it */
	int index;                /* of a numbered entry: a GID, a P_Key */
	char path[VHCA_PATH_MAX]; /* canonical: no link in it but, of a link, the last component */
};

enum vhca_lookup { VHCA_NOT_OURS, VHCA_FOUND, VHCA_FAILED };

/* A test without side effects whether an absolute path might be one of the tree's. Accepts NULL. */
bool vhca_path_may_be_ours(const char *path);

/* Resolves an absolute path. NOT_OURS: the real system's; of a directory that both have, *place is
 * ours, else it is left as it was. FAILED: *error is the errno to answer. */
enum vhca_lookup vhca_resolve(
	const char *path, bool follow_last, struct vhca_place *place, int *error);

enum vhca_node { VHCA_DIRECTORY, VHCA_ATTRIBUTE, VHCA_LINK, VHCA_CHARDEV };

enum vhca_node vhca_place_kind(const struct vhca_place *place);
void vhca_place_stat(const struct vhca_place *place, struct stat *st);

/* An attribute's content or a link's target; how many bytes, at most size - 1 with a closing 0. */
size_t vhca_place_read(const struct vhca_place *place, char *text, size_t size);

/* The i-th name in a directory, without "." and "..", and its place; false past the end. */
bool vhca_place_child(
	const struct vhca_place *place, size_t i, struct vhca_place *child, const char **name);

/* ---- uverbs.c ---- */

/* RDMA_VERBS_IOCTL on a context's command fd; 0 or an errno. Any thread. */
int vhca_ioctl(struct vhca_context *context, void *argument);

/* ---- handle.c: contexts, completion channels, handles ---- */

/* After the last close of the command fd: what the program left, then the context. */
void vhca_context_close(struct vhca_context *context);

/* A completion channel as its descriptors know it: it goes when they and its CQs have gone. */
struct vhca_channel_file {
	struct vhca_channel_file *next; /* of the context's */
	struct vhca_context *context;   /* NULL once that is closed */
	struct vhca_channel *channel;
	bool closed; /* no descriptor is left */
};

/* After the last close of a channel's descriptor. */
void vhca_channel_close(struct vhca_channel_file *file);

/* ---- descriptor.c: which file descriptors are the emulation's ---- */

enum vhca_file_kind {
	VHCA_FILE_DIRECTORY,
	VHCA_FILE_ATTRIBUTE,
	VHCA_FILE_DEVICE,
	VHCA_FILE_CHANNEL
};

/* What descriptors and their duplicates stand for. Behind each is a real descriptor, of a memfd or
 * a pipe. */
struct vhca_file {
	int refs;               /* descriptors, and calls under way */
	struct vhca_file *next; /* among those that end after a command */
	enum vhca_file_kind kind;
	dev_t dev; /* of the real descriptor: tells when a number was closed and reused behind our
		      back */
	ino_t ino;
	struct vhca_place place;           /* not of a channel */
	struct vhca_context *context;      /* of a device */
	struct vhca_channel_file *channel; /* of a channel */
};

#define VHCA_MAX_FDS 65536

extern struct vhca_file *vhca_fd_table[VHCA_MAX_FDS];

/* The cost for every descriptor that is not ours. */
static inline bool vhca_fd_may_be_ours(int fd)
{
	return (unsigned int)fd < VHCA_MAX_FDS && unlikely(load_once(&vhca_fd_table[fd]) != NULL);
}

/* The file behind a descriptor, held until it is put; NULL if that is not ours. */
struct vhca_file *vhca_file_get(int fd);
void vhca_file_put(struct vhca_file *file);

/* Around a command, which holds the device's lock: a file whose last hold goes meanwhile ends at
 * the end, because ending it takes the lock. */
void vhca_command_begin(void);
void vhca_command_end(void);

/* After a real dup: newfd is one more descriptor of the file now. 0 or an errno. */
int vhca_fd_set(int newfd, struct vhca_file *file);

/* Before a real close. */
void vhca_fd_forget(int fd);

/* A new descriptor on a place: a memfd with its content, or a context's bar. -1 and errno. */
int vhca_open_place(const struct vhca_place *place, int flags);

/* The memfd alone, of which nobody knows: for a stream, which closes its descriptor unseen. */
int vhca_open_content(const struct vhca_place *place, int flags);

/* Resolves what dirfd and path name; an empty path with `empty_is_fd` is dirfd itself. */
enum vhca_lookup vhca_locate(int dirfd, const char *path, bool follow, bool empty_is_fd,
	struct vhca_place *place, int *error);

/* Whether vhca_locate() is worth it: the cost for paths that are not ours. Accepts NULL. */
bool vhca_may_locate(int dirfd, const char *path, bool empty_is_fd);

/* Makes fd a descriptor of the channel under any duplicate. 0 or an errno. */
int vhca_fd_is_channel(int fd, struct vhca_channel_file *file);

/* ---- uverbs.c, method.c, command*.c: what one method was given ---- */

struct vhca_span {
	uint64_t address; /* the program's; or the data themselves where inlined */
	size_t size;
	bool inlined;
	bool present;
};

struct vhca_request {
	struct vhca_context *context;
	struct vhca_span in, out;         /* the command's own structures */
	struct vhca_span uhw_in, uhw_out; /* libmlx5's */
};

/* Copies of the program's memory: EFAULT where it is not there, as the kernel answers, rather than
 * a fault. */
int vhca_copy_in(void *to, uint64_t from, size_t size);
int vhca_copy_out(uint64_t to, const void *from, size_t size);

/* Reads a structure of `size` bytes: a shorter one of the program's is filled with zeroes, a longer
 * one must end in zeroes, else EOPNOTSUPP. Writes one: cut where the program's is shorter,
 * zero-filled where it is longer. */
int vhca_span_read(const struct vhca_span *span, void *to, size_t size);
int vhca_span_write(const struct vhca_span *span, const void *from, size_t size);

/* What the kernel keeps for a context beside the device's objects. */
struct vhca_handles {
	struct vhca_object **objects; /* by handle number, from 1 */
	uint32_t n, first_free;       /* none before it is free */
	bool opened;                  /* GET_CONTEXT has been answered */
	bool devx;                    /* and it asked for DevX */
	int async_fd; /* a duplicate of the program's end: what a second ASYNC_EVENT_ALLOC
			 duplicates; -1 before the first */
	struct vhca_channel_file *channels;
};

int vhca_handle_add(struct vhca_context *context, void *object, uint32_t *number);
/* The object if the number is one of that kind, else NULL. */
void *vhca_handle_find(struct vhca_context *context, uint32_t number, enum vhca_kind kind);
/* Destroys the object, then its handle: 0 or an errno. */
int vhca_handle_destroy(struct vhca_context *context, uint32_t number, enum vhca_kind kind);

/* Makes context->handles if there are none. */
int vhca_handles_need(struct vhca_context *context);

/* In a child of fork. */
void vhca_channels_forked(void);
/* Ends channels that have neither a descriptor nor a CQ left. */
void vhca_channels_sweep(struct vhca_context *context);

/* A new completion channel or the context's async events; the program's descriptor. 0 or an errno.
 */
int vhca_channel_make(struct vhca_context *context, int *program_fd);
int vhca_async_make(struct vhca_context *context, int *program_fd);

/* ---- command.c: the lock is held ---- */

/* INVOKE_WRITE. */
int vhca_command(struct vhca_request *request, uint32_t command);
/* What a device that has failed still does. */
bool vhca_command_outlives_device(uint32_t command);

/* Parts that native methods share with commands. 0 or an errno. */
int vhca_answer_context(struct vhca_request *request);
int vhca_answer_context_again(struct vhca_request *request, const struct vhca_span *out);
uint32_t vhca_n_vectors(void);

struct ib_uverbs_query_port_resp;
struct ib_uverbs_ex_create_cq;
struct ib_uverbs_ex_create_qp;
struct ib_uverbs_create_xsrq;
struct ib_uverbs_create_cq_resp;
struct ib_uverbs_create_qp_resp;
struct ib_uverbs_create_srq_resp;
struct ib_uverbs_ex_create_wq;
struct ib_uverbs_ex_create_wq_resp;

void vhca_answer_port(const struct vhca_device *device, struct ib_uverbs_query_port_resp *resp);
int vhca_make_cq(struct vhca_request *request, const struct ib_uverbs_ex_create_cq *cmd,
	struct ib_uverbs_create_cq_resp *resp);
int vhca_make_qp(struct vhca_request *request, const struct ib_uverbs_ex_create_qp *cmd,
	struct ib_uverbs_create_qp_resp *resp);
int vhca_make_srq(struct vhca_request *request, const struct ib_uverbs_create_xsrq *cmd,
	struct ib_uverbs_create_srq_resp *resp);
int vhca_end_cq(
	struct vhca_request *request, uint32_t handle, uint32_t *completions, uint32_t *async);
int vhca_end_qp(struct vhca_request *request, uint32_t handle, uint32_t *events);
int vhca_end_srq(struct vhca_request *request, uint32_t handle, uint32_t *events);
int vhca_make_wq(struct vhca_request *request, const struct ib_uverbs_ex_create_wq *cmd,
	struct ib_uverbs_ex_create_wq_resp *resp);
int vhca_end_wq(struct vhca_request *request, uint32_t handle, uint32_t *events);

#endif
