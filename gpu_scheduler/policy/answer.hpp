// SPDX-License-Identifier: MIT
// Answers, each announced once, even if the executor is killed in the middle of one.
#pragma once

#include "gpu_scheduler/policy/state.hpp"

// The request's result stands. Before it is declared, the next place of the completion ring names
// the slot, with a position that no reader takes for a notice: whoever follows an executor that
// was killed between the result and its notice finds it there.
POLICY_FUNCTION void answer(Scheduler &scheduler, shared_page *page, uint32_t slot, uint32_t length,
                            uint32_t status, uint32_t finish) {
    uint64_t place = page->executor.completion_tail & (COMPLETION_DEPTH - 1);

    store_release(&page->completion[place], COMPLETION_FINAL | slot);
    result_publish(page, slot, length, static_cast<uint16_t>(status),
                   static_cast<uint16_t>(finish));
    scheduler.owned--;
}

// The request was cancelled before anything was done for it.
POLICY_FUNCTION void answer_dropped(Scheduler &scheduler, shared_page *page, const Lane &lane,
                                    uint32_t slot) {
    page->executor.dropped++;
    answer(scheduler, page, slot, 0, STATUS_CANCELLED,
           lane.limits.streams ? FINISH_ABORT : FINISH_NONE);
}

// Whether a predecessor took the slot's request and never finished it.
POLICY_FUNCTION bool request_lost(shared_page *page, uint32_t slot) {
    request_slot *at = &page->slot[slot];
    uint64_t ticket = load_acquire(&at->ingress.ticket);

    return ticket && ticket <= page->executor.submit_head &&
           load_acquire(&at->executor.done) != ticket;
}

// Completes what a killed predecessor was announcing.
POLICY_FUNCTION void announcement_recover(shared_page *page) {
    uint64_t tail = page->executor.completion_tail;
    uint64_t entry = load_acquire(&page->completion[tail & (COMPLETION_DEPTH - 1)]);
    uint32_t slot = entry & SLOT_MASK;

    if (entry >> TICKET_SHIFT == tail + 1)
        page->executor.completion_tail = tail + 1; // posted, but not yet counted
    else if (entry >> TICKET_SHIFT == 0 && entry & COMPLETION_FINAL && !request_lost(page, slot))
        notice_post(page, slot, COMPLETION_FINAL); // declared, but not yet posted
}

// Answers what a predecessor took and lost. Returns how many requests that were.
POLICY_FUNCTION uint32_t scheduler_recover(Scheduler &scheduler, shared_page *page) {
    uint32_t lost = 0;

    announcement_recover(page);
    for (uint32_t slot = 0; slot < SLOT_COUNT; slot++) {
        slot_executor *out = &page->slot[slot].executor;

        if (!request_lost(page, slot))
            continue;
        lost++;
        scheduler.owned++;
        // Tokens that stand are still delivered: only an ended stream is sent as one.
        answer(scheduler, page, slot, 0, STATUS_INTERNAL,
               out->tokens_ticket == page->slot[slot].ingress.ticket ? FINISH_ABORT : FINISH_NONE);
    }
    page->executor.completed = page->executor.submit_head;
    return lost;
}
