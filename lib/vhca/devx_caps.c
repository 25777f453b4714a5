/* devx_caps.c - QUERY_HCA_CAP: what the device offers to those who command it by themselves
 *
 * What is not said here is zero, which is that the device has not got it: E-switch, hairpin, pacing,
 * meters, tables of one's own making.
 */

#include "vhca/devx_object.h"

enum {
	CAP_GENERAL = 0,
	CAP_ETHERNET = 1,
	CAP_FLOW_TABLE = 7,
	CAP_DEVICE_MEMORY = 15,
	CAP_CURRENT = 1, /* bit of op_mod; else the most that could be set: it is the same */
};

struct capability {
	uint32_t field;
	uint32_t value;
};

static const struct capability general[] = {
	{FIELD(128, 8), 15},               /* log_max_srq_sz */
	{FIELD(136, 8), 15},               /* log_max_qp_sz */
	{FIELD(155, 5), 17},               /* log_max_qp */
	{FIELD(171, 5), 23},               /* log_max_srq */
	{FIELD(200, 8), 22},               /* log_max_cq_sz */
	{FIELD(219, 5), 23},               /* log_max_cq */
	{FIELD(265, 7), 63},               /* log_max_mrw_sz */
	{FIELD(422, 1), 1},                /* nic_flow_table */
	{FIELD(438, 2), 1},                /* port_type: Ethernet */
	{FIELD(440, 8), 1},                /* num_ports */
	{FIELD(508, 4), 1},                /* cqe_version */
	{FIELD(513, 1), 1},                /* striding_rq */
	{FIELD(540, 1), 1},                /* eth_net_offloads */
	{FIELD(600, 8), 12},               /* log_pg_sz */
	{FIELD(619, 5), 9},                /* log_bf_reg_size */
	{FIELD(656, 16), 1024},            /* max_wqe_sz_sq */
	{FIELD(688, 16), 512},             /* max_wqe_sz_rq */
	{FIELD(803, 5), 16},               /* log_max_transport_domain */
	{FIELD(811, 5), 23},               /* log_max_pd */
	{FIELD(848, 16), 0xffff},          /* max_flow_counter_15_0 */
	{FIELD(867, 5), 20},               /* log_max_rq */
	{FIELD(875, 5), 17},               /* log_max_sq */
	{FIELD(883, 5), 20},               /* log_max_tir */
	{FIELD(891, 5), 16},               /* log_max_tis */
	{FIELD(907, 5), 20},               /* log_max_rqt */
	{FIELD(915, 5), VHCA_MAX_RQT},     /* log_max_rqt_size */
	{FIELD(923, 5), 1},                /* log_max_tis_per_sq */
	{FIELD(931, 5), 10},               /* log_max_stride_sz_rq */
	{FIELD(939, 5), 4},                /* log_min_stride_sz_rq */
	{FIELD(947, 5), 6},                /* log_max_stride_sz_sq */
	{FIELD(955, 5), 6},                /* log_min_stride_sz_sq */
	{FIELD(987, 5), 15},               /* log_max_wq_sz */
	{FIELD(1168, 16), 12},             /* log_uar_page_sz */
	{FIELD(1248, 32), VHCA_CLOCK_KHZ}, /* device_frequency_khz */
	{FIELD(1468, 1), 1},               /* mini_cqe_resp_stride_index, where the model has it */
	{FIELD(1471, 1), 1},               /* cqe_compression */
};

#define CAP_STRIDE_INDEX    FIELD(1468, 1)
#define CAP_INLINE_MODE     FIELD(18, 2)
#define CAP_ENHANCED        FIELD(26, 1)
#define CAP_VLAN_INSERT     FIELD(7, 1)
#define INLINE_NOT_REQUIRED 2u
#define INLINE_L2           0u

static const struct capability ethernet[] = {
	{FIELD(0, 1), 1},             /* csum_cap */
	{FIELD(1, 1), 1},             /* vlan_cap */
	{FIELD(20, 4), VHCA_MAX_RQT}, /* rss_ind_tbl_cap */
};

static void put_all(struct vhca_mailbox *mailbox, const struct capability *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out_put(mailbox, WITHIN(OUT_CAPABILITY, list[i].field), list[i].value);
}

static void put_general(struct vhca_mailbox *mailbox)
{
	bool strides = mailbox->context->device->facts->compresses_stride;

	for (size_t i = 0; i < ARRAY_SIZE(general); i++)
		if (general[i].field != CAP_STRIDE_INDEX || strides)
			put_all(mailbox, &general[i], 1);
}

static void put_ethernet(struct vhca_mailbox *mailbox)
{
	const struct vhca_facts *facts = mailbox->context->device->facts;
	bool enhanced = facts->enhanced_multi_packet;

	put_all(mailbox, ethernet, ARRAY_SIZE(ethernet));
	out_put(mailbox, WITHIN(OUT_CAPABILITY, CAP_INLINE_MODE),
		enhanced ? INLINE_NOT_REQUIRED : INLINE_L2);
	out_put(mailbox, WITHIN(OUT_CAPABILITY, CAP_ENHANCED), enhanced);
	out_put(mailbox, WITHIN(OUT_CAPABILITY, CAP_VLAN_INSERT), enhanced);
}

int vhca_devx_caps(struct vhca_mailbox *mailbox)
{
	switch (in_get(mailbox, IN_OP_MOD) >> CAP_CURRENT) {
	case CAP_GENERAL: put_general(mailbox); return 0;
	case CAP_ETHERNET: put_ethernet(mailbox); return 0;
	case CAP_FLOW_TABLE:
	case CAP_DEVICE_MEMORY: return 0; /* nothing beyond what verbs' flows have, and none */
	default: return EINVAL;
	}
}
