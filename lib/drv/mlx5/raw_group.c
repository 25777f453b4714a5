/* raw_group.c - an rx group on mlx5: indirection tables, and a receive-only QP for each kind of packet
 * that is hashed in its own way */

#include "drv/mlx5/raw.h"

/* Entries of a table that does not divide by its queues: their shares then differ by one in so many. */
enum { SPREAD = 128 };

#define HASH_IPV4 (IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4)
#define HASH_IPV6 (IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6)
#define HASH_UDP  (IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP)
#define HASH_TCP  (IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP)

static const struct {
	uint32_t asked; /* enum vbn_hash */
	uint64_t fields;
} classes[N_CLASSES] = {
	[CLASS_IPV4] = {VBN_HASH_IPV4, HASH_IPV4},
	[CLASS_IPV6] = {VBN_HASH_IPV6, HASH_IPV6},
	[CLASS_UDP4] = {VBN_HASH_UDP4, HASH_IPV4 | HASH_UDP},
	[CLASS_TCP4] = {VBN_HASH_TCP4, HASH_IPV4 | HASH_TCP},
	[CLASS_UDP6] = {VBN_HASH_UDP6, HASH_IPV6 | HASH_UDP},
	[CLASS_TCP6] = {VBN_HASH_TCP6, HASH_IPV6 | HASH_TCP},
};

/* The same 16 bits again and again: addresses and ports may change places without a change of the hash
 * (S. Woo and K. Park, "Scalable TCP Session Monitoring with Symmetric Receive-side Scaling", 2012). It
 * spreads as well as others, so it is also the one that is taken where none is asked for. */
static bool is_symmetric(const uint8_t *key)
{
	for (uint32_t i = 2; i < VBN_RX_KEY_SIZE; i++)
		if (key[i] != key[i - 2])
			return false;
	return true;
}

int vbn__raw_group_create(struct vbn_rx_group *group)
{
	const uint32_t all = VBN_HASH_IPV4 | VBN_HASH_IPV6 | VBN_HASH_UDP4 | VBN_HASH_TCP4 |
		VBN_HASH_UDP6 | VBN_HASH_TCP6;

	if (!group->conf.hash)
		group->conf.hash = all;
	if (!group->conf.key) {
		for (uint32_t i = 0; i < VBN_RX_KEY_SIZE; i += 2)
			group->key[i] = 0x6d, group->key[i + 1] = 0x5a;
		group->conf.key = group->key;
	} else if (group->conf.symmetric == VBN_ON && !is_symmetric(group->key)) {
		return fail(ENOTSUP,
			"rx group cannot be created: symmetric is on, and its key does not repeat the same 16 bits, so that it is not: leave key unset");
	}
	return 0;
}

/* ---- build ---- */

static struct ibv_rwq_ind_table *make_table(struct raw_group *raw, uint32_t n_queues)
{
	struct rdma_port *port = rdma_port(raw->group.port);
	const uint32_t size = is_pow2(n_queues) ? n_queues : SPREAD;
	struct ibv_wq *wqs[SPREAD];
	struct ibv_rwq_ind_table_init_attr attr = {
		.log_ind_tbl_size = log2_floor(size), .ind_tbl = wqs};

	for (uint32_t i = 0; i < size; i++)
		wqs[i] = raw_queue(raw->group.queues[i % n_queues])->wq;
	return ibv_create_rwq_ind_table(port->context, &attr);
}

static struct ibv_qp *make_qp(
	struct raw_group *raw, struct ibv_rwq_ind_table *table, uint64_t fields)
{
	struct rdma_port *port = rdma_port(raw->group.port);
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = port->pd,
		.rwq_ind_tbl = table,
		.rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
			.rx_hash_key_len = VBN_RX_KEY_SIZE,
			.rx_hash_key = raw->group.key,
			.rx_hash_fields_mask = fields},
	};

	return ibv_create_qp_ex(port->context, &attr);
}

static int refused(const struct vbn_rx_group *group, const char *what)
{
	const int error = errno ? errno : EIO;

	return fail(error,
		"rx group of port %s cannot be built: the device refused %s: %s; take fewer queues or hashes, and see that the process has CAP_NET_RAW",
		group->port->info.name, what, strerror(error));
}

static int make(struct raw_group *raw)
{
	const uint32_t n = raw->group.conf.n_queues;

	raw->first = make_table(raw, 1);
	if (!raw->first)
		return refused(&raw->group, "an indirection table");
	raw->qps[CLASS_OTHER] = make_qp(raw, raw->first, 0);
	if (!raw->qps[CLASS_OTHER])
		return refused(&raw->group, "a receive-only queue pair");
	if (n == 1)
		return 0;
	raw->table = make_table(raw, n);
	if (!raw->table)
		return refused(&raw->group, "an indirection table");
	for (int i = CLASS_OTHER + 1; i < N_CLASSES; i++) {
		if (!(raw->group.conf.hash & classes[i].asked))
			continue;
		raw->qps[i] = make_qp(raw, raw->table, classes[i].fields);
		if (!raw->qps[i])
			return refused(&raw->group, "a queue pair with a hash");
	}
	return 0;
}

/* Accepts a group that was half built. */
void vbn__raw_group_unbuild(struct vbn_rx_group *group)
{
	struct raw_group *raw = raw_group(group);

	for (int i = 0; i < N_CLASSES; i++) {
		if (raw->qps[i])
			ibv_destroy_qp(raw->qps[i]);
		raw->qps[i] = NULL;
	}
	if (raw->table)
		ibv_destroy_rwq_ind_table(raw->table);
	if (raw->first)
		ibv_destroy_rwq_ind_table(raw->first);
	raw->table = raw->first = NULL;
}

int vbn__raw_group_build(struct vbn_rx_group *group)
{
	const int ret = make(raw_group(group));

	if (ret)
		vbn__raw_group_unbuild(group);
	return ret;
}

void vbn__raw_group_modes(const struct vbn_rx_group *group, struct mode_report *report)
{
	const struct vbn_rx_group_conf *conf = &group->conf;
	const bool symmetric = is_symmetric(group->key);

	vbn__mode_add(report, "hash", "auto", conf->n_queues == 1 ? "none" : "toeplitz", "%s",
		conf->n_queues == 1 ? "there is one queue"
				    : "of addresses, and of ports where they are asked for");
	vbn__mode_add(report, "symmetric", vbn__mode_switch(conf->symmetric),
		symmetric ? "on" : "off", "%s",
		symmetric ? "the key repeats 16 bits: both directions of a flow meet"
			  : "the key is the caller's");
}
