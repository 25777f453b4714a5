/* rules.c - rules of an rx group as a program: what a packet has is put on the stack once, each rule compares
 * with that, and what none takes stays the kernel's
 *
 * Where there is no rule, or but one that takes everything, there is none of this: program.c's six instructions.
 * A packet's first tag is looked behind, where it is in the frame; IPv6's extension headers are not.
 */

#include "drv/xdp/xdp.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	LONGEST = 4096,   /* instructions */
	PACKET_LEN = 188, /* BPF_FUNC_xdp_get_buff_len, which older headers have not */
	TAGGED = 1 << 16, /* in `vlan` */
	SLOT_AT = -80,
	MOST_JUMPS = 2048,
	/* registers */
	SCRATCH = BPF_REG_0,
	END = BPF_REG_3,
	BEHIND = BPF_REG_4,
	TYPE = BPF_REG_5,
	CTX = BPF_REG_6,
	HERE = BPF_REG_7, /* the header that is next */
	LEN = BPF_REG_8,
	FRAME = BPF_REG_10,
};

/* What rules look at: bytes as they come, on the stack. */
struct key {
	uint32_t dst_mac[2], src_mac[2]; /* four bytes, and two */
	uint32_t type;
	uint32_t vlan; /* TAGGED, and the VID's 12 bits as they come; 0: no tag */
	uint32_t version;
	uint32_t protocol; /* and 1 more; 0: none */
	uint32_t has_ports, ports;
	uint32_t src_ip[4], dst_ip[4];
};
static_assert(sizeof(struct key) == 72 && SLOT_AT == -80, "one below the other");

#define AT(field) ((int16_t)(offsetof(struct key, field) - sizeof(struct key)))

enum label {
	NO_TAG,
	IPV4,
	IPV6,
	PORTS,
	RULES,
	TAKE,
	DROP,
	PASS,
	NEXT,
	N_LABELS = NEXT + XDP_MAX_RULES
};

struct code {
	struct bpf_insn insns[LONGEST];
	int n;
	struct {
		int at, label;
	} jumps[MOST_JUMPS];
	int n_jumps;
	int labels[N_LABELS];
	bool full;
};

/* ---- instructions ---- */

static void emit(struct code *code, uint8_t op, uint8_t dst, uint8_t src, int16_t off, int32_t imm)
{
	if (code->n == LONGEST) {
		code->full = true;
		return;
	}
	code->insns[code->n++] = (struct bpf_insn){
		.code = op, .dst_reg = dst & 15u, .src_reg = src & 15u, .off = off, .imm = imm};
}

static void load(struct code *code, uint8_t size, uint8_t dst, uint8_t src, int16_t off)
{
	emit(code, (uint8_t)(BPF_LDX | BPF_MEM | size), dst, src, off, 0);
}

static void store(struct code *code, uint8_t size, uint8_t dst, int16_t off, uint8_t src)
{
	emit(code, (uint8_t)(BPF_STX | BPF_MEM | size), dst, src, off, 0);
}

static void store_value(struct code *code, int16_t off, int32_t value)
{
	emit(code, BPF_ST | BPF_MEM | BPF_W, FRAME, 0, off, value);
}

static void move(struct code *code, uint8_t dst, uint8_t src)
{
	emit(code, BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0);
}

static void with_value(struct code *code, uint8_t op, uint8_t dst, int32_t value)
{
	emit(code, (uint8_t)(BPF_ALU64 | op | BPF_K), dst, 0, 0, value);
}

static void jump(struct code *code, uint8_t op, uint8_t dst, uint8_t src, uint32_t value, int label)
{
	if (code->n_jumps == MOST_JUMPS) {
		code->full = true;
		return;
	}
	code->jumps[code->n_jumps].at = code->n;
	code->jumps[code->n_jumps++].label = label;
	emit(code, op, dst, src, 0, (int32_t)value);
}

