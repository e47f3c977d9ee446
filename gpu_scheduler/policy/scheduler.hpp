// SPDX-License-Identifier: MIT
// The scheduler: what is done with requests, and in which order. One thread (one GPU block) steps
// it. What depends on the machine is asked of a host, which has
//   uint64_t launch(kind, const SlotQueue &, first, count)   starts a batch; returns its handle
//   uint64_t decode(kind, const Stream *, count)             starts a step of so many streams
//   bool ready(kind, handle)                                 whether either has finished
//   uint32_t result(kind, request_slot &)                    bytes of its result, which now stands
//   uint32_t token(kind, request_slot &, const Stream &)     the stream's next token
// result() and token() are called once for each request of a finished launch, in its order.
#pragma once

#include "gpu_scheduler/policy/admit.hpp"
#include "gpu_scheduler/policy/batches.hpp"
#include "gpu_scheduler/policy/cancel.hpp"
#include "gpu_scheduler/policy/streams.hpp"

// Before the first step: at most LANES_MAX workloads, one for each kind.
POLICY_FUNCTION void scheduler_add(Scheduler &scheduler, const LaneLimits &limits) {
    scheduler.lane[scheduler.lanes].limits = limits;
    scheduler.lane_of[limits.kind] = ++scheduler.lanes;
}

// From now on only what has been submitted is finished; later requests stay for a successor.
POLICY_FUNCTION void scheduler_stop(Scheduler &scheduler, shared_page *page) {
    if (scheduler.stopping)
        return;
    scheduler.stop_at = load_acquire(&page->ingress.submit_tail);
    scheduler.stopping = 1;
}

POLICY_FUNCTION bool scheduler_stopped(const Scheduler &scheduler, const shared_page *page) {
    return scheduler.stopping && !scheduler.owned &&
           page->executor.submit_head >= scheduler.stop_at;
}

// The part of a step that answers what has finished; streams wait for a whole step. For hosts on
// which the rest of a step costs time. Returns whether there was anything to do.
template <typename Host>
POLICY_FUNCTION bool scheduler_collect(Scheduler &scheduler, shared_page *page, Host &host) {
    bool collected = false;

    for (uint32_t i = 0; i < scheduler.lanes; i++) {
        Lane &lane = scheduler.lane[i];
        if (!lane.limits.streams)
            collected |= batch_collect(scheduler, page, lane, host);
    }
    return collected;
}

// The part of a step that takes and launches a single request: the next one, which is for that
// lane, of single results. For hosts that have begun with it, in the belief that the policy would
// launch it: what else has come waits for a whole step. Not while stopping.
template <typename Host>
POLICY_FUNCTION bool scheduler_launch_next(Scheduler &scheduler, shared_page *page, uint32_t lane,
                                           Host &host) {
    uint32_t slot;

    if (!request_take(page, &slot))
        return false;
    request_admit(scheduler, page, slot);
    batch_launch(page, scheduler.lane[lane], host);
    page->executor.steps++;
    return true;
}

// For hosts that have served the next request by themselves, when nothing was owned: launched it
// alone, on the conditions of request_admit(), and seen it finish. Takes and answers it.
POLICY_FUNCTION bool scheduler_answer_next(Scheduler &scheduler, shared_page *page,
                                           uint32_t length) {
    uint32_t slot;

    if (!request_take(page, &slot))
        return false;
    scheduler.owned++;
    page->executor.launches++;
    page->executor.batched++;
    page->executor.steps++;
    answer(scheduler, page, slot, length, STATUS_OK, FINISH_NONE);
    return true;
}

// Returns whether there was anything to do. Without requests it reads a single word of others.
template <typename Host>
POLICY_FUNCTION bool scheduler_step(Scheduler &scheduler, shared_page *page, Host &host) {
    bool worked = requests_admit(scheduler, page);

    if (!scheduler.owned && !worked)
        return false;
    worked |= cancels_apply(scheduler, page);
    for (uint32_t i = 0; i < scheduler.lanes; i++) {
        Lane &lane = scheduler.lane[i];

        worked |= lane.limits.streams ? streams_step(scheduler, page, lane, host)
                                      : batches_step(scheduler, page, lane, host);
    }
    page->executor.steps += worked;
    return worked;
}
