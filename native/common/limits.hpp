// SPDX-License-Identifier: MIT
// The limit of open files.
#pragma once

#include <algorithm>
#include <sys/resource.h>

// Makes room for that many connections and a few descriptors of our own, as far as the hard limit
// allows; beyond it accepting fails with EMFILE.
inline void raise_open_files(rlim_t connections) {
    constexpr rlim_t OWN = 32;
    rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= connections + OWN)
        return;
    limit.rlim_cur = std::min(limit.rlim_max, connections + OWN);
    setrlimit(RLIMIT_NOFILE, &limit);
}
