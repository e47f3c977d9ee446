// SPDX-License-Identifier: MIT
#include "native/load/usage.hpp"

#include <cinttypes>
#include <cstdio>
#include <sys/resource.h>

#include "native/load/clock.hpp"

namespace load {
namespace {

// Run queue delay: second field of the file (Documentation/scheduler/sched-stats.rst).
uint64_t read_wait_ns() {
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    if (!file)
        return 0;
    uint64_t run = 0, wait = 0;
    int fields = fscanf(file, "%" SCNu64 " %" SCNu64, &run, &wait);
    fclose(file);
    return fields == 2 ? wait : 0;
}

uint64_t timeval_ns(const timeval &time) {
    return static_cast<uint64_t>(time.tv_sec) * second_ns +
           static_cast<uint64_t>(time.tv_usec) * 1000;
}

} // namespace

Usage read_usage() {
    rusage usage = {};
    getrusage(RUSAGE_THREAD, &usage);
    return {
        .at_ns = now_ns(),
        .cpu_ns = read_clock_ns(CLOCK_THREAD_CPUTIME_ID),
        .user_ns = timeval_ns(usage.ru_utime),
        .system_ns = timeval_ns(usage.ru_stime),
        .wait_ns = read_wait_ns(),
    };
}

double busy_share(const Usage &from, const Usage &to) {
    if (to.at_ns <= from.at_ns)
        return 0;
    uint64_t busy = to.cpu_ns - from.cpu_ns + to.wait_ns - from.wait_ns;
    return static_cast<double>(busy) / static_cast<double>(to.at_ns - from.at_ns);
}

} // namespace load
