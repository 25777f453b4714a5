/* raw_queue.c - a raw queue's life on mlx5: create, connect, reset, stop, free; what the device says of
 * raw Ethernet */

#include "drv/mlx5/raw.h"

#include "drv/mlx5/mini.h"
#include "drv/netdev.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* Of a group: what an indirection table of ours has entries for. */
enum { MOST_QUEUES = 64 };

/* ---- the device ---- */

static void stride_caps(const struct mlx5dv_striding_rq_caps *dv, struct raw_caps *caps)
{
	if (dv->min_single_stride_log_num_of_bytes > STRIDE_LOG2 ||
		dv->max_single_stride_log_num_of_bytes < STRIDE_LOG2 ||
		!(dv->supported_qpts & 1u << IBV_QPT_RAW_PACKET))
		return;
	caps->min_strides = dv->min_single_wqe_log_num_of_strides;
	caps->max_strides = dv->max_single_wqe_log_num_of_strides;
}

void vbn__raw_caps(
	const struct vbn_port_info *info, struct ibv_context *context, struct raw_caps *caps)
{
	struct ibv_device_attr_ex attr = {0};
	struct mlx5dv_context dv = {.comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ};

	*caps = (struct raw_caps){0};
	if (info->link != VBN_LINK_ETHERNET || ibv_query_device_ex(context, NULL, &attr) ||
		!attr.max_wq_type_rq || !attr.rss_caps.max_rwq_indirection_tables)
		return;
	if (mlx5dv_query_device(context, &dv))
		return;
	caps->max_queues = min((uint32_t)MOST_QUEUES, attr.rss_caps.max_rwq_indirection_table_size);
	caps->checksums = attr.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM;
	caps->strips_vlan = attr.raw_packet_caps & IBV_RAW_PACKET_CAP_CVLAN_STRIPPING;
	caps->timestamps = attr.hca_core_clock != 0;
	/* Several packets to a WQE of the enhanced kind need no bytes of them in it. */
	caps->multi_packet = dv.flags & MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW;
	caps->l2_inline = !caps->multi_packet;
	if (dv.comp_mask & MLX5DV_CONTEXT_MASK_STRIDING_RQ)
		stride_caps(&dv.striding_rq_caps, caps);
}

/* The address is that of the first GID, which is link-local: RFC 4291, appendix A. */
static void mac_of_gid(struct rdma_port *port, uint8_t mac[6])
{
	union ibv_gid gid;

	if (ibv_query_gid(port->context, (uint8_t)port->port.info.port, 0, &gid))
		return;
	memcpy(mac, &gid.raw[8], 3);
	memcpy(mac + 3, &gid.raw[13], 3);
	mac[0] ^= 2;
}

/* Of the port's interface, where sysfs names one; 0: it does not. */
static uint32_t interface_mtu(const struct rdma_port *port)
{
	char path[160];
	uint32_t mtu = 0;
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/net",
		ibv_get_device_name(port->context->device));
	dir = opendir(path);
	while (dir && !mtu && (entry = readdir(dir))) {
		struct netdev dev;

		if (entry->d_name[0] != '.' && !vbn__netdev_look(entry->d_name, &dev))
			mtu = dev.mtu;
	}
	if (dir)
		closedir(dir);
	return mtu;
}

static uint64_t read_counter(const struct rdma_port *port, const char *name)
{
	char path[192], text[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/hw_counters/%s",
		ibv_get_device_name(port->context->device), port->port.info.port, name);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (!fgets(text, sizeof(text), file))
		text[0] = '\0';
	fclose(file);
	return strtoull(text, NULL, 10);
}

void vbn__raw_describe(struct vbn_port_info *info, struct ibv_context *context)
{
	const size_t n = strlen(info->capabilities);
	struct raw_caps caps;

	vbn__raw_caps(info, context, &caps);
	if (!caps.max_queues)
		return;
	snprintf(info->capabilities + n, sizeof(info->capabilities) - n, " packet");
	info->max_rx_queues = caps.max_queues;
}

void vbn__raw_port(struct rdma_port *port, const struct vbn_port_conf *conf)
{
	struct vbn_port_info *info = &port->port.info;
	uint32_t mtu;

	vbn__raw_describe(info, port->context);
	if (!info->max_rx_queues)
		return;
	mac_of_gid(port, info->mac);
	mtu = interface_mtu(port);
	info->frame_mtu = conf && conf->frame_mtu ? conf->frame_mtu : mtu ? mtu : 1500;
	port->out_of_buffer = read_counter(port, "out_of_buffer");
}

