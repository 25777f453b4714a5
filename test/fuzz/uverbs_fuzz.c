/* uverbs_fuzz.c - any bytes as commands to a device: nothing but errors comes of it
 *
 * The bytes are a program of up to sixteen calls: which method, and the content of each attribute.
 * So that calls get past the first checks, attributes are mostly those that the method takes,
 * pointers lie in a mapped arena, and single words of what they point to can be made an address or a
 * small number. The device is opened anew for each program; another one
 * stays open, so that its threads do.
 */

/* what the methods take */
#include "vhca/uverbs.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA      ((uint8_t *)0x200000000000)
#define ARENA_SIZE 65536u
#define DEVICE     "/dev/infiniband/uverbs0"

enum { MAX_CALLS = 16, MAX_ATTRS = 16 };

const char *vhca_present(void);
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* ---- bytes ---- */

struct input {
	const uint8_t *at;
	size_t left;
};

static uint64_t take(struct input *input, size_t n)
{
	uint64_t value = 0;
	size_t have = n < input->left ? n : input->left;

	memcpy(&value, input->at, have);
	input->at += have;
	input->left -= have;
	return value;
}

/* ---- calls ---- */

static const struct {
	uint16_t object, method;
} methods[] = {
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT},
	{UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE},
	{UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC},
	{UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY},
	{UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR},
	{UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR},
	{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC},
	{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY},
	{UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE},
	{UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY},
	{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE},
	{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY},
	{UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE},
	{UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY},
};

#define N_METHODS (sizeof(methods) / sizeof(methods[0]))

struct call {
	union {
		struct ib_uverbs_ioctl_hdr header;
		uint8_t room[sizeof(struct ib_uverbs_ioctl_hdr) +
			MAX_ATTRS * sizeof(struct ib_uverbs_attr)];
	};
};

/* Content for an attribute: what follows in the input, with some words put right. */
static uint64_t fill(struct input *input, uint16_t length)
{
	size_t offset = (size_t)take(input, 1) * 256;
	uint8_t *to = ARENA + offset;
	unsigned int n_words = (unsigned int)take(input, 1) % 8;
	size_t n = length < input->left ? length : input->left;

	memcpy(to, input->at, n);
	input->at += n;
	input->left -= n;
	while (n_words--) {
		uint64_t word = take(input, 1);
		uint64_t value =
			word & 128 ? (uintptr_t)ARENA + take(input, 1) * 256 : take(input, 1);

		memcpy(to + (word & 63) * 4, &value, word & 128 ? 8 : 4);
	}
	return (uintptr_t)to;
}

/* What the method takes there, mostly right. */
static void add_attr(struct input *input, struct call *call, const struct vhca_attr_spec *spec)
{
	struct ib_uverbs_attr *attr = &call->header.attrs[call->header.num_attrs];
	uint64_t how = take(input, 1);

	if (how > 230 && how < 240)
		return;
	call->header.num_attrs++;
	*attr = (struct ib_uverbs_attr){
		.attr_id = spec->id, .flags = UVERBS_ATTR_F_MANDATORY, .len = spec->size};
	if (how >= 240) {
		attr->attr_id = (uint16_t)take(input, 2);
		attr->flags = (uint16_t)take(input, 1);
	}
	if (!spec->size || how >= 248)
		attr->len = (uint16_t)(take(input, 1) * 4);
	if (spec->kind == ATTR_HANDLE)
		attr->data = take(input, 1) & 15;
	else if (spec->kind == ATTR_NEW)
		attr->len = 0;
	else if (spec->kind == ATTR_IN && attr->len <= 8)
		attr->data = take(input, how & 1 ? 1 : attr->len);
	else
		attr->data = fill(input, spec->kind == ATTR_IN ? attr->len : 0);
}

/* INVOKE_WRITE's third attribute is the command. */
static void choose_command(struct input *input, struct call *call)
{
	uint64_t command = take(input, 1);

	for (unsigned int i = 0; i < call->header.num_attrs; i++) {
		struct ib_uverbs_attr *attr = &call->header.attrs[i];

		if (attr->attr_id != UVERBS_ATTR_WRITE_CMD)
			continue;
		attr->len = 4;
		attr->data = (command & 63) | (command & 128 ? IB_USER_VERBS_CMD_FLAG_EXTENDED : 0);
	}
}

static void make_call(struct input *input, int fd)
{
	uint64_t which = take(input, 1);
	struct call call;
	const struct vhca_method *method;

	memset(&call, 0, sizeof(call));
	call.header.driver_id = RDMA_DRIVER_MLX5;
	call.header.object_id = methods[which % N_METHODS].object;
	call.header.method_id = methods[which % N_METHODS].method;
	method = vhca_method_find(call.header.object_id, call.header.method_id);
	for (unsigned int i = 0; method && i < method->n && i < MAX_ATTRS; i++)
		add_attr(input, &call, &method->specs[i]);
	if (call.header.method_id == UVERBS_METHOD_INVOKE_WRITE)
		choose_command(input, &call);
	call.header.length = (uint16_t)(sizeof(call.header) +
		call.header.num_attrs * sizeof(struct ib_uverbs_attr));
	ioctl(fd, RDMA_VERBS_IOCTL, &call);
}

/* ---- the fuzzer's ---- */

/* As libmlx5 begins, so that what needs a context is reached. */
static void get_context(int fd)
{
	struct call call = {.header = {.driver_id = RDMA_DRIVER_MLX5,
				    .object_id = UVERBS_OBJECT_DEVICE,
				    .method_id = UVERBS_METHOD_GET_CONTEXT,
				    .num_attrs = 2,
				    .length = sizeof(struct ib_uverbs_ioctl_hdr) +
					    2 * sizeof(struct ib_uverbs_attr)}};
	/* struct mlx5_ib_alloc_ucontext_req_v2: registers, flags, library capabilities, CQE version */
	static const uint32_t request[10] = {16, 4, 0, 0, 1, 0, 2};
	static uint8_t response[128];

	call.header.attrs[0] = (struct ib_uverbs_attr){
		.attr_id = UVERBS_ATTR_UHW_IN, .len = sizeof(request), .data = (uintptr_t)request};
	call.header.attrs[1] = (struct ib_uverbs_attr){.attr_id = UVERBS_ATTR_UHW_OUT,
		.len = sizeof(response),
		.data = (uintptr_t)response};
	ioctl(fd, RDMA_VERBS_IOCTL, &call);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	setenv("VHCA_WIRE", "loopback", 1);
	if (!vhca_present() || open(DEVICE, O_RDWR | O_CLOEXEC) < 0 ||
		mmap(ARENA, ARENA_SIZE + 4096, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != ARENA) {
		fprintf(stderr, "uverbs_fuzz: the device or the arena cannot be had: %s\n",
			strerror(errno));
		exit(2);
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct input input = {bytes, size};
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		abort();
	if (take(&input, 1) & 7)
		get_context(fd);
	for (int i = 0; i < MAX_CALLS && input.left > 0; i++)
		make_call(&input, fd);
	close(fd);
	return 0;
}
