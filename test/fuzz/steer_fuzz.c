/* steer_fuzz.c - any bytes as flow specs, matchers, DevX commands and frames: commands with the
 * attributes that they must have, whose contents are the input's, so that what is behind them is reached
 *
 * The device stays within the memory of the program's, no frame goes where no rule leads, and the
 * context's end leaves nothing.
 */

#include "device_fuzz.h"
#include "vhca/raw.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdlib.h>
#include <unistd.h>

/* front.h's, which does not go together with the device's side. */
int vhca_ioctl(struct vhca_context *context, void *argument);
void vhca_context_close(struct vhca_context *context);

enum { MAX_STEPS = 24, MAX_ATTRS = 10, ARENA = 1 << 16, MAILBOX = 512, CANARY = 0xa5 };

union command {
	struct ib_uverbs_ioctl_hdr header; /* ends with the attributes */
	uint8_t room[sizeof(struct ib_uverbs_ioctl_hdr) +
		MAX_ATTRS * sizeof(struct ib_uverbs_attr)];
};

static uint8_t *arena;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	setenv("VHCA_DEVX", "1", 1);
	fuzz_device_init("loopback");
	arena = aligned_alloc(4096, ARENA);
	fuzz_demand(arena != NULL);
	return 0;
}

/* ---- commands ---- */

static struct ib_uverbs_attr *attr_of(union command *command, size_t i)
{
	return (struct ib_uverbs_attr *)(void *)(command->room + sizeof(command->header)) + i;
}

static void begin(union command *command, uint16_t object, uint16_t method)
{
	memset(command, 0, sizeof(*command));
	command->header.object_id = object;
	command->header.method_id = method;
	command->header.driver_id = RDMA_DRIVER_MLX5;
}

static struct ib_uverbs_attr *add(union command *command, uint16_t id, size_t size, uint64_t data)
{
	struct ib_uverbs_attr *attr = attr_of(command, command->header.num_attrs++);

	*attr = (struct ib_uverbs_attr){.attr_id = id,
		.len = (uint16_t)size,
		.flags = UVERBS_ATTR_F_MANDATORY,
		.data = data};
	return attr;
}

static void add_bytes(union command *command, uint16_t id, const void *bytes, size_t size)
{
	uint64_t inlined = 0;

	if (size <= sizeof(inlined))
		memcpy(&inlined, bytes, size);
	add(command, id, size, size <= sizeof(inlined) ? inlined : (uintptr_t)bytes);
}

static int send_command(struct vhca_context *context, union command *command)
{
	command->header.length = (uint16_t)(sizeof(command->header) +
		command->header.num_attrs * sizeof(struct ib_uverbs_attr));
	return vhca_ioctl(context, command);
}