void vbn__raw_port_drops(const struct vbn_port *base, struct drop_list *list)
{
	struct rdma_port *port = rdma_port((struct vbn_port *)(uintptr_t)base);

	vbn__drop_add(list, "out_of_buffer", "no receive was posted, of any queue of the device",
		read_counter(port, "out_of_buffer") - port->out_of_buffer);
}

/* ---- create: on the control thread ---- */

static void destroy_objects(struct raw_queue *raw)
{
	if (raw->qp)
		ibv_destroy_qp(raw->qp);
	if (raw->wq)
		ibv_destroy_wq(raw->wq);
	raw->qp = NULL;
	raw->wq = NULL;
	vbn__raw_strides_destroy(raw);
	vbn__cq_destroy(&raw->recv_cq);
	vbn__cq_destroy(&raw->send_cq);
}

static void free_tables(struct raw_queue *raw)
{
	free(raw->sq.slots);
	free(raw->sq.marks);
	free(raw->rq.slots);
	raw->sq.slots = NULL;
	raw->sq.marks = NULL;
	raw->rq.slots = NULL;
}

static uint32_t longest_frame(const struct vbn_port *port)
{
	return port->info.frame_mtu + FRAME_HEADER + FRAME_TAG;
}

/* The most WQEBBs that libmlx5 makes of a ring of WQEs of one segment. */
static uint32_t most_wqebbs(const struct vbn_queue_conf *conf)
{
	return min(2 * conf->tx_depth, 1u << 15);
}

static int sq_take_over(
	struct raw_queue *raw, const struct mlx5dv_qp *dv, const struct vbn_queue_conf *conf)
{
	struct raw_sq *sq = &raw->sq;

	if (dv->sq.stride != MLX5_SEND_WQE_BB || !is_pow2(dv->sq.wqe_cnt) ||
		dv->sq.wqe_cnt < conf->tx_depth || dv->sq.wqe_cnt > raw->send_cq.mask + 1)
		return fail(ENOTSUP,
			"queue's send ring of %u entries of %u bytes is not one this driver knows",
			dv->sq.wqe_cnt, dv->sq.stride);
	sq->slots = calloc(conf->tx_depth, sizeof(*sq->slots));
	sq->marks = calloc(dv->sq.wqe_cnt, sizeof(*sq->marks));
	if (!sq->slots || !sq->marks)
		return -ENOMEM;
	sq->wqes = dv->sq.buf;
	sq->mask = dv->sq.wqe_cnt - 1;
	sq->packet_mask = conf->tx_depth - 1;
	sq->cq_mod = max(min(conf->cq_mod, conf->tx_depth / 2), 1u);
	sq->longest = longest_frame(raw->queue.port);
	sq->pool = conf->tx_pool;
	sq->plain_word = plain_word(conf->tx_pool);
	sq->lkey = be32(raw->queue.port->zones[conf->tx_pool->zone_id].key);
	sq->qpn_shifted = raw->qp->qp_num << 8;
	sq->record = dv->dbrec;
	sq->max_gather = conf->max_gather;
	sq->slow_flags = VBN_PACKET_TX_VLAN |
		(raw->offload ? 0 : VBN_PACKET_TX_IP_CSUM | VBN_PACKET_TX_L4_CSUM);
	sq->doorbell = vbn__group_doorbell(raw->group, dv->bf.reg, dv->bf.size);
	return sq->doorbell ? 0 : -ENOMEM;
}

static struct ibv_qp *make_qp(
	struct raw_queue *raw, const struct vbn_queue_conf *conf, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_context = &raw->queue,
		.send_cq = raw->send_cq.ibv,
		.recv_cq = raw->send_cq.ibv,
		.cap = {.max_send_wr = conf->tx_depth, .max_send_sge = 1},
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};

	return ibv_create_qp_ex(rdma_port(raw->queue.port)->context, &attr);
}

static int refused(const struct raw_queue *raw, const char *what)
{
	const int error = errno ? errno : EIO;
	const char *name = raw->queue.port->info.name;

	if (error == EPERM || error == EACCES)
		return fail(error,
			"port %s refused %s: raw Ethernet takes CAP_NET_RAW: run as root, or give the process that capability",
			name, what);
	return fail(error, "port %s refused %s: %s; ask for smaller rings", name, what,
		strerror(error));
}

