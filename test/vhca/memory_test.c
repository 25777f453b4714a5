/* memory_test.c - memory that the program takes away while it is registered: an error, never a
 * crash; and the program's own handlers of such faults, which work as before */

#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 4, BYTES = PAGES * 4096 };

struct region {
	uint8_t *memory;
	struct ibv_mr *mr;
};

static void region_open(struct region *region, struct pair *pair)
{
	region->memory =
		mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(region->memory != MAP_FAILED);
	region->mr = ibv_reg_mr(pair->pd, region->memory, BYTES,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC);
	assert_non_null(region->mr);
}

static void region_close(struct region *region)
{
	assert_int_equal(ibv_dereg_mr(region->mr), 0);
	munmap(region->memory, BYTES);
}

/* Three of its pages stay, so that nothing else moves in. */
static void page_unmap(struct region *region, int page)
{
	assert_int_equal(munmap(region->memory + (size_t)page * 4096, 4096), 0);
}

static void page_protect(struct region *region, int page, int protection)
{
	assert_int_equal(mprotect(region->memory + (size_t)page * 4096, 4096, protection), 0);
}

static struct ibv_sge sge_of(const struct region *region, size_t offset, uint32_t length)
{
	return (struct ibv_sge){.addr = (uintptr_t)region->memory + offset,
		.length = length,
		.lkey = region->mr->lkey};
}

static void receive_into(
	struct side *side, const struct region *region, size_t offset, uint32_t length)
{
	struct ibv_sge sge = sge_of(region, offset, length);
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(side->qp, &wr, &bad), 0);
}

