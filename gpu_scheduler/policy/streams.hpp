// SPDX-License-Identifier: MIT
// Workloads that stream tokens: one decode step for all running streams at a time; streams join
// and leave between two steps.
#pragma once

#include "gpu_scheduler/policy/answer.hpp"

// Why the stream ends with this token, its last one so far; FINISH_NONE when it goes on. The stop
// token is delivered; among the first min_tokens - 1 tokens it is one like any other.
POLICY_FUNCTION uint32_t stream_finish(const Stream &stream, uint32_t token) {
    if (token == stream.stop_token && stream.tokens >= stream.min_tokens)
        return FINISH_STOP;
    return stream.tokens >= stream.max_tokens ? FINISH_LENGTH : FINISH_NONE;
}

// Publishes the tokens of the step that has finished, and keeps the streams that go on.
template <typename Host>
POLICY_FUNCTION void tokens_collect(Scheduler &scheduler, shared_page *page, Lane &lane,
                                    Host &host) {
    uint32_t kept = 0;

    for (uint32_t i = 0; i < lane.decoding; i++) {
        Stream stream = lane.running[i];
        if (stream.slot == SLOT_NONE)
            continue;
        uint32_t token = host.token(lane.limits.kind, page->slot[stream.slot], stream);
        stream.tokens++;
        uint32_t finish = stream_finish(stream, token);
        token_publish(page, stream.slot, token, finish == FINISH_NONE);
        if (finish == FINISH_NONE)
            lane.running[kept++] = stream;
        else
            answer(scheduler, page, stream.slot, 0, STATUS_OK, finish);
    }
    lane.running_count = kept;
    lane.decoding = 0;
}

// First come, first served. Priorities, token budgets and KV blocks will decide here.
POLICY_FUNCTION void streams_join(shared_page *page, Lane &lane) {
    SlotQueue &queue = lane.queue;

    while (queue_waiting(queue) && lane.running_count < lane.limits.batch_max) {
        uint32_t slot = queue_at(queue, queue.head++);
        const generation_request *request =
            reinterpret_cast<const generation_request *>(page->slot[slot].request);

        queue.launched = queue.head;
        lane.running[lane.running_count++] = {slot, 0, request->max_tokens, request->min_tokens,
                                              request->stop_token};
    }
}

template <typename Host>
POLICY_FUNCTION bool streams_step(Scheduler &scheduler, shared_page *page, Lane &lane, Host &host) {
    bool collected = lane.decoding && host.ready(lane.limits.kind, lane.decode);

    if (collected)
        tokens_collect(scheduler, page, lane, host);
    if (lane.decoding)
        return false;
    streams_join(page, lane);
    if (!lane.running_count)
        return collected;
    lane.decode = host.decode(lane.limits.kind, lane.running, lane.running_count);
    lane.decoding = lane.running_count;
    page->executor.launches++;
    page->executor.batched += lane.decoding;
    return true;
}
