// SPDX-License-Identifier: MIT
// The result as JSON: times in µs unless the key says otherwise, percentiles exact.
#include "native/load/json.hpp"
#include "native/load/results.hpp"

namespace load {
namespace {

double us(double ns) {
    return ns / 1e3;
}

JsonObject json(const Summary &summary) {
    JsonObject object;
    object.add("count", summary.count).add("mean", us(summary.mean));
    object.add("p50", us(static_cast<double>(summary.p50)));
    object.add("p90", us(static_cast<double>(summary.p90)));
    object.add("p99", us(static_cast<double>(summary.p99)));
    object.add("p999", us(static_cast<double>(summary.p999)));
    object.add("max", us(static_cast<double>(summary.max)));
    return object;
}

JsonObject json(const std::map<std::string, uint64_t> &counts) {
    JsonObject object;
    for (const auto &[name, count] : counts)
        object.add(name, count);
    return object;
}

JsonObject json(const ConnectionCounts &counts, uint32_t wanted) {
    JsonObject object;
    object.add("opened", counts.opened).add("reopened", counts.opened - wanted);
    return object.add("failures", json(counts.failures));
}

JsonObject rate_json(const Options &options, const Results &results) {
    auto scheduled = static_cast<double>(results.measured.scheduled);
    auto sent = static_cast<double>(results.measured.sent);
    double achieved = results.sending_s > 0 ? sent / results.sending_s : 0;
    JsonObject object;
    if (options.closed)
        object.add_null("asked_rps");
    else
        object.add("asked_rps", options.rate);
    object.add("achieved_rps", achieved);
    // Of what the schedule asked for: Poisson arrivals differ from the rate by chance.
    return object.add("sent_of_scheduled", scheduled > 0 ? sent / scheduled : 0);
}

JsonObject stream_json(const Results &results) {
    JsonObject object;
    object.add("count", results.streams).add("tokens", results.tokens);
    object.add("tokens_per_second",
               results.span_s > 0 ? static_cast<double>(results.tokens) / results.span_s : 0);
    object.add("first_token_us", json(results.first_token));
    object.add("inter_token_us", json(results.token_gap));
    return object.add("per_output_token_us", json(results.per_token));
}

JsonObject cpu_json(const Results &results) {
    JsonObject object;
    object.add("total_s", results.cpu_s).add("user_s", results.user_s);
    object.add("system_s", results.system_s).add("run_queue_wait_s", results.wait_s);
    return object.add("busiest_thread_share", results.busiest_share);
}

void add_options(JsonObject &object, const Options &options) {
    object.add("mode", options.closed ? "closed" : "open");
    object.add("arrivals", options.closed ? "closed" : options.constant ? "constant" : "poisson");
    object.add("deal", options.deal_at_random ? "random" : "round-robin");
    object.add("seed", options.seed).add("connections", options.connections);
    object.add("depth", options.depth).add("threads", options.threads);
    object.add("churn", options.churn).add("warmup_s", options.warmup_s);
}

void add_counts(JsonObject &object, const Results &results) {
    const Tally &measured = results.measured;
    object.add("scheduled", measured.scheduled).add("sent", measured.sent);
    object.add("verified", measured.verified).add("failures", json(measured.failures));
    object.add("held_back", measured.held_back).add("unanswered", measured.unanswered);
    object.add("oldest_unanswered_s", static_cast<double>(measured.oldest_unanswered_ns) / 1e9);
    JsonObject warmup;
    warmup.add("scheduled", results.warmup.scheduled).add("verified", results.warmup.verified);
    object.add("warmup", warmup.add("failures", json(results.warmup.failures)));
}

std::string hexadecimal(uint64_t value) {
    char text[17];
    snprintf(text, sizeof(text), "%016lx", value);
    return text;
}

std::string to_json(const Options &options, const Results &results) {
    JsonObject object;
    object.add("valid", results.invalid.empty()).add("invalid_reasons", results.invalid);
    add_options(object, options);
    object.add("start_monotonic_ns", results.start_ns);
    object.add("measured_from_monotonic_ns", results.measured_from_ns);
    object.add("span_s", results.span_s);
    add_counts(object, results);
    object.add("throughput_rps", results.throughput_rps);
    object.add("digest", hexadecimal(results.digest));
    object.add("latency_us", json(results.latency));
    object.add("uncorrected_latency_us", json(results.uncorrected));
    object.add("rate", rate_json(options, results));
    object.add("lag_us", json(results.lag)).add("own_lag_us", json(results.own_lag));
    object.add("cpu", cpu_json(results));
    if (results.streams)
        object.add("streams", stream_json(results));
    else
        object.add_null("streams");
    object.add("connection_counts", json(results.connections, options.connections));
    object.add("outcomes", std::vector<std::string>(outcome_names.begin(), outcome_names.end()));
    return object.lines();
}

} // namespace

void write_json(OutputFile &file, const Options &options, const Results &results) {
    std::string text = to_json(options, results);
    file.write(text.data(), text.size());
    file.finish();
}

} // namespace load
