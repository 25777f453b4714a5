/* ioctl_test.c - commands that no libibverbs would send: each gets an errno, and nothing is read or
 * written beyond it
 *
 * The command interface takes pointers, lengths and handles from the program, which may be wrong in
 * every way. The tests send commands by hand: short, long, at the end of mapped memory, to unmapped
 * memory, with handles of other kinds, and at random.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_ATTRS 12
#define PAGE      4096u

union command {
	struct ib_uverbs_ioctl_hdr header; /* ends with the attributes */
	uint8_t room[sizeof(struct ib_uverbs_ioctl_hdr) +
		MAX_ATTRS * sizeof(struct ib_uverbs_attr)];
};

const char *vhca_present(void);

static struct ibv_context *context;
static uint8_t *edge; /* the end of mapped memory: the page behind it faults */

static union command begin(uint16_t object, uint16_t method)
{
	union command command;

	memset(&command, 0, sizeof(command));
	command.header.object_id = object;
	command.header.method_id = method;
	command.header.driver_id = RDMA_DRIVER_MLX5;
	return command;
}

static void add(union command *command, uint16_t id, const void *data, size_t size, bool out)
{
	struct ib_uverbs_attr *attr = &command->header.attrs[command->header.num_attrs++];

	attr->attr_id = id;
	attr->len = (uint16_t)size;
	attr->flags = UVERBS_ATTR_F_MANDATORY;
	if (!out && size <= sizeof(attr->data))
		memcpy(&attr->data, data, size);
	else
		attr->data = (uintptr_t)data;
}

static void add_number(union command *command, uint16_t id, uint64_t number)
{
	add(command, id, &number, sizeof(number), false);
}

static void add_handle(union command *command, uint16_t id, uint64_t handle)
{
	struct ib_uverbs_attr *attr = &command->header.attrs[command->header.num_attrs++];

	*attr = (struct ib_uverbs_attr){
		.attr_id = id, .flags = UVERBS_ATTR_F_MANDATORY, .data = handle};
}

/* 0 or the errno. */
static int send_as_is(union command *command)
{
	return ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &command->header) ? errno : 0;
}

static int send_command(union command *command)
{
	command->header.length = (uint16_t)(sizeof(command->header) +
		command->header.num_attrs * sizeof(struct ib_uverbs_attr));
	return send_as_is(command);
}

/* A command of the write interface, with its structures where the caller wants them. */
static int invoke(uint32_t number, const void *in, size_t in_size, void *out, size_t out_size)
{
	union command command = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);

	add_number(&command, UVERBS_ATTR_WRITE_CMD, number);
	if (in_size)
		add(&command, UVERBS_ATTR_CORE_IN, in, in_size, false);
	if (out_size)
		add(&command, UVERBS_ATTR_CORE_OUT, out, out_size, true);
	return send_command(&command);
}

static int setup(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	uint8_t *pages =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	if (!vhca_present() || !list || !list[0] || pages == MAP_FAILED)
		return -1;
	if (mprotect(pages + PAGE, PAGE, PROT_NONE))
		return -1;
	edge = pages + PAGE;
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	return context ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return ibv_close_device(context);
}

/* ---- the envelope ---- */

static void test_headers(void **state)
{
	union command command = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);
	struct ib_uverbs_query_port_resp_ex resp = {.port_cap_flags2 = 0};

	(void)state;
	assert_int_equal(ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, NULL) ? errno : 0, EFAULT);
	assert_int_equal(ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, edge - 8) ? errno : 0, EFAULT);
	assert_int_equal(ioctl(context->cmd_fd, 0x1234, &command) ? errno : 0, ENOTTY);

	add_number(&command, UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1);
	add(&command, UVERBS_ATTR_QUERY_PORT_RESP, &resp, sizeof(resp), true);
	assert_int_equal(send_command(&command), 0);
	assert_int_equal(resp.legacy_resp.state, IBV_PORT_ACTIVE);

	command.header.length -= 1;
	assert_int_equal(send_as_is(&command), EINVAL);
	command.header.num_attrs = 0xffff;
	assert_int_equal(send_as_is(&command), EINVAL);
	command.header.num_attrs = 2;
	command.header.reserved1 = 1;
	assert_int_equal(send_command(&command), EPROTONOSUPPORT);
}

