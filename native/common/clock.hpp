// SPDX-License-Identifier: MIT
// Monotonic time in nanoseconds.
#pragma once

#include <cstdint>
#include <ctime>

constexpr int64_t MICROSECOND = 1'000;
constexpr int64_t MILLISECOND = 1'000'000;
constexpr int64_t SECOND = 1'000'000'000;
constexpr int64_t NEVER = INT64_MAX;

inline int64_t monotonic_now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}
