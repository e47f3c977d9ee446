// SPDX-License-Identifier: MIT
// Launches that the policy has asked for, or will: inputs gathered, graphs launched from the device
// by a warp that does nothing else.
#pragma once

#include "gpu_scheduler/cuda/block.cuh"

enum LaunchLimits : uint32_t {
    // An instance refuses until its graph has formally ended: for a moment after its last kernel,
    // or
    // as long as a graph runs that was launched ahead for nobody.
    ATTEMPTS_MAX = 1 << 19,
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

// One thread, after a __syncwarp(): what its warp has written stands when the graph runs.
DEVICE void launch_post(Launches &launches, uint32_t instance) {
    launches.instance[launches.posted % LAUNCH_RING] = instance;
    __threadfence_block();
    launches.posted = launches.posted + 1;
}

DEVICE void launches_post(Block &block) {
    GraphHost &host = block.host;

    for (uint32_t i = 0; i < host.pending_count; i++)
        inputs_gather(block, host.pending[i]);
    __syncwarp();
    if (lane_id() == 0) {
        for (uint32_t i = 0; i < host.pending_count; i++)
            launch_post(block.launches, host.pending[i].instance);
        host.pending_count = 0;
    }
    __syncwarp();
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
    return error;
}

// The launching warp's one thread, until nothing more comes.
DEVICE void launches_run(Block &block) {
    Launches &launches = block.launches;
    uint32_t made = launches.made;

    while (true) {
        bool closed = launches.closed;
        if (made != launches.posted) {
            __threadfence_block();
            uint32_t error = graph_launch(block, launches.instance[made % LAUNCH_RING]);
            if (error)
                launches.error = error;
            mark(block, MARK_LAUNCHED);
            launches.made = ++made;
        } else if (closed) {
            break;
        }
    }
}

// A bit for each instance all of whose launches have finished.
DEVICE uint32_t finished_instances(const Block &block) {
    auto *flags = reinterpret_cast<const graph_flags *>(block.host.config.flags);
    bool finished =
        lane_id() < block.host.config.instances &&
        load_relaxed_device(&flags[lane_id()].finished) == block.host.launched[lane_id()];

    return __ballot_sync(~0u, finished);
}
