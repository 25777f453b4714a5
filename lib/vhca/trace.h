/* trace.h - what the program and the devices say to each other, line by line, as VHCA_TRACE asks
 *for
 *
 * Each line has the time, process/thread, device, what it is about, and what happened:
 *
 *	1764446160.123456789 4242/4243 mlx5_0 qp 0x40 wqe 17 SEND ds 2 signalled; lkey 0x1801 addr
 *0x... 64
 *
 * Ask vhca_trace_on before each call, so that no trace costs a branch that is never taken.
 */
#ifndef VHCA_TRACE_H
#define VHCA_TRACE_H

#include "vhca/vhca.h"

extern bool vhca_trace_on; /* set once, before the engine runs */

void vhca_trace_open(void);

/* ---- commands: on the program's threads ---- */

/* Joined to the line of the command that this thread is at. */
#define vhca_note(...)                                \
	do {                                          \
		if (unlikely(vhca_trace_on))          \
			vhca_trace_note(__VA_ARGS__); \
	} while (0)

void vhca_trace_note(const char *fmt, ...) printf_like(1, 2);
/* At its end; `command` is of INVOKE_WRITE. */
void vhca_trace_command(const struct vhca_context *context, uint16_t object, uint16_t method,
	uint32_t command, int error, uint64_t ns);

/* ---- queues: on the engine's thread ---- */

/* The copy that is executed, of `n_segments` units of 16 bytes. */
void vhca_trace_wqe(const struct vhca_qp *qp, const void *wqe, uint32_t n_segments, uint16_t index);
/* A receive WQE that a message consumes: `n_segments` data segments in the program's memory. */
void vhca_trace_receive(
	const struct vhca_qp *qp, uint16_t index, const void *segments, uint32_t n_segments);
/* The 64 bytes that are about to be published at `index` ever. */
void vhca_trace_cqe(const struct vhca_cq *cq, const void *cqe, uint8_t op_own, uint16_t wqe_counter,
	uint32_t index);
/* As it is taken: the number and index that it says itself. */
struct vhca_page;
void vhca_trace_doorbell(
	const struct vhca_page *page, uint32_t offset, uint32_t number, uint32_t index);
void vhca_trace_send_record(const struct vhca_qp *qp, uint16_t index);
void vhca_trace_arm(const struct vhca_cq *cq, uint32_t record);
/* The port, GIDs, a device's death. */
void vhca_trace_port(const struct vhca_device *device, const char *what);

#endif