static void jump_unless(struct code *code, uint8_t reg, uint32_t value, int label)
{
	jump(code, BPF_JMP32 | BPF_JNE | BPF_K, reg, 0, value, label);
}

static void jump_if(struct code *code, uint8_t reg, uint32_t value, int label)
{
	jump(code, BPF_JMP32 | BPF_JEQ | BPF_K, reg, 0, value, label);
}

static void go(struct code *code, int label)
{
	jump(code, BPF_JMP | BPF_JA, 0, 0, 0, label);
}

static void set_label(struct code *code, int label)
{
	code->labels[label] = code->n;
}

static void load_map(struct code *code, uint8_t reg, int map)
{
	emit(code, BPF_LD | BPF_DW, reg, BPF_PSEUDO_MAP_FD, 0, map);
	emit(code, 0, 0, 0, 0, 0);
}

static void call(struct code *code, int function)
{
	emit(code, BPF_JMP | BPF_CALL, 0, 0, 0, function);
}

static void leave(struct code *code, int verdict)
{
	emit(code, BPF_ALU64 | BPF_MOV | BPF_K, SCRATCH, 0, 0, verdict);
	emit(code, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

/* Where a packet has fewer than `n` bytes from here on, what is known of it is all. */
static void need(struct code *code, int n, int label)
{
	move(code, BEHIND, HERE);
	with_value(code, BPF_ADD, BEHIND, n);
	jump(code, BPF_JMP | BPF_JGT | BPF_X, BEHIND, END, 0, label);
}

/* ---- what a packet has ---- */

static void keep(struct code *code, uint8_t size, int16_t from, int16_t to)
{
	load(code, size, SCRATCH, HERE, from);
	store(code, BPF_W, FRAME, to, SCRATCH);
}

static void read_ethernet(struct code *code)
{
	move(code, CTX, BPF_REG_1);
	load(code, BPF_W, HERE, CTX, offsetof(struct xdp_md, data));
	load(code, BPF_W, END, CTX, offsetof(struct xdp_md, data_end));
	for (size_t at = 0; at < sizeof(struct key); at += 4)
		store_value(code, (int16_t)(at - sizeof(struct key)), 0);
	need(code, FRAME_HEADER, PASS);
	keep(code, BPF_W, 0, AT(dst_mac[0]));
	keep(code, BPF_H, 4, AT(dst_mac[1]));
	keep(code, BPF_W, 6, AT(src_mac[0]));
	keep(code, BPF_H, 10, AT(src_mac[1]));
	load(code, BPF_H, TYPE, HERE, 12);
	with_value(code, BPF_ADD, HERE, FRAME_HEADER);
}

static void read_tag(struct code *code)
{
	jump_unless(code, TYPE, htobe16(0x8100), NO_TAG);
	need(code, FRAME_TAG, RULES);
	load(code, BPF_H, SCRATCH, HERE, 0);
	with_value(code, BPF_AND, SCRATCH, htobe16(0x0fff));
	with_value(code, BPF_OR, SCRATCH, TAGGED);
	store(code, BPF_W, FRAME, AT(vlan), SCRATCH);
	load(code, BPF_H, TYPE, HERE, 2);
	with_value(code, BPF_ADD, HERE, FRAME_TAG);
	set_label(code, NO_TAG);
	store(code, BPF_W, FRAME, AT(type), TYPE);
}

/* Its version, from the first byte of its header, which stays in LEN. */
static void read_version(struct code *code, uint32_t version)
{
	load(code, BPF_B, SCRATCH, HERE, 0);
	move(code, LEN, SCRATCH);
	with_value(code, BPF_RSH, SCRATCH, 4);
	jump_unless(code, SCRATCH, version, RULES);
	store(code, BPF_W, FRAME, AT(version), SCRATCH);
}

static void read_protocol(struct code *code, int16_t at)
{
	load(code, BPF_B, SCRATCH, HERE, at);
	with_value(code, BPF_ADD, SCRATCH, 1);
	store(code, BPF_W, FRAME, AT(protocol), SCRATCH);
}

static void read_ip4(struct code *code)
{
	set_label(code, IPV4);
	need(code, 20, RULES);
	read_version(code, 4);
	keep(code, BPF_W, 12, AT(src_ip[0]));
	keep(code, BPF_W, 16, AT(dst_ip[0]));
	read_protocol(code, 9);
	load(code, BPF_H, SCRATCH, HERE, 6); /* fragments but the first have no ports */
	with_value(code, BPF_AND, SCRATCH, htobe16(0x1fff));
	jump_unless(code, SCRATCH, 0, RULES);
	with_value(code, BPF_AND, LEN, 15);
	with_value(code, BPF_LSH, LEN, 2);
	jump(code, BPF_JMP | BPF_JLT | BPF_K, LEN, 0, 20, RULES);
	emit(code, BPF_ALU64 | BPF_ADD | BPF_X, HERE, LEN, 0, 0);
	go(code, PORTS);
}

static void read_ip6(struct code *code)
{
	set_label(code, IPV6);
	need(code, 40, RULES);
	read_version(code, 6);
	for (int16_t i = 0; i < 16; i = (int16_t)(i + 4)) {
		keep(code, BPF_W, (int16_t)(8 + i), (int16_t)(AT(src_ip) + i));
		keep(code, BPF_W, (int16_t)(24 + i), (int16_t)(AT(dst_ip) + i));
	}
	read_protocol(code, 6);
	with_value(code, BPF_ADD, HERE, 40);
}

static void read_packet(struct code *code)
{
	read_ethernet(code);
	read_tag(code);
	jump_if(code, TYPE, htobe16(0x86dd), IPV6);
	jump_if(code, TYPE, htobe16(0x0800), IPV4);
	go(code, RULES);
	read_ip4(code);
	read_ip6(code);
	set_label(code, PORTS);
	need(code, 4, RULES);
	keep(code, BPF_W, 0, AT(ports));
	store_value(code, AT(has_ports), 1);
	set_label(code, RULES);
}

/* ---- rules ---- */

static uint32_t word(const void *bytes, size_t n)
{
	uint32_t value = 0;

	memcpy(&value, bytes, n);
	return value;
}

static void want(struct code *code, int16_t at, uint32_t mask, uint32_t value, int otherwise)
{
	if (!mask)
		return;
	load(code, BPF_W, SCRATCH, FRAME, at);
	if (mask != UINT32_MAX)
		emit(code, BPF_ALU | BPF_AND | BPF_K, SCRATCH, 0, 0, (int32_t)mask);
	jump_unless(code, SCRATCH, value & mask, otherwise);
}

static void want_mac(
	struct code *code, int16_t at, const uint8_t mask[6], const uint8_t mac[6], int otherwise)
{
	want(code, at, word(mask, 4), word(mac, 4), otherwise);
	want(code, (int16_t)(at + 4), word(mask + 4, 2), word(mac + 4, 2), otherwise);
}

static void want_ip(
	struct code *code, int16_t at, uint32_t prefix, const uint8_t ip[16], int otherwise)
{
	for (int16_t i = 0; prefix; i = (int16_t)(i + 4)) {
		const uint32_t bits = min(prefix, 32u);

		want(code, (int16_t)(at + i), htobe32((uint32_t)(UINT64_MAX << (32 - bits))),
			word(ip + i, 4), otherwise);
		prefix -= bits;
	}
}

static void want_ports(struct code *code, const struct vbn_rx_rule *rule, int otherwise)
{
	const uint16_t ports[2] = {
		htobe16((uint16_t)rule->src_port.value), htobe16((uint16_t)rule->dst_port.value)};
	const uint16_t masks[2] = {
		rule->src_port.set ? UINT16_MAX : 0, rule->dst_port.set ? UINT16_MAX : 0};

	if (!rule->src_port.set && !rule->dst_port.set)
		return;
	want(code, AT(has_ports), UINT32_MAX, 1, otherwise);
	want(code, AT(ports), word(masks, 4), word(ports, 4), otherwise);
}

static void want_all(struct code *code, const struct vbn_rx_rule *rule, int otherwise)
{
	static const uint8_t group_bit[4] = {1};

	if (rule->kind == VBN_RULE_ALL_MULTICAST)
		want(code, AT(dst_mac), word(group_bit, 4), word(group_bit, 4), otherwise);
	want_mac(code, AT(dst_mac), rule->dst_mac_mask, rule->dst_mac, otherwise);
	want_mac(code, AT(src_mac), rule->src_mac_mask, rule->src_mac, otherwise);
	if (rule->ethertype)
		want(code, AT(type), UINT16_MAX, htobe16(rule->ethertype), otherwise);
	if (rule->vlan.set)
		want(code, AT(vlan), UINT32_MAX, TAGGED | htobe16((uint16_t)rule->vlan.value),
			otherwise);
	if (rule->ip_version)
		want(code, AT(version), UINT32_MAX, rule->ip_version, otherwise);
	want_ip(code, AT(src_ip), rule->src_prefix, rule->src_ip, otherwise);
	want_ip(code, AT(dst_ip), rule->dst_prefix, rule->dst_ip, otherwise);
	if (rule->protocol.set)
		want(code, AT(protocol), UINT32_MAX, rule->protocol.value + 1, otherwise);
	want_ports(code, rule, otherwise);
}

/* It is counted, on this CPU, and has its way. */
static void hit(struct code *code, int counts, uint32_t slot, int verdict)
{
	store_value(code, SLOT_AT, (int32_t)slot);
	move(code, BPF_REG_2, FRAME);
	with_value(code, BPF_ADD, BPF_REG_2, SLOT_AT);
	load_map(code, BPF_REG_1, counts);
	call(code, BPF_FUNC_map_lookup_elem);
	jump(code, BPF_JMP | BPF_JEQ | BPF_K, SCRATCH, 0, 0, verdict);
	move(code, HERE, SCRATCH);
	load(code, BPF_DW, BPF_REG_1, HERE, offsetof(struct xdp_rule_count, packets));
	with_value(code, BPF_ADD, BPF_REG_1, 1);
	store(code, BPF_DW, HERE, offsetof(struct xdp_rule_count, packets), BPF_REG_1);
	move(code, BPF_REG_1, CTX);
	call(code, PACKET_LEN);
	load(code, BPF_DW, BPF_REG_1, HERE, offsetof(struct xdp_rule_count, bytes));
	emit(code, BPF_ALU64 | BPF_ADD | BPF_X, BPF_REG_1, SCRATCH, 0, 0);
	store(code, BPF_DW, HERE, offsetof(struct xdp_rule_count, bytes), BPF_REG_1);
	go(code, verdict);
}

static void take(struct code *code, int sockets)
{
	set_label(code, TAKE);
	load(code, BPF_W, BPF_REG_2, CTX, offsetof(struct xdp_md, rx_queue_index));
	load_map(code, BPF_REG_1, sockets);
	emit(code, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, XDP_PASS);
	call(code, BPF_FUNC_redirect_map);
	emit(code, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static bool leads_to(const struct code *code, int label)
{
	for (int i = 0; i < code->n_jumps; i++)
		if (code->jumps[i].label == label)
			return true;
	return false;
}

/* The kernel takes no program with code that nothing leads to. */
static void finish(struct code *code, int sockets)
{
	set_label(code, PASS);
	leave(code, XDP_PASS);
	if (leads_to(code, DROP)) {
		set_label(code, DROP);
		leave(code, XDP_DROP);
	}
	if (leads_to(code, TAKE))
		take(code, sockets);
	for (int i = 0; i < code->n_jumps && !code->full; i++)
		code->insns[code->jumps[i].at].off =
			(int16_t)(code->labels[code->jumps[i].label] - code->jumps[i].at - 1);
}

/* ---- their order ---- */

struct ruled {
	const struct rx_rule *rules[XDP_MAX_RULES];
	int n;
	bool is_plain; /* everything, or no rule */
};

static int rank(const struct vbn_rx_rule *rule)
{
	return rule->kind == VBN_RULE_MATCH ? 0 : rule->kind == VBN_RULE_ALL_MULTICAST ? 1 : 2;
}

static bool goes_before(const struct rx_rule *a, const struct rx_rule *b)
{
	if (rank(&a->rule) != rank(&b->rule))
		return rank(&a->rule) < rank(&b->rule);
	return a->rule.priority < b->rule.priority;
}

/* Behind those that it does not go before: equals stay in the order of their adding. */
static void insert(struct ruled *ruled, const struct rx_rule *rule)
{
	int at = ruled->n++;

	for (; at && goes_before(rule, ruled->rules[at - 1]); at--)
		ruled->rules[at] = ruled->rules[at - 1];
	ruled->rules[at] = rule;
	ruled->is_plain &=
		rule->rule.kind == VBN_RULE_EVERYTHING && rule->rule.action == VBN_RULE_TAKE;
}

static uint32_t slot_of(const struct rx_rule *rule)
{
	return (uint32_t)(uintptr_t)rule->driver_data - 1;
}

/* ---- the program ---- */

static int compile(struct xdp_program *program, const struct ruled *ruled, struct code *code)
{
	read_packet(code);
	for (int i = 0; i < ruled->n; i++) {
		const struct rx_rule *rule = ruled->rules[i];

		want_all(code, &rule->rule, NEXT + i);
		hit(code, program->counts, slot_of(rule),
			rule->rule.action == VBN_RULE_TAKE ? TAKE : DROP);
		if (!leads_to(code, NEXT + i)) /* it takes all: no rule behind it is ever asked */
			break;
		set_label(code, NEXT + i);
	}
	finish(code, program->map);
	return code->full ? -ENOSPC : 0;
}

static int replace(struct xdp_program *program, const struct ruled *ruled)
{
	struct code *code = calloc(1, sizeof(*code));
	int fd, ret = code ? compile(program, ruled, code) : -ENOMEM;

	if (!ret) {
		fd = bpf_prog_load(BPF_PROG_TYPE_XDP, "vbn_xdp_rules", "Dual BSD/GPL", code->insns,
			(size_t)code->n, NULL);
		ret = fd < 0 ? -errno : vbn__xdp_program_replace(program, fd);
	}
	free(code);
	return ret;
}

static int make_counts(struct xdp_program *program)
{
	if (program->counts >= 0)
		return 0;
	program->counts = bpf_map_create(BPF_MAP_TYPE_PERCPU_ARRAY, "vbn_rules", 4,
		sizeof(struct xdp_rule_count), XDP_MAX_RULES, NULL);
	return program->counts < 0 ? -errno : 0;
}

static struct xdp_rule_count *all_counts(int *n)
{
	*n = libbpf_num_possible_cpus();
	return *n > 0 ? calloc((size_t)*n, sizeof(struct xdp_rule_count)) : NULL;
}

/* A slot of counts, from 0. */
static int take_slot(struct xdp_port *port, struct rx_rule *rule)
{
	struct xdp_rule_count *zeros;
	uint32_t slot = 0;
	int n, ret;

	while (slot < XDP_MAX_RULES && port->rule_slots >> slot & 1)
		slot++;
	ret = slot < XDP_MAX_RULES ? make_counts(&port->program) : -ENOSPC;
	if (ret)
		return ret;
	zeros = all_counts(&n);
	if (!zeros)
		return -ENOMEM;
	ret = bpf_map_update_elem(port->program.counts, &slot, zeros, BPF_ANY) ? -errno : 0;
	free(zeros);
	if (ret)
		return ret;
	port->rule_slots |= 1ull << slot;
	rule->driver_data = (void *)(uintptr_t)(slot + 1);
	return 0;
}

static void give_slot(struct xdp_port *port, struct rx_rule *rule)
{
	if (rule->driver_data)
		port->rule_slots &= ~(1ull << slot_of(rule));
	rule->driver_data = NULL;
}

/* The group's rules, with one that is new, and without one that goes; either may be NULL. */
static int rule(struct vbn_rx_group *group, struct rx_rule *with, const struct rx_rule *without)
{
	struct xdp_port *port = xdp_port(group->port);
	struct ruled ruled = {.is_plain = true};
	int ret = 0;

	for (struct rx_rule *at = group->rules; at; at = at->next)
		if (at != without && at != with && ruled.n < XDP_MAX_RULES)
			insert(&ruled, at);
	if (with && ruled.n == XDP_MAX_RULES)
		ret = -ENOSPC;
	else if (with)
		insert(&ruled, with);
	for (int i = 0; i < ruled.n && !ret; i++)
		if (!ruled.rules[i]->driver_data)
			ret = take_slot(port, (struct rx_rule *)(uintptr_t)ruled.rules[i]);
	if (!ret)
		ret = ruled.is_plain ? vbn__xdp_program_plain(&port->program)
				     : replace(&port->program, &ruled);
	if (ret)
		return fail(-ret, "rules of xdp:%s cannot be had: %s%s", port->name, strerror(-ret),
			ret == -ENOSPC ? ": there are too many" : "");
	return 0;
}

/* ---- the driver's ---- */

int vbn__xdp_rules_build(struct vbn_rx_group *group)
{
	return rule(group, NULL, NULL);
}

void vbn__xdp_rules_unbuild(struct vbn_rx_group *group)
{
	vbn__xdp_program_plain(&xdp_port(group->port)->program);
}

int vbn__xdp_rule_check(const struct vbn_rx_group *group, const struct vbn_rx_rule *rule)
{
	int n = 0;

	if (rule->mark)
		return fail(EOPNOTSUPP, "rule cannot be added: port %s has no marks: leave mark 0",
			group->port->info.name);
	for (const struct rx_rule *at = group->rules; at; at = at->next)
		n++;
	if (n >= XDP_MAX_RULES)
		return fail(ENOSPC, "rule cannot be added: port %s has %d rules at the most",
			group->port->info.name, XDP_MAX_RULES);
	return 0;
}

/* Those that were there before the group was built came with its building. */
int vbn__xdp_rule_add(struct vbn_rx_group *group, struct rx_rule *added)
{
	int ret;

	for (const struct rx_rule *at = group->rules; at; at = at->next)
		if (at == added)
			return 0;
	ret = rule(group, added, NULL);
	if (ret)
		give_slot(xdp_port(group->port), added);
	return ret;
}

void vbn__xdp_rule_remove(struct vbn_rx_group *group, struct rx_rule *removed)
{
	rule(group, NULL, removed);
	give_slot(xdp_port(group->port), removed);
}

int vbn__xdp_rule_count(const struct vbn_rx_group *group, const struct rx_rule *counted,
	uint64_t *packets, uint64_t *bytes)
{
	const uint32_t key = slot_of(counted);
	struct xdp_rule_count *counts;
	int n, ret;

	*packets = *bytes = 0;
	if (!xdp_port(group->port)->program.has_rules || !counted->driver_data)
		return -EOPNOTSUPP; /* the plain program takes everything, and counts nothing */
	counts = all_counts(&n);
	if (!counts)
		return -ENOMEM;
	ret = bpf_map_lookup_elem(xdp_port(group->port)->program.counts, &key, counts) ? -errno : 0;
	for (int i = 0; i < n && !ret; i++) {
		*packets += counts[i].packets;
		*bytes += counts[i].bytes;
	}
	free(counts);
	return ret;
}
