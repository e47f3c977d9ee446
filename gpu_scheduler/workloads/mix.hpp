// SPDX-License-Identifier: MIT
// The integer hash from which workloads make weights and tokens; mix.py has the same one.
#pragma once

#include "gpu_scheduler/policy/function.hpp"

// SplitMix64 (Steele, Lea, Flood 2014): each bit of the result depends on each bit of the value.
POLICY_FUNCTION uint64_t mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
}