static int qp_create(struct raw_queue *raw, const struct vbn_queue_conf *conf)
{
	struct rdma_port *port = rdma_port(raw->queue.port);
	struct ibv_pd *own = conf->own_uar == VBN_OFF ? NULL : vbn__group_pd(raw->group);
	struct mlx5dv_qp dv = {0};
	struct mlx5dv_obj obj = {.qp = {.out = &dv}};

	if (!own && conf->own_uar == VBN_ON)
		return fail(ENOTSUP,
			"queue cannot be created: own_uar is on, and port %s gives no doorbell register of its own",
			port->port.info.name);
	raw->own_uar = own != NULL;
	errno = 0;
	raw->qp = make_qp(raw, conf, own ? own : port->pd);
	if (!raw->qp && own && conf->own_uar != VBN_ON && errno != EPERM) {
		raw->own_uar = false; /* registers may have run out */
		raw->qp = make_qp(raw, conf, port->pd);
	}
	if (!raw->qp)
		return refused(raw, "a queue pair for raw packets");
	obj.qp.in = raw->qp;
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP))
		return fail(EIO,
			"port %s does not show the memory of a queue pair: is libmlx5 of this system's rdma-core?",
			port->port.info.name);
	return sq_take_over(raw, &dv, conf);
}

static int rq_take_over(
	struct raw_queue *raw, const struct mlx5dv_rwq *dv, const struct vbn_queue_conf *conf)
{
	const struct zone_registration *zone = &raw->queue.port->zones[conf->rx_pool->zone_id];
	struct rq *rq = &raw->rq;

	if (!is_pow2(dv->stride) || dv->stride < 16 || !is_pow2(dv->wqe_cnt) ||
		dv->wqe_cnt < conf->rx_depth || dv->wqe_cnt > 1u << 15)
		return fail(ENOTSUP,
			"queue's receive ring of %u entries of %u bytes is not one this driver knows",
			dv->wqe_cnt, dv->stride);
	rq->slots = calloc(dv->wqe_cnt, sizeof(struct vbn_buf *));
	if (!rq->slots)
		return -ENOMEM;
	vbn__rq_offsets(rq, conf->rx_pool, false);
	vbn__rq_lay_out(rq, dv->buf, dv->wqe_cnt, dv->stride, zone->key);
	rq->depth = (uint16_t)conf->rx_depth;
	rq->record = dv->dbrec;
	return 0;
}

static int wq_create(struct raw_queue *raw, const struct vbn_queue_conf *conf)
{
	struct rdma_port *port = rdma_port(raw->queue.port);
	struct ibv_wq_init_attr attr = {
		.wq_context = &raw->queue,
		.wq_type = IBV_WQT_RQ,
		.max_wr = conf->rx_depth,
		.max_sge = 1,
		.pd = port->pd,
		.cq = raw->recv_cq.ibv,
		.comp_mask = IBV_WQ_INIT_ATTR_FLAGS,
		.create_flags = conf->vlan_strip == VBN_ON ? IBV_WQ_FLAGS_CVLAN_STRIPPING : 0,
	};
	struct mlx5dv_rwq dv = {0};
	struct mlx5dv_obj obj = {.rwq = {.out = &dv}};

	errno = 0;
	raw->wq = raw->strides.n ? vbn__raw_strides_wq(raw, &attr)
				 : ibv_create_wq(port->context, &attr);
	if (!raw->wq)
		return refused(raw, "a receive work queue");
	obj.rwq.in = raw->wq;
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ))
		return fail(EIO,
			"port %s does not show the memory of a receive work queue: is libmlx5 of this system's rdma-core?",
			port->port.info.name);
	return raw->strides.n ? vbn__raw_strides_take_over(raw, &dv, conf)
			      : rq_take_over(raw, &dv, conf);
}

