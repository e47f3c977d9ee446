// The policy as a kernel of one thread, to see that CUDA's compilers take it.
#include "gpu_scheduler/policy/scheduler.hpp"
#include "gpu_scheduler/workloads/toylm/next_token.hpp"

struct DeviceHost {
    uint64_t state[SLOT_COUNT];

    __device__ uint64_t launch(uint32_t, const SlotQueue &, uint32_t, uint32_t) { return 1; }
    __device__ uint64_t decode(uint32_t, const Stream *, uint32_t) { return 1; }
    __device__ bool ready(uint32_t, uint64_t handle) { return handle != 0; }
    __device__ uint32_t result(uint32_t, request_slot &at) { return at.ingress.length; }
    __device__ uint32_t token(uint32_t, request_slot &at, const Stream &stream) {
        auto *request = reinterpret_cast<const generation_request *>(at.request);

        if (!stream.tokens)
            state[stream.slot] =
                toylm_begin(*request, reinterpret_cast<const uint32_t *>(request + 1));
        return toylm_next(state[stream.slot], 256);
    }
};

extern "C" __global__ void scheduler_run(Scheduler *scheduler, shared_page *page, DeviceHost *host,
                                         LaneLimits limits) {
    scheduler_add(*scheduler, limits);
    scheduler_recover(*scheduler, page);
    while (!scheduler_stopped(*scheduler, page)) {
        if (load_acquire(&page->supervisor.stop))
            scheduler_stop(*scheduler, page);
        scheduler_step(*scheduler, page, *host);
    }
}
