/* trap.h - the slow mode: the program cannot write to its UAR pages, and every store to them is
 * looked at before the next instruction
 *
 *   trap.c         the pages, the fault, and stepping over an instruction that is not known
 *   trap_decode.c  what an x86-64 instruction stores
 *   trap_store.c   what a store to a UAR page means: the device's side
 */
#ifndef VHCA_TRAP_H
#define VHCA_TRAP_H

#include "vhca/vhca.h"

#include <signal.h>
#include <ucontext.h>

/* VHCA_TRAP: set once, before anything is mapped. */
extern bool vhca_trapped;
/* Stores that have faulted and wait for the device: their doorbells are on their way. */
extern int vhca_stores_waiting;

/* Looks for the program's mappings of the context's UAR pages: after a command, now and then, and
 * when a store was not trapped. */
void vhca_trap_pages(struct vhca_context *context);
/* Before the context goes. */
void vhca_trap_forget(struct vhca_context *context);
/* In a child of fork, whose pages are no UARs any more. */
void vhca_trap_forked(void);
/* True where the fault was such a store, which is done. */
bool vhca_trap_fault(const siginfo_t *info, ucontext_t *machine);

#define VHCA_MAX_STORE 64u

/* The bytes that the instruction at the machine's program counter stores, which is moved on behind
 * it; how many, or 0 where it is not known. */
uint32_t vhca_decode_store(ucontext_t *machine, uint8_t bytes[VHCA_MAX_STORE]);

/* `size` bytes at `offset` of the context's UARs; the device's lock is held. */
void vhca_trap_store(
	struct vhca_context *context, uint64_t offset, const uint8_t *bytes, uint32_t size);

#endif
