// SPDX-License-Identifier: MIT
#include "gpu_scheduler/workloads/toylm/next_token.hpp"
#include "gpu_scheduler/workloads/workload.hpp"

namespace {

class ToyLm : public Workload {
  public:
    explicit ToyLm(Parameters &parameters) : vocab_(parameters.number("vocab", 256, 2, 1 << 24)) {
        limits.kind = KIND_TOYLM;
        limits.streams = 1;
        limits.request_min = sizeof(generation_request) + TOKEN_SIZE;
        limits.request_max = REQUEST_MAX;
    }

    uint32_t token(request_slot &at, const Stream &stream) override {
        const auto *request = reinterpret_cast<const generation_request *>(at.request);
        uint64_t &state = state_[stream.slot];
        if (!stream.tokens)
            state = toylm_begin(*request, reinterpret_cast<const uint32_t *>(request + 1));
        return toylm_next(state, vocab_);
    }

  private:
    uint32_t vocab_;
    uint64_t state_[SLOT_COUNT]; // by slot, while its stream runs
};

const Registered<ToyLm> registered("toylm");

} // namespace
