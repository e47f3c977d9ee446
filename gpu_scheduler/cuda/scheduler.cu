// SPDX-License-Identifier: MIT
// The kernels of executor-cuda. scheduler_run is one block in a graph of its own that launches
// itself again: CUDA allows 120 fire-and-forget launches for each execution of a graph. Two of its
// warps work; the others help to carry the block's memory from one execution to the next.
#define POLICY_LANES EXECUTOR_LANES
#define PAGE_IN_DEVICE

#include "gpu_scheduler/cuda/fetch.cuh"
#include "gpu_scheduler/cuda/launch.cuh"
#include "gpu_scheduler/cuda/publish.cuh"
#include "gpu_scheduler/cuda/recover.cuh"

enum RunLimits : uint32_t {
    TURNS_MAX = 1 << 24,         // of one execution, about a second
    QUIET_TURNS = 32,            // without work, before the counters are stored while a graph runs
    PATIENCE_NS = 1'000'000'000, // for requests that were claimed and do not come
};

extern __shared__ __align__(16) char shared_memory[];

// Whether requests wait for nothing but the next step.
DEVICE bool launch_possible(const Scheduler &scheduler) {
    for (uint32_t i = 0; i < scheduler.lanes; i++) {
        const Lane &lane = scheduler.lane[i];
        if (queue_waiting(lane.queue) &&
            lane.batch_tail - lane.batch_head < lane.limits.in_flight_max)
            return true;
    }
    return false;
}

// Whether the policy can have anything to do. Costs no step, and no read that leaves the block.
DEVICE bool work_possible(const Block &block) {
    const Progress &progress = block.progress;

    return block.exchange.fetched != progress.taken || progress.recovered ||
           block.host.finished & block.host.in_flight || launch_possible(block.scheduler) ||
           block.exchange.cancels != progress.cancels || block.exchange.stop ||
           (progress.timed_lane && block.scheduler.owned);
}

// Lines of the copy that a step and its results use, fetched by all lanes at once: one after
// another, as the policy's thread comes to them, they would cost it most of its time.
DEVICE void step_prefetch(Block &block) {
    const Exchange &exchange = block.exchange;
    uint64_t position = block.progress.taken + lane_id();
    uint64_t notice = block.progress.published + lane_id();
    uint32_t seen = 0;

    if (position < exchange.fetched) {
        seen += touch(&mirror.slot[exchange.recent[position % 32]].ingress);
        seen += touch(&mirror.submit[position & SLOT_MASK]);
    }
    for (uint32_t i = 0; i < block.scheduler.lanes; i++) {
        const SlotQueue &queue = block.scheduler.lane[i].queue;
        if (lane_id() >= queue.launched - queue.head)
            continue;
        const request_slot &at = mirror.slot[queue_at(queue, queue.head + lane_id())];
        seen += touch(&at.ingress) + touch(&at.executor);
        seen += touch(&mirror.completion[notice & (COMPLETION_DEPTH - 1)]);
    }
    if (lane_id() < 2)
        seen += touch(reinterpret_cast<const char *>(&mirror.executor) + lane_id() * CACHE_LINE);
    if (lane_id() == 2)
        seen += touch(&mirror.ingress);
    if (lane_id() == 3)
        seen += touch(&mirror.egress);
    block.progress.touched[lane_id()] = seen;
    __syncwarp();
}

DEVICE bool policy_step(Block &block) {
    block.progress.recovered = 0;
    block.progress.cancels = block.exchange.cancels;
    if (block.exchange.stop)
        scheduler_stop(block.scheduler, &mirror);
    bool worked = scheduler_step(block.scheduler, &mirror, block.host);
    block.exchange.owned = block.scheduler.owned;
    block.progress.taken = mirror.executor.submit_head;
    return worked;
}

// Requests that have to be finished, but were only claimed: for how long already?
DEVICE bool patience_ended(Block &block, bool worked) {
    if (worked || !block.scheduler.stopping || block.scheduler.owned)
        block.progress.idle_since = 0;
    else if (!block.progress.idle_since)
        block.progress.idle_since = now();
    return block.progress.idle_since && now() - block.progress.idle_since > PATIENCE_NS;
}

DEVICE executor_ending ending_of(Block &block, bool worked, uint32_t error) {
    if (error)
        return ENDED_REFUSED;
    if (scheduler_stopped(block.scheduler, &mirror))
        return ENDED_STOPPED;
    return patience_ended(block, worked) ? ENDED_MISSING : EXECUTOR_RUNS;
}

// One turn of the first warp: step and launch. Returns whether there was work; sets *error when a
// launch was refused.
DEVICE bool turn(Block &block, uint32_t *error) {
    step_prefetch(block);
    int worked = lane_id() == 0 && policy_step(block);
    __syncwarp();
    if (!__shfl_sync(~0u, worked, 0))
        return false;
    bool launching = block.host.pending_count;
    mark(block, launching ? MARK_STEPPED : MARK_COLLECTED);
    *error = launches_perform(block);
    if (launching)
        mark(block, MARK_LAUNCHED);
    block.progress.counters = 1;
    return true;
}

