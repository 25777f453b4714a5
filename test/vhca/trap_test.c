/* trap_test.c - VHCA_TRAP: every store to a UAR page is looked at, whatever instruction does it,
 * and the program's own fault handlers go on working
 *
 * Each case runs in a process of its own.
 */

#include "child.h"
#include "ring.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

enum {
	FINE = 0,
	FLUSHED = MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
	NOTHING = 0x40,
	SKIPPED = 0x41, /* the processor has no such instruction */
	QUIET_MS = 5,
};

struct bench {
	struct pair pair;
	struct ring ring;
};

static void open_bench(struct bench *bench)
{
	struct pair_conf conf = {.no_scatter = true};

	setenv("VHCA_TRAP", "1", 1);
	pair_open(&bench->pair, &conf);
	ring_take(&bench->ring, &bench->pair.a);
	for (uint64_t i = 0; i < 8; i++)
		post_recv(&bench->pair.b, i, 0, 64);
}

static int outcome(const struct mlx5_err_cqe *cqe)
{
	if (!cqe)
		return NOTHING;
	return cqe->op_own >> 4 == MLX5_CQE_REQ ? FINE : cqe->syndrome;
}

/* Nothing comes of what was done wrong, or a flush; then it is done right. */
static int mended(struct bench *bench)
{
	struct mlx5_err_cqe *cqe = ring_poll(&bench->ring, QUIET_MS);

	if (cqe)
		return cqe->op_own >> 4 == MLX5_CQE_REQ ? CHILD_WRONG : outcome(cqe);
	ring_post(&bench->ring);
	return outcome(ring_wait(&bench->ring));
}

/* ---- the order of stores ---- */

/* The record follows at once: without the trap hardly ever noticed. */
static int record_first(void)
{
	struct bench bench;

	open_bench(&bench);
	ring_write(&bench.ring, &good_send);
	ring_bell(&bench.ring, ring_bell_value(&bench.ring));
	ring_record(&bench.ring, 1);
	return mended(&bench);
}

/* Where in the device's file a page is mapped from. */
static off_t offset_of(uintptr_t page)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end, offset;
	off_t found = -1;
	char line[512];

	while (maps && found < 0 && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && start <= page &&
			page < end)
			found = (off_t)(offset + (page - start));
	if (maps)
		fclose(maps);
	return found;
}

/* No command follows a new mapping: its first doorbell is heard, and then its stores are looked at. */
static int mapped_again(void)
{
	struct bench bench;
	uintptr_t reg, page;
	uint8_t *again;

	open_bench(&bench);
	reg = (uintptr_t)bench.ring.dv.bf.reg;
	page = reg & ~0xffful;
	again = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, bench.pair.context->cmd_fd,
		offset_of(page));
	if (again == MAP_FAILED)
		return CHILD_WRONG;
	bench.ring.dv.bf.reg = again + (reg - page);
	ring_write(&bench.ring, &good_send);
	ring_post(&bench.ring);
	if (outcome(ring_wait(&bench.ring)) != FINE)
		return CHILD_WRONG;
	ring_write(&bench.ring, &good_send);
	ring_bell(&bench.ring, ring_bell_value(&bench.ring));
	ring_record(&bench.ring, 2);
	return mended(&bench);
}

/* Two WQEs are published; the doorbell is the first one's. */
static int doorbell_of_an_earlier_wqe(void)
{
	struct bench bench;
	uint64_t value;

	open_bench(&bench);
	ring_write(&bench.ring, &good_send);
	value = ring_bell_value(&bench.ring);
	ring_write(&bench.ring, &good_send);
	ring_record(&bench.ring, 2);
	ring_bell(&bench.ring, value);
	return outcome(ring_wait(&bench.ring));
}

/* Two queues share a register: the one that is not rung for stays where it is. */
static int forgotten_doorbell(void)
{
	struct pair_conf conf = {.no_scatter = true};
	struct bench bench;
	struct pair other;

	open_bench(&bench);
	conf.share = &bench.pair;
	pair_open(&other, &conf);
	ring_write(&bench.ring, &good_send);
	ring_record(&bench.ring, 1);
	for (uint64_t i = 0; i < 4; i++) {
		post_recv(&other.b, i, 0, 64);
		post_send(&other.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 8, NULL, 0);
		expect_wc(other.a.send_cq, i, IBV_WC_SUCCESS);
	}
	child_wait_until_told();
	return mended(&bench);
}

/* ---- BlueFlame, and elsewhere ---- */

