/* conf.c - a queue's conf: each field against its range, defaults filled in, pools against rings */

#include "port/conf.h"

static int out_of_range(
	const char *object, const char *field, uint64_t value, uint64_t low, uint64_t high)
{
	return fail(EINVAL, "%s cannot be created: %s is %llu and must be %llu to %llu", object,
		field, (unsigned long long)value, (unsigned long long)low,
		(unsigned long long)high);
}

static int check_range(
	const char *object, const char *field, uint64_t value, uint64_t low, uint64_t high)
{
	return value < low || value > high ? out_of_range(object, field, value, low, high) : 0;
}

static int check_depth(
	const char *object, const char *field, uint32_t *depth, uint32_t fallback, uint32_t high)
{
	if (!*depth)
		*depth = min(fallback, high);
	if (!is_pow2(*depth))
		return fail(EINVAL,
			"%s cannot be created: %s is %u and must be a power of two: take %llu",
			object, field, *depth,
			(unsigned long long)min(pow2_ceil(*depth), (uint64_t)high));
	return check_range(object, field, *depth, 1, high);
}

static int check_number(const char *field, struct vbn_num *number, uint32_t fallback, uint32_t high)
{
	if (!number->set)
		number->value = fallback; /* `set` goes on telling that it was a default */
	return check_range("queue", field, number->value, 0, high);
}

/* What is sent from a pool, or received into it, goes home to it with no detour. */
static int claim(const char *object, struct vbn_pool *pool)
{
	if (vbn__pool_claim(pool))
		return fail(EINVAL,
			"%s cannot be created: pool \"%s\" is another worker's: create one on this worker's thread",
			object, pool->name);
	return 0;
}

/* A raw queue that transmits only has no pool for receives; nobody need ask for it. */
static int check_pool(struct vbn_queue_conf *conf)
{
	if (conf->transport == VBN_RAW && !conf->rx_group) {
		conf->rx_pool = conf->tx_pool;
		return conf->tx_pool
			? 0
			: fail(EINVAL,
				  "queue cannot be created: it has neither an rx_group nor a tx_pool: set one, or both");
	}
	if (!conf->rx_pool)
		return fail(
			EINVAL, "queue cannot be created: its receives have no pool: set rx_pool");
	if (conf->srq)
		return 0; /* its receives are posted */
	if (conf->rx_pool->n_bufs < conf->rx_depth)
		return fail(ENOMEM,
			"queue cannot be created: pool \"%s\" has %u bufs and the receive ring takes %u: make the pool larger or rx_depth smaller",
			conf->rx_pool->name, conf->rx_pool->n_bufs, conf->rx_depth);
	if (conf->rx_pool->n_free < conf->rx_depth)
		return fail(ENOMEM,
			"queue cannot be created: pool \"%s\" has %u bufs left of %u and the receive ring takes %u: make the pool larger or rx_depth smaller",
			conf->rx_pool->name, conf->rx_pool->n_free, conf->rx_pool->n_bufs,
			conf->rx_depth);
	return 0;
}

/* Rings and what is in a WQE. */
static int check_rings(const struct vbn_port_info *port, struct vbn_queue_conf *conf)
{
	int ret = check_depth("queue", "tx_depth", &conf->tx_depth, 1024, port->max_depth);

	if (!ret)
		ret = check_depth("queue", "rx_depth", &conf->rx_depth, 1024, port->max_depth);
	if (!ret)
		ret = check_depth(
			"queue", "cq_mod", &conf->cq_mod, min(64u, conf->tx_depth), conf->tx_depth);
	if (!ret)
		ret = check_number("inline_size", &conf->inline_size, 0, QUEUE_MAX_INLINE);
	if (!ret && !conf->max_gather)
		conf->max_gather = min(4u, port->max_gather);
	if (!ret)
		ret = check_range("queue", "max_gather", conf->max_gather, 1, port->max_gather);
	if (!ret && conf->cqe_size && conf->cqe_size != 64 && conf->cqe_size != 128)
		ret = fail(EINVAL, "queue cannot be created: cqe_size is %u and must be 64 or 128",
			conf->cqe_size);
	return ret;
}

static int check_switches(const struct vbn_port_info *port, const struct vbn_queue_conf *conf)
{
	const struct {
		const char *field;
		enum vbn_switch value;
	} switches[] = {{"shared_cq", conf->shared_cq}, {"doorbell_burst", conf->doorbell_burst},
		{"blueflame", conf->blueflame}, {"own_uar", conf->own_uar},
		{"scatter_to_cqe", conf->scatter_to_cqe},
		{"cqe_compression", conf->cqe_compression}, {"prefetch", conf->prefetch},
		{"striding", conf->striding}, {"multi_packet", conf->multi_packet},
		{"checksum_offload", conf->checksum_offload}, {"vlan_strip", conf->vlan_strip},
		{"timestamps", conf->timestamps}, {"zero_copy", conf->zero_copy},
		{"by_reference", conf->by_reference}};
	int ret = 0;

	for (size_t i = 0; i < ARRAY_SIZE(switches) && !ret; i++)
		ret = check_range("queue", switches[i].field, switches[i].value, VBN_AUTO, VBN_OFF);
	if (!ret && conf->by_reference == VBN_ON && port->link != VBN_LINK_HOST)
		ret = fail(ENOTSUP,
			"queue cannot be created: by_reference is on, and port %s is no shared memory of this host: leave it to the library",
			port->name);
	return ret;
}

