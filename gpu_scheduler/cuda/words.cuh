// SPDX-License-Identifier: MIT
// Words that another processor or another kernel writes, and copies by the lanes of a warp.
#pragma once

#include "shared_page/layout.h"

#define DEVICE static __device__ __forceinline__
// What is rarely run, and should not fill the instruction cache beside what is run all the time.
#define RARE static __device__ __noinline__

using Bytes16 = uint4;

DEVICE uint64_t load_acquire_system(const void *p) {
    uint64_t value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
}

// For polling. An acquiring load would empty the L1 cache, on which the policy's thread depends, at
// each poll. Reads that must not be older than what was found are ordered without it: a warp issues
// its loads in order, they depend on the poll's value, and they bypass L1 (load_page16, __ldcg).
DEVICE uint64_t load_relaxed_system(const void *p) {
    uint64_t value;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
}

DEVICE uint32_t load_relaxed_system32(const void *p) {
    uint32_t value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
    return value;
}

DEVICE uint64_t load_relaxed_device(const void *p) {
    uint64_t value;
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
}

DEVICE void store_release_system(void *p, uint64_t value) {
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

DEVICE void store_system(void *p, uint64_t value) {
    asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

// Of the page: never from the L1 cache, which does not see the host's writes.
DEVICE Bytes16 load_page16(const void *p) {
    Bytes16 v;
    asm volatile("ld.relaxed.sys.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

// Brings a line into the L1 cache. The caller has to use the result, or ptxas drops the load.
DEVICE uint32_t touch(const void *p) {
    uint32_t value;
    asm volatile("ld.ca.u32 %0, [%1];" : "=r"(value) : "l"(p));
    return value;
}

// Nanoseconds; only differences mean something.
DEVICE uint64_t now() {
    uint64_t value;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
    return value;
}

// Bytes from the start of a structure to one of its members. NVRTC 13.0 has no offsetof.
DEVICE uint32_t offset_in(const void *structure, const void *member) {
    return static_cast<uint32_t>(static_cast<const char *>(member) -
                                 static_cast<const char *>(structure));
}

DEVICE uint32_t lane_id() {
    return threadIdx.x % 32;
}

// Copies by `lanes` threads of a warp, of which the caller is number `lane`. Sources were written
// by other multiprocessors, or by this warp before a __syncwarp(): read from L2.
template <typename Word>
DEVICE void copy_words(char *to, const char *from, uint32_t bytes, uint32_t lane, uint32_t lanes) {
#pragma unroll 1
    for (uint32_t at = lane * sizeof(Word); at < bytes; at += lanes * sizeof(Word))
        *reinterpret_cast<Word *>(to + at) = __ldcg(reinterpret_cast<const Word *>(from + at));
}

DEVICE void copy_bytes(void *to, const void *from, uint32_t bytes, uint32_t lane, uint32_t lanes) {
    uint64_t both = reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from);
    uint32_t wide = both % 16 ? 0 : bytes / 16 * 16, rest = bytes - wide;
    char *target = static_cast<char *>(to);
    const char *source = static_cast<const char *>(from);

    copy_words<Bytes16>(target, source, wide, lane, lanes);
    if ((both | rest) % 4 == 0)
        copy_words<uint32_t>(target + wide, source + wide, rest, lane, lanes);
    else
        copy_words<unsigned char>(target + wide, source + wide, rest, lane, lanes);
}
