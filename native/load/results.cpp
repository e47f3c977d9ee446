// SPDX-License-Identifier: MIT
#include "native/load/results.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace load {
namespace {

// The generator is late by more than this at P99 on a saturated CPU: it is what was measured.
constexpr uint64_t lag_limit_ns = 1'000'000;
constexpr double saturated_share = 0.9;
// Late by more than this at P99 for whatever reason (stopped, starved by a hypervisor).
constexpr uint64_t late_limit_ns = 50'000'000;

struct Samples {
    std::vector<uint64_t> latency, uncorrected, lag, own_lag, first_token, token_gap, per_token;
    uint64_t first_ns = UINT64_MAX, last_reply_ns = 0, last_sent_ns = 0;
    uint64_t window_ns = 0, answered = 0; // the measured time; verified replies that came in it
};

void count(Tally &tally, const Request &request, uint64_t ended_ns) {
    const Record &record = request.record;
    ++tally.scheduled;
    tally.sent += record.sent_ns != 0;
    tally.held_back += request.held_back;
    if (outcome_of(record.status) == Outcome::verified) {
        ++tally.verified;
        return;
    }
    ++tally.failures[failure_name(record.status)];
    if (outcome_of(record.status) == Outcome::timeout && record.sent_ns) {
        ++tally.unanswered;
        tally.oldest_unanswered_ns =
            std::max(tally.oldest_unanswered_ns, ended_ns - record.intended_ns);
    }
}

void add_stream(Samples &samples, const Record &record, const Case &expected) {
    size_t tokens = expected.expected.size() / TOKEN_SIZE;
    samples.first_token.push_back(record.first_ns - record.intended_ns);
    if (tokens > 1)
        samples.per_token.push_back((record.done_ns - record.first_ns) / (tokens - 1));
}

void add(Samples &samples, const Request &request, const Cases &cases) {
    const Record &record = request.record;
    samples.first_ns = std::min(samples.first_ns, record.intended_ns);
    samples.last_reply_ns = std::max(samples.last_reply_ns, record.done_ns);
    samples.last_sent_ns = std::max(samples.last_sent_ns, record.sent_ns);
    samples.own_lag.push_back(request.dispatched_ns - record.intended_ns);
    if (record.sent_ns)
        samples.lag.push_back(record.sent_ns - record.intended_ns);
    if (outcome_of(record.status) != Outcome::verified)
        return;
    samples.latency.push_back(record.done_ns - record.intended_ns);
    samples.uncorrected.push_back(record.done_ns - record.sent_ns);
    const Case &expected = cases[record.case_index];
    if (expected.streams() && expected.status == STATUS_OK)
        add_stream(samples, record, expected);
}

void add_usage(Results &results, const Worker &worker) {
    const Usage &from = worker.began(), &to = worker.ended();
    results.cpu_s += static_cast<double>(to.cpu_ns - from.cpu_ns) / 1e9;
    results.user_s += static_cast<double>(to.user_ns - from.user_ns) / 1e9;
    results.system_s += static_cast<double>(to.system_ns - from.system_ns) / 1e9;
    results.wait_s += static_cast<double>(to.wait_ns - from.wait_ns) / 1e9;
    results.busiest_share = std::max(results.busiest_share, busy_share(from, worker.dispatched()));
}

void add_worker(Results &results, Samples &samples, const Worker &worker, const Cases &cases) {
    const RequestLog &log = worker.log();
    for (size_t i = 0; i < log.size(); ++i) {
        bool measured = log[i].record.intended_ns >= results.measured_from_ns;
        count(measured ? results.measured : results.warmup, log[i], worker.ended().at_ns);
        if (measured)
            add(samples, log[i], cases);
        // Before the window it wraps around.
        samples.answered += outcome_of(log[i].record.status) == Outcome::verified &&
                            log[i].record.done_ns - results.measured_from_ns < samples.window_ns;
    }
    const ChunkedLog<uint64_t> &gaps = worker.replies().token_gaps();
    for (size_t i = 0; i < gaps.size(); ++i)
        samples.token_gap.push_back(gaps[i]);
    results.digest += worker.replies().digest();
    results.tokens += worker.replies().tokens();
    results.connections.opened += worker.connection_counts().opened;
    for (const auto &[name, count] : worker.connection_counts().failures)
        results.connections.failures[name] += count;
    add_usage(results, worker);
}

// Of a closed loop for a time, what was answered in that time, whenever it was sent: what is sent
// in it waits behind all that was sent before, and is too little where replies take long.
double throughput(const Options &options, const Results &results, const Samples &samples) {
    if (options.closed && options.duration_s > 0)
        return static_cast<double>(samples.answered) / options.duration_s;
    auto verified = static_cast<double>(results.measured.verified);
    return results.span_s > 0 ? verified / results.span_s : 0;
}

void measure_spans(Results &results, const Samples &samples, double duration_s) {
    if (results.measured.scheduled == 0)
        return;
    auto seconds = [&](uint64_t end_ns) {
        return end_ns > samples.first_ns ? static_cast<double>(end_ns - samples.first_ns) / 1e9 : 0;
    };
    results.span_s = std::max(duration_s, seconds(samples.last_reply_ns));
    results.sending_s = std::max(duration_s, seconds(samples.last_sent_ns));
}

std::string milliseconds(uint64_t ns) {
    return std::to_string(static_cast<uint64_t>(std::llround(static_cast<double>(ns) / 1e6))) +
           " ms";
}

void judge(Results &results, const std::deque<Worker> &workers) {
    const Summary &lag = results.own_lag;
    if (std::ranges::any_of(workers, &Worker::interrupted))
        results.invalid.push_back("interrupted by a signal");
    if (results.measured.scheduled == 0)
        results.invalid.push_back("no request fell into the measured time");
    std::string late = "the generator's own lag was " + milliseconds(lag.p99) + " at P99";
    if (lag.p99 > lag_limit_ns && results.busiest_share >= saturated_share)
        results.invalid.push_back(
            late + " with its thread always running or waiting for a CPU: it could not keep up");
    else if (lag.p99 > late_limit_ns)
        results.invalid.push_back(late + ": it was stopped or did not get the CPU");
}

} // namespace

