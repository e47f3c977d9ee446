// SPDX-License-Identifier: MIT
// The host of the policy on a CPU. A launch only notes when it will be due: the computing is done
// when it is collected, request by request, so that nobody waits for the rest of a batch.
#pragma once

#include <ctime>
#include <memory>
#include <vector>

#include "gpu_scheduler/workloads/workload.hpp"

class CpuHost {
  public:
    explicit CpuHost(const std::vector<std::unique_ptr<Workload>> &workloads) {
        for (const auto &workload : workloads)
            of_kind_[workload->limits.kind] = workload.get();
    }

    uint64_t launch(uint32_t kind, const SlotQueue &, uint32_t, uint32_t) const {
        return due(kind);
    }
    uint64_t decode(uint32_t kind, const Stream *, uint32_t) const { return due(kind); }
    bool ready(uint32_t, uint64_t due) const { return !due || now() >= due; }
    uint32_t result(uint32_t kind, request_slot &at) const { return of_kind_[kind]->result(at); }
    uint32_t token(uint32_t kind, request_slot &at, const Stream &stream) const {
        return of_kind_[kind]->token(at, stream);
    }

    // Nanoseconds on the monotonic clock.
    static uint64_t now() {
        timespec time;
        clock_gettime(CLOCK_MONOTONIC, &time);
        return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
    }

  private:
    // 0 for at once, which needs no clock.
    uint64_t due(uint32_t kind) const {
        uint64_t delay = of_kind_[kind]->delay_ns;
        return delay ? now() + delay : 0;
    }

    Workload *of_kind_[KIND_COUNT] = {};
};
