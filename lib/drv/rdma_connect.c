/* rdma_connect.c - an RC queue pair through INIT, RTR and RTS, with every attribute in range */

#include "drv/rdma.h"

#include <sys/random.h>

uint32_t vbn__rdma_random_psn(void)
{
	uint32_t psn;

	if (getrandom(&psn, sizeof(psn), 0) != (ssize_t)sizeof(psn))
		psn = (uint32_t)clock_cycles();
	return psn & 0xffffff;
}

uint64_t vbn__rdma_timeout_ns(uint32_t encoded)
{
	return encoded ? 4096ull << encoded : 0;
}

uint64_t vbn__rdma_rnr_timer_ns(uint32_t encoded)
{
	/* Hundredths of a millisecond. */
	static const uint32_t table[32] = {65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128,
		192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384,
		24576, 32768, 49152};

	return table[encoded & 31] * 10000ull;
}

static int modify(struct rdma_port *port, struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
	const char *state)
{
	int error = ibv_modify_qp(qp, attr, mask);

	if (error)
		return fail(error, "queue %s/%u cannot be moved to %s: %s", port->port.info.name,
			qp->qp_num, state, strerror(error));
	return 0;
}

int vbn__rdma_rc_init(struct rdma_port *port, struct ibv_qp *qp, const struct vbn_queue_conf *conf)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = (uint8_t)port->port.info.port};
	unsigned int access = 0;

	access |= conf->remote_access & VBN_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0;
	access |= conf->remote_access & VBN_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0;
	access |= conf->remote_access & VBN_REMOTE_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0;
	attr.qp_access_flags = access;
	return modify(port, qp, &attr,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	return (enum ibv_mtu)(log2_floor(bytes) - 7);
}

/* A peer of the fabric is reached by its LID, or by its GID over RoCE and between subnets. */
static void fill_path(struct rdma_port *port, const struct vbn_queue_conf *conf,
	const struct address *peer, struct ibv_ah_attr *path)
{
	path->dlid = peer->lid;
	path->sl = (uint8_t)conf->service_level.value;
	path->port_num = (uint8_t)port->port.info.port;
	path->is_global = port->port.info.link == VBN_LINK_ETHERNET;
	memcpy(path->grh.dgid.raw, peer->gid, 16);
	path->grh.sgid_index = (uint8_t)port->gid.gid_index;
	path->grh.hop_limit = (uint8_t)conf->hop_limit;
	path->grh.traffic_class = (uint8_t)conf->traffic_class.value;
}

int vbn__rdma_rc_connect(struct rdma_port *port, struct ibv_qp *qp,
	const struct vbn_queue_conf *conf, uint32_t psn, const struct address *peer, uint32_t *mtu)
{
	struct ibv_qp_attr attr = {0};
	int ret;

	*mtu = min(port->port.mtu, peer->mtu);
	if (port->port.mtu != peer->mtu)
		log_warning(
			"queue %s/%u: the path MTU is %u here and %u at the peer: the smaller one holds",
			port->port.info.name, qp->qp_num, port->port.mtu, peer->mtu);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = mtu_code(*mtu);
	attr.dest_qp_num = peer->qpn;
	attr.rq_psn = peer->psn;
	attr.max_dest_rd_atomic = (uint8_t)min(port->device.max_qp_rd_atom, 16);
	attr.min_rnr_timer = (uint8_t)conf->rnr_timer.value;
	fill_path(port, conf, peer, &attr.ah_attr);
	ret = modify(port, qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		"RTR");
	if (ret)
		return ret;
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.sq_psn = psn,
		.timeout = (uint8_t)conf->timeout.value,
		.retry_cnt = (uint8_t)conf->retry_count.value,
		.rnr_retry = (uint8_t)conf->rnr_retry.value,
		.max_rd_atomic = (uint8_t)min(port->device.max_qp_init_rd_atom, 16)};
	return modify(port, qp, &attr,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
		"RTS");
}

void vbn__rdma_address(
	const struct rdma_port *port, uint32_t qpn, uint32_t psn, struct vbn_address *wire)
{
	struct address address = {.transport = VBN_RC,
		.link = port->port.info.link,
		.mtu = port->port.mtu,
		.qpn = qpn,
		.psn = psn,
		.lid = port->attr.lid};

	memcpy(address.gid, port->gid.gid.raw, 16);
	vbn__address_pack(&address, wire);
}
