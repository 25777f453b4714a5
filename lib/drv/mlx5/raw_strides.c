/* raw_strides.c - a striding receive ring: its shape, its memory, its WQEs
 *
 * A WQE is a run of strides, and the device puts each packet into as many of them as it takes, one behind
 * the other. Packets are copied out into bufs, so a run is the device's again as soon as its last packet
 * has been taken, whatever becomes of the bufs: WQE i always has run i, and to post it again is to count.
 */
#include "drv/mlx5/raw.h"

/* Bytes. Four lines: most small packets take one stride, and one of 1,518 bytes six. */
enum { LOG2_STRIDE = STRIDE_LOG2, MOST_STRIDES = 6, LEAST_RUNS = 2, RUNS = 4 };

/* Of a run, the logarithm: a quarter of the ring, within what the device has; and room for two packets, so
 * that what stays empty at its end is less than half. */
static uint32_t run_strides(
	const struct vbn_queue_conf *conf, const struct raw_caps *caps, uint32_t longest)
{
	const uint32_t a_packet = (longest + (1u << LOG2_STRIDE) - 1) >> LOG2_STRIDE;
	const uint32_t least = log2_floor(2 * a_packet - 1) + 1;
	const uint32_t quarter = log2_floor(max(conf->rx_depth / RUNS, 1u));
	const uint32_t wanted = max(min(quarter, (uint32_t)MOST_STRIDES), least);

	return min(max(wanted, caps->min_strides), caps->max_strides);
}

int vbn__raw_strides_check(
	const struct vbn_port *port, const struct vbn_queue_conf *conf, const struct raw_caps *caps)
{
	if (conf->striding != VBN_ON || !conf->rx_group)
		return 0;
	if (!caps->max_strides)
		return fail(ENOTSUP,
			"queue cannot be created: striding is on, and port %s has no striding receive queues of %u-byte strides: leave it to the library",
			port->info.name, 1u << LOG2_STRIDE);
	return 0;
}

static int make_memory(struct raw_queue *raw, const struct vbn_queue_conf *conf, size_t size)
{
	struct vbn_port *port = raw->queue.port;
	const int node = conf->rx_pool->zone->node;
	const struct vbn_zone_conf zone = {.size = size,
		.node = {.set = node >= 0, .value = (uint32_t)max(node, 0)},
		.name = "strides"};
	const int ret = vbn_zone_create(&zone, &raw->strides.zone);

	return ret ? ret
		   : vbn__rdma_zone_register(port, raw->strides.zone, &raw->strides.registration);
}

/* Before the CQ, which has an entry for each stride. */
int vbn__raw_strides_create(
	struct raw_queue *raw, const struct vbn_queue_conf *conf, const struct raw_caps *caps)
{
	struct strides *strides = &raw->strides;
	int ret;

	*strides = (struct strides){.longest = raw->sq.longest};
	strides->log2_n = run_strides(conf, caps, strides->longest);
	strides->n = 1u << strides->log2_n;
	strides->span_of_one = min(strides->longest, 1u << LOG2_STRIDE) - LEAST_FRAME;
	strides->runs = max(conf->rx_depth >> strides->log2_n, (uint32_t)LEAST_RUNS);
	ret = make_memory(raw, conf, (size_t)strides->runs << (strides->log2_n + LOG2_STRIDE));
	if (ret)
		vbn__raw_strides_destroy(raw);
	return ret;
}

void vbn__raw_strides_destroy(struct raw_queue *raw)
{
	vbn__rdma_zone_unregister(raw->queue.port, &raw->strides.registration);
	vbn_zone_destroy(raw->strides.zone);
	raw->strides = (struct strides){0};
}

struct ibv_wq *vbn__raw_strides_wq(struct raw_queue *raw, struct ibv_wq_init_attr *attr)
{
	struct mlx5dv_wq_init_attr dv = {.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ,
		.striding_rq_attrs = {.single_stride_log_num_of_bytes = LOG2_STRIDE,
			.single_wqe_log_num_of_strides = raw->strides.log2_n}};

	attr->max_wr = raw->strides.runs;
	return mlx5dv_create_wq(rdma_port(raw->queue.port)->context, attr, &dv);
}

/* A WQE: a next segment, without a meaning in a work queue, and the data segment. */
int vbn__raw_strides_take_over(
	struct raw_queue *raw, const struct mlx5dv_rwq *dv, const struct vbn_queue_conf *conf)
{
	enum { SEGMENTS = 2 };
	const struct strides *strides = &raw->strides;
	const uint32_t bytes = 1u << (strides->log2_n + LOG2_STRIDE);
	struct rq *rq = &raw->rq;

	if (!is_pow2(dv->stride) || dv->stride < SEGMENTS * 16 || dv->wqe_cnt != strides->runs)
		return fail(ENOTSUP,
			"queue's striding receive ring of %u entries of %u bytes is not one this driver knows",
			dv->wqe_cnt, dv->stride);
	vbn__rq_offsets(rq, conf->rx_pool, false);
	rq->wqes = dv->buf;
	rq->log2_stride = log2_floor(dv->stride);
	rq->mask = (uint16_t)(strides->runs - 1);
	rq->depth = (uint16_t)strides->runs;
	rq->record = dv->dbrec;
	for (uint32_t i = 0; i < strides->runs; i++) {
		struct mlx5_wqe_data_seg *seg = rq_wqe(rq, (uint16_t)i);

		memset(seg, 0, dv->stride);
		seg[1] = (struct mlx5_wqe_data_seg){.byte_count = be32(bytes),
			.lkey = be32(strides->registration.key),
			.addr = be64((uintptr_t)strides->zone->base + (size_t)i * bytes)};
		if (dv->stride > SEGMENTS * 16)
			seg[2].lkey = be32(MLX5_INVALID_LKEY); /* ends the list */
	}
	return 0;
}

void vbn__raw_strides_modes(const struct raw_queue *raw, struct mode_report *report)
{
	const struct strides *strides = &raw->strides;
	const uint32_t asked = raw->queue.asked.rx_depth;

	vbn__mode_add(report, "rx_ring", asked ? vbn__mode_number(asked, "") : "auto",
		vbn__mode_number((uint64_t)strides->runs * strides->n, "strides"),
		"%u WQEs of %u strides of %u bytes; packets are copied into bufs of pool \"%s\"",
		strides->runs, strides->n, 1u << LOG2_STRIDE, raw->rq.pool->name);
	vbn__mode_add(report, "striding", vbn__mode_switch(raw->queue.asked.striding), "on",
		"a packet takes the strides that it needs of a WQE");
}