static int invoke(struct vhca_context *context, uint32_t number, const void *in, size_t in_size,
	void *out, size_t out_size, const void *driver, size_t driver_size)
{
	uint8_t driver_out[64];
	union command command;
	uint64_t wide = number;

	begin(&command, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	add(&command, UVERBS_ATTR_WRITE_CMD, sizeof(wide), wide);
	add_bytes(&command, UVERBS_ATTR_CORE_IN, in, in_size);
	add(&command, UVERBS_ATTR_CORE_OUT, out_size, (uintptr_t)out);
	if (driver_size)
		add_bytes(&command, UVERBS_ATTR_UHW_IN, driver, driver_size);
	add(&command, UVERBS_ATTR_UHW_OUT, sizeof(driver_out), (uintptr_t)driver_out);
	return send_command(context, &command);
}

/* ---- what there is before the input ---- */

static void prepare(struct vhca_context *context)
{
	struct ib_uverbs_get_context get = {.response = 0};
	struct ib_uverbs_get_context_resp get_resp;
	struct mlx5_ib_alloc_ucontext_req_v2 get_driver = {.total_num_bfregs = 16,
		.num_low_latency_bfregs = 4,
		.flags = MLX5_IB_ALLOC_UCTX_DEVX,
		.max_cqe_version = 1,
		.lib_caps = MLX5_LIB_CAP_DYN_UAR};
	struct ib_uverbs_alloc_pd alloc = {.response = 0};
	struct ib_uverbs_alloc_pd_resp pd;
	uint32_t type = 0, length, page, id;
	union command command;
	uint64_t offset;

	fuzz_demand(!invoke(context, IB_USER_VERBS_CMD_GET_CONTEXT, &get, sizeof(get), &get_resp,
		sizeof(get_resp), &get_driver, sizeof(get_driver)));
	close((int)get_resp.async_fd);
	fuzz_demand(!invoke(context, IB_USER_VERBS_CMD_ALLOC_PD, &alloc, sizeof(alloc), &pd,
		sizeof(pd), NULL, 0));
	begin(&command, MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
	add(&command, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0, 0);
	add(&command, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, sizeof(type), type);
	add(&command, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, sizeof(offset), (uintptr_t)&offset);
	add(&command, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, sizeof(length), (uintptr_t)&length);
	add(&command, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, sizeof(page), (uintptr_t)&page);
	fuzz_demand(!send_command(context, &command));
	begin(&command, MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG);
	add(&command, MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, 0, 0);
	add(&command, MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, 8, (uintptr_t)arena);
	add(&command, MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, 8, ARENA);
	add(&command, MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, 4, IBV_ACCESS_LOCAL_WRITE);
	add(&command, MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, sizeof(id), (uintptr_t)&id);
	fuzz_demand(!send_command(context, &command));
}

/* ---- the input ---- */

/* Mailboxes begin with an opcode that there is, most of the time. */
static void take_mailbox(struct fuzz_bytes *input, uint8_t *in)
{
	static const uint16_t opcodes[] = {0x100, 0x400, 0x771, 0x773, 0x816, 0x900, 0x904, 0x905,
		0x908, 0x909, 0x912, 0x916, 0x917, 0x939, 0x93b};
	uint8_t which = (uint8_t)fuzz_take(input, 1);

	fuzz_copy(input, in, (size_t)fuzz_take(input, 2) % MAILBOX);
	if (which >= ARRAY_SIZE(opcodes))
		return;
	in[0] = (uint8_t)(opcodes[which] >> 8);
	in[1] = (uint8_t)opcodes[which];
}

static void take_devx(struct vhca_context *context, struct fuzz_bytes *input, uint16_t method)
{
	uint8_t in[MAILBOX] = {0}, out[MAILBOX];
	size_t out_size = 16 + fuzz_take(input, 1);
	uint16_t first = method == MLX5_IB_METHOD_DEVX_OBJ_CREATE
		? MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE
		: MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE; /* all begin with a handle, in, out */
	union command command;

	begin(&command, MLX5_IB_OBJECT_DEVX_OBJ, method);
	add(&command, first, 0, method == MLX5_IB_METHOD_DEVX_OBJ_CREATE ? 0 : fuzz_take(input, 1));
	take_mailbox(input, in);
	memset(out, CANARY, sizeof(out));
	add_bytes(&command, (uint16_t)(first + 1), in, sizeof(in));
	add(&command, (uint16_t)(first + 2), out_size, (uintptr_t)out);
	send_command(context, &command);
	for (size_t i = out_size; i < sizeof(out);
		i++) /* AddressSanitizer does not see a kernel write */
		fuzz_demand(out[i] == CANARY);
}

static void take_end(struct vhca_context *context, struct fuzz_bytes *input)
{
	static const uint16_t ends[][3] = {
		{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY,
			MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE},
		{MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG,
			MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE},
		{UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_DESTROY_FLOW, MLX5_IB_ATTR_DESTROY_FLOW_HANDLE},
		{MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY,
			MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE},
		{UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY,
			UVERBS_ATTR_DESTROY_COUNTERS_HANDLE}};
	const uint16_t *end = ends[fuzz_take(input, 1) % ARRAY_SIZE(ends)];
	union command command;

	begin(&command, end[0], end[1]);
	add(&command, end[2], 0, fuzz_take(input, 1));
	send_command(context, &command);
}

static void take_flow(struct vhca_context *context, struct fuzz_bytes *input)
{
	uint8_t in[448] = {0};
	struct ib_uverbs_create_flow_resp resp;
	uint8_t driver[24];
	size_t size = sizeof(struct ib_uverbs_create_flow) + fuzz_take(input, 1) * 2 % 400;

	fuzz_copy(input, in, size);
	fuzz_copy(input, driver, sizeof(driver));
	invoke(context, IB_USER_VERBS_EX_CMD_CREATE_FLOW | IB_USER_VERBS_CMD_FLAG_EXTENDED, in,
		size, &resp, sizeof(resp), driver, sizeof(driver));
}

static void take_matcher(struct vhca_context *context, struct fuzz_bytes *input)
{
	uint8_t mask[80] = {0};
	union command command;

	begin(&command, MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE);
	add(&command, MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, 0, 0);
	fuzz_copy(input, mask, fuzz_take(input, 1) % sizeof(mask));
	add_bytes(&command, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, mask, sizeof(mask));
	add(&command, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, 1, fuzz_take(input, 1) & 3);
	add(&command, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, 2, fuzz_take(input, 1) & 31);
	send_command(context, &command);
}

static void take_dv_flow(struct vhca_context *context, struct fuzz_bytes *input)
{
	uint8_t value[64] = {0};
	uint64_t what = fuzz_take(input, 1);
	union command command;

	begin(&command, UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW);
	add(&command, MLX5_IB_ATTR_CREATE_FLOW_HANDLE, 0, 0);
	add(&command, MLX5_IB_ATTR_CREATE_FLOW_MATCHER, 0, fuzz_take(input, 1));
	fuzz_copy(input, value, fuzz_take(input, 1) % sizeof(value));
	add_bytes(&command, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, value, sizeof(value));
	if (what & 1)
		add(&command, MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, 0, fuzz_take(input, 1));
	if (what & 2)
		add(&command, MLX5_IB_ATTR_CREATE_FLOW_FLAGS, 4, fuzz_take(input, 1) & 3);
	if (what & 4)
		add(&command, MLX5_IB_ATTR_CREATE_FLOW_TAG, 4, fuzz_take(input, 4));
	if (what & 8)
		add(&command, MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, 4, fuzz_take(input, 1));
	send_command(context, &command);
}

static void take_frame(struct vhca_context *context, struct fuzz_bytes *input)
{
	struct vhca_device *device = context->device;
	size_t size = VHCA_MIN_FRAME + fuzz_take(input, 1);
	uint8_t *bytes = malloc(size); /* so that no byte behind it is read */
	struct vhca_steered steered;
	struct vhca_frame frame;

	fuzz_demand(bytes != NULL);
	fuzz_copy(input, bytes, size);
	vhca_lock(device);
	vhca_frame_parse(&frame, bytes, (uint32_t)size);
	vhca_steer(device, &frame, &steered);
	fuzz_demand(steered.n <= VHCA_MAX_STEERED && !(steered.dropped && steered.n));
	fuzz_demand(
		!vhca_list_empty(&device->tables->steering) || (!steered.n && !steered.dropped));
	vhca_raw_receive(device, bytes, (uint32_t)size);
	vhca_unlock(device);
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_bytes input = {bytes, size};
	struct vhca_context *context = fuzz_context();

	memset(arena, 0, ARENA);
	prepare(context);
	for (int i = 0; i < MAX_STEPS && input.left; i++) {
		switch (fuzz_take(&input, 1) % 8) {
		case 0: take_devx(context, &input, MLX5_IB_METHOD_DEVX_OBJ_MODIFY); break;
		case 1: take_devx(context, &input, MLX5_IB_METHOD_DEVX_OBJ_QUERY); break;
		case 2: take_end(context, &input); break;
		case 3: take_flow(context, &input); break;
		case 4: take_matcher(context, &input); break;
		case 5: take_dv_flow(context, &input); break;
		case 6: take_frame(context, &input); break;
		default: take_devx(context, &input, MLX5_IB_METHOD_DEVX_OBJ_CREATE); break;
		}
		fuzz_sweep();
	}
	fuzz_demand(vhca_list_empty(&context->device->tables->steering) || context->objects);
	vhca_context_close(context);
	fuzz_demand(vhca_list_empty(&vhca_device(0)->tables->steering));
	return 0;
}
