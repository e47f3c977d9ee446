// SPDX-License-Identifier: MIT
// What a predecessor left, found in the copy of the page before the first step.
#pragma once

#include "gpu_scheduler/cuda/block.cuh"

// Notices that stand beyond the predecessor's own count.
DEVICE void tail_recover() {
    uint64_t tail = mirror.executor.completion_tail;

    while (mirror.completion[tail & (COMPLETION_DEPTH - 1)] >> TICKET_SHIFT == tail + 1)
        tail++;
    mirror.executor.completion_tail = tail;
}

// Results that stand, as it seems, but were never announced: lost, since a killed executor's writes
// may have arrived in any order. Not the one that the CPU executor was announcing (answer.hpp).
DEVICE void unannounced_forget(uint64_t completion_head) {
    uint64_t tail = mirror.executor.completion_tail;
    uint64_t intent = mirror.completion[tail & (COMPLETION_DEPTH - 1)];
    uint32_t announced[SLOT_COUNT / 32] = {};

    for (uint64_t position = completion_head; position != tail; position++) {
        uint64_t entry = mirror.completion[position & (COMPLETION_DEPTH - 1)];
        uint32_t slot = entry & SLOT_MASK;
        if (entry & COMPLETION_FINAL)
            announced[slot / 32] |= 1u << slot % 32;
    }
    if (intent >> TICKET_SHIFT == 0 && intent & COMPLETION_FINAL)
        announced[(intent & SLOT_MASK) / 32] |= 1u << intent % 32;
    for (uint32_t slot = 0; slot < SLOT_COUNT; slot++) {
        uint64_t ticket = mirror.slot[slot].ingress.ticket;
        slot_executor &out = mirror.slot[slot].executor;

        if (ticket && ticket <= mirror.executor.submit_head && out.done == ticket &&
            mirror.final_taken[slot] != ticket && !(announced[slot / 32] >> slot % 32 & 1))
            out.done = 0;
    }
}
