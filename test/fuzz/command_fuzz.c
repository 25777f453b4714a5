/* command_fuzz.c - any bytes as commands of one context that has a PD, a UAR, a CQ, a QP and memory:
 * nothing outside of what the commands name is touched, and the context's end leaves nothing
 *
 * An input is a row of commands, each a few bytes that choose the command and how long its structures
 * are, then their contents. A word that begins with 0xfe stands for an address in memory that the
 * program has.
 */

#include "device_fuzz.h"
#include "vhca/front.h"
#include "vhca/guard.h"

#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	MAX_COMMANDS = 24,
	MAX_ATTRS = 12,
	ARENA = 1 << 20,
	STRUCTURE = 512,
	DRIVER_OUT = 128,
	CANARY = 0xa5,
};

union command {
	struct ib_uverbs_ioctl_hdr header; /* ends with the attributes */
	uint8_t room[sizeof(struct ib_uverbs_ioctl_hdr) +
		MAX_ATTRS * sizeof(struct ib_uverbs_attr)];
};

static uint8_t *arena;
static int first_fd; /* those from here on are of the input */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_device_init("loopback");
	arena = aligned_alloc(4096, ARENA);
	fuzz_demand(arena != NULL);
	memset(arena, 0, ARENA);
	return 0;
}

/* ---- commands ---- */

static struct ib_uverbs_attr *attr_of(union command *command, size_t i)
{
	return (struct ib_uverbs_attr *)(void *)(command->room + sizeof(command->header)) + i;
}

static struct ib_uverbs_attr *add(
	union command *command, uint16_t id, const void *data, size_t size, bool inlined)
{
	struct ib_uverbs_attr *attr = attr_of(command, command->header.num_attrs++);

	*attr = (struct ib_uverbs_attr){
		.attr_id = id, .len = (uint16_t)size, .flags = UVERBS_ATTR_F_MANDATORY};
	if (inlined && data)
		memcpy(&attr->data, data, min(size, sizeof(attr->data)));
	else
		attr->data = (uintptr_t)data;
	return attr;
}

static void begin(union command *command, uint16_t object, uint16_t method)
{
	memset(command, 0, sizeof(*command));
	command->header.object_id = object;
	command->header.method_id = method;
	command->header.driver_id = RDMA_DRIVER_MLX5;
}

static int send_command(struct vhca_context *context, union command *command)
{
	command->header.length = (uint16_t)(sizeof(command->header) +
		command->header.num_attrs * sizeof(struct ib_uverbs_attr));
	return vhca_ioctl(context, command);
}

struct structure {
	void *data;
	size_t size;
};

static int invoke(struct vhca_context *context, uint32_t number, struct structure in,
	struct structure out, struct structure driver_in, struct structure driver_out)
{
	union command command;
	uint64_t wide = number;

