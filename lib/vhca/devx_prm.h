/* devx_prm.h - where the fields of DevX mailboxes are, by the PRM's names
 *
 * A field is the number of its first bit, counted from the most significant bit of the first byte,
 * and its width. Those of a context (CQC, RQC, ...) count from where the context begins.
 */
#ifndef VHCA_DEVX_PRM_H
#define VHCA_DEVX_PRM_H

#include <stdint.h>

#define FIELD(first_, width_)  ((uint32_t)(first_) << 8 | (width_))
#define WITHIN(first_, field_) ((field_) + ((uint32_t)(first_) << 8))

enum {
	OP_QUERY_HCA_CAP = 0x100,
	OP_CREATE_CQ = 0x400,
	OP_ALLOC_Q_COUNTER = 0x771,
	OP_QUERY_Q_COUNTER = 0x773,
	OP_ALLOC_TRANSPORT_DOMAIN = 0x816,
	OP_CREATE_TIR = 0x900,
	OP_CREATE_SQ = 0x904,
	OP_MODIFY_SQ = 0x905,
	OP_CREATE_RQ = 0x908,
	OP_MODIFY_RQ = 0x909,
	OP_CREATE_TIS = 0x912,
	OP_CREATE_RQT = 0x916,
	OP_MODIFY_RQT = 0x917,
	OP_ALLOC_FLOW_COUNTER = 0x939,
	OP_QUERY_FLOW_COUNTER = 0x93b,
};

enum {
	IN_OPCODE = FIELD(0, 16),
	IN_OP_MOD = FIELD(48, 16),
	OUT_STATUS = FIELD(0, 8),
	OUT_NUMBER = FIELD(72, 24), /* of nearly every object */
	OUT_COUNTER_SET = FIELD(88, 8),
	OUT_FLOW_COUNTER = FIELD(64, 32),
	OUT_OF_BUFFER = FIELD(384, 32), /* QUERY_Q_COUNTER */
	OUT_PACKETS = FIELD(128, 64),   /* QUERY_FLOW_COUNTER */
	OUT_OCTETS = FIELD(192, 64),
	OUT_CAPABILITY = 128, /* QUERY_HCA_CAP: its first bit */
};

/* CREATE_CQ */
enum {
	CQ_CONTEXT = 128,
	CQ_UMEM_OFFSET = FIELD(640, 64),
	CQ_UMEM_ID = FIELD(704, 32),
	CQ_UMEM_VALID = FIELD(736, 1),
	CQC_DBR_UMEM_VALID = FIELD(6, 1),
	CQC_CQE_SIZE = FIELD(8, 3),
	CQC_COLLAPSED = FIELD(11, 1),
	CQC_IGNORE_OVERRUN = FIELD(14, 1),
	CQC_COMPRESS = FIELD(17, 1),
	CQC_MINI_FORMAT = FIELD(18, 2),
	CQC_DBR_UMEM_ID = FIELD(32, 32),
	CQC_PAGE_OFFSET = FIELD(84, 6),
	CQC_MINI_FORMAT_EXT = FIELD(92, 2),
	CQC_LOG_SIZE = FIELD(99, 5),
	CQC_UAR_PAGE = FIELD(104, 24),
	CQC_PERIOD = FIELD(132, 12),
	CQC_MAX_COUNT = FIELD(144, 16),
	CQC_EQN = FIELD(184, 8),
	CQC_DBR_ADDR = FIELD(448, 64),
};

/* A work queue, within RQC and SQC. */
enum {
	QUEUE_CONTEXT = 256, /* in CREATE and MODIFY of RQ and SQ */
	QUEUE_WQ = 384,      /* in that */
	WQ_TYPE = FIELD(0, 4),
	WQ_SIGNATURE = FIELD(4, 1),
	WQ_PAGE_OFFSET = FIELD(43, 5),
	WQ_PD = FIELD(72, 24),
	WQ_UAR_PAGE = FIELD(104, 24),
	WQ_DBR_ADDR = FIELD(128, 64),
	WQ_LOG_STRIDE = FIELD(268, 4),
	WQ_LOG_SIZE = FIELD(283, 5),
	WQ_DBR_UMEM_VALID = FIELD(288, 1),
	WQ_UMEM_VALID = FIELD(289, 1),
	WQ_LOG_STRIDES = FIELD(308, 4), /* less 9, as two's complement */
	WQ_TWO_BYTE_SHIFT = FIELD(312, 1),
	WQ_LOG_STRIDE_BYTES = FIELD(317, 3), /* less 6 */
	WQ_DBR_UMEM_ID = FIELD(320, 32),
	WQ_UMEM_ID = FIELD(352, 32),
	WQ_UMEM_OFFSET = FIELD(384, 64),
};

