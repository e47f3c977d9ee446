// SPDX-License-Identifier: MIT
// A request that finds the scheduler idle: its graph is launched before the policy has seen it, on
// the policy's own conditions, so that its steps take none of the request's time. struct Ahead says
// what becomes of a launch that the policy does not ask for.
#pragma once

#include "gpu_scheduler/cuda/launch.cuh"

enum ChunkLimits : uint32_t {
    FIRST_BYTES = 64 + 256, // of a slot: its ingress line and small payloads, read together
    FIRST_CHUNKS = FIRST_BYTES / 16,
    HEADER_CHUNKS = 4,
};

static_assert(HEADER_CHUNKS * 16 == sizeof(slot_ingress), "chunks begin with the payload");

// Nothing is owned, to be taken or launched, and the policy sees all cancels. By the fetching warp,
// which alone can end this.
DEVICE bool scheduler_idle(const Block &block) {
    const Exchange &exchange = block.exchange;
    const Launches &launches = block.launches;

    bool quiet = (block.progress.taken == exchange.fetch_head) & !exchange.owned;
    __threadfence_block(); // the rest was written before these
    bool room = block.host.launches + block.scheduler.lanes < LAUNCHES_MAX;
    bool idle = !exchange.stop & (block.progress.cancels == exchange.cancels) &
                (launches.posted == launches.made) & room;
    return __all_sync(~0u, quiet & idle);
}

// Whether the payload can stand in an instance's input as it was read, in chunks of 16 bytes.
DEVICE bool input_fits(uint64_t input, const graph_lane &lane, uint32_t length) {
    uint32_t copied = (length + 15) / 16 * 16;
    bool fits = (copied <= lane.input_stride) & (copied <= FIRST_BYTES - sizeof(slot_ingress)) &
                (input % 16 == 0);
    return !lane.input_stride | fits;
}

// One lane of the fetching warp has read each chunk of the request in that slot, from its header
// on. Returns whether its graph is on its way.
DEVICE bool launch_ahead(Block &block, uint32_t slot, const Bytes16 &chunk) {
    GraphHost &host = block.host;
    uint32_t kind = __shfl_sync(~0u, chunk.z, 1);
    uint32_t length = __shfl_sync(~0u, chunk.w, 1);
    uint32_t index = kind < KIND_COUNT ? block.scheduler.lane_of[kind] : 0;

    if (!index-- || block.exchange.fetch_head < block.scheduler.cancel_horizon)
        return false;
    const graph_lane lane = host.config.lane[index];
    uint32_t instance = host.instance_next(index);
    uint64_t input = host.config.instance[instance].input;
    bool refused = (lane.streams | lane.delay_ns) != 0 | (lane.instances < 2) |
                   (length < lane.request_min) | (length > lane.request_max);
    if (refused | !input_fits(input, lane, length))
        return false;
    uint32_t number = lane_id() - HEADER_CHUNKS;
    if (lane.input_stride && lane_id() >= HEADER_CHUNKS && number * 16 < length)
        reinterpret_cast<Bytes16 *>(input)[number] = chunk;
    __syncwarp();
    if (lane_id() == 0) {
        mark(block, MARK_POSTED);
        launch_post(block.launches, instance);
        taken_store(block, block.exchange.fetch_head + 1); // a launch takes longer than that
        host.ahead = {slot,
                      index,
                      slot,
                      instance,
                      lane.result_bytes == RESULT_AS_REQUEST ? length : lane.result_bytes,
                      host.config.instance[instance].output,
                      block.exchange.fetch_head + 1};
    }
    __syncwarp();
    return true;
}

// The slot of the next request, known before it comes: requests take the free slots in turn, so
// that the ring's position p finds the one at free_slot[p + skipped], where skipped counts slots
// that were taken and given back without a request. Only a belief: what is read there early is
// compared with what is read when the request stands.
struct Guess {
    uint64_t skipped;
    uint64_t first; // of the 32 entries of free_slot[] that the lanes hold
    uint32_t slot;
};

DEVICE uint32_t guess_slot(const Guess &guess, uint64_t position) {
    return __shfl_sync(~0u, guess.slot, (position + guess.skipped - guess.first) % 32) & SLOT_MASK;
}

// Slots were claimed for `claimed` requests when `submitted` of them had come. The difference
// includes those that are still coming: the least that is seen counts.
DEVICE void guess_learn(Guess &guess, uint64_t claimed, uint64_t submitted) {
    if (claimed - submitted < guess.skipped)
        guess.skipped = claimed - submitted;
}

// Whether the chunk that was read early is what is read now, of a request of that many bytes.
DEVICE bool guess_right(const Bytes16 &early, const Bytes16 &late, uint32_t length) {
    bool payload = lane_id() >= HEADER_CHUNKS && lane_id() < FIRST_CHUNKS;
    bool matters = lane_id() < 2 || (payload && (lane_id() - HEADER_CHUNKS) * 16 < length);
    bool same = early.x == late.x && early.y == late.y && early.z == late.z && early.w == late.w;

    return __all_sync(~0u, same || !matters);
}
