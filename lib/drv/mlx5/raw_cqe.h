/* raw_cqe.h - what a CQE says of a raw frame, into the buf that holds it */
#ifndef VBN_MLX5_RAW_CQE_H
#define VBN_MLX5_RAW_CQE_H

#include "drv/mlx5/raw.h"

/* Bytes of a CQE that mlx5dv.h has no names for: struct mlx5_cqe64 of the kernel's
 * include/linux/mlx5/device.h. */
enum { CQE_HASH_AT = 12, CQE_HASH_TYPE_AT = 16, CQE_VLAN_STRIPPED = 1 };

static force_inline uint32_t cqe_hash(const struct mlx5_cqe64 *cqe)
{
	__be32 hash;

	memcpy(&hash, (const uint8_t *)cqe + CQE_HASH_AT, sizeof(hash));
	return from_be32(hash);
}

/* By the bits of both headers' types and of what was found of their checksums: the first half of a
 * struct vbn_packet. */
extern uint64_t vbn__raw_facts[128];

/* Of a queue that does not look at checksums, only the types hold. */
static force_inline uint64_t cqe_facts(const struct mlx5_cqe64 *cqe)
{
	static_assert(MLX5_CQE_L3_OK == 2 && MLX5_CQE_L4_OK == 4, "four bits up are 5 and 6");
	uint64_t facts =
		vbn__raw_facts[(cqe->l4_hdr_type_etc >> 2 & 31) | (cqe->hds_ip_ext & 6) << 4];

	if (unlikely(cqe->l4_hdr_type_etc & CQE_VLAN_STRIPPED)) {
		struct vbn_packet packet;

		memcpy(&packet, &facts, sizeof(facts));
		packet.flags |= VBN_PACKET_VLAN;
		packet.vlan = from_be16(cqe->vlan_info);
		memcpy(&facts, &packet, sizeof(facts));
	}
	return facts;
}

static force_inline uint64_t facts_flag(uint16_t flag)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return flag;
#else
	return (uint64_t)flag << 48;
#endif
}

/* A rule's mark, else the hash. */
static force_inline void buf_describe(
	struct vbn_buf *buf, uint64_t facts, uint32_t tag, uint32_t hash, bool hashed)
{
	facts |= tag ? facts_flag(VBN_PACKET_MARK) : hashed ? facts_flag(VBN_PACKET_HASH) : 0;
	buf->mark = tag ? tag : hash;
	buf->peer[0] = facts;
}

/* What the entry before has said: most are of the same kind. */
struct last_facts {
	uint32_t kind; /* both bytes that cqe_facts() looks at; NO_KIND: none */
	uint8_t hash_type;
	uint64_t facts;
};
enum { NO_KIND = 1 << 16 };

static force_inline uint64_t same_facts(const struct mlx5_cqe64 *cqe, struct last_facts *last)
{
	const uint8_t hash_type = ((const uint8_t *)cqe)[CQE_HASH_TYPE_AT];
	uint16_t kind;

	static_assert(offsetof(struct mlx5_cqe64, l4_hdr_type_etc) ==
			offsetof(struct mlx5_cqe64, hds_ip_ext) + 1,
		"both are read at once");
	memcpy(&kind, &cqe->hds_ip_ext, sizeof(kind));
	if (unlikely(kind != last->kind || hash_type != last->hash_type)) {
		last->facts = cqe_facts(cqe) | (hash_type ? facts_flag(VBN_PACKET_HASH) : 0);
		last->kind = cqe->l4_hdr_type_etc & CQE_VLAN_STRIPPED ? NO_KIND : kind;
		last->hash_type = hash_type;
	}
	return last->facts;
}

/* What one entry says, into the buf that it is about; `facts` are those of its kind. */
static force_inline void buf_say(
	struct vbn_buf *buf, const struct mlx5_cqe64 *cqe, uint64_t facts, const bool timed)
{
	buf->mark = cqe_hash(cqe);
	if (unlikely(cqe->sop_drop_qpn) && cqe_qpn(cqe)) {
		buf->mark = cqe_qpn(cqe);
		facts = (facts & ~facts_flag(VBN_PACKET_HASH)) | facts_flag(VBN_PACKET_MARK);
	}
	buf->peer[0] = facts;
	if (timed) /* of the device, until vbn__raw_times() */
		buf->peer[1] = from_be64(cqe->timestamp);
}

/* Makes ns of the device's times. */
void vbn__raw_times(const struct raw_queue *raw, struct vbn_buf **bufs, int n);

#endif
