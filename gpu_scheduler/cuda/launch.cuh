// SPDX-License-Identifier: MIT
// Launches that the policy has asked for: inputs gathered, graphs launched from the device.
#pragma once

#include "gpu_scheduler/cuda/block.cuh"

enum LaunchLimits : uint32_t {
    // An instance can refuse for a moment after its last kernel: the graph has not formally ended.
    ATTEMPTS_MAX = 1 << 14,
    GROUP = 16, // lanes that copy one request: 256 bytes at a time
};

// Requests of the batch side by side in the instance's input.
DEVICE void inputs_gather(const Block &block, const PendingLaunch &pending) {
    const graph_lane &lane = block.host.config.lane[pending.lane];
    char *input = reinterpret_cast<char *>(block.host.config.instance[pending.instance].input);

    if (!lane.input_stride)
        return;
#pragma unroll 1
    for (uint32_t i = lane_id() / GROUP; i < pending.count; i += 32 / GROUP) {
        const request_slot &at = mirror.slot[queue_at(*pending.queue, pending.first + i)];
        uint32_t length = min(at.ingress.length, lane.input_stride);

        copy_bytes(input + uint64_t{i} * lane.input_stride, at.request, length, lane_id() % GROUP,
                   GROUP);
    }
}

// Returns the error of a launch that stays refused, or 0.
DEVICE uint32_t graph_launch(Block &block, uint32_t instance) {
    const executor_config &config = block.host.config;
    auto exec = reinterpret_cast<cudaGraphExec_t>(config.instance[instance].exec);
    uint32_t error = 0;

#pragma unroll 1
    for (uint32_t attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        error = cudaGraphLaunch(exec, cudaStreamGraphFireAndForget);
        if (!error)
            break;
        block.progress.retries++;
    }
    block.host.launches++;
    return error;
}

DEVICE uint32_t launches_perform(Block &block) {
    GraphHost &host = block.host;
    uint32_t error = 0;

    for (uint32_t i = 0; i < host.pending_count; i++)
        inputs_gather(block, host.pending[i]);
    __syncwarp(); // a launch publishes what its thread has seen
    if (lane_id() == 0) {
#pragma unroll 1
        for (uint32_t i = 0; i < host.pending_count && !error; i++)
            error = graph_launch(block, host.pending[i].instance);
        host.pending_count = 0;
    }
    __syncwarp();
    return __shfl_sync(~0u, error, 0);
}

// A bit for each instance all of whose launches have finished.
DEVICE uint32_t finished_instances(const Block &block) {
    auto *flags = reinterpret_cast<const graph_flags *>(block.host.config.flags);
    bool finished =
        lane_id() < block.host.config.instances &&
        load_relaxed_device(&flags[lane_id()].finished) == block.host.launched[lane_id()];

    return __ballot_sync(~0u, finished);
}
