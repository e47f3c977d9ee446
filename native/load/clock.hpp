// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <ctime>

namespace load {

inline constexpr uint64_t second_ns = 1'000'000'000;

inline uint64_t read_clock_ns(clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return static_cast<uint64_t>(time.tv_sec) * second_ns + static_cast<uint64_t>(time.tv_nsec);
}

inline uint64_t now_ns() {
    return read_clock_ns(CLOCK_MONOTONIC);
}

inline uint64_t seconds_to_ns(double seconds) {
    return static_cast<uint64_t>(seconds * 1e9);
}

} // namespace load