static int copy_with_one_byte_changed(size_t at)
{
	struct bench bench;
	uint64_t words[8];

	open_bench(&bench);
	memcpy(words, ring_write(&bench.ring, &good_send), sizeof(words));
	((uint8_t *)words)[at] ^= 1;
	ring_record(&bench.ring, 1);
	for (size_t i = 0; i < N(words); i++)
		((volatile uint64_t *)bench.ring.dv.bf.reg)[i] = words[i];
	return outcome(ring_wait(&bench.ring));
}

static int blueflame_copy(void)
{
	return copy_with_one_byte_changed(20);
}

static int uar_offset(void)
{
	struct bench bench;

	open_bench(&bench);
	ring_write(&bench.ring, &good_send);
	*(volatile uint64_t *)((uintptr_t)bench.ring.dv.bf.reg & ~0xffful) = 1;
	return mended(&bench);
}

/* ---- instructions: each copies 64 bytes ---- */

typedef void copy_fn(volatile uint8_t *to, const uint8_t *from);

#if defined(__x86_64__)

#define COPY(name_, n_, step_, code_)                                               \
	static void name_(volatile uint8_t *to, const uint8_t *from)                \
	{                                                                           \
		for (size_t i = 0; i < (n_); i += (step_))                          \
			__asm__ volatile(code_                                      \
					 :                                          \
					 : "r"(to + i), "r"(from + i)               \
					 : "rax", "rcx", "xmm0", "xmm9", "memory"); \
	}

COPY(by_mov, 64, 8, "mov (%1), %%rcx; mov %%rcx, (%0)")
COPY(by_mov_r9, 64, 8, "push %%r9; mov (%1), %%r9; mov %%r9, (%0); pop %%r9")
COPY(by_movnti, 64, 8, "mov (%1), %%rax; movnti %%rax, (%0)")
COPY(by_xchg, 64, 8, "mov (%1), %%rax; xchg %%rax, (%0)")
COPY(by_movups, 64, 16, "movups (%1), %%xmm0; movups %%xmm0, (%0)")
COPY(by_movaps_9, 64, 16, "movups (%1), %%xmm9; movaps %%xmm9, (%0)")
COPY(by_movdqu, 64, 16, "movdqu (%1), %%xmm0; movdqu %%xmm0, (%0)")
COPY(by_movntdq, 64, 16, "movdqu (%1), %%xmm0; movntdq %%xmm0, (%0)")
COPY(by_movq, 64, 8, "movq (%1), %%xmm9; movq %%xmm9, (%0)")
COPY(by_movlps_movhps, 64, 16, "movups (%1), %%xmm0; movlps %%xmm0, (%0); movhps %%xmm0, 8(%0)")
COPY(by_index, 64, 8, "mov (%1), %%rcx; xor %%eax, %%eax; mov %%rcx, 0x0(%0,%%rax,8)")
COPY(by_vmovdqu, 64, 32, "vmovdqu (%1), %%ymm9; vmovdqu %%ymm9, (%0); vzeroupper")
COPY(by_vmovntdq, 64, 32, "vmovdqu (%1), %%ymm0; vmovntdq %%ymm0, (%0); vzeroupper")
COPY(by_vmovups_16, 64, 16, "vmovups (%1), %%xmm9; vmovups %%xmm9, (%0)")
COPY(by_zmm, 64, 64, "vmovdqu64 (%1), %%zmm9; vmovdqu64 %%zmm9, (%0); vzeroupper")
COPY(by_zmm_21, 64, 64, "vmovdqu64 (%1), %%zmm21; vmovntdq %%zmm21, (%0); vzeroupper")
COPY(by_movdiri, 64, 8, "mov (%1), %%rax; movdiri %%rax, (%0)")
COPY(by_movdir64b, 64, 64, "mov %0, %%rax; movdir64b (%1), %%rax")
/* Not known to the decoder: the processor steps over them. */
COPY(by_movq_mm, 64, 8, "movq (%1), %%mm0; movq %%mm0, (%0); emms")
COPY(by_or, 64, 8, "mov (%1), %%rax; lock or %%rax, (%0)")

static void by_rep_movs(volatile uint8_t *to, const uint8_t *from)
{
	size_t n = 8;

	__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

static bool has_nothing(void)
{
	return true;
}

static bool has_avx(void)
{
	return __builtin_cpu_supports("avx2");
}

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f");
}

static bool cpuid_7_ecx(int bit)
{
	unsigned int a = 7, b, c = 0, d;

	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return c >> bit & 1;
}

static bool has_movdiri(void)
{
	return cpuid_7_ecx(27);
}

