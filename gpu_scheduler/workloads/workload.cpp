// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <map>
#include <sstream>

#include "gpu_scheduler/workloads/workload.hpp"

using Makers = std::map<std::string, Registration::Make>;

// A function's static: registrations in other files run before main, in any order.
static Makers &makers() {
    static Makers all;
    return all;
}

Registration::Registration(const char *name, Make make) {
    makers()[name] = make;
}

// The policy calls the one of the two that limits.streams says.
uint32_t Workload::result(request_slot &) {
    std::abort();
}
uint32_t Workload::token(request_slot &, const Stream &) {
    std::abort();
}

static std::string known_names() {
    std::string names;
    for (const auto &[name, make] : makers())
        names += (names.empty() ? "" : ", ") + name;
    return names;
}

std::unique_ptr<Workload> make_workload(const std::string &spec) {
    Parameters parameters(spec);
    auto maker = makers().find(parameters.name());
    if (maker == makers().end())
        parameters.fail("there is no workload '" + parameters.name() + "'",
                        "Take one of " + known_names());
    std::unique_ptr<Workload> workload = maker->second(parameters);
    LaneLimits &limits = workload->limits;
    workload->delay_ns = parameters.number("delay_us", 0, 0, 10'000'000) * uint64_t{1000};
    limits.batch_max = parameters.number("batch", limits.streams ? 256 : 16, 1, SLOT_COUNT);
    limits.in_flight_max =
        limits.streams ? 1 : parameters.number("in_flight", SLOT_COUNT, 1, SLOT_COUNT);
    parameters.finish();
    return workload;
}

std::vector<std::unique_ptr<Workload>> make_workloads(const std::string &specs) {
    std::vector<std::unique_ptr<Workload>> workloads;
    std::istringstream parts(specs);
    for (std::string spec; std::getline(parts, spec, ';');) {
        workloads.push_back(make_workload(spec));
        for (size_t i = 0; i + 1 < workloads.size(); i++)
            if (workloads[i]->limits.kind == workloads.back()->limits.kind)
                Parameters(spec).fail("this workload is there already", "Give each one once");
    }
    if (workloads.empty())
        throw SpecError("reading --workloads: it is empty. Give at least one of " + known_names());
    return workloads;
}
