/* wire.h - what a wire must do: carry a request of one QP to its peer and bring the answer back
 *
 * A requester hands over a whole message: what its WQE asks for and the checked gather list in the
 * program's memory. The loopback finds the peer and runs its responder at once, so that the data is
 * copied once, gather list to scatter list. A wire of packets cuts the message along the path MTU,
 * answers VHCA_LATER, and calls vhca_requester_complete() or vhca_requester_error() when its last
 * packet has been answered; on its other side it feeds the responder a message for each packet,
 * whose gather list is the payload.
 */
#ifndef VHCA_WIRE_H
#define VHCA_WIRE_H

#include "vhca/vhca.h"

#define VHCA_MAX_SGE 64u /* data segments of the largest stride; a send WQE has fewer */

struct vhca_sge {
	uint8_t *addr; /* where the program's memory is, not an iova */
	uint32_t length;
};

/* One message as its WQE asks for it. */
struct vhca_message {
	struct vhca_qp *qp;
	uint8_t opcode; /* MLX5_OPCODE_* */
	bool solicited;
	__be32 imm; /* as it lies in the WQE and goes into the CQE */
	uint32_t length;
	uint32_t rkey;
	uint64_t raddr;
	uint64_t swap_add, compare;   /* of an atomic, in host order */
	const struct mlx5_wqe_av *av; /* of a datagram: where it goes */
	bool fence;                   /* not before all reads and atomics ahead of it are done */
	/* for a wire that completes later */
	uint16_t index;     /* of the WQE's first WQEBB */
	uint8_t n_segments; /* its ds */
	bool signalled;
	uint8_t syndrome; /* it is only to fail, in its turn */
	uint8_t fault;    /* enum vhca_fault_kind, where vhca_fault_any is set */
	uint8_t *answer;  /* of a read or atomic: what comes back goes there, and into the CQE */
	/* for a responder that is given a packet of it */
	bool more;       /* this is not the end of it */
	uint32_t before; /* bytes that came before */
	uint32_t n_sge;  /* of a read or atomic: where what comes back goes */
	struct vhca_sge sge[VHCA_MAX_SGE];
};

/* How a datagram came, as its receiver is told. */
struct vhca_datagram {
	uint32_t source_qpn, qkey;
	uint16_t tag;    /* of 802.1Q: priority << 13 | VLAN; 0: none */
	uint8_t grh[40]; /* of RoCE v2 over IPv4: that header in the last 20 bytes */
};

enum vhca_answer_kind {
	VHCA_ACK,
	VHCA_RNR,           /* no receive WQE: try again after the responder's timer */
	VHCA_SILENCE,       /* nobody there, or not in a state to answer: the retry timer decides */
	VHCA_NAK_INVALID,   /* the message does not fit, or is not allowed on this QP */
	VHCA_NAK_ACCESS,    /* rkey, bounds or right */
	VHCA_NAK_OPERATION, /* the responder could not do its part */
	VHCA_OWN_MEMORY,    /* the message's own memory is gone */
	VHCA_LATER,         /* the completion will follow */
	VHCA_BUSY,          /* not now: vhca_qp_activate() will follow */
};

struct vhca_answer {
	enum vhca_answer_kind kind;
	uint8_t rnr_timer; /* of VHCA_RNR, as min_rnr_timer encodes it */
};

struct vhca_wire {
	const struct vhca_wire_ops *ops;
	struct vhca_device *device;
	int fd;    /* readable when something has come in; -1: nothing can */
	bool held; /* what has come in waits for a receiver: `fd` says nothing new */
};

struct vhca_wire_ops {
	const char *name;
	/* `argument` is what VHCA_WIRE has behind a colon. NULL after a sentence that says why not.
	 */
	struct vhca_wire *(*create)(struct vhca_device *device, const char *argument);
	void (*destroy)(struct vhca_wire *wire);
	/* Engine thread, device locked. The gather list lives until the answer. */
	struct vhca_answer (*request)(struct vhca_wire *wire, const struct vhca_message *message);
	/* A message of a UD QP, which nothing answers: it gets there or not. False: not now, and
	 * vhca_qp_activate() will follow. */
	bool (*datagram)(struct vhca_wire *wire, const struct vhca_message *message);
	/* A raw frame, from the MAC on. NULL: it goes to the switch of the process, see raw.h. */
	void (*frame)(struct vhca_wire *wire, const uint8_t *bytes, uint32_t size);
	/* Raw frames leave the process by it; else they go to that switch, too. */
	bool carries_frames;
	/* Whatever has come in from outside; how much was done. NULL where nothing can. */
	unsigned int (*poll)(struct vhca_wire *wire);
	/* Does what is due at `now`, and lowers *next to when to come again; both are
	 * clock_cycles(). NULL: it has no timers. */
	void (*timers)(struct vhca_wire *wire, uint64_t now, uint64_t *next);
	/* What it holds back leaves at once: the last device closes, or the process ends. NULL: it
	 * holds nothing back. */
	void (*drain)(struct vhca_wire *wire);
	/* The name and value of what it counts, from i = 0; NULL past the last. NULL: nothing. */
	const char *(*counter)(const struct vhca_wire *wire, size_t i, uint64_t *value);
};

extern const struct vhca_wire_ops vhca_wire_loopback, vhca_wire_udp, vhca_wire_tap,
	vhca_wire_packet;

#endif
