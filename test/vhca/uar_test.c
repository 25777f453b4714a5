/* uar_test.c - UARs: a thread domain's own register, several queues on one, and more queues than there
 * are registers */

#include "pair.h"

#include <pthread.h>
#include <stdlib.h>

enum { N_DOMAINS = 6, N_SHARING = 4, N_PAIRS = 40, ROUNDS = 200 };

/* As if it were another pair's, so that queues are made of a domain. */
struct domain {
	struct ibv_td *td;
	struct pair owner;
};

static void open_domain(struct domain *domain, const struct pair *pair)
{
	struct ibv_td_init_attr td_attr = {.comp_mask = 0};
	struct ibv_parent_domain_init_attr attr = {.pd = pair->pd};

	*domain = (struct domain){.td = ibv_alloc_td(pair->context, &td_attr)};
	assert_non_null(domain->td);
	attr.td = domain->td;
	domain->owner.context = pair->context;
	domain->owner.pd = ibv_alloc_parent_domain(pair->context, &attr);
	assert_non_null(domain->owner.pd);
}

static void close_domain(struct domain *domain)
{
	assert_int_equal(ibv_dealloc_pd(domain->owner.pd), 0);
	assert_int_equal(ibv_dealloc_td(domain->td), 0);
}

static void open_sharing(struct pair *pair, const struct pair *owner)
{
	struct pair_conf conf = {.share = owner};

	pair_open(pair, &conf);
}

/* The register where a QP rings, in this process's address space. */
static void *register_of(struct ibv_qp *qp)
{
	struct mlx5dv_qp inside = {.comp_mask = 0};
	struct mlx5dv_obj object = {.qp = {.in = qp, .out = &inside}};

	assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
	return inside.bf.reg;
}

static void one_message(struct pair *pair, uint64_t wr_id)
{
	post_recv(&pair->b, wr_id, 0, 64);
	post_send(&pair->a, wr_id, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0);
}

static void expect_message(struct pair *pair, uint64_t wr_id)
{
	expect_wc(pair->a.send_cq, wr_id, IBV_WC_SUCCESS);
	expect_wc(pair->b.recv_cq, wr_id, IBV_WC_SUCCESS);
}

/* ---- each domain has a register of its own ---- */

static void *ring_alone(void *arg)
{
	struct pair *pair = arg;

	for (uint64_t i = 0; i < ROUNDS; i++) {
		one_message(pair, i);
		expect_message(pair, i);
	}
	return NULL;
}

static void domains_ring_apart(void **state)
{
	static struct domain domains[N_DOMAINS];
	static struct pair pairs[N_DOMAINS];
	struct pair_conf conf = {0};
	pthread_t threads[N_DOMAINS];
	struct pair base;

	(void)state;
	pair_open(&base, &conf);
	for (int i = 0; i < N_DOMAINS; i++) {
		open_domain(&domains[i], &base);
		open_sharing(&pairs[i], &domains[i].owner);
		assert_ptr_equal(register_of(pairs[i].a.qp), register_of(pairs[i].b.qp));
		for (int k = 0; k < i; k++)
			assert_ptr_not_equal(
				register_of(pairs[i].a.qp), register_of(pairs[k].a.qp));
		assert_ptr_not_equal(register_of(pairs[i].a.qp), register_of(base.a.qp));
	}
	for (int i = 0; i < N_DOMAINS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ring_alone, &pairs[i]), 0);
	for (int i = 0; i < N_DOMAINS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < N_DOMAINS; i++) {
		pair_close(&pairs[i]);
		close_domain(&domains[i]);
	}
	pair_close(&base);
}

/* ---- several on one ---- */

/* Doorbells of several queues follow one another faster than the device looks: none is lost. */
static void queues_share_a_register(void **state)
{
	struct pair_conf conf = {0};
	struct pair base, pairs[N_SHARING];
	struct domain domain;

	(void)state;
	pair_open(&base, &conf);
	open_domain(&domain, &base);
	for (int i = 0; i < N_SHARING; i++) {
		open_sharing(&pairs[i], &domain.owner);
		assert_ptr_equal(register_of(pairs[i].a.qp), register_of(pairs[0].a.qp));
	}
	for (uint64_t round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < N_SHARING; i++)
			one_message(&pairs[i], round);
		for (int i = 0; i < N_SHARING; i++)
			expect_message(&pairs[i], round);
	}
	for (int i = 0; i < N_SHARING; i++)
		pair_close(&pairs[i]);
	close_domain(&domain);
	pair_close(&base);
}

/* More than the context's registers, so that libmlx5 shares them out; then they go, and others come. */
static void many_queues(void **state)
{
	static struct pair pairs[N_PAIRS];
	struct pair_conf conf = {0};
	struct pair base;

	(void)state;
	pair_open(&base, &conf);
	for (int again = 0; again < 2; again++) {
		for (int i = 0; i < N_PAIRS; i++)
			open_sharing(&pairs[i], &base);
		for (uint64_t round = 0; round < 3; round++) {
			for (int i = 0; i < N_PAIRS; i++)
				one_message(&pairs[i], round);
			for (int i = 0; i < N_PAIRS; i++)
				expect_message(&pairs[i], round);
		}
		for (int i = 0; i < N_PAIRS; i++)
			pair_close(&pairs[i]);
	}
	pair_close(&base);
}

/* A UAR that direct verbs ask for, of each kind: its register lies within its page. */
static void direct_verbs_have_uars(void **state)
{
	static const uint32_t kinds[] = {MLX5DV_UAR_ALLOC_TYPE_BF, MLX5DV_UAR_ALLOC_TYPE_NC};
	struct pair_conf conf = {0};
	struct pair base;

	(void)state;
	pair_open(&base, &conf);
	for (int i = 0; i < 2; i++) {
		struct mlx5dv_devx_uar *uar = mlx5dv_devx_alloc_uar(base.context, kinds[i]);

		assert_non_null(uar);
		assert_non_null(uar->reg_addr);
		assert_non_null(uar->base_addr);
		assert_true((uintptr_t)uar->reg_addr - (uintptr_t)uar->base_addr < 4096);
		mlx5dv_devx_free_uar(uar);
	}
	pair_close(&base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(domains_ring_apart),
		cmocka_unit_test(queues_share_a_register),
		cmocka_unit_test(many_queues),
		cmocka_unit_test(direct_verbs_have_uars),
	};

	return cmocka_run_group_tests_name("uar", tests, NULL, NULL);
}
