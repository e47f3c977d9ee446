// SPDX-License-Identifier: MIT
// The host of the policy on a GPU. The policy runs in one thread; what it asks for is noted here,
// and done by the whole warp once the step is over: launch.cuh, publish.cuh.
#pragma once

#include "gpu_scheduler/cuda/control.h"
#include "gpu_scheduler/cuda/words.cuh"
#include "gpu_scheduler/policy/scheduler.hpp"
#include "gpu_scheduler/workloads/toylm/next_token.hpp"

struct PendingLaunch {
    const SlotQueue *queue;
    uint32_t first; // position in it
    uint32_t count;
    uint32_t lane;
    uint32_t instance;
};

// A request that found the scheduler idle: the fetching warp had its graph launched, since the
// policy is bound to ask for just that, unless more comes meanwhile. Then the policy decides: what
// it does not claim is a graph that has run for nobody.
struct Ahead {
    uint32_t state; // enum AheadState, or the request's slot
    uint32_t lane;
    // what is to be published when the graph has finished
    uint32_t slot;
    uint32_t instance;
    uint32_t length; // bytes of its result,
    uint64_t from;   // which stand here
    uint64_t ticket;
};

enum AheadState : uint32_t {
    AHEAD_NONE = 0xffffffff,
    AHEAD_VOID = 0xfffffffe, // launched, but on data that turned out to be old
};

struct GraphHost {
    executor_config config;
    uint32_t lane_of[KIND_COUNT];
    uint32_t turn[EXECUTOR_LANES]; // the lane's next instance: they take turns
    Ahead ahead;
    uint64_t launched[INSTANCES_MAX];
    uint64_t due[INSTANCES_MAX]; // ns; 0: at once
    uint32_t finished;           // a bit for each instance, as of this turn
    uint32_t in_flight;          // likewise
    uint32_t launches;           // of this execution of the kernel
    uint32_t pending_count;
    PendingLaunch pending[EXECUTOR_LANES];
    uint32_t collecting; // the instance whose results are being asked for
    uint32_t collected;  // of them
    uint64_t stream[SLOT_COUNT];
    const void *source[SLOT_COUNT]; // where the slot's result stands; null: in the page already
    uint16_t published[SLOT_COUNT]; // tokens of the stream that are in the page

    __device__ const graph_lane &lane(uint32_t kind) const { return config.lane[lane_of[kind]]; }

    __device__ uint64_t due_after(const graph_lane &lane) const {
        return lane.delay_ns ? now() + lane.delay_ns : 0;
    }

    __device__ uint32_t instance_next(uint32_t index) const {
        return config.lane[index].first_instance + turn[index];
    }

    // Counts a launch of the lane's next instance, and returns which that is.
    __device__ uint32_t instance_take(uint32_t index) {
        uint32_t instance = instance_next(index);

        turn[index] = turn[index] + 1 == config.lane[index].instances ? 0 : turn[index] + 1;
        launched[instance]++;
        launches++;
        finished &= ~(1u << instance);
        return instance;
    }

    // At most one a lane and step. Policy never has more in flight than the lane has instances.
    __device__ uint64_t launch(uint32_t kind, const SlotQueue &queue, uint32_t first,
                               uint32_t count) {
        uint32_t index = lane_of[kind];
        const graph_lane &lane = config.lane[index];
        bool believed = count == 1 && ahead.state == queue_at(queue, first);

        if (believed)
            ahead.state = AHEAD_NONE;
        ahead_settle();
        uint32_t instance = instance_take(index);
        if (!believed)
            pending[pending_count++] = {&queue, first, count, index, instance};
        due[instance] = due_after(lane);
        in_flight |= 1u << instance;
        return instance;
    }

    // Its launch counts, whoever it was for.
    __device__ void ahead_settle() {
        if (ahead.state == AHEAD_NONE)
            return;
        instance_take(ahead.lane);
        ahead.state = AHEAD_NONE;
    }

    // Streams are computed by the policy's own thread, when they are collected.
    __device__ uint64_t decode(uint32_t kind, const Stream *, uint32_t) const {
        return due_after(lane(kind));
    }

    __device__ bool ready(uint32_t kind, uint64_t handle) {
        if (lane(kind).streams)
            return !handle || now() >= handle;
        if (!(finished >> handle & 1) || (due[handle] && now() < due[handle]))
            return false;
        collecting = static_cast<uint32_t>(handle);
        collected = 0;
        in_flight &= ~(1u << handle);
        return true;
    }

    __device__ uint32_t result(uint32_t kind, const request_slot &at) {
        const graph_lane &lane = this->lane(kind);
        uint64_t stands =
            config.instance[collecting].output + uint64_t{lane.output_stride} * collected++;

        source[slot_of(at)] = reinterpret_cast<const void *>(stands);
        return lane.result_bytes == RESULT_AS_REQUEST ? at.ingress.length : lane.result_bytes;
    }

    __device__ uint32_t token(uint32_t kind, const request_slot &at, const Stream &stream) {
        const generation_request *request =
            reinterpret_cast<const generation_request *>(at.request);
        uint64_t &state = this->stream[stream.slot];

        if (!stream.tokens)
            state = toylm_begin(*request, reinterpret_cast<const uint32_t *>(request + 1));
        return toylm_next(state, lane(kind).vocab);
    }

    __device__ static uint32_t slot_of(const request_slot &at);
};
