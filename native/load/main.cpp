// SPDX-License-Identifier: MIT
// The experiment, in order: options, cases, connections, run, results.
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <thread>

#include "native/common/limits.hpp"
#include "native/common/signals.hpp"
#include "native/load/results.hpp"

namespace load {
namespace {

// Returns the common start. Rethrows what a worker threw.
uint64_t run_together(std::deque<Worker> &workers, bool announce) {
    constexpr uint64_t lead_ns = 10'000'000; // for all threads to be there
    uint64_t now = now_ns(), start_ns = now + lead_ns;
    if (announce) {
        printf("%" PRIu64 " %" PRIu64 "\n", now, start_ns);
        fflush(stdout);
    }
    std::vector<std::exception_ptr> errors(workers.size());
    {
        std::vector<std::jthread> threads;
        for (size_t i = 0; i < workers.size(); ++i)
            threads.emplace_back([&, i] {
                try {
                    workers[i].run(start_ns);
                } catch (...) {
                    errors[i] = std::current_exception();
                }
            });
    }
    for (const std::exception_ptr &error : errors)
        if (error)
            std::rethrow_exception(error);
    return start_ns;
}

std::string counts(const std::map<std::string, uint64_t> &named) {
    std::string text;
    for (const auto &[name, count] : named)
        text += " " + name + " " + std::to_string(count);
    return text;
}

int print_verdict(const Results &results) {
    std::vector<std::string> said;
    for (const std::string &reason : results.invalid)
        said.push_back("the run is not valid: " + reason);
    if (results.failed())
        said.push_back(std::to_string(results.failed()) + " of " +
                       std::to_string(results.scheduled()) + " requests failed:" +
                       counts(results.warmup.failures) + counts(results.measured.failures));
    if (!results.connections.failures.empty())
        said.push_back("connections failed:" + counts(results.connections.failures));
    for (const std::string &line : said)
        fprintf(stderr, "load: %s\n", line.c_str());
    return said.empty() ? 0 : 2;
}

int run(int argc, char **argv) {
    Options options = parse_options(argc, argv);
    Cases cases = options.echo ? echo_cases(options) : read_cases(options.cases);
    OutputFile json("--json", options.json);
    OutputFile records("--records", options.records.empty() ? "/dev/null" : options.records);
    raise_open_files(options.connections + 2 * options.threads);
    // Blocked in every thread and read by none, a signal keeps the descriptor readable: each
    // worker sees it once, in its own epoll set.
    Descriptor stop = open_leave_signals();
    Address address = find_address(options.host, options.port, options.connect_timeout_s);
    if (!options.openai.empty())
        make_completions(cases, options.openai, address.text());
    std::deque<Worker> workers;
    for (uint32_t thread = 0; thread < options.threads; ++thread)
        workers.emplace_back(options, cases, address, thread, stop.get()).open_connections();
    uint64_t start_ns = run_together(workers, options.announce);
    Results results = collect(options, cases, workers, start_ns);
    write_records(records, workers, results.measured_from_ns);
    write_json(json, options, results);
    return print_verdict(results);
}

} // namespace
} // namespace load

int main(int argc, char **argv) {
    try {
        return load::run(argc, argv);
    } catch (const std::exception &error) {
        fprintf(stderr, "load: %s\n", error.what());
        return 1;
    }
}
