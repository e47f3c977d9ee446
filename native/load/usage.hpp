// SPDX-License-Identifier: MIT
// What the calling thread has cost so far: the generator judges itself by it.
#pragma once

#include <cstdint>

namespace load {

struct Usage {
    uint64_t at_ns = 0;
    uint64_t cpu_ns = 0;  // exact
    uint64_t user_ns = 0; // split by the kernel, tick-sampled on many configurations
    uint64_t system_ns = 0;
    uint64_t wait_ns = 0; // runnable, but another thread had the CPU; 0 where not accounted
};

Usage read_usage();

// Of the wall time between two marks, how much the thread ran or waited to run: 1 is saturated.
double busy_share(const Usage &from, const Usage &to);

} // namespace load
