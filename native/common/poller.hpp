// SPDX-License-Identifier: MIT
// An epoll instance. Tags are the caller's; they come back with each event.
#pragma once

#include <cstdint>
#include <ctime>
#include <span>
#include <sys/epoll.h>

#include "native/common/descriptor.hpp"

class Poller {
  public:
    Poller(); // throws Failure

    // These return false and set errno, as epoll_ctl does.
    bool add(int fd, uint32_t events, uint64_t tag);
    bool modify(int fd, uint32_t events, uint64_t tag);

    // Waits for at most timeout nanoseconds, for ever when it is negative. The span is empty when
    // nothing happened in that time, and after a signal (SIGSTOP and SIGCONT interrupt a wait).
    std::span<const epoll_event> wait(int64_t timeout);

  private:
    // A turn of the loop takes at most this many, so that replies wait for few reads.
    static constexpr int EVENTS_MAX = 64;

    Descriptor epoll_;
    epoll_event event_[EVENTS_MAX];
};
