/* SPDX-License-Identifier: MIT */
/*
 * How words of the page are read and published, for each compiler that reads
 * the headers of this folder. A publishing store has release order, a look at
 * another writer's word acquire order, both at system scope.
 */
#ifndef SHARED_PAGE_MEMORY_ORDER_H
#define SHARED_PAGE_MEMORY_ORDER_H

#include "layout.h"

#if defined(__bpf__)
/*
 * BPF has load-acquire and store-release from Linux 6.15 on, but clang only
 * emits them from version 20 on. x86-64 orders plain loads and plain stores
 * this way by itself, and the JIT does not reorder, so that a volatile access
 * between compiler barriers is enough there; the loader refuses other machines.
 */
#define PAGE_FUNCTION  static __attribute__((always_inline, unused))
#define page_barrier() asm volatile("" ::: "memory")
#define load_acquire(p)                                                        \
	({                                                                     \
		__typeof__(*(p)) value_ = *(volatile __typeof__(*(p)) *)(p);   \
		page_barrier();                                                \
		value_;                                                        \
	})
#define store_release(p, v)                                                    \
	({                                                                     \
		page_barrier();                                                \
		*(volatile __typeof__(*(p)) *)(p) = (v);                       \
	})
/* BPF atomics that return a value are full barriers (-mcpu=v3 and later). */
#define shared_add(p, v) __sync_fetch_and_add((p), (v))
#define shared_swap(p, old, new)                                               \
	(__sync_val_compare_and_swap((p), (old), (new)) == (old))
#define bounded_for(i, n) bpf_for ((i), 0, (n))

#elif defined(__CUDACC__)
#define PAGE_FUNCTION static __device__ __forceinline__
#if defined(PAGE_IN_DEVICE)
/*
 * The page is a copy in the GPU's memory that one thread of a block works on:
 * plain words, which the compiler may keep in registers. Whoever moves words
 * between the copy and the real page cares for their order.
 */
#define load_acquire(p)	    (*(p))
#define store_release(p, v) ((void)(*(p) = (v)))
#else
/* In PTX itself: NVRTC needs no library for it. */
PAGE_FUNCTION uint32_t load_acquire(const uint32_t *p)
{
	uint32_t value;

	asm volatile("ld.acquire.sys.u32 %0, [%1];"
		     : "=r"(value)
		     : "l"(p)
		     : "memory");
	return value;
}
PAGE_FUNCTION uint64_t load_acquire(const uint64_t *p)
{
	unsigned long long value;

	asm volatile("ld.acquire.sys.u64 %0, [%1];"
		     : "=l"(value)
		     : "l"(p)
		     : "memory");
	return value;
}
PAGE_FUNCTION void store_release(uint32_t *p, uint32_t value)
{
	asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(p), "r"(value)
		     : "memory");
}
PAGE_FUNCTION void store_release(uint64_t *p, uint64_t value)
{
	asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(p),
		     "l"((unsigned long long)value)
		     : "memory");
}
#endif
#define bounded_for(i, n) for ((i) = 0; (i) < (n); (i)++)

#else
#define PAGE_FUNCTION	    static inline __attribute__((always_inline, unused))
#define load_acquire(p)	    __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define shared_add(p, v)    __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define shared_swap(p, old, new)                                               \
	({                                                                     \
		__typeof__(*(p)) expected_ = (old);                            \
		__atomic_compare_exchange_n((p), &expected_, (new), 0,         \
					    __ATOMIC_SEQ_CST,                  \
					    __ATOMIC_SEQ_CST);                 \
	})
#define bounded_for(i, n) for ((i) = 0; (i) < (n); (i)++)
#endif

#endif
