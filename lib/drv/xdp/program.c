/* program.c - the program that gives packets to sockets: six instructions, a map, and a link that ends
 * with the process */

#include "drv/xdp/xdp.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <stdio.h>
#include <unistd.h>

static int cannot(const struct xdp_port *port, const char *what, int error)
{
	if (error == -EPERM || error == -EACCES)
		return fail(EPERM,
			"port xdp:%s cannot be opened: loading its program needs CAP_NET_ADMIN and CAP_BPF: run as root, or give the process both and CAP_NET_RAW",
			port->name);
	if (error == -EBUSY || error == -EEXIST)
		return fail(EBUSY,
			"port xdp:%s cannot be opened: the interface has an XDP program already: `ip link set dev %s xdp off`, or end the program that brought it",
			port->name, port->name);
	return fail(-error, "port xdp:%s cannot be opened: %s: the kernel answers: %s", port->name,
		what, strerror(-error));
}

/* return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS); */
static int load(const struct xdp_program *program)
{
	int fd;
	const struct bpf_insn code[] = {
		{.code = BPF_LDX | BPF_MEM | BPF_W,
			.dst_reg = BPF_REG_2,
			.src_reg = BPF_REG_1,
			.off = offsetof(struct xdp_md, rx_queue_index)},
		{.code = BPF_LD | BPF_DW, /* and BPF_IMM, which is 0 */
			.dst_reg = BPF_REG_1,
			.src_reg = BPF_PSEUDO_MAP_FD,
			.imm = program->map},
		{0},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_3, .imm = XDP_PASS},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map},
		{.code = BPF_JMP | BPF_EXIT},
	};

	fd = bpf_prog_load(
		BPF_PROG_TYPE_XDP, "vbn_xdp", "Dual BSD/GPL", code, ARRAY_SIZE(code), NULL);
	return fd < 0 ? -errno : fd;
}

int vbn__xdp_program_replace(struct xdp_program *program, int fd)
{
	if (bpf_link_update(program->link, fd, NULL)) {
		const int ret = -errno;

		close(fd);
		return ret;
	}
	close(program->program);
	program->program = fd;
	program->has_rules = true;
	return 0;
}

int vbn__xdp_program_plain(struct xdp_program *program)
{
	int ret;

	if (!program->has_rules)
		return 0;
	ret = load(program);
	if (ret >= 0)
		ret = vbn__xdp_program_replace(program, ret);
	program->has_rules &= ret < 0;
	return ret;
}

static int attach(struct xdp_port *port, bool native)
{
	struct xdp_program *program = &port->program;
	LIBBPF_OPTS(bpf_link_create_opts, opts,
		.flags = native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE);

	program->link = bpf_link_create(program->program, port->index, BPF_XDP, &opts);
	program->native = native;
	return program->link < 0 ? -errno : 0;
}

/* In the driver where that can be had, else behind it. */
static int attach_best(struct xdp_port *port, enum vbn_switch asked)
{
	struct xdp_program *program = &port->program;
	int ret = asked == VBN_OFF ? -EOPNOTSUPP : attach(port, true);

	if (!ret || ret == -EBUSY || ret == -EEXIST || ret == -EPERM)
		return ret;
	if (asked == VBN_OFF)
		strcpy(program->why, "not asked for");
	else
		snprintf(program->why, sizeof(program->why),
			"the interface's driver does not take it: %.60s", strerror(-ret));
	if (asked == VBN_ON)
		return ret;
	return attach(port, false);
}

int vbn__xdp_program_load(struct xdp_port *port, uint32_t n_queues, enum vbn_switch native)
{
	struct xdp_program *program = &port->program;
	int ret;

	program->map = bpf_map_create(BPF_MAP_TYPE_XSKMAP, "vbn_xdp", 4, 4, n_queues, NULL);
	if (program->map < 0)
		return cannot(port, "its map cannot be made", -errno);
	program->program = ret = load(program);
	if (ret < 0)
		return cannot(port, "its program cannot be loaded", ret);
	ret = attach_best(port, native);
	if (ret)
		return cannot(port,
			native == VBN_ON ? "its program cannot run in the interface's driver"
					 : "its program cannot be attached",
			ret);
	return 0;
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void vbn__xdp_program_unload(struct xdp_program *program)
{
	close_one(&program->link);
	close_one(&program->program);
	close_one(&program->map);
	close_one(&program->counts);
	program->has_rules = false;
}

int vbn__xdp_program_give(const struct xdp_port *port, uint32_t index, int fd)
{
	if (!bpf_map_update_elem(port->program.map, &index, &fd, BPF_ANY))
		return 0;
	if (errno == EOPNOTSUPP || errno == EBADF)
		return 0; /* the interface that it was bound to is gone, and it waits for its reset */
	return fail(errno, "rx group of xdp:%s cannot be built: the map does not take queue %u: %s",
		port->name, index, strerror(errno));
}

void vbn__xdp_program_keep(const struct xdp_port *port, uint32_t index)
{
	bpf_map_delete_elem(port->program.map, &index);
}
