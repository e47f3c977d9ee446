// SPDX-License-Identifier: MIT
// Workloads with one result a request: what waits is launched together, oldest first.
#pragma once

#include "gpu_scheduler/policy/answer.hpp"

template <typename Host>
POLICY_FUNCTION bool batch_launch(shared_page *page, Lane &lane, Host &host) {
    uint32_t count = queue_waiting(lane.queue);

    if (!count || lane.batch_tail - lane.batch_head >= lane.limits.in_flight_max)
        return false;
    if (count > lane.limits.batch_max)
        count = lane.limits.batch_max;
    lane.batch[lane.batch_tail++ & SLOT_MASK] = {
        host.launch(lane.limits.kind, lane.queue, lane.queue.launched, count), count};
    lane.queue.launched += count;
    page->executor.launches++;
    page->executor.batched += count;
    return true;
}

// Publishes the oldest launch if it has finished. One at a time, so that workloads take turns.
template <typename Host>
POLICY_FUNCTION bool batch_collect(Scheduler &scheduler, shared_page *page, Lane &lane,
                                   Host &host) {
    const Batch &batch = lane.batch[lane.batch_head & SLOT_MASK];

    if (lane.batch_head == lane.batch_tail || !host.ready(lane.limits.kind, batch.handle))
        return false;
    for (uint32_t i = 0; i < batch.count; i++) {
        uint32_t slot = queue_at(lane.queue, lane.queue.head++);
        uint32_t length = host.result(lane.limits.kind, page->slot[slot]);

        answer(scheduler, page, slot, length, STATUS_OK, FINISH_NONE);
    }
    lane.batch_head++;
    return true;
}

template <typename Host>
POLICY_FUNCTION bool batches_step(Scheduler &scheduler, shared_page *page, Lane &lane, Host &host) {
    bool launched = batch_launch(page, lane, host);

    return batch_collect(scheduler, page, lane, host) || launched;
}
