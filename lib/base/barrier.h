/* barrier.h - one barrier for each thing that must be ordered, named after it
 *
 * The parties are a CPU and a device that reads and writes host memory, or two CPUs. "Record" is a
 * doorbell record in host memory, "doorbell" a store to a UAR page, which the driver maps
 * write-combining.
 *
 * On x86 stores to write-back memory stay in order, also as a device sees them, so ordering them
 * costs nothing but the compiler's; a store to write-combining memory is not ordered behind them
 * without sfence, nor leaves the core soon without one. On arm64 the device belongs to the outer
 * shareable domain.
 */
#ifndef VBN_BARRIER_H
#define VBN_BARRIER_H

#define compiler_barrier() __asm__ volatile("" ::: "memory")

#if defined(__x86_64__)
#define dma_write_order_() compiler_barrier()
#define dma_read_order_()  compiler_barrier()
#define mmio_flush_()      __asm__ volatile("sfence" ::: "memory")
#define relax_()           __asm__ volatile("pause")
#elif defined(__aarch64__)
#define dma_write_order_() __asm__ volatile("dmb oshst" ::: "memory")
#define dma_read_order_()  __asm__ volatile("dmb oshld" ::: "memory")
#define mmio_flush_()      __asm__ volatile("dsb st" ::: "memory")
#define relax_()           __asm__ volatile("yield")
#else
#error "verbena knows the memory ordering of x86-64 and arm64 only"
#endif

/* WQEs in host memory before the record that lets the device fetch them. */
static force_inline void wqes_before_record(void)
{
	dma_write_order_();
}

/* The record before the doorbell store: the device reads the record when the doorbell arrives. A
 * doorbell page is mapped write-combining, and a store to such memory may pass earlier ones to
 * ordinary memory without this. */
static force_inline void record_before_doorbell(void)
{
#if defined(__x86_64__)
	mmio_flush_();
#else
	dma_write_order_();
#endif
}

/* Sends a doorbell out of the core's write-combining buffer now rather than some time later. */
static force_inline void flush_doorbell(void)
{
	mmio_flush_();
}

/* A CQE's owner bit before its body: pairs with the device, which writes the owner bit last. */
static force_inline void owner_before_body(void)
{
	dma_read_order_();
}

/* CQE bodies have been read before the record gives their slots back: loads before a store, free on
 * x86. */
static force_inline void cqes_before_record(void)
{
#if defined(__x86_64__)
	compiler_barrier();
#else
	__asm__ volatile("dmb osh" ::: "memory");
#endif
}

/* Bytes copied out of memory that another one writes, before the word that says whether they held
 * meanwhile; and that word before such memory is written again. They pair. */
static force_inline void copied_before_check(void)
{
	dma_read_order_();
}

static force_inline void closed_before_reuse(void)
{
	dma_write_order_();
}

/* In a loop that waits for another thread or the device. */
static force_inline void cpu_relax(void)
{
	relax_();
}

/* One 64-bit doorbell store, never torn: mmio on a 64-bit CPU. */
#define store_once(ptr, value)    __atomic_store_n(ptr, value, __ATOMIC_RELAXED)
#define load_once(ptr)            __atomic_load_n(ptr, __ATOMIC_RELAXED)

/* What was written before is seen by the thread that reads this value with load_acquire. Plain
 * moves on x86. */
#define store_release(ptr, value) __atomic_store_n(ptr, value, __ATOMIC_RELEASE)
#define load_acquire(ptr)         __atomic_load_n(ptr, __ATOMIC_ACQUIRE)

#endif
