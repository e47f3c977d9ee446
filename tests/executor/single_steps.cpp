// The policy, one call at a time: whole steps, and the parts of which a host makes its own.
#include <atomic> // before memory_order.h, whose macros are named like its members

#include "gpu_scheduler/policy/scheduler.hpp"

namespace {

// Counts launches, and their requests; everything is ready at once. A result is its request.
struct Host {
    uint32_t launches, requests;

    uint64_t launch(uint32_t, const SlotQueue &, uint32_t, uint32_t count) {
        launches++;
        requests += count;
        return 0;
    }
    uint64_t decode(uint32_t, const Stream *, uint32_t) { return 0; }
    bool ready(uint32_t, uint64_t) { return true; }
    uint32_t result(uint32_t, request_slot &at) {
        for (uint32_t i = 0; i < at.ingress.length; i++)
            at.result[i] = at.request[i];
        return at.ingress.length;
    }
    uint32_t token(uint32_t, request_slot &, const Stream &) { return 0; }
};

Scheduler scheduler;
Host host;

} // namespace

extern "C" {

void single_begin() {
    scheduler = {};
    host = {};
    scheduler_add(scheduler, {KIND_ECHO, 0, 1, 8, 16, 2});
}

int single_step(shared_page *page) {
    return scheduler_step(scheduler, page, host);
}

int single_collect(shared_page *page) {
    return scheduler_collect(scheduler, page, host);
}

int single_launch_next(shared_page *page) {
    return scheduler_launch_next(scheduler, page, 0, host);
}

// As a host does that has launched the next request by itself, and seen it finish.
int single_answer_next(shared_page *page) {
    uint64_t entry = page->submit[page->executor.submit_head & SLOT_MASK];

    return scheduler_answer_next(scheduler, page, host.result(0, page->slot[entry & SLOT_MASK]));
}

uint32_t single_launches() {
    return host.launches;
}

uint32_t single_owned() {
    return scheduler.owned;
}
}
