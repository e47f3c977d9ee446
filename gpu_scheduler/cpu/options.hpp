// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct Options {
    int page_fd = -1;
    std::vector<uint64_t> page_frames; // none: the page is the file itself
    std::string workloads;
    bool spin = false;
    long sleep_us = 50;
};

// Throws std::runtime_error with a message for people. Prints the help and exits when asked to.
Options parse_options(int argc, char **argv);
