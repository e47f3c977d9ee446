// SPDX-License-Identifier: MIT
// What the run's log says, after the run.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "native/load/output.hpp"
#include "native/load/worker.hpp"

namespace load {

// Exact, by nearest rank over all samples; in nanoseconds.
struct Summary {
    uint64_t count = 0;
    double mean = 0;
    uint64_t p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
};

Summary summarise(std::vector<uint64_t> samples);

// Requests of a period, and what became of them: scheduled = verified + the failures.
struct Tally {
    uint64_t scheduled = 0;
    uint64_t sent = 0;
    uint64_t verified = 0;
    uint64_t held_back = 0;
    uint64_t unanswered = 0; // sent, and no reply until the end
    uint64_t oldest_unanswered_ns = 0;
    std::map<std::string, uint64_t> failures;
};

struct Results {
    uint64_t start_ns, measured_from_ns;
    Tally warmup, measured;
    double span_s = 0;         // first intended to last reply, or the whole --duration
    double sending_s = 0;      // the same until the last request left
    double throughput_rps = 0; // verified replies
    Summary latency;           // from the intended time, verified requests
    Summary uncorrected;       // from the actual send
    Summary lag;               // actual send - intended
    Summary own_lag;           // the part the generator itself is late
    Summary first_token, token_gap, per_token; // verified streams
    uint64_t streams = 0, tokens = 0;
    uint64_t digest = 0;
    ConnectionCounts connections;
    double cpu_s = 0, user_s = 0, system_s = 0, wait_s = 0; // all threads, from measuring to end
    double busiest_share = 0; // busy_share() of the busiest thread while it was sending
    std::vector<std::string> invalid;

    // In the warm-up too: it is not measured, but it is verified.
    uint64_t scheduled() const { return warmup.scheduled + measured.scheduled; }
    uint64_t failed() const { return scheduled() - warmup.verified - measured.verified; }
};

Results collect(const Options &options, const Cases &cases, const std::deque<Worker> &workers,
                uint64_t start_ns);

// Measured requests only, one Record each, in the order they were dispatched. Throws Failure.
void write_records(OutputFile &file, const std::deque<Worker> &workers, uint64_t measured_from_ns);

// Throws Failure.
void write_json(OutputFile &file, const Options &options, const Results &results);

} // namespace load
