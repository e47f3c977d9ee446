// The policy with an executor that dies at the nth point: before and after each publishing store.
// Between two of them only words change that nobody else reads.
#include <atomic> // before memory_order.h, whose macros are named like its members

#include "shared_page/memory_order.h"

namespace {

struct Killed {};
int points_left; // 0: it lives

void crash_point() {
    if (points_left && !--points_left)
        throw Killed();
}

} // namespace

#undef store_release
#define store_release(p, v)                                                                        \
    (crash_point(), __atomic_store_n((p), (v), __ATOMIC_RELEASE), crash_point())

#include "gpu_scheduler/policy/scheduler.hpp"

namespace {

// Everything is ready at once; results are four bytes of the request, tokens count from 0.
struct Host {
    uint64_t launch(uint32_t, const SlotQueue &, uint32_t, uint32_t) { return 0; }
    uint64_t decode(uint32_t, const Stream *, uint32_t) { return 0; }
    bool ready(uint32_t, uint64_t) { return true; }
    uint32_t result(uint32_t, request_slot &at) {
        for (int i = 0; i < 4; i++)
            at.result[i] = at.request[i];
        return 4;
    }
    uint32_t token(uint32_t, request_slot &, const Stream &stream) { return stream.tokens; }
};

} // namespace

// Recovers, and works until there is nothing to do or it is killed; point 0 is never. Returns
// whether it was killed.
extern "C" int crash_run(shared_page *page, int point) {
    static Scheduler scheduler;
    Host host;

    scheduler = {};
    scheduler_add(scheduler, {KIND_ECHO, 0, 4, 4, 2, 1});
    scheduler_add(scheduler, {KIND_TOYLM, 1, 44, REQUEST_MAX, 2, 1});
    points_left = point;
    try {
        scheduler_recover(scheduler, page);
        while (scheduler_step(scheduler, page, host))
            ;
        return 0;
    } catch (const Killed &) {
        return 1;
    }
}