/* A receive that is too short for its frame ends the queue, or, of a striding ring, loses it: none may be. */
static int check_conf(
	const struct vbn_port *port, const struct vbn_queue_conf *conf, const struct raw_caps *caps)
{
	const struct {
		const char *name;
		bool wanted;
	} lacking[] = {
		{"multi_packet", conf->multi_packet == VBN_ON && !caps->multi_packet},
		{"checksum_offload", conf->checksum_offload == VBN_ON && !caps->checksums},
		{"vlan_strip", conf->vlan_strip == VBN_ON && !caps->strips_vlan},
		{"timestamps", conf->timestamps == VBN_ON && !caps->timestamps},
		{"zero_copy", conf->zero_copy == VBN_ON},
		{"doorbell_burst = OFF", conf->doorbell_burst == VBN_OFF},
		{"templates = OFF", conf->templates == VBN_OFF},
		{"blueflame", conf->blueflame == VBN_ON},
		{"scatter_to_cqe", conf->scatter_to_cqe == VBN_ON},
		{"inline_size", conf->inline_size.value != 0},
		{"pace_kbit", conf->pace_kbit != 0},
	};
	const uint32_t longest = longest_frame(port);

	for (size_t i = 0; i < ARRAY_SIZE(lacking); i++)
		if (lacking[i].wanted)
			return fail(ENOTSUP,
				"queue cannot be created: raw Ethernet on port %s has no %s: leave it to the library",
				port->info.name, lacking[i].name);
	if (conf->rx_group && conf->rx_pool->data_size < longest)
		return fail(EINVAL,
			"queue cannot be created: bufs of pool \"%s\" take %u bytes and a frame of port %s has up to %u: a longer frame would %s; take a larger data_size, or open the port with a smaller frame_mtu",
			conf->rx_pool->name, conf->rx_pool->data_size, port->info.name, longest,
			conf->striding == VBN_ON ? "be lost" : "end the queue");
	if (conf->timestamps == VBN_ON && conf->cqe_compression == VBN_ON)
		return fail(EINVAL,
			"queue cannot be created: compressed completions carry no time: ask for timestamps or for cqe_compression");
	return vbn__raw_strides_check(port, conf, caps);
}

/* The CQ has room for whatever the ring can take. */
static int receive_create(struct raw_queue *raw, const struct vbn_queue_conf *conf)
{
	struct rdma_port *port = rdma_port(raw->queue.port);
	uint32_t n = conf->rx_depth;
	struct raw_caps caps;
	int ret = 0;

	if (conf->striding == VBN_ON) {
		vbn__raw_caps(&port->port.info, port->context, &caps);
		ret = vbn__raw_strides_create(raw, conf, &caps);
		n = raw->strides.runs * raw->strides.n;
	}
	raw->recv_cq.strided = raw->strides.n;
	if (!ret)
		ret = vbn__recv_cq_create(
			port, &raw->recv_cq, n, &raw->cqe_size, conf->cqe_compression == VBN_ON);
	return ret ? ret : wq_create(raw, conf);
}

static int objects_create(struct raw_queue *raw, const struct vbn_queue_conf *conf)
{
	struct rdma_port *port = rdma_port(raw->queue.port);
	int ret;

	raw->cqe_size = conf->cqe_size;
	ret = vbn__cq_create(port, &raw->send_cq, most_wqebbs(conf), &raw->cqe_size, false);
	if (!ret)
		ret = qp_create(raw, conf);
	if (!ret && conf->rx_group)
		ret = receive_create(raw, conf);
	if (!ret)
		raw->queue.number = raw->qp->qp_num;
	return ret;
}

int vbn__raw_create(struct vbn_port *base, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue)
{
	struct rdma_port *port = rdma_port(base);
	struct raw_queue *raw;
	struct raw_caps caps;
	int ret;

	vbn__raw_caps(&base->info, port->context, &caps);
	ret = check_conf(base, conf, &caps);
	if (ret)
		return ret;
	raw = aligned_alloc(CACHE_LINE, round_up(sizeof(*raw), CACHE_LINE));
	if (!raw)
		return -ENOMEM;
	memset(raw, 0, sizeof(*raw));
	raw->queue.port = base;
	raw->context = port->context;
	raw->multi = caps.multi_packet && conf->multi_packet != VBN_OFF;
	raw->offload = caps.checksums && conf->checksum_offload != VBN_OFF;
	raw->sq.l2_inline = caps.l2_inline;
	raw->group = vbn__group_get(port, list);
	ret = raw->group ? objects_create(raw, conf) : -ENOMEM;
	if (ret) {
		destroy_objects(raw);
		if (raw->group)
			vbn__group_put(raw->group);
		free_tables(raw);
		free(raw);
		return ret;
	}
	*queue = &raw->queue;
	return 0;
}