static void test_attributes(void **state)
{
	struct ib_uverbs_query_port_resp_ex resp;
	union command command = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT), good;

	(void)state;
	assert_int_equal(send_command(&command), EINVAL); /* what it needs is missing */
	add_number(&command, UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1);
	add(&command, UVERBS_ATTR_QUERY_PORT_RESP, &resp, sizeof(resp), true);
	good = command;

	add_number(&command, 77, 0); /* unknown and mandatory: the library falls back */
	assert_int_equal(send_command(&command), EPROTONOSUPPORT);
	command.header.attrs[2].flags = 0; /* unknown and optional: ignored */
	assert_int_equal(send_command(&command), 0);

	command = good; /* twice the same */
	add_number(&command, UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1);
	assert_int_equal(send_command(&command), EINVAL);

	command = good;
	command.header.attrs[1].len = 4; /* too short for the answer */
	assert_int_equal(send_command(&command), EINVAL);
	command.header.attrs[1].len = sizeof(resp);
	command.header.attrs[1].data = 0;
	assert_int_equal(send_command(&command), EFAULT);
	command.header.attrs[1].data = (uintptr_t)edge - sizeof(resp) + 1;
	assert_int_equal(send_command(&command), EFAULT);
	command.header.attrs[1].data = (uintptr_t)edge - sizeof(resp);
	assert_int_equal(send_command(&command), 0);
	command.header.attrs[1].data = UINT64_MAX - 4;
	assert_int_equal(send_command(&command), EFAULT);
}

static void test_unknown_methods(void **state)
{
	union command command;

	(void)state;
	for (uint16_t object = 0; object < 24; object++) {
		command = begin(object, 99);
		assert_int_equal(send_command(&command), EPROTONOSUPPORT);
	}
	command = begin(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER);
	assert_int_equal(send_command(&command), EPROTONOSUPPORT);
}

/* ---- the write interface ---- */

static void test_short_commands_are_enospc(void **state)
{
	uint8_t in[512] = {0}, out[512];
	int known = 0;

	(void)state;
	for (uint32_t i = 0; i < 128; i++) {
		uint32_t number = i % 64 | (i < 64 ? 0 : IB_USER_VERBS_CMD_FLAG_EXTENDED);
		int error = invoke(number, in, 1, out, 0);

		if (error != ENOSPC && error != EOPNOTSUPP)
			fail_msg("command %#x: errno %d", number, error);
		known += error == ENOSPC;
		/* a memory of just that size: nothing before or behind it is touched */
		error = invoke(number, edge - 3, 3, edge - 2, 2);
		if (error != ENOSPC && error != EOPNOTSUPP)
			fail_msg("command %#x: errno %d", number, error);
	}
	assert_true(known >= 25);
	assert_int_equal(invoke(0xffffffff, in, sizeof(in), out, sizeof(out)), EOPNOTSUPP);
}

static void test_structures_at_the_edge_of_memory(void **state)
{
	struct ib_uverbs_query_port *cmd = (void *)(edge - sizeof(*cmd));
	struct ib_uverbs_query_port_resp *resp;

	(void)state;
	*cmd = (struct ib_uverbs_query_port){.port_num = 1};
	resp = (void *)((uint8_t *)cmd - sizeof(*resp));
	memset(resp, 0xaa, sizeof(*resp));
	assert_int_equal(
		invoke(IB_USER_VERBS_CMD_QUERY_PORT, cmd, sizeof(*cmd), resp, sizeof(*resp)), 0);
	assert_int_equal(resp->gid_tbl_len, 256);
	assert_int_equal(
		invoke(IB_USER_VERBS_CMD_QUERY_PORT, cmd, sizeof(*cmd) + 1, resp, sizeof(*resp)),
		EFAULT);
	assert_int_equal(
		invoke(IB_USER_VERBS_CMD_QUERY_PORT, cmd, sizeof(*cmd), edge - 4, sizeof(*resp)),
		EFAULT);
	assert_int_equal(
		invoke(IB_USER_VERBS_CMD_QUERY_PORT, edge, sizeof(*cmd), resp, sizeof(*resp)),
		EFAULT);
}

