// SPDX-License-Identifier: MIT
// What the scheduler's block works on. Its policy sees a copy of the page in GPU memory: one warp
// (fetch.cuh) brings words and requests into it, the other steps the policy and moves results out
// (publish.cuh), so that a dependent read over PCIe is paid twice for a request, not at each word.
#pragma once

#include "gpu_scheduler/cuda/host.cuh"

enum BlockLimits : uint32_t {
    LAUNCH_RING = 64, // more than instances
};

// Between the fetching warp and the policy's.
struct Exchange {
    uint64_t fetch_head;         // next position of the submission ring
    volatile uint64_t fetched;   // requests in the copy
    volatile uint32_t owned;     // the policy has requests: watch for cancels
    volatile uint32_t stop;      // the supervisor or the process asked for it
    volatile uint32_t leaving;   // this execution of the kernel ends
    volatile uint32_t cancels;   // rises with each change of the counts below
    uint32_t recent[32];         // slots of the latest requests, by position in the ring
    uint64_t cancels_of_ingress; // as they stand in the copy
    uint64_t cancels_of_egress;
    uint64_t polls;
};

// Launches on their way from the warps that want them to the one that makes them, since a call
// takes two microseconds. One warp writes at a time: the fetching one only while the other is idle.
struct Launches {
    uint32_t instance[LAUNCH_RING];
    volatile uint32_t posted;
    volatile uint32_t made;
    volatile uint32_t error;  // cudaError_t of one that stays refused
    volatile uint32_t closed; // in this execution of the kernel nothing more is posted
};

struct Progress {
    uint64_t published; // notices that are in the page
    uint64_t counted;   // of these, so many does the page's completion_tail count
    uint64_t executions;
    uint64_t retries;
    uint64_t idle_since;           // ns; while it has to leave
    volatile uint32_t cancels;     // as of the last step
    volatile uint64_t taken;       // requests that the policy took, as of the last step
    volatile uint32_t touched[32]; // see step_prefetch()
    uint32_t recovered;            // scheduler_begin may have answered something
    uint32_t counters;             // they have changed since they were stored
    uint32_t timed_lane;           // a workload has a delay, or streams: time alone can make work
    long long mark[MARKS];
    uint64_t timed;
    uint64_t cycles[MARKS];
};

// In shared memory while the kernel runs, in GPU memory between two executions.
struct __align__(16) Block {
    Scheduler scheduler;
    GraphHost host;
    Exchange exchange;
    Launches launches;
    Progress progress;
};

static_assert(sizeof(Block) <= 227 * 1024, "more than an H100 or H200 has for one block");

__device__ Block saved;
__device__ shared_page mirror;

__device__ inline uint32_t GraphHost::slot_of(const request_slot &at) {
    return static_cast<uint32_t>(&at - mirror.slot);
}

// For the table of docs/gpu.md: where the time of a request goes.
DEVICE void mark(Block &block, timeline_mark at) {
#ifdef TIMELINE
    if (lane_id() == 0)
        block.progress.mark[at] = clock64();
    if (at != MARK_ANSWERED || lane_id())
        return;
    block.progress.timed++;
    for (uint32_t i = 1; i < MARKS; i++)
        block.progress.cycles[i] += block.progress.mark[i] - block.progress.mark[MARK_SEEN];
#endif
}

DEVICE shared_page *real_page(const Block &block) {
    return reinterpret_cast<shared_page *>(block.host.config.page);
}

DEVICE executor_control *control_of(const Block &block) {
    return reinterpret_cast<executor_control *>(block.host.config.control);
}

// The page says that a request was taken before its graph can do harm: what kills this executor is
// answered by its successor, not run again. By one thread.
DEVICE void taken_store(const Block &block, uint64_t taken) {
    store_system(&real_page(block)->executor.submit_head, taken);
}

// By all threads of the block. begin is a multiple of 16.
DEVICE void range_copy(Block &to, const Block &from, uint32_t begin, uint32_t end) {
    char *target = reinterpret_cast<char *>(&to);
    const char *source = reinterpret_cast<const char *>(&from);

    constexpr uint32_t AT_ONCE = 4; // reads on their way before the first is waited for
    uint32_t stride = blockDim.x * 16;

#pragma unroll 1
    for (uint32_t at = begin + threadIdx.x * 16; at < end; at += AT_ONCE * stride) {
        Bytes16 data[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
            if (at + i * stride < end)
                data[i] = *reinterpret_cast<const Bytes16 *>(source + at + i * stride);
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
            if (at + i * stride < end)
                *reinterpret_cast<Bytes16 *>(target + at + i * stride) = data[i];
    }
}

// Of the lanes only those in use, which come first.
DEVICE void block_copy(Block &to, const Block &from) {
    uint32_t lanes = from.scheduler.lanes * static_cast<uint32_t>(sizeof(Lane));
    uint32_t rest = offset_in(&from, &from.scheduler.lanes) / 16 * 16;

    range_copy(to, from, 0, lanes);
    range_copy(to, from, rest, sizeof(Block));
}
