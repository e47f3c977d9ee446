// SPDX-License-Identifier: MIT
#pragma once

#include <string>

struct Options {
    int page_fd = -1;
    std::string workloads;
    bool spin = false;
    long sleep_us = 50;
};

// Throws std::runtime_error with a message for people. Prints the help and exits when asked to.
Options parse_options(int argc, char **argv);