static void test_longer_structures(void **state)
{
	struct {
		struct ib_uverbs_ex_query_device cmd;
		uint64_t tail;
	} in = {.tail = 0};
	struct {
		struct ib_uverbs_ex_query_device_resp resp;
		uint64_t tail;
	} out;
	const uint32_t number = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE;

	(void)state;
	memset(&out, 0xaa, sizeof(out));
	assert_int_equal(invoke(number, &in, sizeof(in), &out, sizeof(out)), 0);
	assert_int_equal(out.resp.response_length, sizeof(out.resp));
	assert_int_equal(out.tail, 0); /* what the answer does not fill is zero */
	in.tail = 1;                   /* a request for what does not exist */
	assert_int_equal(invoke(number, &in, sizeof(in), &out, sizeof(out)), EOPNOTSUPP);
	memset(&out, 0xaa, sizeof(out));
	in.tail = 0; /* an older program: its shorter structure is filled, and no more */
	assert_int_equal(
		invoke(number, &in.cmd, sizeof(in.cmd), &out, sizeof(out.resp.base) + 8), 0);
	assert_int_equal(out.resp.response_length, sizeof(out.resp.base) + 8);
	assert_int_equal(out.resp.odp_caps.general_caps, 0xaaaaaaaaaaaaaaaa);
}

static void test_wrong_handles(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	const uint32_t wrong[] = {0, 0x7fffffff, UINT32_MAX, cq->handle, pd->handle + 1000};
	uint8_t out[512];

	(void)state;
	assert_non_null(pd);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct ib_uverbs_reg_mr mr = {.start = (uintptr_t)edge - PAGE,
			.length = PAGE,
			.hca_va = (uintptr_t)edge - PAGE,
			.pd_handle = wrong[i]};
		struct ib_uverbs_create_qp qp = {.pd_handle = wrong[i], .qp_type = IBV_QPT_RC};
		struct ib_uverbs_modify_qp modify = {.qp_handle = wrong[i]};
		struct ib_uverbs_query_qp query = {.qp_handle = wrong[i]};
		struct ib_uverbs_destroy_qp destroy = {.qp_handle = wrong[i]};
		struct ib_uverbs_dealloc_pd dealloc = {.pd_handle = wrong[i]};
		struct ib_uverbs_query_srq srq = {.srq_handle = wrong[i]};
		union command uar = begin(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY);

		assert_int_equal(
			invoke(IB_USER_VERBS_CMD_REG_MR, &mr, sizeof(mr), out, 12), EINVAL);
		assert_int_equal(
			invoke(IB_USER_VERBS_CMD_CREATE_QP, &qp, sizeof(qp), out, 32), EINVAL);
		assert_int_equal(
			invoke(IB_USER_VERBS_CMD_MODIFY_QP, &modify, sizeof(modify), NULL, 0),
			EINVAL);
		assert_int_equal(
			invoke(IB_USER_VERBS_CMD_QUERY_QP, &query, sizeof(query), out, sizeof(out)),
			EINVAL);
		assert_int_equal(
			invoke(IB_USER_VERBS_CMD_DESTROY_QP, &destroy, sizeof(destroy), out, 4),
			EINVAL);
		assert_int_equal(
			invoke(IB_USER_VERBS_CMD_DEALLOC_PD, &dealloc, sizeof(dealloc), NULL, 0),
			EINVAL);
		assert_int_equal(
			invoke(IB_USER_VERBS_CMD_QUERY_SRQ, &srq, sizeof(srq), out, 16), EINVAL);
		add_handle(&uar, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, wrong[i]);
		assert_int_equal(send_command(&uar), EINVAL);
	}
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* A channel is named by descriptor: one that is no channel, or another context's, is refused. */
static void test_wrong_channels(void **state)
{
	int pipe_fds[2];
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *other = ibv_open_device(list[0]);
	struct ibv_comp_channel *theirs = ibv_create_comp_channel(other);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	int own, fds[5];

	(void)state;
	assert_non_null(theirs);
	assert_non_null(channel);
	assert_int_equal(pipe(pipe_fds), 0);
	own = channel->fd;
	fds[0] = pipe_fds[0];
	fds[1] = 9999;
	fds[2] = context->cmd_fd;
	fds[3] = theirs->fd;
	fds[4] = INT32_MAX;
	for (size_t i = 0; i < 5; i++) {
		channel->fd = fds[i];
		errno = 0;
		assert_null(ibv_create_cq(context, 8, NULL, channel, 0));
		assert_true(errno == EBADF || errno == EINVAL);
	}
	channel->fd = own;
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
	assert_int_equal(ibv_destroy_comp_channel(theirs), 0);
	assert_int_equal(ibv_close_device(other), 0);
	ibv_free_device_list(list);
}