	begin(&command, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	add(&command, UVERBS_ATTR_WRITE_CMD, &wide, sizeof(wide), true);
	if (in.size)
		add(&command, UVERBS_ATTR_CORE_IN, in.data, in.size, in.size <= 8);
	if (in.size && in.size <= 8)
		memcpy(&attr_of(&command, 1)->data, in.data, in.size);
	if (out.size)
		add(&command, UVERBS_ATTR_CORE_OUT, out.data, out.size, false);
	if (driver_in.size)
		add(&command, UVERBS_ATTR_UHW_IN, driver_in.data, driver_in.size,
			driver_in.size <= 8);
	if (driver_out.size)
		add(&command, UVERBS_ATTR_UHW_OUT, driver_out.data, driver_out.size, false);
	return send_command(context, &command);
}

/* ---- what there is before the input ---- */

#define WHOLE(name_) ((struct structure){&(name_), sizeof(name_)})
#define NOTHING      ((struct structure){NULL, 0})

static void make_uar(struct vhca_context *context)
{
	uint32_t type = 0, length, page;
	union command command;
	uint64_t offset;

	begin(&command, MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
	add(&command, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, NULL, 0, true);
	add(&command, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, &type, sizeof(type), true);
	add(&command, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset, sizeof(offset), false);
	add(&command, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &length, sizeof(length), false);
	add(&command, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &page, sizeof(page), false);
	fuzz_demand(!send_command(context, &command));
}

static void make_queues(struct vhca_context *context, uint32_t pd)
{
	struct ib_uverbs_create_cq cq = {.cqe = 63, .comp_channel = -1};
	struct ib_uverbs_create_cq_resp cq_resp;
	struct mlx5_ib_create_cq cq_driver = {.buf_addr = (uintptr_t)arena,
		.db_addr = (uintptr_t)arena + 8192,
		.cqe_size = 64,
		.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX};
	struct ib_uverbs_create_qp qp = {.pd_handle = pd,
		.max_send_wr = 16,
		.max_recv_wr = 16,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.qp_type = IBV_QPT_RC};
	struct ib_uverbs_create_qp_resp qp_resp;
	struct mlx5_ib_create_qp qp_driver = {.buf_addr = (uintptr_t)arena + 16384,
		.db_addr = (uintptr_t)arena + 8256,
		.sq_wqe_count = 16,
		.rq_wqe_count = 16,
		.rq_wqe_shift = 4,
		.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX};
	uint64_t driver_resp[8];

	fuzz_demand(!invoke(context, IB_USER_VERBS_CMD_CREATE_CQ, WHOLE(cq), WHOLE(cq_resp),
		WHOLE(cq_driver), WHOLE(driver_resp)));
	qp.send_cq_handle = qp.recv_cq_handle = cq_resp.cq_handle;
	fuzz_demand(!invoke(context, IB_USER_VERBS_CMD_CREATE_QP, WHOLE(qp), WHOLE(qp_resp),
		WHOLE(qp_driver), WHOLE(driver_resp)));
}

static void prepare(struct vhca_context *context)
{
	struct ib_uverbs_get_context get = {.response = 0};
	struct ib_uverbs_get_context_resp get_resp;
	struct mlx5_ib_alloc_ucontext_req_v2 get_driver = {.total_num_bfregs = 16,
		.num_low_latency_bfregs = 4,
		.max_cqe_version = 1,
		.lib_caps = MLX5_LIB_CAP_DYN_UAR};
	struct mlx5_ib_alloc_ucontext_resp get_driver_resp;
	struct ib_uverbs_alloc_pd alloc = {.response = 0};
	struct ib_uverbs_alloc_pd_resp pd;
	uint64_t driver_resp[8];
	struct ib_uverbs_reg_mr reg = {.start = (uintptr_t)arena,
		.length = 65536,
		.hca_va = (uintptr_t)arena,
		.access_flags = IBV_ACCESS_LOCAL_WRITE};
	struct ib_uverbs_reg_mr_resp mr;

	fuzz_demand(!invoke(context, IB_USER_VERBS_CMD_GET_CONTEXT, WHOLE(get), WHOLE(get_resp),
		WHOLE(get_driver), WHOLE(get_driver_resp)));
	fuzz_demand(!invoke(context, IB_USER_VERBS_CMD_ALLOC_PD, WHOLE(alloc), WHOLE(pd), NOTHING,
		WHOLE(driver_resp)));
	reg.pd_handle = pd.pd_handle;
	fuzz_demand(!invoke(
		context, IB_USER_VERBS_CMD_REG_MR, WHOLE(reg), WHOLE(mr), NOTHING, NOTHING));
	make_uar(context);
	make_queues(context, pd.pd_handle);
}

/* ---- the input ---- */

static void take_structure(struct fuzz_bytes *input, uint8_t *to, size_t size)
{
	fuzz_copy(input, to, size);
	for (size_t i = 0; i + 8 <= size; i += 8) {
		uint64_t word;

		memcpy(&word, to + i, sizeof(word));
		if (word >> 56 != 0xfe)
			continue;
		word = (uintptr_t)arena + (word & (ARENA - 1));
		memcpy(to + i, &word, sizeof(word));
	}
}

/* The kernel writes, whom AddressSanitizer does not see. */
static void check_canaries(const uint8_t structure[STRUCTURE], size_t size)
{
	for (size_t i = size; i < STRUCTURE; i++)
		fuzz_demand(structure[i] == CANARY);
}

static void take_write(struct vhca_context *context, struct fuzz_bytes *input)
{
	uint8_t in[STRUCTURE], out[STRUCTURE], driver_in[STRUCTURE], driver_out[STRUCTURE];
	uint32_t number = (uint32_t)fuzz_take(input, 1);
	size_t in_size = fuzz_take(input, 1) * 4 % sizeof(in);
	size_t out_size = fuzz_take(input, 1) * 4 % sizeof(out);
	size_t driver_in_size = fuzz_take(input, 1) * 4 % sizeof(driver_in);

	take_structure(input, in, in_size);
	take_structure(input, driver_in, driver_in_size);
	number = (number & 0x3f) | (number & 0x80 ? IB_USER_VERBS_CMD_FLAG_EXTENDED : 0);
	memset(out, CANARY, sizeof(out));
	memset(driver_out, CANARY, sizeof(driver_out));
	invoke(context, number, (struct structure){in, in_size}, (struct structure){out, out_size},
		(struct structure){driver_in, driver_in_size},
		(struct structure){driver_out, DRIVER_OUT});
	check_canaries(out, out_size);
	check_canaries(driver_out, DRIVER_OUT);
}

static uint16_t take_id(struct fuzz_bytes *input)
{
	uint16_t byte = (uint16_t)fuzz_take(input, 1);

	return (uint16_t)((byte & 0x3f) | (byte & 0x80 ? UVERBS_UDATA_DRIVER_DATA_FLAG : 0));
}

static void take_native(struct vhca_context *context, struct fuzz_bytes *input)
{
	static uint8_t memory[MAX_ATTRS][STRUCTURE];
	uint16_t object = take_id(input), method = take_id(input);
	size_t n = fuzz_take(input, 1) % (MAX_ATTRS + 1);
	union command command;

	begin(&command, object, method);
	for (size_t i = 0; i < n; i++) {
		uint16_t id = take_id(input);
		size_t size = fuzz_take(input, 1) * 4 % STRUCTURE;
		uint64_t kind = fuzz_take(input, 1);

		take_structure(input, memory[i], kind & 1 ? 8 : size);
		add(&command, id, memory[i], size, kind & 1)->flags =
			kind & 2 ? UVERBS_ATTR_F_MANDATORY : 0;
	}
	send_command(context, &command);
}

static void close_descriptors(void)
{
	for (int fd = first_fd; fd < first_fd + 64; fd++) {
		vhca_fd_forget(fd);
		close(fd);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_bytes input = {bytes, size};
	struct vhca_context *context;

	first_fd = dup(0);
	close(first_fd);
	memset(arena, 0, 65536);
	context = fuzz_context();
	prepare(context);
	for (int i = 0; i < MAX_COMMANDS && input.left; i++) {
		if (fuzz_take(&input, 1) & 1)
			take_write(context, &input);
		else
			take_native(context, &input);
		fuzz_sweep();
	}
	vhca_context_close(context);
	close_descriptors();
	return 0;
}
