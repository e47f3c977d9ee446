// SPDX-License-Identifier: MIT
#include <cerrno>
#include <csignal>
#include <sys/signalfd.h>

#include "native/common/failure.hpp"
#include "native/common/signals.hpp"

Descriptor open_leave_signals() {
    sigset_t leaving;
    sigemptyset(&leaving);
    sigaddset(&leaving, SIGTERM);
    sigaddset(&leaving, SIGINT);
    sigprocmask(SIG_BLOCK, &leaving, nullptr);
    Descriptor signals(signalfd(-1, &leaving, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals)
        throw Failure("opening a descriptor for signals", errno, "Raise the limit of open files");
    return signals;
}

bool take_leave_signal(const Descriptor &signals) {
    signalfd_siginfo received;
    return ::read(signals.get(), &received, sizeof(received)) == sizeof(received);
}