DEVICE void report(Block &block, executor_ending ending, uint32_t error) {
    executor_control *control = control_of(block);

    control->error = error;
    control->missing = block.scheduler.stop_at - mirror.executor.submit_head;
    control->retries = block.progress.retries;
    control->polls = block.exchange.polls;
    control->timed = block.progress.timed;
    for (uint32_t i = 0; i < MARKS; i++)
        control->cycles[i] = block.progress.cycles[i];
    __threadfence_system();
    control->ending = ending;
}

// Until it has to leave, or to be launched again. All lanes of the first warp call it.
DEVICE executor_ending turns_run(Block &block, uint32_t *error) {
    executor_ending ending = EXECUTOR_RUNS;
    uint32_t quiet = 0;

    for (uint32_t turns = 0; turns < TURNS_MAX && ending == EXECUTOR_RUNS; turns++) {
        bool worked = false;
        uint32_t finished = block.host.in_flight ? finished_instances(block) : 0;
        if (finished & block.host.in_flight)
            mark(block, MARK_FINISHED);
        if (lane_id() == 0)
            block.host.finished = finished;
        int possible = lane_id() == 0 && work_possible(block);
        if (__shfl_sync(~0u, possible, 0)) {
            worked = turn(block, error);
            if (results_publish(block))
                mark(block, MARK_PUBLISHED);
            int end = lane_id() == 0 ? ending_of(block, worked, *error) : 0;
            ending = static_cast<executor_ending>(__shfl_sync(~0u, end, 0));
        }
        quiet = worked ? 0 : quiet + 1;
        if (counts_behind(block) && quiet > (block.host.in_flight ? QUIET_TURNS : 0))
            counts_store(block);
        if (block.host.launches + block.scheduler.lanes > LAUNCHES_MAX)
            break;
    }
    counts_store(block);
    return ending;
}

extern "C" __global__ void __launch_bounds__(256, 1) scheduler_run() {
    Block &block = *reinterpret_cast<Block *>(shared_memory);
    executor_ending ending = EXECUTOR_RUNS;
    uint32_t error = 0;

    block_copy(block, saved);
    __syncthreads();
    if (threadIdx.x == 0) {
        block.exchange.leaving = 0;
        block.host.launches = 0;
        store_system(&control_of(block)->executions, ++block.progress.executions);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        ending = turns_run(block, &error);
        block.exchange.leaving = 1;
    } else if (threadIdx.x < 64) {
        fetch_run(block);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        report(block, ending, error);
    block_copy(saved, block);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && ending == EXECUTOR_RUNS)
        cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
}

// The last node of every graph that is served.
extern "C" __global__ void graph_finish(graph_flags *flags) {
    asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(&flags->finished) : "memory");
}

// Any number of threads. A page was served before, perhaps, with this module.
extern "C" __global__ void mirror_fill(shared_page *page) {
    uint64_t threads = uint64_t{gridDim.x} * blockDim.x;

    for (uint64_t at = blockIdx.x * blockDim.x + threadIdx.x; at < sizeof(shared_page) / 16;
         at += threads)
        reinterpret_cast<Bytes16 *>(&mirror)[at] =
            load_page16(reinterpret_cast<Bytes16 *>(page) + at);
    for (uint64_t at = blockIdx.x * blockDim.x + threadIdx.x; at < sizeof(Block) / 16;
         at += threads)
        reinterpret_cast<Bytes16 *>(&saved)[at] = {};
}

// One thread, after mirror_fill. Sets lost to the number of requests that a predecessor lost.
extern "C" __global__ void scheduler_begin(const executor_config *config, uint32_t *lost) {
    const graph_flags *flags = reinterpret_cast<const graph_flags *>(config->flags);

    saved.host.config = *config;
    for (uint32_t i = 0; i < config->instances; i++)
        saved.host.launched[i] = flags[i].finished; // they were run once from the host
    for (uint32_t i = 0; i < config->lanes; i++) {
        const graph_lane &lane = config->lane[i];
        saved.host.lane_of[lane.kind] = i;
        saved.progress.timed_lane |= lane.delay_ns || lane.streams;
        scheduler_add(saved.scheduler, {lane.kind, lane.streams, lane.request_min, lane.request_max,
                                        lane.batch_max, lane.in_flight_max});
    }
    tail_recover();
    unannounced_forget(config->completion_head);
    saved.progress.published = saved.progress.counted = mirror.executor.completion_tail;
    *lost = scheduler_recover(saved.scheduler, &mirror);
    saved.progress.recovered = 1;
    saved.exchange.fetch_head = mirror.executor.submit_head;
    saved.exchange.fetched = mirror.executor.submit_head;
    saved.progress.taken = mirror.executor.submit_head;
    saved.progress.counters = 1;
    saved.exchange.cancels_of_ingress = mirror.ingress.cancel_count;
    saved.exchange.cancels_of_egress = mirror.egress.cancel_count;
}

// Bytes of shared memory that scheduler_run needs.
extern "C" __global__ void scheduler_size(uint32_t *bytes) {
    *bytes = sizeof(Block);
}
