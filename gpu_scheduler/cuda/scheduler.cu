// SPDX-License-Identifier: MIT
// The kernels of executor-cuda. scheduler_run is one block in a graph of its own that launches
// itself again: CUDA allows 120 fire-and-forget launches for each execution of a graph. Three of
// its warps work; the others help to carry the block's memory from one execution to the next.
#define POLICY_LANES EXECUTOR_LANES
#define PAGE_IN_DEVICE

#include "gpu_scheduler/cuda/fetch.cuh"
#include "gpu_scheduler/cuda/launch.cuh"
#include "gpu_scheduler/cuda/publish.cuh"
#include "gpu_scheduler/cuda/recover.cuh"

enum RunLimits : uint32_t {
    TURNS_MAX = 1 << 24,         // of one execution, about a second
    QUIET_TURNS = 64,            // without work, before the counters are stored while a graph runs
    LONE_LOOKS = 128,            // some 30 us, after which the policy's step costs little
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

// Whether the policy can have anything to do, but for `taken` requests. Costs no step, and no read
// that leaves the block: all of them are on their way at once.
DEVICE bool work_possible(const Block &block, uint64_t taken) {
    const Progress &progress = block.progress;
    bool come = block.exchange.fetched != taken;
    bool cancelled = block.exchange.cancels != progress.cancels;
    uint32_t other = progress.recovered | block.launches.error | block.exchange.stop;

    return come | cancelled | (other != 0) ||
           (block.scheduler.owned && (progress.timed_lane || launch_possible(block.scheduler)));
}

// Lines of the copy that a step uses, fetched by all lanes at once: one after another, as the
// policy's thread comes to them, they would cost it most of its time.
DEVICE void step_prefetch(Block &block) {
    const Exchange &exchange = block.exchange;
    uint64_t position = block.progress.taken + lane_id();
    uint32_t seen = 0;

    if (position < exchange.fetched) {
        seen += touch(&mirror.slot[exchange.recent[position % 32]].ingress);
        seen += touch(&mirror.submit[position & SLOT_MASK]);
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

// Likewise, of what answers use.
DEVICE void results_prefetch(Block &block) {
    uint64_t notice = block.progress.published + lane_id();
    uint32_t seen = touch(&mirror.completion[notice & (COMPLETION_DEPTH - 1)]);

    for (uint32_t i = 0; i < block.scheduler.lanes; i++) {
        const SlotQueue &queue = block.scheduler.lane[i].queue;
        if (lane_id() >= queue.launched - queue.head)
            continue;
        const request_slot &at = mirror.slot[queue_at(queue, queue.head + lane_id())];
        seen += touch(&at.ingress) + touch(&at.executor);
    }
    block.progress.touched[lane_id()] = seen;
    __syncwarp();
}

// What the fetching warp has to know of the policy's state. owned first: see scheduler_idle().
DEVICE void state_share(Block &block) {
    block.exchange.owned = block.scheduler.owned;
    __threadfence_block();
    block.progress.taken = mirror.executor.submit_head;
}

// The next request was launched ahead, and nothing else is asked of the policy, or later.
DEVICE bool next_is_ahead(const Block &block) {
    bool quiet = !block.scheduler.owned && !block.scheduler.stopping && !block.progress.recovered;
    bool come = block.exchange.fetched != block.progress.taken;

    __threadfence_block(); // what the fetching warp thinks of it was written before it had come
    return come && quiet && !block.exchange.stop && block.host.ahead.state < SLOT_COUNT;
}

DEVICE bool policy_step(Block &block, bool next) {
    GraphHost &host = block.host;
    bool worked;

    if (next) {
        worked = scheduler_launch_next(block.scheduler, &mirror, host.ahead.lane, host);
    } else {
        block.progress.recovered = 0;
        block.progress.cancels = block.exchange.cancels;
        if (block.exchange.stop)
            scheduler_stop(block.scheduler, &mirror);
        worked = scheduler_step(block.scheduler, &mirror, host);
    }
    if (block.progress.taken != mirror.executor.submit_head) {
        taken_store(block, mirror.executor.submit_head);
        host.ahead_settle();
    }
    state_share(block); // the other warp may store what is taken from here on
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

DEVICE executor_ending ending_of(Block &block, bool worked) {
    if (block.launches.error)
        return ENDED_REFUSED;
    if (scheduler_stopped(block.scheduler, &mirror))
        return ENDED_STOPPED;
    return patience_ended(block, worked) ? ENDED_MISSING : EXECUTOR_RUNS;
}

// Results of what has finished, as soon as that is seen. Returns whether there were any.
DEVICE bool finished_collect(Block &block) {
    results_prefetch(block);
    if (lane_id() == 0) {
        scheduler_collect(block.scheduler, &mirror, block.host);
        state_share(block);
        block.progress.counters = 1;
    }
    __syncwarp();
    return results_publish(block);
}

// Whether the graph that was launched ahead finishes soon, and before anything else comes.
DEVICE bool lone_finishes(const Block &block, const Ahead &lone) {
    auto *flags = reinterpret_cast<const graph_flags *>(block.host.config.flags);
    const uint64_t *finished = &flags[lone.instance].finished;
    uint64_t launched = block.host.launched[lone.instance] + 1;

#pragma unroll 1
    for (uint32_t looks = 0; looks < LONE_LOOKS; looks++) {
        bool ends = load_relaxed_device(finished) == launched;
        bool other = work_possible(block, lone.ticket);
        if (__any_sync(~0u, ends))
            return true;
        if (__any_sync(~0u, other))
            return false;
    }
    return false;
}

// The next request was launched ahead, and is alone: its result leaves as soon as its graph has
// finished, the policy hears of both after that. Returns whether that is what happened.
DEVICE bool lone_serve(Block &block) {
    const Ahead lone = block.host.ahead;
    uint64_t position = block.progress.published;
    const void *notice = &mirror.completion[position & (COMPLETION_DEPTH - 1)];

    step_prefetch(block);
    block.progress.touched[lane_id()] =
        touch(lane_id() ? &mirror.slot[lone.slot].executor : notice);
    if (!lone_finishes(block, lone))
        return false;
    mark(block, MARK_FINISHED);
    lone_publish(real_page(block), lone, position);
    mark(block, MARK_PUBLISHED);
    if (lane_id() == 0) {
        block.progress.counted = position;
        block.progress.published = position + 1;
        block.progress.counters = 1;
        block.host.ahead_settle();
        scheduler_answer_next(block.scheduler, &mirror, lone.length);
        state_share(block);
    }
    __syncwarp();
    mark(block, MARK_ANSWERED);
    return true;
}

// One turn of the first warp: step, launch and publish. Returns whether there was work.
DEVICE bool turn(Block &block) {
    mark(block, MARK_NOTICED);
    __threadfence_block(); // what made work possible was announced after it stood
    bool next = __all_sync(~0u, next_is_ahead(block));
    if (next && lone_serve(block))
        return true;
    step_prefetch(block);
    bool worked = __any_sync(~0u, lane_id() == 0 && policy_step(block, next));
    if (worked) {
        block.progress.counters = 1;
        launches_post(block);
        if (block.host.in_flight)
            results_prefetch(block);
    }
    results_publish(block); // what a predecessor lost was answered before the first step
    return worked;
}

DEVICE void report(Block &block, executor_ending ending) {
    executor_control *control = control_of(block);

    control->error = block.launches.error;
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
DEVICE executor_ending turns_run(Block &block) {
    executor_ending ending = EXECUTOR_RUNS;
    uint32_t quiet = 0;

    for (uint32_t turns = 0; turns < TURNS_MAX && ending == EXECUTOR_RUNS; turns++) {
        bool worked = false, any = false;
        if (block.host.in_flight) {
            uint32_t finished = finished_instances(block);
            if (lane_id() == 0)
                block.host.finished = finished;
            __syncwarp();
            any = finished & block.host.in_flight && finished_collect(block);
        }
        if (__any_sync(~0u, work_possible(block, block.progress.taken))) {
            worked = turn(block);
            int end = lane_id() == 0 ? ending_of(block, worked) : 0;
            ending = static_cast<executor_ending>(__shfl_sync(~0u, end, 0));
        }
        quiet = worked || any ? 0 : quiet + 1;
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

    block_copy(block, saved);
    __syncthreads();
    if (threadIdx.x == 0) {
        block.exchange.leaving = 0;
        block.launches.closed = 0;
        block.host.launches = 0;
        store_system(&control_of(block)->executions, ++block.progress.executions);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        ending = turns_run(block);
        block.exchange.leaving = 1;
    } else if (threadIdx.x < 64) {
        fetch_run(block);
    } else if (threadIdx.x == 64) {
        launches_run(block);
    }
    __syncthreads();
    if (block.launches.error)
        ending = ENDED_REFUSED;
    if (threadIdx.x == 0)
        report(block, ending);
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
    saved.host.ahead.state = AHEAD_NONE;
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