static bool has_movdir64b(void)
{
	return cpuid_7_ecx(28);
}

static const struct {
	const char *name;
	copy_fn *copy;
	bool (*has)(void);
} copies[] = {
	{"mov", by_mov, has_nothing},
	{"mov, r9", by_mov_r9, has_nothing},
	{"movnti", by_movnti, has_nothing},
	{"xchg", by_xchg, has_nothing},
	{"movups", by_movups, has_nothing},
	{"movaps, xmm9", by_movaps_9, has_nothing},
	{"movdqu", by_movdqu, has_nothing},
	{"movntdq", by_movntdq, has_nothing},
	{"movq", by_movq, has_nothing},
	{"movlps, movhps", by_movlps_movhps, has_nothing},
	{"mov, indexed", by_index, has_nothing},
	{"vmovdqu, ymm", by_vmovdqu, has_avx},
	{"vmovntdq, ymm", by_vmovntdq, has_avx},
	{"vmovups, xmm", by_vmovups_16, has_avx},
	{"vmovdqu64, zmm", by_zmm, has_avx512},
	{"vmovntdq, zmm21", by_zmm_21, has_avx512},
	{"movdiri", by_movdiri, has_movdiri},
	{"movdir64b", by_movdir64b, has_movdir64b},
	{"movq, mm", by_movq_mm, has_nothing},
	{"lock or", by_or, has_nothing},
	{"rep movsq", by_rep_movs, has_nothing},
};

static size_t which;

/* Eight times round, so that what an instruction does to its operands would show. */
static int copied(void)
{
	uint8_t wqe[64] __attribute__((aligned(64)));
	struct bench bench;
	uint32_t half = 0;
	int found = FINE;

	open_bench(&bench);
	for (uint16_t i = 0; i < 8 && found == FINE; i++, half ^= bench.ring.dv.bf.size) {
		memcpy(wqe, ring_write(&bench.ring, &good_send), sizeof(wqe));
		ring_record(&bench.ring, bench.ring.head);
		copies[which].copy((uint8_t *)bench.ring.dv.bf.reg + half, wqe);
		found = outcome(ring_wait(&bench.ring));
		if (found == FINE)
			expect_wc(bench.pair.b.recv_cq, i, IBV_WC_SUCCESS);
	}
	return found;
}

static void every_instruction(void **state)
{
	char said[4096];

	(void)state;
	for (which = 0; which < N(copies); which++) {
		int found;

		print_message("%s%s\n", copies[which].name,
			copies[which].has() ? "" : ": not on this processor");
		if (!copies[which].has())
			continue;
		found = child_run(copied, "abort", said, sizeof(said));
		if (found != FINE || *said)
			fail_msg("%s: outcome 0x%x; \"%s\"", copies[which].name, found, said);
	}
}

#else

static void every_instruction(void **state)
{
	(void)state;
	skip();
}

#endif

/* Half a doorbell does not ring; both do, though a device might take the first for a whole one. */
static int doorbell_in_two_halves(void)
{
	volatile uint32_t *reg;
	struct bench bench;
	uint64_t value;

	open_bench(&bench);
	reg = bench.ring.dv.bf.reg;
	ring_write(&bench.ring, &good_send);
	value = ring_bell_value(&bench.ring);
	ring_record(&bench.ring, 1);
	reg[0] = (uint32_t)value;
	reg[1] = (uint32_t)(value >> 32);
	return outcome(ring_wait(&bench.ring));
}

/* ---- what must go on working ---- */

