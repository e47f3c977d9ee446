// SPDX-License-Identifier: MIT
// What is done while there is nothing to do: spin for about as long as a sleep's system call and
// wake-up take (some microseconds), then sleep. Sleeps grow while no request comes: one is delayed
// by at most a sixteenth of the time it was waited for, and a server that nobody uses wakes a
// thousand times a second, not twenty thousand.
#pragma once

#include <algorithm>
#include <ctime>

#include "gpu_scheduler/cpu/options.hpp"

class Idle {
  public:
    explicit Idle(const Options &options) : spin_(options.spin), least_(options.sleep_us * 1000) {}

    void reset() {
        polls_ = 0;
        slept_ = 0;
    }

    // pending: requests were taken, whose results fall due soon.
    void wait(bool pending) {
        if (spin_ || polls_ < SPIN_POLLS) {
            polls_++;
            __builtin_ia32_pause();
            return;
        }
        long length =
            pending ? least_ : std::clamp(slept_ / 16, least_, std::max(least_, LONGEST_NS));
        timespec time = {length / 1'000'000'000, length % 1'000'000'000};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
        slept_ += length;
    }

  private:
    static constexpr int SPIN_POLLS = 100;
    static constexpr long LONGEST_NS = 1'000'000;

    bool spin_;
    long least_; // nanoseconds, as slept_ is
    int polls_ = 0;
    long slept_ = 0;
};
