// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "shared_page/protocol.h"

namespace load {

struct Options {
    std::string host = "127.0.0.1";
    uint16_t port = 0;
    std::string cases;
    bool echo = false;
    uint32_t echo_request = 280; // bytes on the wire, headers included
    uint32_t echo_reply = 256;
    std::string openai; // a model: cases are completions of the OpenAI API

    uint32_t connections = 1;
    uint32_t depth = PIPELINE_DEPTH;
    uint32_t threads = 1;
    uint32_t churn = 0; // 0: a connection lives as long as the run

    double rate = 0; // requests per second, all connections together
    bool constant = false;
    bool deal_at_random = false;
    bool closed = false;
    bool spin = false;
    uint64_t late_ns = 0; // sent so long after the intended time, from which latency counts

    double warmup_s = 0;
    double duration_s = 0;
    uint64_t requests = 0;
    uint64_t seed = 1;
    double timeout_s = 10;
    double connect_timeout_s = 10;

    bool announce = false;
    std::string json = "-";
    std::string records;
};

// Throws Failure. Prints the help and exits for --help.
Options parse_options(int argc, char **argv);

} // namespace load