enum { WQ_TYPE_CYCLIC = 1, WQ_TYPE_CYCLIC_STRIDING = 3 };
enum { QUEUE_RESET = 0, QUEUE_READY = 1, QUEUE_ERROR = 3 };

/* What RQC and SQC have both, ... */
enum {
	QUEUE_RESERVED_LKEY = FIELD(0, 1),
	QUEUE_STATE = FIELD(8, 4),
	QUEUE_HAIRPIN = FIELD(14, 1),
	QUEUE_USER_INDEX = FIELD(40, 24),
	QUEUE_CQN = FIELD(72, 24),
};

/* ... and what one of them has. */
enum {
	RQC_DELAY_DROP = FIELD(1, 1),
	RQC_SCATTER_FCS = FIELD(2, 1),
	RQC_VLAN_STRIP_DISABLE = FIELD(3, 1),
	RQC_MEMORY_TYPE = FIELD(4, 4),
	RQC_COUNTER_SET = FIELD(96, 8),
	SQC_CD_MASTER = FIELD(1, 1),
	SQC_NON_WIRE = FIELD(15, 1),
	SQC_STATIC = FIELD(16, 1),
	SQC_RATE_LIMIT = FIELD(240, 16),
	SQC_N_TIS = FIELD(256, 16),
	SQC_TIS = FIELD(360, 24),
};

/* MODIFY_RQ, MODIFY_SQ */
enum {
	MODIFY_STATE = FIELD(64, 4),
	MODIFY_NUMBER = FIELD(72, 24),
	MODIFY_BITMASK = FIELD(128, 64),
	MODIFY_RQ_VSD = 1 << 1,
};

/* CREATE_RQT, MODIFY_RQT */
enum {
	RQT_CONTEXT = 256,
	RQTC_LIST_TYPE = FIELD(165, 3),
	RQTC_MAX_SIZE = FIELD(176, 16),
	RQTC_ACTUAL_SIZE = FIELD(208, 16),
	RQTC_LIST = 1920, /* first bit; 32 each */
};

/* CREATE_TIR */
enum {
	TIR_CONTEXT = 256,
	TIRC_DISPATCH = FIELD(32, 4), /* 0 to one RQ, 1 by a table */
	TIRC_LRO = FIELD(148, 4),
	TIRC_RQN = FIELD(232, 24),
	TIRC_SYMMETRIC = FIELD(256, 1),
	TIRC_TUNNELED = FIELD(258, 1),
	TIRC_TABLE = FIELD(264, 24),
	TIRC_HASH = FIELD(288, 4),
	TIRC_TRANSPORT_DOMAIN = FIELD(296, 24),
	TIRC_KEY = 320, /* first bit; 40 bytes */
	TIRC_OUTER = 640,
	TIRC_INNER = 672,
	SELECT_L3 = FIELD(0, 1), /* 1: IPv6 */
	SELECT_L4 = FIELD(1, 1), /* 1: UDP */
	SELECT_FIELDS = FIELD(2, 30),
};

enum { HASH_NONE = 0, HASH_TOEPLITZ = 2 };

enum {
	TISC_TRANSPORT_DOMAIN = WITHIN(256, FIELD(296, 24)), /* CREATE_TIS */
	COUNTER_CLEAR = FIELD(192, 1), /* QUERY_Q_COUNTER, QUERY_FLOW_COUNTER */
	COUNTER_DUMP = FIELD(193, 1),
	COUNTER_N = FIELD(194, 30),
	COUNTER_BULK = FIELD(120, 8), /* ALLOC_FLOW_COUNTER */
};

static inline uint64_t field_get(const uint8_t *bytes, uint32_t size, uint32_t field)
{
	uint32_t first = field >> 8, width = field & 0xff;
	uint64_t value = 0;

	if ((first + width + 7) / 8 > size)
		return 0;
	for (uint32_t bit = first; bit < first + width; bit++)
		value = value << 1 | ((uint32_t)bytes[bit / 8] >> (7 - bit % 8) & 1u);
	return value;
}

/* Of zeroes before. */
static inline void field_put(uint8_t *bytes, uint32_t size, uint32_t field, uint64_t value)
{
	uint32_t first = field >> 8, width = field & 0xff;

	if ((first + width + 7) / 8 > size)
		return;
	for (uint32_t i = 0; i < width; i++, value >>= 1) {
		uint32_t bit = first + width - 1 - i;

		bytes[bit / 8] |= (uint8_t)((value & 1) << (7 - bit % 8));
	}
}

#endif
