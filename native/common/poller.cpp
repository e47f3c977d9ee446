// SPDX-License-Identifier: MIT
#include <cerrno>
#include <sys/prctl.h>

#include "native/common/failure.hpp"
#include "native/common/poller.hpp"

Poller::Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_)
        throw Failure("creating an epoll instance", errno, "Raise the limit of open files");
    // ep_poll() adds the thread's timer slack, 50 us by default, to each timeout.
    prctl(PR_SET_TIMERSLACK, 1);
}

bool Poller::add(int fd, uint32_t events, uint64_t tag) {
    epoll_event event{.events = events, .data = {.u64 = tag}};
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

bool Poller::modify(int fd, uint32_t events, uint64_t tag) {
    epoll_event event{.events = events, .data = {.u64 = tag}};
    return epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0;
}

std::span<const epoll_event> Poller::wait(int64_t timeout) {
    constexpr int64_t SECOND = 1'000'000'000;
    timespec limit{.tv_sec = timeout / SECOND, .tv_nsec = timeout % SECOND};
    int count =
        epoll_pwait2(epoll_.get(), event_, EVENTS_MAX, timeout < 0 ? nullptr : &limit, nullptr);
    if (count < 0 && errno != EINTR)
        throw Failure("waiting with epoll_pwait2", errno, "Linux 5.11 or newer has it");
    return {event_, static_cast<size_t>(count < 0 ? 0 : count)};
}