static void send_from(struct side *side, enum ibv_wr_opcode opcode, const struct region *region,
	size_t offset, uint32_t length, const struct region *target, size_t target_offset)
{
	struct ibv_sge sge = sge_of(region, offset, length);
	struct ibv_send_wr wr = {.wr_id = 2,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = opcode,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	if (target) {
		wr.wr.rdma.remote_addr = (uintptr_t)target->memory + target_offset;
		wr.wr.rdma.rkey = target->mr->rkey;
	}
	assert_int_equal(ibv_post_send(side->qp, &wr, &bad), 0);
}

static const struct pair_conf all_rights = {.access = IBV_ACCESS_LOCAL_WRITE |
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};

/* ---- what is there may not be used ---- */

static void expect_refused(struct pair *pair, int protection, unsigned int access)
{
	struct region region = {
		.memory = mmap(NULL, BYTES, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};

	assert_true(region.memory != MAP_FAILED);
	errno = 0;
	region.mr = ibv_reg_mr(pair->pd, region.memory, BYTES, access);
	assert_null(region.mr);
	assert_int_equal(errno, EFAULT);
	munmap(region.memory, BYTES);
}

/* Read-only memory was registered for writing, and memory without any right for reading: a program
 * ran here that a kernel refuses. */
static void test_without_the_right(void **state)
{
	const unsigned int writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct region region;
	struct pair pair;

	(void)state;
	if (madvise(NULL, 0, 22 /* MADV_POPULATE_READ: Linux 5.14 */))
		skip();
	pair_open(&pair, &all_rights);
	expect_refused(&pair, PROT_READ, writes);
	expect_refused(&pair, PROT_NONE, writes);
	expect_refused(&pair, PROT_NONE, IBV_ACCESS_REMOTE_READ);
	region.memory = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	region.mr = ibv_reg_mr(pair.pd, region.memory, BYTES, IBV_ACCESS_REMOTE_READ);
	assert_non_null(region.mr);
	region_close(&region);
	pair_close(&pair);
}

/* ---- data ---- */

static void test_what_is_sent_is_gone(void **state)
{
	struct region local, remote;
	struct pair pair;

	(void)state;
	pair_open(&pair, &all_rights);
	region_open(&local, &pair);
	region_open(&remote, &pair);
	page_unmap(&local, 1);
	receive_into(&pair.b, &remote, 0, BYTES);
	send_from(&pair.a, IBV_WR_SEND, &local, 4096 - 100, 200, NULL, 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(qp_state(pair.a.qp), IBV_QPS_ERR);
	expect_quiet(pair.b.recv_cq); /* the peer has heard nothing */
	region_close(&local);
	region_close(&remote);
	pair_close(&pair);
}

static void receive_where(void (*take)(struct region *region, int page))
{
	struct region local, remote;
	struct pair pair;

	pair_open(&pair, &all_rights);
	region_open(&local, &pair);
	region_open(&remote, &pair);
	take(&remote, 2);
	receive_into(&pair.b, &remote, 8192 - 8, 64);
	send_from(&pair.a, IBV_WR_SEND, &local, 0, 64, NULL, 0);
	expect_wc(pair.b.recv_cq, 1, IBV_WC_LOC_PROT_ERR);
	expect_wc(pair.a.send_cq, 2, IBV_WC_REM_OP_ERR);
	region_close(&local);
	region_close(&remote);
	pair_close(&pair);
}

static void take_away_reading(struct region *region, int page)
{
	page_protect(region, page, PROT_NONE);
}

static void take_away_writing(struct region *region, int page)
{
	page_protect(region, page, PROT_READ);
}

static void test_where_it_is_received_is_gone(void **state)
{
	(void)state;
	setenv("MLX5_SCATTER_TO_CQE", "0", 1);
	receive_where(page_unmap);
	receive_where(take_away_reading);
	receive_where(take_away_writing);
}

static void test_where_it_is_written_is_gone(void **state)
{
	struct ibv_async_event event;
	struct region local, remote;
	struct pair pair;

	(void)state;
	pair_open(&pair, &all_rights);
	region_open(&local, &pair);
	region_open(&remote, &pair);
	page_unmap(&remote, 0);
	send_from(&pair.a, IBV_WR_RDMA_WRITE, &local, 0, 64, &remote, 4096);
	expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
	send_from(&pair.a, IBV_WR_RDMA_WRITE, &local, 0, 64, &remote, 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_get_async_event(pair.context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
	assert_ptr_equal(event.element.qp, pair.b.qp);
	ibv_ack_async_event(&event);
	region_close(&local);
	region_close(&remote);
	pair_close(&pair);
}

static void test_what_is_read_is_gone(void **state)
{
	struct region local, remote;
	struct pair pair;

	(void)state;
	pair_open(&pair, &all_rights);
	region_open(&local, &pair);
	region_open(&remote, &pair);
	page_unmap(&remote, 3);
	send_from(&pair.a, IBV_WR_RDMA_READ, &local, 0, 64, &remote, BYTES - 64);
	expect_wc(pair.a.send_cq, 2, IBV_WC_REM_ACCESS_ERR);
	region_close(&local);
	region_close(&remote);
	pair_close(&pair);
}

static void test_where_a_read_goes_is_gone(void **state)
{
	struct region local, remote;
	struct pair pair;

	(void)state;
	pair_open(&pair, &all_rights);
	region_open(&local, &pair);
	region_open(&remote, &pair);
	page_unmap(&local, 1);
	send_from(&pair.a, IBV_WR_RDMA_READ, &local, 4096, 2048, &remote, 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_LOC_PROT_ERR);
	region_close(&local);
	region_close(&remote);
	pair_close(&pair);
}

/* SIGBUS, not SIGSEGV. */
/* A sparse mapping of much more than there is: it was brought in whole once, until memory ran out. */
static void test_a_sparse_mapping(void **state)
{
	const size_t size = (size_t)64 << 30;
	struct pair pair;
	struct region region, remote;
	struct rusage usage;

	(void)state;
	pair_open(&pair, &all_rights);
	region_open(&remote, &pair);
	region.memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(region.memory != MAP_FAILED);
	region.mr = ibv_reg_mr(pair.pd, region.memory, size, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(region.mr);
	assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
	assert_true(usage.ru_maxrss < 1 << 20); /* KiB */
	send_from(&pair.a, IBV_WR_RDMA_WRITE, &region, size - 4096, 4096, &remote, 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
	assert_int_equal(ibv_dereg_mr(region.mr), 0);
	munmap(region.memory, size);
	region_close(&remote);
	pair_close(&pair);
}

static void test_a_file_is_cut(void **state)
{
	struct region local, remote;
	struct pair pair;
	FILE *file = tmpfile();

	(void)state;
	assert_non_null(file);
	assert_int_equal(ftruncate(fileno(file), BYTES), 0);
	pair_open(&pair, &all_rights);
	region_open(&remote, &pair);
	local.memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
	assert_true(local.memory != MAP_FAILED);
	local.mr = ibv_reg_mr(pair.pd, local.memory, BYTES, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(local.mr);
	assert_int_equal(ftruncate(fileno(file), 4096), 0);
	send_from(&pair.a, IBV_WR_RDMA_WRITE, &local, 0, 4096, &remote, 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
	send_from(&pair.a, IBV_WR_RDMA_WRITE, &local, 4096, 4096, &remote, 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_LOC_PROT_ERR);
	fclose(file);
	region_close(&local);
	region_close(&remote);
	pair_close(&pair);
}

#if defined(__SANITIZE_ADDRESS__)
#define FREED_IS_FATAL 1 /* the sanitizer looks into all that is copied */
#elif defined(__has_feature)
#define FREED_IS_FATAL __has_feature(address_sanitizer)
#else
#define FREED_IS_FATAL 0
#endif

/* A block so large is the heap's own mapping, which free() gives back at once. */
static void test_the_heap_shrinks(void **state)
{
	struct region remote;
	struct pair pair;
	size_t size = 64 << 20;
	uint8_t *block = FREED_IS_FATAL ? NULL : malloc(size);
	volatile uintptr_t address = (uintptr_t)block; /* the compiler knows what free() means */
	struct ibv_mr *mr;
	struct region freed;

	(void)state;
	if (FREED_IS_FATAL)
		skip();
	assert_non_null(block);
	pair_open(&pair, &all_rights);
	region_open(&remote, &pair);
	mr = ibv_reg_mr(pair.pd, block, size, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	free(block);
	freed = (struct region){.memory = (uint8_t *)address, .mr = mr};
	send_from(&pair.a, IBV_WR_RDMA_WRITE, &freed, size / 2, 4096, &remote, 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	region_close(&remote);
	pair_close(&pair);
}

/* ---- rings ---- */

static void expect_fatal(struct pair *pair, enum ibv_event_type type)
{
	struct pollfd fd = {.fd = pair->context->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	if (poll(&fd, 1, 5000) != 1)
		fail_msg("no event \"%s\" came", ibv_event_type_str(type));
	assert_int_equal(ibv_get_async_event(pair->context, &event), 0);
	assert_string_equal(ibv_event_type_str(event.event_type), ibv_event_type_str(type));
	ibv_ack_async_event(&event);
}

/* In a child, for libmlx5 does not expect it either. */
static void in_a_child(void (*run)(void))
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (!child) {
		alarm(30);
		run();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void lose_a_cq(void)
{
	struct pair_conf conf = {.cq_depth = 4096};
	struct mlx5dv_obj object;
	struct mlx5dv_cq cq;
	struct pair pair;

	pair_open(&pair, &conf);
	object.cq.in = pair.a.send_cq;
	object.cq.out = &cq;
	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ), 0);
	assert_int_equal(mprotect(cq.buf, (size_t)cq.cqe_cnt * cq.cqe_size, PROT_NONE), 0);
	post_recv(&pair.b, 1, 0, 64);
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
	expect_fatal(&pair, IBV_EVENT_CQ_ERR);
	expect_wc(pair.b.recv_cq, 1, IBV_WC_SUCCESS);
}

static void lose_a_send_queue(void)
{
	struct pair_conf conf = {.max_wr = 1024};
	struct mlx5dv_obj object;
	struct mlx5dv_qp qp = {.comp_mask = 0};
	struct pair pair, other;

	pair_open(&pair, &conf);
	pair_open(&other, &conf);
	object.qp.in = pair.a.qp;
	object.qp.out = &qp;
	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
	expect_quiet(pair.a.send_cq); /* it waits for a receive, and is fetched again then */
	assert_int_equal(
		mprotect((void *)(((uintptr_t)qp.sq.buf + 4095) & ~4095ul), 32768, PROT_NONE), 0);
	assert_int_equal(mprotect((void *)((uintptr_t)qp.sq.buf & ~4095ul), 4096, PROT_NONE), 0);
	post_recv(&pair.b, 1, 0, 64);
	expect_fatal(&pair, IBV_EVENT_QP_FATAL);
	assert_int_equal(qp_state(pair.a.qp), IBV_QPS_ERR);
	post_recv(&other.b, 1, 0, 64); /* others go on */
	post_send(&other.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
	expect_wc(other.a.send_cq, 2, IBV_WC_SUCCESS);
}

static void test_rings_are_gone(void **state)
{
	(void)state;
	in_a_child(lose_a_cq);
	in_a_child(lose_a_send_queue);
}

/* ---- the program's own faults ---- */

static sigjmp_buf own_jump;
static volatile int own_faults;

static void on_own_fault(int signo)
{
	(void)signo;
	own_faults++;
	siglongjmp(own_jump, 1);
}

static void on_own_fault_info(int signo, siginfo_t *info, void *context)
{
	(void)context;
	assert_non_null(info->si_addr);
	on_own_fault(signo);
}

static void fault_once(void)
{
	uint8_t *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int before = own_faults;

	if (!sigsetjmp(own_jump, 1))
		*(volatile uint8_t *)nowhere = 1;
	assert_int_equal(own_faults, before + 1);
	munmap(nowhere, 4096);
}

/* Whichever way it is installed, and while a device is open: it is called for the program's faults
 * and not for the device's. */
static void test_the_programs_handlers_work(void **state)
{
	struct sigaction info = {.sa_sigaction = on_own_fault_info, .sa_flags = SA_SIGINFO}, was,
			 now;
	struct region local, remote;
	struct pair pair;

	(void)state;
	assert_int_equal(sigaction(SIGSEGV, &info, &was), 0);
	pair_open(&pair, &all_rights);
	region_open(&local, &pair);
	region_open(&remote, &pair);
	fault_once();
	assert_int_equal(sigaction(SIGSEGV, NULL, &now), 0);
	assert_true(now.sa_flags & SA_SIGINFO);
	assert_ptr_equal(now.sa_sigaction, on_own_fault_info);
	assert_true(signal(SIGSEGV, on_own_fault) == (sighandler_t)(void *)on_own_fault_info);
	fault_once();
	assert_true(signal(SIGSEGV, on_own_fault) == on_own_fault);
	page_unmap(&local, 0);
	send_from(&pair.a, IBV_WR_RDMA_WRITE, &local, 0, 64, &remote, 0);
	expect_wc(pair.a.send_cq, 2, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(own_faults, 2);
	assert_int_equal(sigaction(SIGSEGV, &was, NULL), 0);
	region_close(&local);
	region_close(&remote);
	pair_close(&pair);
}

static void die_of_a_fault(void)
{
	struct pair pair;
	struct pair_conf conf = {.device = 0};

	pair_open(&pair, &conf);
	signal(SIGSEGV, SIG_DFL);
	*(volatile int *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) = 1;
}

static void die_of_a_signal(void)
{
	struct pair pair;
	struct pair_conf conf = {.device = 0};

	pair_open(&pair, &conf);
	signal(SIGBUS, SIG_IGN);
	raise(SIGBUS);
	signal(SIGBUS, SIG_DFL);
	raise(SIGBUS);
}

static void expect_death(void (*run)(void), int signo)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (!child) {
		alarm(30);
		run();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), signo);
}

static void test_without_handlers_faults_kill(void **state)
{
	(void)state;
	expect_death(die_of_a_fault, SIGSEGV);
	expect_death(die_of_a_signal, SIGBUS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* these fork, so they come before a device is opened here */
		cmocka_unit_test(test_rings_are_gone),
		cmocka_unit_test(test_without_handlers_faults_kill),
		cmocka_unit_test(test_without_the_right),
		cmocka_unit_test(test_what_is_sent_is_gone),
		cmocka_unit_test(test_where_it_is_received_is_gone),
		cmocka_unit_test(test_where_it_is_written_is_gone),
		cmocka_unit_test(test_what_is_read_is_gone),
		cmocka_unit_test(test_where_a_read_goes_is_gone),
		cmocka_unit_test(test_a_sparse_mapping),
		cmocka_unit_test(test_a_file_is_cut),
		cmocka_unit_test(test_the_heap_shrinks),
		cmocka_unit_test(test_the_programs_handlers_work),
	};

	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
