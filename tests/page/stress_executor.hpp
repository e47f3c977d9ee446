// SPDX-License-Identifier: MIT
// The executor of page-stress: checks each request's bytes and answers with those that follow.
#pragma once

#include "tests/page/stress_requests.hpp"

#include "shared_page/executor.h"

#include <sched.h>

// A request that the executor holds.
struct Held {
    uint32_t slot, tokens;
};

inline void request_check(shared_page *page, uint32_t slot, uint64_t ticket) {
    const slot_ingress &in = page->slot[slot].ingress;
    Shape shape(in.request_id);

    if (in.ticket != ticket)
        fail("requests doubled or lost on the way in", in.request_id, in.ticket, ticket);
    if (in.length != shape.request_words * 8)
        fail("length of a request", in.request_id, in.length, shape.request_words * 8);
    for (uint32_t i = 0; i < shape.request_words; i++) {
        uint64_t word;

        memcpy(&word, page->slot[slot].request + i * 8, 8);
        if (word != request_word(in.request_id, i))
            fail("torn request", in.request_id, word, request_word(in.request_id, i));
    }
    if (shape.tokens)
        stream_begin(page, slot);
}

// Goes on with a request. Returns whether it is finished.
inline bool request_step(shared_page *page, Held &held) {
    uint64_t id = page->slot[held.slot].ingress.request_id;
    Shape shape(id);

    if (request_cancelled(page, held.slot)) {
        result_publish(page, held.slot, 0, STATUS_CANCELLED,
                       shape.tokens ? FINISH_ABORT : FINISH_NONE);
        return true;
    }
    for (uint32_t i = 0; i < 5 && held.tokens < shape.tokens; i++, held.tokens++)
        token_publish(page, held.slot, token_of(id, held.tokens), held.tokens % 2 == 0);
    if (held.tokens < shape.tokens)
        return false;
    for (uint32_t i = 0; !shape.tokens && i < shape.result_words; i++) {
        uint64_t word = result_word(id, i);
        memcpy(page->slot[held.slot].result + i * 8, &word, 8);
    }
    result_publish(page, held.slot, shape.tokens ? 0 : shape.result_words * 8, STATUS_OK,
                   shape.tokens ? FINISH_LENGTH : FINISH_NONE);
    return true;
}

// Takes requests in order, finishes them in any order, until it is stopped.
inline void execute(shared_page *page) {
    std::vector<Held> held;
    Random random{0};
    uint64_t ticket = 0;
    uint32_t slot;

    while (!held.empty() || !load_acquire(&page->supervisor.stop)) {
        for (; held.size() < 200 && request_take(page, &slot); held.push_back({slot, 0}))
            request_check(page, slot, ++ticket);
        if (held.empty())
            sched_yield();
        for (uint64_t left = held.size() / 2 + 1; left-- && !held.empty();) {
            Held &any = held[random.below(held.size())];

            if (!request_step(page, any))
                continue;
            any = held.back();
            held.pop_back();
        }
    }
}
