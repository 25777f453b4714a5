/* trap_decode.c - what an x86-64 instruction stores: the moves that compilers, libmlx5 and memcpy
 * use, of 1 to 64 bytes
 *
 * Where the store goes is known from the fault. What is not in here is stepped over by the
 * processor itself (trap.c).
 */

#include "vhca/trap.h"

#if defined(__x86_64__)

#include <cpuid.h>

enum prefix { NONE, P66, PF3, PF2 };
enum map { MAP_1, MAP_0F, MAP_0F38 };

struct instruction {
	const uint8_t *at; /* the next byte */
	const uint8_t *start;
	enum prefix prefix;
	enum map map;
	uint8_t opcode;
	uint8_t rex_r, rex_w; /* 1 or 0 */
	uint8_t high_r;       /* EVEX: registers 16 and up */
	uint8_t vector;       /* bytes of a vector register: 16, 32, 64 */
	bool vex, rex;
	uint8_t modrm, rex_b, rex_x;
};

/* ---- registers ---- */

static const int gregs[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI,
	REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

static uint64_t general(const ucontext_t *machine, unsigned int n)
{
	return (uint64_t)machine->uc_mcontext.gregs[gregs[n]];
}

enum {
	FXSAVE_BYTES = 512,
	MAGIC_AT = 464,
	MAGIC = 0x46505853, /* the kernel's FP_XSTATE_MAGIC1 */
	YMM_HIGH = 2,       /* components of the saved state */
	ZMM_HIGH = 6,
	ZMM_16_UP = 7,
};

/* Where a component lies in the saved state; NULL: it is all zeroes. */
static const uint8_t *component(const ucontext_t *machine, unsigned int n)
{
	const uint8_t *state = (const void *)machine->uc_mcontext.fpregs;
	unsigned int size, offset, unused;
	uint32_t magic;
	uint64_t present;

	memcpy(&magic, state + MAGIC_AT, sizeof(magic));
	memcpy(&present, state + FXSAVE_BYTES, sizeof(present));
	if (magic != MAGIC || !(present >> n & 1))
		return NULL;
	__cpuid_count(0xd, n, size, offset, unused, unused);
	return size ? state + offset : NULL;
}

static void part(const uint8_t *from, size_t at, uint8_t *to, size_t size)
{
	if (from)
		memcpy(to, from + at, size);
	else
		memset(to, 0, size);
}

static void vector(const ucontext_t *machine, unsigned int n, uint32_t size, uint8_t *bytes)
{
	uint8_t all[VHCA_MAX_STORE];

	if (n < 16) {
		memcpy(all, &machine->uc_mcontext.fpregs->_xmm[n], 16);
		part(component(machine, YMM_HIGH), n * 16ul, all + 16, 16);
		part(component(machine, ZMM_HIGH), n * 32ul, all + 32, 32);
	} else {
		part(component(machine, ZMM_16_UP), (n - 16) * 64ul, all, 64);
	}
	memcpy(bytes, all, size);
}

/* ---- prefixes ---- */

static enum map map_of(unsigned int number)
{
	return number == 1 ? MAP_0F : number == 2 ? MAP_0F38 : MAP_1;
}

static const enum prefix prefixes_of_vex[] = {NONE, P66, PF3, PF2};

static bool vex2(struct instruction *in)
{
	uint8_t byte = *in->at++;

	in->vex = true;
	in->rex_r = !(byte & 0x80);
	in->vector = byte & 4 ? 32 : 16;
	in->prefix = prefixes_of_vex[byte & 3];
	in->map = MAP_0F;
	return true;
}

static bool vex3(struct instruction *in)
{
	uint8_t first = *in->at++, second = *in->at++;

	in->vex = true;
	in->rex_r = !(first & 0x80);
	in->rex_w = second >> 7;
	in->vector = second & 4 ? 32 : 16;
	in->prefix = prefixes_of_vex[second & 3];
	in->map = map_of(first & 0x1f);
	return in->map == MAP_0F;
}

static bool evex(struct instruction *in)
{
	uint8_t first = *in->at++, second = *in->at++, third = *in->at++;

	in->vex = true;
	in->rex_r = !(first & 0x80);
	in->high_r = !(first & 0x10);
	in->rex_w = second >> 7;
	in->prefix = prefixes_of_vex[second & 3];
	in->map = map_of(first & 7);
	in->vector = (uint8_t)(16u << (third >> 5 & 3));
	return in->map == MAP_0F && !(third & 0x97) /* neither masked nor zeroing */ &&
		in->vector <= VHCA_MAX_STORE;
}

static void legacy(struct instruction *in)
{
	in->vector = 16;
	for (;; in->at++) {
		switch (*in->at) {
		case 0x66: in->prefix = in->prefix == NONE ? P66 : in->prefix; continue;
		case 0xf3: in->prefix = PF3; continue;
		case 0xf2: in->prefix = PF2; continue;
		case 0x3e: continue;
		}
		break;
	}
	if ((*in->at & 0xf0) == 0x40) {
		in->rex = true;
		in->rex_w = *in->at >> 3 & 1;
		in->rex_r = *in->at >> 2 & 1;
		in->rex_x = *in->at >> 1 & 1;
		in->rex_b = *in->at & 1;
		in->at++;
	}
	if (*in->at == 0x0f) {
		in->at++;
		in->map = MAP_0F;
		if (*in->at == 0x38) {
			in->at++;
			in->map = MAP_0F38;
		}
	}
}

/* Up to the opcode and the byte behind it that says register and address. */
static bool begin(struct instruction *in, const uint8_t *code)
{
	in->start = in->at = code;
	switch (*code) {
	case 0xc5:
		in->at++;
		vex2(in);
		break;
	case 0xc4:
		in->at++;
		if (!vex3(in))
			return false;
		break;
	case 0x62:
		in->at++;
		if (!evex(in))
			return false;
		break;
	default: legacy(in); break;
	}
	in->opcode = *in->at++;
	in->modrm = *in->at++;
	return true;
}

/* ---- the address ---- */

static int32_t displacement(struct instruction *in, uint8_t mod, bool always)
{
	int32_t value = 0;

	if (mod == 1) {
		value = (*in->at++ ^ 0x80) - 0x80;
	} else if (mod == 2 || always) {
		memcpy(&value, in->at, sizeof(value));
		in->at += sizeof(value);
	}
	return value;
}

/* Reads over it; its value is right for the instructions without an immediate operand behind it. */
static uint64_t address(struct instruction *in, const ucontext_t *machine)
{
	uint8_t mod = in->modrm >> 6, rm = in->modrm & 7, sib;
	uint64_t base = 0, index = 0;
	bool no_base;

	if (rm != 4) {
		no_base = mod == 0 && rm == 5; /* relative to the next instruction */
		base = (uint64_t)(int64_t)displacement(in, mod, no_base);
		return base +
			(no_base ? (uintptr_t)in->at
				 : general(machine, rm | (unsigned int)in->rex_b << 3));
	}
	sib = *in->at++;
	no_base = mod == 0 && (sib & 7) == 5;
	if ((sib >> 3 & 7) != 4 || in->rex_x)
		index = general(machine, (sib >> 3 & 7) | (unsigned int)in->rex_x << 3)
			<< (sib >> 6);
	if (!no_base)
		base = general(machine, (sib & 7) | (unsigned int)in->rex_b << 3);
	return base + index + (uint64_t)(int64_t)displacement(in, mod, no_base);
}

/* ---- the stores ---- */

static unsigned int reg_of(const struct instruction *in)
{
	return (in->modrm >> 3 & 7u) | (unsigned int)in->rex_r << 3 | (unsigned int)in->high_r << 4;
}

static uint32_t general_size(const struct instruction *in)
{
	return in->rex_w ? 8 : in->prefix == P66 ? 2 : 4;
}

static uint32_t store_general(
	const struct instruction *in, const ucontext_t *machine, uint32_t size, uint8_t *bytes)
{
	unsigned int n = reg_of(in);
	uint64_t value;

	if (size == 1 && !in->rex && n >= 4)
		value = general(machine, n - 4) >> 8; /* ah to bh */
	else
		value = general(machine, n);
	memcpy(bytes, &value, size);
	return size;
}

static uint32_t store_immediate(struct instruction *in, uint32_t size, uint8_t *bytes)
{
	uint32_t n = min(size, 4u);
	int32_t value = 0;
	int64_t wide;

	if (in->modrm >> 3 & 7)
		return 0;
	memcpy(&value, in->at, n);
	in->at += n;
	wide = value;
	memcpy(bytes, &wide, size);
	return size;
}

/* The register gets what was there, which reads as nothing. */
static uint32_t exchange(
	const struct instruction *in, ucontext_t *machine, uint32_t size, uint8_t *bytes)
{
	if (size < 4)
		return 0;
	store_general(in, machine, size, bytes);
	machine->uc_mcontext.gregs[gregs[reg_of(in)]] = 0;
	return size;
}

static uint32_t store_1(struct instruction *in, ucontext_t *machine, uint8_t *bytes)
{
	switch (in->opcode) {
	case 0x88: return store_general(in, machine, 1, bytes);
	case 0x89: return store_general(in, machine, general_size(in), bytes);
	case 0xc6: return store_immediate(in, 1, bytes);
	case 0xc7: return store_immediate(in, general_size(in), bytes);
	case 0x87: return exchange(in, machine, general_size(in), bytes);
	}
	return 0;
}

/* Bytes of a vector register that an opcode of map 0F stores; 0: none of them. */
static uint32_t vector_size(const struct instruction *in)
{
	switch (in->opcode) {
	case 0x11: return in->prefix == PF3 ? 4 : in->prefix == PF2 ? 8 : in->vector;
	case 0x13: return 8;
	case 0x29:
	case 0x2b: return in->vector;
	case 0x7e: return in->prefix == P66 ? (in->rex_w ? 8 : 4) : 0;
	case 0x7f: return in->prefix == P66 || in->prefix == PF3 || in->vex ? in->vector : 0;
	case 0xd6: return in->prefix == P66 ? 8 : 0;
	case 0xe7: return in->prefix == P66 ? in->vector : 0;
	}
	return 0;
}

static uint32_t store_0f(struct instruction *in, ucontext_t *machine, uint8_t *bytes)
{
	uint8_t both[16];
	uint32_t size;

	if (in->opcode == 0xc3 && in->prefix == NONE) /* movnti */
		return store_general(in, machine, general_size(in), bytes);
	if (in->opcode == 0x17) { /* the upper half */
		vector(machine, reg_of(in), sizeof(both), both);
		memcpy(bytes, both + 8, 8);
		return 8;
	}
	size = vector_size(in);
	if (size)
		vector(machine, reg_of(in), size, bytes);
	return size;
}

static uint32_t store_0f38(
	const struct instruction *in, const ucontext_t *machine, uint64_t from, uint8_t *bytes)
{
	if (in->opcode == 0xf9 && in->prefix == NONE) /* movdiri */
		return store_general(in, machine, in->rex_w ? 8 : 4, bytes);
	if (in->opcode != 0xf8 || in->prefix != P66)
		return 0;
	memcpy(bytes, (const void *)(uintptr_t)from,
		64); /* movdir64b: from there, to a register's */
	return 64;
}

uint32_t vhca_decode_store(ucontext_t *machine, uint8_t bytes[VHCA_MAX_STORE])
{
	const uint8_t *code = (const void *)(uintptr_t)machine->uc_mcontext.gregs[REG_RIP];
	struct instruction in = {.map = MAP_1};
	uint32_t size;
	uint64_t at;

	if (!begin(&in, code) || in.modrm >> 6 == 3)
		return 0;
	at = address(&in, machine);
	switch (in.map) {
	case MAP_1: size = store_1(&in, machine, bytes); break;
	case MAP_0F: size = store_0f(&in, machine, bytes); break;
	default: size = store_0f38(&in, machine, at, bytes); break;
	}
	if (size)
		machine->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)in.at;
	return size;
}

#else

uint32_t vhca_decode_store(ucontext_t *machine, uint8_t bytes[VHCA_MAX_STORE])
{
	(void)machine;
	(void)bytes;
	return 0;
}

#endif
