/* rule_wqe.c - reserved fields of send WQEs */

#include "vhca/device.h"

uint8_t vhca_rule_ctrl(struct vhca_qp *qp, const void *at)
{
	const struct mlx5_wqe_ctrl_seg *ctrl = at;
	uint32_t beside_ds = from_be32(ctrl->qpn_ds) & 0xc0, flags = ctrl->fm_ce_se & 0x11;
	uint16_t stream = from_be16(ctrl->dci_stream_channel_id);

	if (stream)
		vhca_rule_report(
			VHCA_RULE_CTRL_STALE, qp, qp->sq_ci, "dci_stream_channel_id", stream, 0);
	if (!beside_ds && !flags)
		return 0;
	if (beside_ds)
		vhca_rule_report(
			VHCA_RULE_CTRL_RESERVED, qp, qp->sq_ci, "qpn_ds bits 7:6", beside_ds, 0);
	else
		vhca_rule_report(
			VHCA_RULE_CTRL_RESERVED, qp, qp->sq_ci, "fm_ce_se bits 4 and 0", flags, 0);
	return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
}

void vhca_rule_raddr(struct vhca_qp *qp, const struct mlx5_wqe_raddr_seg *seg)
{
	vhca_rule_report(
		VHCA_RULE_RADDR_RESERVED, qp, qp->sq_ci, "reserved", from_be32(seg->reserved), 0);
}

void vhca_rule_datagram(struct vhca_qp *qp, const struct mlx5_wqe_av *av)
{
	uint32_t reserved0;

	memcpy(&reserved0, av->reserved0, sizeof(reserved0));
	if (likely(!reserved0 && !av->key.qkey.reserved))
		return;
	if (av->key.qkey.reserved)
		vhca_rule_report(VHCA_RULE_DATAGRAM_RESERVED, qp, qp->sq_ci, "key.qkey.reserved",
			from_be32(av->key.qkey.reserved), 0);
	else
		vhca_rule_report(
			VHCA_RULE_DATAGRAM_RESERVED, qp, qp->sq_ci, "reserved0", reserved0, 0);
}