/* ---- connect ---- */

int vbn__raw_fill(struct vbn_queue *queue)
{
	struct raw_queue *raw = raw_queue(queue);
	struct rq *rq = &raw->rq;

	if (!raw->wq)
		return 0;
	if (raw->strides.n) {
		rq->head = rq->depth;
		return 0;
	}
	rq_refill(rq, &queue->stats);
	if (ring_is_short(rq))
		return fail(ENOMEM,
			"queue %s/%u cannot post %u receives: pool \"%s\" had only %u bufs left; make it larger",
			queue->port->info.name, queue->number, rq->depth, rq->pool->name, rq->head);
	return 0;
}

static int move(struct raw_queue *raw, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {
		.qp_state = state, .port_num = (uint8_t)raw->queue.port->info.port};
	const int mask = IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0);
	const int error = ibv_modify_qp(raw->qp, &attr, mask);

	return error
		? fail(error, "queue %s/%u cannot be moved to state %d: %s",
			  raw->queue.port->info.name, raw->queue.number, state, strerror(error))
		: 0;
}

static int move_wq(struct raw_queue *raw, enum ibv_wq_state state)
{
	struct ibv_wq_attr attr = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state};
	const int error = raw->wq ? ibv_modify_wq(raw->wq, &attr) : 0;

	return error
		? fail(error, "receive queue of %s/%u cannot be moved to state %d: %s",
			  raw->queue.port->info.name, raw->queue.number, state, strerror(error))
		: 0;
}

int vbn__raw_connect(struct vbn_queue *queue)
{
	struct raw_queue *raw = raw_queue(queue);
	int ret = move(raw, IBV_QPS_INIT);

	if (!ret)
		ret = move(raw, IBV_QPS_RTR);
	if (!ret)
		ret = move(raw, IBV_QPS_RTS);
	if (!ret)
		ret = move_wq(raw, IBV_WQS_RDY);
	if (ret)
		return ret;
	if (raw->wq) /* libmlx5 has set it to 0; its receives are posted */
		store_once(&raw->rq.record[MLX5_RCV_DBR], be32(raw->rq.head));
	raw->ops = vbn__lacking_ops;
	vbn__raw_tx_ops(raw);
	vbn__raw_rx_ops(raw);
	queue->connected_ops = &raw->ops;
	return 0;
}

/* ---- fail and reset ---- */

int vbn__raw_fail(struct vbn_queue *queue)
{
	struct raw_queue *raw = raw_queue(queue);
	const int ret = move(raw, IBV_QPS_ERR), ret_wq = move_wq(raw, IBV_WQS_ERR);

	return ret ? ret : ret_wq;
}

/* All goes and comes again, and so the queue has another number: libmlx5 would clean CQs that it never
 * polls. What the rings had has been given back. */
int vbn__raw_reset(struct vbn_queue *queue)
{
	struct raw_queue *raw = raw_queue(queue);
	const bool l2_inline = raw->sq.l2_inline;
	int ret;

	destroy_objects(raw);
	free_tables(raw);
	raw->sq = (struct raw_sq){.l2_inline = l2_inline};
	raw->rq = (struct rq){0};
	raw->queue.ops = &vbn__refusing_ops;
	/* What a queue is that could not be made. */
	raw->failure =
		(struct raw_failure){.status = VBN_CQ_ERROR, .reported = true, .silent = true};
	ret = objects_create(raw, &queue->conf);
	if (ret) {
		destroy_objects(raw);
		return ret;
	}
	raw->failure = (struct raw_failure){0};
	__atomic_store_n(&queue->news, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&queue->cause, 0, __ATOMIC_RELAXED);
	return 0;
}

/* ---- stop and free ---- */

void vbn__raw_stop(struct vbn_queue *queue)
{
	destroy_objects(raw_queue(queue));
}