Summary summarise(std::vector<uint64_t> samples) {
    if (samples.empty())
        return {};
    std::ranges::sort(samples);
    size_t count = samples.size();
    auto rank = [&](size_t per_mille) { return samples[(count * per_mille + 999) / 1000 - 1]; };
    double sum = std::accumulate(samples.begin(), samples.end(), 0.0);
    return {
        .count = count,
        .mean = sum / static_cast<double>(count),
        .p50 = rank(500),
        .p90 = rank(900),
        .p99 = rank(990),
        .p999 = rank(999),
        .max = samples.back(),
    };
}

Results collect(const Options &options, const Cases &cases, const std::deque<Worker> &workers,
                uint64_t start_ns) {
    Results results = {};
    results.start_ns = start_ns;
    results.measured_from_ns = start_ns + seconds_to_ns(options.warmup_s);
    Samples samples;
    samples.window_ns = seconds_to_ns(options.duration_s);
    for (const Worker &worker : workers)
        add_worker(results, samples, worker, cases);
    measure_spans(results, samples, options.duration_s);
    results.throughput_rps = throughput(options, results, samples);
    results.streams = samples.first_token.size();
    results.latency = summarise(std::move(samples.latency));
    results.uncorrected = summarise(std::move(samples.uncorrected));
    results.lag = summarise(std::move(samples.lag));
    results.own_lag = summarise(std::move(samples.own_lag));
    results.first_token = summarise(std::move(samples.first_token));
    results.token_gap = summarise(std::move(samples.token_gap));
    results.per_token = summarise(std::move(samples.per_token));
    judge(results, workers);
    return results;
}

void write_records(OutputFile &file, const std::deque<Worker> &workers, uint64_t measured_from_ns) {
    for (const Worker &worker : workers) {
        const RequestLog &log = worker.log();
        for (size_t i = 0; i < log.size(); ++i)
            if (log[i].record.intended_ns >= measured_from_ns)
                file.write(&log[i].record, sizeof(Record));
    }
    file.finish();
}

} // namespace load
