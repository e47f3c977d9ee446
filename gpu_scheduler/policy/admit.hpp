// SPDX-License-Identifier: MIT
// Requests in: taken in submission order, checked, and put into the queue of their workload.
#pragma once

#include "gpu_scheduler/policy/answer.hpp"

// What both generating workloads can say of a request without knowing their model.
POLICY_FUNCTION bool generation_valid(const request_slot &at) {
    const generation_request *request = reinterpret_cast<const generation_request *>(at.request);
    uint32_t prompt_bytes = at.ingress.length - static_cast<uint32_t>(sizeof(generation_request));

    return prompt_bytes % TOKEN_SIZE == 0 && request->prompt_count == prompt_bytes / TOKEN_SIZE &&
           request->prompt_count >= 1 && request->max_tokens >= 1 &&
           request->max_tokens <= STREAM_TOKENS_MAX && request->min_tokens <= request->max_tokens &&
           request->temperature >= 0 && request->top_p >= 0 && request->top_p <= 1;
}

POLICY_FUNCTION bool payload_valid(const LaneLimits &limits, const request_slot &at) {
    return at.ingress.length >= limits.request_min && at.ingress.length <= limits.request_max &&
           (!limits.streams || generation_valid(at));
}

POLICY_FUNCTION void request_admit(Scheduler &scheduler, shared_page *page, uint32_t slot) {
    const request_slot &at = page->slot[slot];
    uint32_t kind = at.ingress.kind;
    uint32_t index = kind < KIND_COUNT ? scheduler.lane_of[kind] : 0;

    scheduler.owned++;
    if (!index) {
        answer(scheduler, page, slot, 0, STATUS_UNKNOWN_KIND, FINISH_NONE);
        return;
    }
    Lane &lane = scheduler.lane[index - 1];
    if (!payload_valid(lane.limits, at)) {
        answer(scheduler, page, slot, 0, STATUS_BAD_PAYLOAD, FINISH_NONE);
        return;
    }
    if (at.ingress.ticket <= scheduler.cancel_horizon && request_cancelled(page, slot)) {
        answer_dropped(scheduler, page, lane, slot);
        return;
    }
    if (lane.limits.streams)
        stream_begin(page, slot);
    queue_push(lane.queue, slot);
}

POLICY_FUNCTION bool requests_admit(Scheduler &scheduler, shared_page *page) {
    uint32_t taken = 0;
    uint32_t slot;

    while (taken < TAKE_MAX &&
           !(scheduler.stopping && page->executor.submit_head >= scheduler.stop_at) &&
           request_take(page, &slot)) {
        request_admit(scheduler, page, slot);
        taken++;
    }
    return taken > 0;
}