/* libmlx5's part of a command may be missing, or point nowhere. */
static void test_the_providers_part(void **state)
{
	struct ib_uverbs_create_cq cq = {.cqe = 63, .comp_channel = -1};
	struct ib_uverbs_create_cq_resp resp;
	struct mlx5_ib_create_cq mlx5 = {.buf_addr = 0x1000, .db_addr = 0x2000, .cqe_size = 64};
	union command command;

	(void)state;
	assert_int_equal(
		invoke(IB_USER_VERBS_CMD_CREATE_CQ, &cq, sizeof(cq), &resp, sizeof(resp)), EINVAL);
	for (uint32_t size = 0; size < 4; size++) {
		mlx5.cqe_size = size == 0 ? 64 : size == 1 ? 0 : size == 2 ? 65 : UINT32_MAX;
		command = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
		add_number(&command, UVERBS_ATTR_WRITE_CMD, IB_USER_VERBS_CMD_CREATE_CQ);
		add(&command, UVERBS_ATTR_CORE_IN, &cq, sizeof(cq), false);
		add(&command, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp), true);
		add(&command, UVERBS_ATTR_UHW_IN, &mlx5, sizeof(mlx5), false);
		assert_int_not_equal(send_command(&command), 0);
	}
}

static void test_get_context_rules(void **state)
{
	struct ib_uverbs_get_context cmd = {.response = 0};
	struct ib_uverbs_alloc_pd pd = {.response = 0};
	struct mlx5_ib_alloc_ucontext_req_v2 req = {
		.total_num_bfregs = 16,
		.num_low_latency_bfregs = 4,
		.flags = MLX5_IB_ALLOC_UCTX_DEVX,
		.max_cqe_version = 1,
		.lib_caps = MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR,
	};
	struct mlx5_ib_alloc_ucontext_resp uhw = {.cqe_version = 0};
	struct ib_uverbs_get_context_resp resp = {.async_fd = 0};
	struct ibv_context *keep = context;
	struct ibv_context raw = {.cmd_fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC)};
	union command command;
	uint32_t handle;

	(void)state;
	assert_true(raw.cmd_fd >= 0);
	context = &raw;
	/* nothing is answered before GET_CONTEXT */
	assert_int_equal(invoke(IB_USER_VERBS_CMD_ALLOC_PD, &pd, sizeof(pd), &handle, 4), EINVAL);
	/* nor has it an answer without the provider's part */
	assert_int_equal(
		invoke(IB_USER_VERBS_CMD_GET_CONTEXT, &cmd, sizeof(cmd), &resp, sizeof(resp)),
		EINVAL);
	for (int i = 0; i < 3; i++) {
		static const int wanted[] = {EPERM, 0, EINVAL};

		command = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
		add_number(&command, UVERBS_ATTR_WRITE_CMD, IB_USER_VERBS_CMD_GET_CONTEXT);
		add(&command, UVERBS_ATTR_CORE_IN, &cmd, sizeof(cmd), false);
		add(&command, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp), true);
		add(&command, UVERBS_ATTR_UHW_IN, &req, sizeof(req), false);
		add(&command, UVERBS_ATTR_UHW_OUT, &uhw, sizeof(uhw), true);
		assert_int_equal(send_command(&command), wanted[i]); /* DEVX; without; again */
		req.flags = 0;
	}
	assert_int_equal(uhw.cqe_version, 1);
	assert_int_equal(uhw.tot_bfregs, 0);
	assert_int_equal(invoke(IB_USER_VERBS_CMD_ALLOC_PD, &pd, sizeof(pd), &handle, 4), 0);
	close((int)resp.async_fd);
	close(raw.cmd_fd); /* with a PD left */
	context = keep;
}

/* ---- at random: on a context of its own, whose objects may come and go ---- */

static struct ibv_context *kept;
static struct ibv_context raw_context;

static int raw_setup(void **state)
{
	struct mlx5_ib_alloc_ucontext_req_v2 req = {
		.total_num_bfregs = 16,
		.num_low_latency_bfregs = 4,
		.max_cqe_version = 1,
		.lib_caps = MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR,
	};
	union command command = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);

	(void)state;
	kept = context;
	context = &raw_context;
	raw_context.cmd_fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
	add(&command, UVERBS_ATTR_UHW_IN, &req, sizeof(req), false);
	return send_command(&command);
}

static int raw_teardown(void **state)
{
	(void)state;
	context = kept;
	return close(raw_context.cmd_fd);
}

static uint64_t random_state = 88172645463325252u;

