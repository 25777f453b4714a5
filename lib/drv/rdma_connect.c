/* rdma_connect.c - a queue pair through INIT, RTR and RTS, and back, with every attribute in range */

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

enum ibv_qp_type vbn__rdma_qp_type(enum vbn_transport transport)
{
	switch (transport) {
	case VBN_UC: return IBV_QPT_UC;
	case VBN_UD: return IBV_QPT_UD;
	default: return IBV_QPT_RC;
	}
}

int vbn__rdma_qp_move(struct rdma_port *port, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return modify(port, qp, &attr, IBV_QP_STATE, state == IBV_QPS_ERR ? "ERR" : "RESET");
}

int vbn__rdma_qp_init(struct rdma_port *port, struct ibv_qp *qp, const struct vbn_queue_conf *conf)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = (uint8_t)port->port.info.port,
		.qkey = conf->qkey.value};
	unsigned int access = 0;
	int mask = IBV_QP_STATE;

	access |= conf->remote_access & VBN_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0;
	access |= conf->remote_access & VBN_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0;
	access |= conf->remote_access & VBN_REMOTE_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0;
	if (conf->transport == VBN_UC)
		access &= IBV_ACCESS_REMOTE_WRITE;
	attr.qp_access_flags = access;
	mask |= conf->transport == VBN_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (port->port.info.link != VBN_LINK_IWARP)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	return modify(port, qp, &attr, mask, "INIT");
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	return (enum ibv_mtu)(log2_floor(bytes) - 7);
}

/* A peer of the fabric is reached by its LID, or by its GID over RoCE and between subnets. Datagrams
 * always have the GID, so that the receiver knows where they came from. */
void vbn__rdma_fill_path(struct rdma_port *port, struct rdma_way way, const struct address *peer,
	struct ibv_ah_attr *path)
{
	path->dlid = peer->lid;
	path->sl = way.service_level;
	path->port_num = (uint8_t)port->port.info.port;
	path->is_global = port->port.info.link == VBN_LINK_ETHERNET || peer->transport == VBN_UD;
	memcpy(path->grh.dgid.raw, peer->gid, 16);
	path->grh.sgid_index = (uint8_t)port->gid.gid_index;
	path->grh.hop_limit = way.hop_limit;
	path->grh.traffic_class = way.traffic_class;
}

static int to_rtr(struct rdma_port *port, struct ibv_qp *qp, const struct vbn_queue_conf *conf,
	const struct address *peer, uint32_t mtu)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	struct rdma_way way = {(uint8_t)conf->service_level.value,
		(uint8_t)conf->traffic_class.value, (uint8_t)conf->hop_limit};
	int mask = IBV_QP_STATE;

	if (conf->transport != VBN_UD) {
		attr.path_mtu = mtu_code(mtu);
		attr.dest_qp_num = peer->qpn;
		attr.rq_psn = peer->psn;
		vbn__rdma_fill_path(port, way, peer, &attr.ah_attr);
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (conf->transport == VBN_RC) {
		attr.max_dest_rd_atomic = (uint8_t)conf->max_peer_reads.value;
		attr.min_rnr_timer = (uint8_t)conf->rnr_timer.value;
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	return modify(port, qp, &attr, mask, "RTR");
}

static int to_rts(struct rdma_port *port, struct ibv_qp *qp, const struct vbn_queue_conf *conf,
	const struct address *peer, uint32_t psn)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = psn};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (conf->transport == VBN_RC) {
		attr.timeout = (uint8_t)conf->timeout.value;
		attr.retry_cnt = (uint8_t)conf->retry_count.value;
		attr.rnr_retry = (uint8_t)conf->rnr_retry.value;
		attr.max_rd_atomic = (uint8_t)rdma_reads(conf, peer);
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	}
	return modify(port, qp, &attr, mask, "RTS");
}

int vbn__rdma_qp_connect(struct rdma_port *port, struct ibv_qp *qp,
	const struct vbn_queue_conf *conf, uint32_t psn, const struct address *peer, uint32_t *mtu)
{
	int ret;

	*mtu = peer ? min(port->port.mtu, peer->mtu) : port->port.mtu;
	if (peer && port->port.mtu != peer->mtu)
		log_warning(
			"queue %s/%u: the path MTU is %u here and %u at the peer: the smaller one holds",
			port->port.info.name, qp->qp_num, port->port.mtu, peer->mtu);
	ret = to_rtr(port, qp, conf, peer, *mtu);
	return ret ? ret : to_rts(port, qp, conf, peer, psn);
}

int vbn__rdma_can_pace(struct rdma_port *port, const struct vbn_queue_conf *conf)
{
	struct ibv_device_attr_ex attr = {0};
	const struct ibv_packet_pacing_caps *caps = &attr.packet_pacing_caps;

	if (!conf->pace_kbit)
		return 0;
	if (ibv_query_device_ex(port->context, NULL, &attr) ||
		!(caps->supported_qpts & 1u << vbn__rdma_qp_type(conf->transport)))
		return fail(ENOTSUP,
			"queue cannot be created: port %s has no packet pacing for its transport%s: leave pace_kbit 0",
			port->port.info.name,
			caps->supported_qpts & 1u << IBV_QPT_RAW_PACKET ? ", but for raw packets"
									: "");
	if (conf->pace_kbit < caps->qp_rate_limit_min || conf->pace_kbit > caps->qp_rate_limit_max)
		return fail(EINVAL,
			"queue cannot be created: pace_kbit is %u and must be %u to %u on port %s",
			conf->pace_kbit, caps->qp_rate_limit_min, caps->qp_rate_limit_max,
			port->port.info.name);
	return 0;
}

int vbn__rdma_pace(struct rdma_port *port, struct ibv_qp *qp, const struct vbn_queue_conf *conf)
{
	struct ibv_qp_rate_limit_attr attr = {.rate_limit = conf->pace_kbit};
	int error = conf->pace_kbit ? ibv_modify_qp_rate_limit(qp, &attr) : 0;

	if (error)
		return fail(error, "queue %s/%u cannot be paced to %u kbit/s: %s",
			port->port.info.name, qp->qp_num, conf->pace_kbit, strerror(error));
	return 0;
}

void vbn__rdma_address(const struct rdma_port *port, const struct vbn_queue_conf *conf,
	uint32_t qpn, uint32_t psn, struct vbn_address *wire)
{
	struct address address = {.transport = conf->transport,
		.link = port->port.info.link,
		.mtu = port->port.mtu,
		.qpn = qpn,
		.psn = psn,
		.lid = port->attr.lid};

	if (conf->transport == VBN_RC) {
		address.reads = (uint8_t)conf->max_reads.value;
		address.peer_reads = (uint8_t)conf->max_peer_reads.value;
	}
	if (conf->transport == VBN_UD) {
		address.psn = 0;
		address.qkey = conf->qkey.value;
	}
	memcpy(address.gid, port->gid.gid.raw, 16);
	vbn__address_pack(&address, wire);
}
