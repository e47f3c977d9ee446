// SPDX-License-Identifier: MIT
// Cancelled requests. The words of single slots are read only after one of two counts has risen.
#pragma once

#include "gpu_scheduler/policy/answer.hpp"

// Answers the cancelled ones among those that wait; the others keep their order.
POLICY_FUNCTION void waiting_cancel(Scheduler &scheduler, shared_page *page, Lane &lane) {
    SlotQueue &queue = lane.queue;
    uint32_t tail = queue.tail;

    queue.tail = queue.launched;
    for (uint32_t position = queue.launched; position != tail; position++) {
        uint32_t slot = queue_at(queue, position);

        if (request_cancelled(page, slot))
            answer_dropped(scheduler, page, lane, slot);
        else
            queue_push(queue, slot);
    }
}

// Ends cancelled streams at once. What the step in flight computes for them is dropped.
POLICY_FUNCTION void running_cancel(Scheduler &scheduler, shared_page *page, Lane &lane) {
    for (uint32_t i = 0; i < lane.running_count; i++) {
        uint32_t slot = lane.running[i].slot;

        if (slot == SLOT_NONE || !request_cancelled(page, slot))
            continue;
        answer(scheduler, page, slot, 0, STATUS_CANCELLED, FINISH_ABORT);
        lane.running[i].slot = SLOT_NONE;
    }
}

POLICY_FUNCTION bool cancels_apply(Scheduler &scheduler, shared_page *page) {
    uint64_t count =
        load_acquire(&page->ingress.cancel_count) + load_acquire(&page->egress.cancel_count);

    if (count == scheduler.cancels_seen)
        return false;
    scheduler.cancels_seen = count;
    // Requests that are cancelled, but not taken yet, are found by their tickets as they come.
    scheduler.cancel_horizon = load_acquire(&page->ingress.submit_tail);
    for (uint32_t i = 0; i < scheduler.lanes; i++) {
        waiting_cancel(scheduler, page, scheduler.lane[i]);
        running_cancel(scheduler, page, scheduler.lane[i]);
    }
    return true;
}