static uint64_t random_number(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* Values that are more often at a border than not. */
static uint64_t random_value(void)
{
	static const uint64_t borders[] = {0, 1, 2, 3, 4, 63, 64, 128, 255, 256, 4095, 4096, 32768,
		65535, INT32_MAX, UINT32_MAX, 1ull << 32, INT64_MAX, UINT64_MAX};
	uint64_t r = random_number();

	switch (r & 7) {
	case 0: return r >> 8;
	case 1: return (uintptr_t)edge - (r >> 8) % PAGE;
	case 2: return (uintptr_t)edge + (r >> 8) % PAGE;
	default: return borders[(r >> 8) % (sizeof(borders) / sizeof(borders[0]))];
	}
}

static void fill(uint8_t *memory, size_t size)
{
	for (size_t i = 0; i + 8 <= size; i += 8) {
		uint64_t value = random_number() % 3
			? random_value()
			: random_value() << 32 | (uint32_t)random_value();

		memcpy(memory + i, &value, 8);
	}
}

static void test_random_write_commands(void **state)
{
	int answered = 0;

	(void)state;
	for (int i = 0; i < 30000; i++) {
		union command command = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
		uint32_t number = (uint32_t)(random_number() % 44);

		if (number == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL)
			continue; /* a descriptor each */
		if (random_number() % 4 == 0)
			number |= IB_USER_VERBS_CMD_FLAG_EXTENDED;
		fill(edge - PAGE, PAGE);
		add_number(&command, UVERBS_ATTR_WRITE_CMD, number);
		add(&command, UVERBS_ATTR_CORE_IN, edge - 1024, random_number() % 320, false);
		add(&command, UVERBS_ATTR_CORE_OUT, edge - 2048, random_number() % 512, true);
		add(&command, UVERBS_ATTR_UHW_IN, edge - 3072, random_number() % 128, false);
		add(&command, UVERBS_ATTR_UHW_OUT, edge - 4096, random_number() % 128, true);
		if (random_number() % 16 == 0)
			command.header.attrs[random_number() % 5].data = random_value();
		answered += !send_command(&command);
	}
	assert_true(answered > 0); /* some of it must have got through, or nothing was tested */
}

static void test_random_methods(void **state)
{
	(void)state;
	for (int i = 0; i < 30000; i++) {
		static const uint16_t objects[] = {UVERBS_OBJECT_DEVICE, UVERBS_OBJECT_PD,
			UVERBS_OBJECT_CQ, UVERBS_OBJECT_QP, UVERBS_OBJECT_SRQ, UVERBS_OBJECT_MR,
			MLX5_IB_OBJECT_UAR};
		uint16_t object = objects[random_number() % 7];
		uint16_t method = (uint16_t)(random_number() % 8);
		union command command;
		unsigned int n = (unsigned int)(random_number() % MAX_ATTRS);

		if (random_number() % 4 == 0 || object == MLX5_IB_OBJECT_UAR)
			method |= 1u << UVERBS_ID_NS_SHIFT;
		fill(edge - PAGE, PAGE);
		command = begin(object, method);
		for (unsigned int a = 0; a < n; a++) {
			struct ib_uverbs_attr *attr =
				&command.header.attrs[command.header.num_attrs++];

			attr->attr_id = (uint16_t)(random_number() % 3 ? a : random_number() % 16);
			if (random_number() % 8 == 0 || object == MLX5_IB_OBJECT_UAR)
				attr->attr_id |= 1u << UVERBS_ID_NS_SHIFT;
			attr->len = (uint16_t)(random_number() % 2 ? random_number() % 80 : 0);
			attr->flags = random_number() & 1;
			attr->data = random_number() & 1 ? (uintptr_t)edge - 512 : random_value();
		}
		send_command(&command);
	}
}

/* After all that, the device works. */
static void test_still_alive(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}};
	struct ibv_qp *qp;

	(void)state;
	assert_non_null(pd);
	assert_non_null(cq);
	qp = ibv_create_qp(pd, &attr);
	assert_non_null(qp);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_attributes),
		cmocka_unit_test(test_unknown_methods),
		cmocka_unit_test(test_short_commands_are_enospc),
		cmocka_unit_test(test_structures_at_the_edge_of_memory),
		cmocka_unit_test(test_longer_structures),
		cmocka_unit_test(test_wrong_handles),
		cmocka_unit_test(test_wrong_channels),
		cmocka_unit_test(test_the_providers_part),
		cmocka_unit_test(test_get_context_rules),
		cmocka_unit_test_setup_teardown(
			test_random_write_commands, raw_setup, raw_teardown),
		cmocka_unit_test_setup_teardown(test_random_methods, raw_setup, raw_teardown),
		cmocka_unit_test(test_still_alive),
	};

	return cmocka_run_group_tests_name("ioctl", tests, setup, teardown);
}
