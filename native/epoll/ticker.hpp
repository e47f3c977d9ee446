// SPDX-License-Identifier: MIT
// A timer that ticks while somebody wants it to, and costs nothing between ticks: no clock is read.
#pragma once

#include <cerrno>
#include <cstdint>
#include <sys/timerfd.h>
#include <unistd.h>

#include "native/common/clock.hpp"
#include "native/common/descriptor.hpp"
#include "native/common/failure.hpp"
#include "native/common/poller.hpp"

class Ticker {
  public:
    // period is in nanoseconds; 0 means that it never ticks. Throws Failure.
    Ticker(int64_t period, Poller &poller, uint64_t tag)
        : period_(period),
          timer_(period ? timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC) : -1) {
        if (period && (!timer_ || !poller.add(timer_.get(), EPOLLIN, tag)))
            throw Failure("making a timer", errno, "Raise the limit of open files");
    }

    void start() {
        if (!runs_ && period_)
            set(period_);
    }
    void stop() { set(0); }

    // Takes the ticks that epoll has reported.
    void take() {
        uint64_t ticks;
        [[maybe_unused]] ssize_t size = ::read(timer_.get(), &ticks, sizeof(ticks));
    }

  private:
    void set(int64_t period) {
        timespec time = {period / SECOND, period % SECOND};
        itimerspec times = {time, time};
        timerfd_settime(timer_.get(), 0, &times, nullptr);
        runs_ = period != 0;
    }

    int64_t period_;
    Descriptor timer_;
    bool runs_ = false;
};