/* The device is out of it: what the rings still hold goes home. */
void vbn__raw_free(struct vbn_queue *queue)
{
	struct raw_queue *raw = raw_queue(queue);
	struct raw_sq *sq = &raw->sq;
	struct rq *rq = &raw->rq;

	vbn__group_leave(raw->group);
	for (; sq->slots && sq->released != sq->staged; sq->released++) {
		const uintptr_t slot = sq->slots[sq->released & sq->packet_mask];
		struct vbn_buf *buf = (struct vbn_buf *)(slot & ~(uintptr_t)SLOT_BITS);

		vbn__buf_debug_done(buf);
		vbn_buf_free(&buf, 1);
	}
	for (; rq->slots && rq->tail != rq->head; rq->tail++)
		pool_push(rq->pool, rq->slots[rq->tail & rq->mask]);
	free_tables(raw);
	free(raw);
}

/* ---- modes ---- */

static const char *on_off(bool on)
{
	return on ? "on" : "off";
}

static const char *asked_count(uint32_t number, const char *unit)
{
	return number ? vbn__mode_number(number, unit) : "auto";
}

static void receive_modes(const struct raw_queue *raw, struct mode_report *report)
{
	const struct vbn_queue_conf *conf = &raw->queue.asked;
	const struct session *session = raw->recv_cq.session;

	if (!raw->wq) {
		vbn__mode_add(report, "rx_ring", "auto", "none", "it has no rx_group");
		return;
	}
	if (raw->strides.n) {
		vbn__raw_strides_modes(raw, report);
	} else {
		vbn__mode_add(report, "rx_ring", asked_count(conf->rx_depth, ""),
			vbn__mode_number(raw->rq.depth, "receives"), "kept full from pool \"%s\"",
			raw->rq.pool->name);
		vbn__mode_add(report, "striding", vbn__mode_switch(conf->striding), "off",
			"a receive for each packet");
	}
	vbn__mode_add(report, "cqe_compression", vbn__mode_switch(conf->cqe_compression),
		session ? session->decoder->name : "off", "%s",
		session ? raw->strides.n
				? "by checksum and stride, without a hash; read by the decoder for this CPU"
				: "by hash; read by the decoder for this CPU"
			: "it spares PCIe bandwidth: ask for it where that is short");
	vbn__mode_add(report, "vlan_strip", vbn__mode_switch(conf->vlan_strip),
		on_off(conf->vlan_strip == VBN_ON), "by the device");
	vbn__mode_add(report, "timestamps", vbn__mode_switch(conf->timestamps),
		conf->timestamps == VBN_ON ? "device clock" : "off", "%s",
		conf->timestamps == VBN_ON ? "ns, as the device's driver relates it to this host's"
					   : "");
}

void vbn__raw_modes(const struct vbn_queue *queue, struct mode_report *report)
{
	const struct raw_queue *raw = raw_queue(queue);
	const struct vbn_queue_conf *conf = &queue->asked;

	vbn__mode_add(report, "multi_packet", vbn__mode_switch(conf->multi_packet),
		on_off(raw->multi), "%s",
		raw->multi                  ? "several packets to a send WQE"
			: raw->sq.l2_inline ? "the device wants each packet's header in its WQE"
					    : "a WQE for each packet");
	vbn__mode_add(report, "tx_checksum", vbn__mode_switch(conf->checksum_offload),
		raw->offload ? "device" : "software", "where a packet asks for it");
	vbn__mode_add(report, "vlan_insert", "auto", "software",
		"where a packet asks for it: its MACs are moved");
	vbn__mode_add(report, "tx_ring", asked_count(conf->tx_depth, ""),
		vbn__mode_number(raw->sq.packet_mask + 1ull, "packets"), "%u WQEBBs of 64 bytes",
		raw->sq.mask + 1);
	vbn__mode_add(report, "doorbell", vbn__mode_switch(conf->doorbell_burst),
		"one a flush, no lock", "a 64-bit store to the queue's register");
	vbn__mode_add(report, "cq_mod", asked_count(conf->cq_mod, ""),
		vbn__mode_number(raw->sq.cq_mod, ""),
		"at most so many packets to a completion, and one for each flush");
	vbn__mode_add(report, "own_uar", vbn__mode_switch(conf->own_uar), on_off(raw->own_uar),
		"%s",
		raw->own_uar ? "the doorbell register is this worker's"
			     : "the doorbell register is one that libmlx5 gives to several queues");
	vbn__mode_add(report, "cqe_size", asked_count(conf->cqe_size, "B"),
		vbn__mode_number(raw->cqe_size, "B"), "%s",
		conf->cqe_size ? "as asked for" : "as libmlx5 made the queue");
	receive_modes(raw, report);
}