/* By libmlx5: lists, inline data by BlueFlame, an armed CQ. */
static int by_libmlx5(void)
{
	struct pair_conf conf = {.events = true, .max_inline = 128};
	struct pollfd ready = {.events = POLLIN};
	struct ibv_cq *cq;
	struct pair pair;
	void *context;

	setenv("VHCA_TRAP", "1", 1);
	pair_open(&pair, &conf);
	for (uint64_t i = 0; i < 300; i++) {
		unsigned int flags = IBV_SEND_SIGNALED | (i & 1 ? IBV_SEND_INLINE : 0);

		assert_int_equal(ibv_req_notify_cq(pair.b.recv_cq, 0), 0);
		post_recv(&pair.b, i, 0, 256);
		post_send(&pair.a, i, IBV_WR_SEND, flags, 0, 100, NULL, 0);
		expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
		ready.fd = pair.channel->fd;
		if (poll(&ready, 1, 5000) != 1)
			return NOTHING;
		assert_int_equal(ibv_get_cq_event(pair.channel, &cq, &context), 0);
		ibv_ack_cq_events(cq, 1);
		expect_wc(pair.b.recv_cq, i, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
	return FINE;
}

static sigjmp_buf back;
static volatile uintptr_t fault_at;

static void on_fault(int signo, siginfo_t *info, void *context)
{
	(void)signo;
	(void)context;
	fault_at = (uintptr_t)info->si_addr;
	siglongjmp(back, 1);
}

static bool fault_is_mine(volatile uint8_t *page)
{
	fault_at = 0;
	if (!sigsetjmp(back, 1))
		page[5] = 1;
	return fault_at == (uintptr_t)page + 5;
}

/* The program has a handler from before, and puts another in later; its read-only page is its own
 * affair. */
static int programs_own_handler(void)
{
	uint8_t *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, now;
	struct bench bench;

	sigaction(SIGSEGV, &action, NULL);
	open_bench(&bench);
	for (int i = 0; i < 3; i++) {
		if (!fault_is_mine(page))
			return CHILD_WRONG;
		ring_write(&bench.ring, &good_send);
		ring_post(&bench.ring);
		if (outcome(ring_wait(&bench.ring)) != FINE)
			return CHILD_WRONG;
		sigaction(SIGSEGV, &action, NULL);
	}
	sigaction(SIGSEGV, NULL, &now);
	return now.sa_sigaction == on_fault ? FINE : CHILD_WRONG;
}

/* A thread that has blocked all signals rings too. */
static void *post_with_all_blocked(void *argument)
{
	struct bench *bench = argument;
	sigset_t all, found;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	pthread_sigmask(SIG_SETMASK, NULL, &found);
	ring_post(&bench->ring);
	return sigismember(&found, SIGUSR1) ? NULL : argument;
}

static int all_signals_blocked(void)
{
	struct bench bench;
	pthread_t thread;
	void *wrong;

	open_bench(&bench);
	ring_write(&bench.ring, &good_send);
	assert_int_equal(pthread_create(&thread, NULL, post_with_all_blocked, &bench), 0);
	pthread_join(thread, &wrong);
	return wrong ? CHILD_WRONG : outcome(ring_wait(&bench.ring));
}

/* ---- the cases ---- */

static const struct trap_case {
	const char *name;
	int (*run)(void);
	const char *rule; /* NULL: nothing is to be said */
	int report, error;
} cases[] = {
	{"record_first", record_first, "record-first", FINE, FLUSHED},
	{"mapped_again", mapped_again, "record-first", FINE, FLUSHED},
	{"doorbell_of_an_earlier_wqe", doorbell_of_an_earlier_wqe, "doorbell-value", FINE, FLUSHED},
	{"doorbell_in_two_halves", doorbell_in_two_halves, "doorbell-value", FINE, FINE},
	{"forgotten_doorbell", forgotten_doorbell, "record-doorbell", FINE, FLUSHED},
	{"blueflame_copy", blueflame_copy, "blueflame-copy", FINE, -1},
	{"uar_offset", uar_offset, "uar-offset", FINE, FINE},
	{"by_libmlx5", by_libmlx5, NULL, FINE, FINE},
	{"programs_own_handler", programs_own_handler, NULL, FINE, FINE},
	{"all_signals_blocked", all_signals_blocked, NULL, FINE, FINE},
};

static void expect(const struct trap_case *one, const char *strict, int due)
{
	char said[4096], named[64];
	int found = child_run(one->run, strict, said, sizeof(said));

	if (due >= 0 && found != due)
		fail_msg("%s, %s: outcome 0x%x where 0x%x was due; \"%s\"", one->name, strict,
			found, due, said);
	snprintf(named, sizeof(named), "rule %s broken", one->rule ? one->rule : "");
	if (one->rule ? !strstr(said, named) : *said != 0)
		fail_msg("%s, %s: \"%s\" was said, and %s was due", one->name, strict, said,
			one->rule ? named : "nothing");
}

static void trapped(void **state)
{
	const struct trap_case *one = *state;

	expect(one, "report", one->report);
	expect(one, "error", one->error);
	expect(one, "abort", one->rule ? CHILD_STOPPED : one->report);
}

int main(void)
{
	struct CMUnitTest tests[N(cases) + 1] = {cmocka_unit_test(every_instruction)};

	for (size_t i = 0; i < N(cases); i++)
		tests[i + 1] = (struct CMUnitTest){.name = cases[i].name,
			.test_func = trapped,
			.initial_state = (void *)(uintptr_t)&cases[i]};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
