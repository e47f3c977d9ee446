// SPDX-License-Identifier: MIT
// What a launch from the device costs by itself: the floor under the scheduler's latency.
#include "gpu_scheduler/cuda/control.h"
#include "gpu_scheduler/cuda/words.cuh"

enum : uint32_t {
    SPINS_MAX = 1 << 22,
};

struct Clocks {
    uint64_t cycles;
    uint64_t ns;
};

// One thread, in a graph of its own. Launches empty graphs one after another, instances in turn,
// and waits for the flag of each. Fills in clock cycles until the call returned and until the flag
// was seen (0: it never was), and two readings of both clocks.
extern "C" __global__ void launch_cost(const uint64_t *execs, const graph_flags *flags,
                                       uint32_t instances, uint32_t count, uint32_t *call_cycles,
                                       uint32_t *flag_cycles, Clocks *clocks) {
    clocks[0] = {static_cast<uint64_t>(clock64()), now()};
    for (uint32_t i = 0; i < count; i++) {
        auto exec = reinterpret_cast<cudaGraphExec_t>(execs[i % instances]);
        const uint64_t *flag = &flags[i % instances].finished;
        uint64_t before = load_relaxed_device(flag);
        long long began = clock64();

        while (cudaGraphLaunch(exec, cudaStreamGraphFireAndForget))
            if (clock64() - began > SPINS_MAX)
                return;
        call_cycles[i] = static_cast<uint32_t>(clock64() - began);
        for (uint32_t spins = 0; load_relaxed_device(flag) == before; spins++)
            if (spins > SPINS_MAX)
                return;
        flag_cycles[i] = static_cast<uint32_t>(clock64() - began);
    }
    clocks[1] = {static_cast<uint64_t>(clock64()), now()};
}

// Like graph_finish, for a flag in the host's memory, which the GPU does not add to.
extern "C" __global__ void host_finish(const uint64_t *launched, uint64_t *finished) {
    store_release_system(finished, load_acquire_system(launched));
}
