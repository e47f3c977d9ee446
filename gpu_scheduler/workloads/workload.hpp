// SPDX-License-Identifier: MIT
// What a workload is to the CPU executor. Each has a folder here, and its source registers itself:
// to add one, add a folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu_scheduler/policy/state.hpp"
#include "gpu_scheduler/workloads/parameters.hpp"

class Workload {
  public:
    virtual ~Workload() = default;

    LaneLimits limits{};   // set by the constructor: kind, streams and the sizes of a request
    uint64_t delay_ns = 0; // a launch counts as finished only so long after its start

    // Computes the slot's result and returns its bytes. For workloads with one result a request.
    virtual uint32_t result(request_slot &at);
    // The stream's next token; stream.tokens tells which. For workloads that stream.
    virtual uint32_t token(request_slot &at, const Stream &stream);
};

class Registration {
  public:
    using Make = std::unique_ptr<Workload> (*)(Parameters &);
    Registration(const char *name, Make make);
};

// A namespace-scope object in the workload's source: its name in specifications, and its class.
template <typename T>
struct Registered : Registration {
    explicit Registered(const char *name)
        : Registration(name, [](Parameters &parameters) -> std::unique_ptr<Workload> {
              return std::make_unique<T>(parameters);
          }) {}
};

// From "name:key=value,..."; every workload knows delay_us, batch and in_flight (streams: not the
// last) beside its own. Throws SpecError.
std::unique_ptr<Workload> make_workload(const std::string &spec);

// From "spec;spec;...". Throws SpecError, also for two of the same kind.
std::vector<std::unique_ptr<Workload>> make_workloads(const std::string &specs);
