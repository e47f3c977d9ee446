// SPDX-License-Identifier: MIT
// What the scheduler remembers between its steps. All zero is a scheduler without workloads.
#pragma once

#include "gpu_scheduler/policy/function.hpp"

// How many workloads are served at a time: fewer on the GPU, whose scheduler lives in shared
// memory.
#ifndef POLICY_LANES
#define POLICY_LANES KIND_COUNT
#endif

enum SchedulerLimits : uint32_t {
    LANES_MAX = POLICY_LANES,
    TAKE_MAX = 64, // requests taken in one step, which bounds its length
};

// What the scheduler has to know of a workload. Its host fills this in before the first step.
struct LaneLimits {
    uint32_t kind;        // enum request_kind
    uint32_t streams;     // 1: an answer is a stream of tokens
    uint32_t request_min; // bytes of payload
    uint32_t request_max;
    uint32_t batch_max;     // requests in one launch; streams running at a time
    uint32_t in_flight_max; // launches at a time; streams have one
};

// Requests in the order of their submission: head to launched are being worked on, launched to
// tail wait. No more slots than its size exist, so that it cannot overflow.
struct SlotQueue {
    uint32_t head;
    uint32_t launched;
    uint32_t tail;
    uint16_t slot[SLOT_COUNT];
};

// A launch that has not been collected; its requests stand at the queue's head.
struct Batch {
    uint64_t handle; // what the host's launch() returned
    uint32_t count;  // requests
};

struct Stream {
    uint32_t slot; // SLOT_NONE once it has been answered
    uint32_t tokens;
    uint32_t max_tokens;
    uint32_t min_tokens;
    uint32_t stop_token;
};

// The requests of one workload.
struct Lane {
    LaneLimits limits;
    SlotQueue queue;
    // single results: launches, oldest first, as a ring
    Batch batch[SLOT_COUNT];
    uint32_t batch_head;
    uint32_t batch_tail;
    // streams: the running list, in the order in which they were submitted
    Stream running[SLOT_COUNT];
    uint32_t running_count;
    uint32_t decoding; // so many of them, from the first on, are in the step that is in flight
    uint64_t decode;   // that step's handle
};

struct Scheduler {
    Lane lane[LANES_MAX];
    uint32_t lanes;
    uint32_t lane_of[KIND_COUNT]; // index plus 1; 0: nobody serves that kind
    uint32_t owned;               // requests taken and not answered
    uint32_t stopping;
    uint64_t stop_at; // while stopping: the ticket of the last request to take
    uint64_t cancels_seen;
    uint64_t cancel_horizon; // later tickets were not cancelled when cancels_seen was read
};

POLICY_FUNCTION uint32_t queue_waiting(const SlotQueue &queue) {
    return queue.tail - queue.launched;
}

POLICY_FUNCTION uint32_t queue_at(const SlotQueue &queue, uint32_t position) {
    return queue.slot[position & SLOT_MASK];
}

POLICY_FUNCTION void queue_push(SlotQueue &queue, uint32_t slot) {
    queue.slot[queue.tail++ & SLOT_MASK] = static_cast<uint16_t>(slot);
}