static bool has_word(const char *words, const char *word)
{
	const size_t len = strlen(word);

	for (const char *at = words; (at = strstr(at, word)); at += len)
		if ((at == words || at[-1] == ' ') && (!at[len] || at[len] == ' '))
			return true;
	return false;
}

bool vbn__port_has_packets(const struct vbn_port_info *port)
{
	return has_word(port->capabilities, "packet");
}

/* Raw Ethernet and RDMA are not had everywhere. */
static int check_kind(const struct vbn_port_info *port, const struct vbn_queue_conf *conf)
{
	const bool raw = conf->transport == VBN_RAW, packets = vbn__port_has_packets(port);

	if (raw && !packets)
		return fail(EOPNOTSUPP,
			"queue cannot be created: port %s has no raw Ethernet: take VBN_RC, VBN_UC or VBN_UD, or a tap:, xdp: or ConnectX port",
			port->name);
	if (!raw && packets && !has_word(port->capabilities, "rc"))
		return fail(EOPNOTSUPP,
			"queue cannot be created: port %s has raw Ethernet alone: take VBN_RAW, or an RDMA device's port",
			port->name);
	if (conf->rx_group && !raw)
		return fail(EINVAL,
			"queue cannot be created: it has an rx_group, and its transport is not VBN_RAW: take that, or no group");
	if (raw && (conf->srq || conf->shared_cq == VBN_ON || conf->remote_access))
		return fail(EINVAL,
			"queue cannot be created: it is raw Ethernet, which has no %s: leave it unset",
			conf->srq                     ? "srq"
				: conf->remote_access ? "remote_access"
						      : "shared_cq");
	return 0;
}

/* What the transport encodes. */
static int check_transport(const struct vbn_port_info *port, struct vbn_queue_conf *conf)
{
	const uint32_t reads = min(port->max_reads, 16u);
	int ret = check_range("queue", "transport", conf->transport, VBN_RC, VBN_RAW);

	if (!ret)
		ret = check_kind(port, conf);
	if (!ret)
		ret = check_number("max_reads", &conf->max_reads, reads, port->max_reads);
	if (!ret)
		ret = check_number("max_peer_reads", &conf->max_peer_reads, reads, port->max_reads);
	if (!ret)
		ret = check_number("retry_count", &conf->retry_count, 7, 7);
	if (!ret)
		ret = check_number("rnr_retry", &conf->rnr_retry, 7, 7);
	if (!ret)
		ret = check_number("timeout", &conf->timeout, 14, 31);
	if (!ret)
		ret = check_number("rnr_timer", &conf->rnr_timer, 1, 31);
	if (!ret)
		ret = check_number("qkey", &conf->qkey, 0x11111111, 0x7fffffff);
	if (!ret)
		ret = check_number("service_level", &conf->service_level, 0, 7);
	if (!ret)
		ret = check_number("traffic_class", &conf->traffic_class, 0, 255);
	if (!ret && !conf->hop_limit)
		conf->hop_limit = 64;
	if (!ret)
		ret = check_range("queue", "hop_limit", conf->hop_limit, 1, 255);
	return ret;
}

int vbn__queue_conf_check(const struct vbn_port_info *port, struct vbn_queue_conf *conf)
{
	int ret = check_rings(port, conf);

	if (!ret)
		ret = check_transport(port, conf);
	if (!ret)
		ret = check_switches(port, conf);
	if (!ret && conf->remote_access & ~(uint32_t)VBN_ACCESS_BITS)
		ret = fail(EINVAL,
			"queue cannot be created: remote_access %#x has bits that no enum vbn_access names",
			conf->remote_access);
	if (!ret)
		ret = check_pool(conf);
	if (!ret && !conf->tx_pool)
		conf->tx_pool = conf->rx_pool;
	if (!ret)
		ret = claim("queue", conf->rx_pool);
	if (!ret)
		ret = claim("queue", conf->tx_pool);
	return ret;
}

int vbn__srq_conf_check(const struct vbn_port_info *port, struct vbn_srq_conf *conf)
{
	int ret = check_depth("srq", "depth", &conf->depth, 4096, port->max_depth);

	if (!ret)
		ret = check_range("srq", "limit", conf->limit, 0, conf->depth);
	if (!ret && !conf->pool)
		ret = fail(EINVAL, "srq cannot be created: its receives have no pool: set pool");
	if (!ret)
		ret = claim("srq", conf->pool);
	if (!ret && conf->pool->n_free < conf->depth)
		ret = fail(ENOMEM,
			"srq cannot be created: pool \"%s\" has %u bufs left of %u and the ring takes %u: make the pool larger or depth smaller",
			conf->pool->name, conf->pool->n_free, conf->pool->n_bufs, conf->depth);
	return ret;
}
