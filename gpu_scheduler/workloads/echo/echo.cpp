// SPDX-License-Identifier: MIT
// The reply's payload is the request's. With delay_us it stands in for slow work.
#include <cstring>

#include "gpu_scheduler/workloads/workload.hpp"

namespace {

class Echo : public Workload {
  public:
    explicit Echo(Parameters &) {
        limits.kind = KIND_ECHO;
        limits.request_max = RESULT_MAX;
    }

    uint32_t result(request_slot &at) override {
        std::memcpy(at.result, at.request, at.ingress.length);
        return at.ingress.length;
    }
};

const Registered<Echo> registered("echo");

} // namespace
