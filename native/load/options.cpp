// SPDX-License-Identifier: MIT
// The options are rows of one table, from which parsing and help both come.
#include "native/load/options.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "native/common/failure.hpp"

namespace load {
namespace {

struct Row {
    const char *name;
    const char *value; // what the help calls it; nullptr: a switch
    const char *help;
    void (*apply)(Options &, std::string_view);
};

template <typename T>
T number(std::string_view text, T lowest, T highest) {
    T value{};
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size())
        throw std::invalid_argument("'" + std::string(text) + "' is not a number of this kind");
    if (!(value >= lowest && value <= highest))
        throw std::invalid_argument(std::string(text) + " is not between " +
                                    std::to_string(lowest) + " and " + std::to_string(highest));
    return value;
}

// True for the second word, false for the first.
bool choice(std::string_view text, std::string_view first, std::string_view second) {
    if (text != first && text != second)
        throw std::invalid_argument("'" + std::string(text) + "' is neither '" +
                                    std::string(first) + "' nor '" + std::string(second) + "'");
    return text == second;
}

constexpr double longest_s = 1e6;
constexpr uint64_t most_late_us = 60'000'000;
constexpr uint32_t most_connections = 1 << 20;
constexpr uint64_t most_requests = std::numeric_limits<uint32_t>::max();

const Row rows[] = {
    {"host", "ADDRESS", "server, IPv4, IPv6 or name (127.0.0.1)",
     [](Options &o, std::string_view v) { o.host = v; }},
    {"port", "PORT", "port of the server",
     [](Options &o, std::string_view v) { o.port = number<uint16_t>(v, 1, 65535); }},
    {"cases", "FILE", "requests and the replies to expect",
     [](Options &o, std::string_view v) { o.cases = v; }},
    {"echo", nullptr, "instead of --cases: payloads of zeros both ways, as echo-epoll answers",
     [](Options &o, std::string_view) { o.echo = true; }},
    {"request", "BYTES", "size of an --echo request with its header (280)",
     [](Options &o, std::string_view v) {
         o.echo_request =
             number<uint32_t>(v, REQUEST_HEADER_SIZE, REQUEST_HEADER_SIZE + REQUEST_MAX);
     }},
    {"reply", "BYTES", "size of an --echo reply with its header (256)",
     [](Options &o, std::string_view v) {
         o.echo_reply = number<uint32_t>(v, REPLY_HEADER_SIZE, REPLY_HEADER_SIZE + RESULT_MAX);
     }},
    {"openai", "MODEL", "cases of tokens go to POST /v1/completions, and come back as events",
     [](Options &o, std::string_view v) { o.openai = v; }},
    {"connections", "N", "connections, all threads together (1)",
     [](Options &o, std::string_view v) { o.connections = number(v, 1u, most_connections); }},
    {"depth", "N", "most unanswered requests of a connection (24)",
     [](Options &o, std::string_view v) { o.depth = number<uint32_t>(v, 1, PIPELINE_DEPTH); }},
    {"threads", "N", "threads; each has its own connections (1)",
     [](Options &o, std::string_view v) { o.threads = number(v, 1u, 256u); }},
    {"churn", "N", "close and reopen a connection after N requests (never)",
     [](Options &o, std::string_view v) { o.churn = number(v, 1u, UINT32_MAX); }},
    {"rate", "R", "open loop: requests a second, on an absolute schedule",
     [](Options &o, std::string_view v) { o.rate = number(v, 1e-3, 1e8); }},
    {"arrivals", "poisson|constant", "gaps of the open loop (poisson)",
     [](Options &o, std::string_view v) { o.constant = choice(v, "poisson", "constant"); }},
    {"deal", "round-robin|random", "which connection gets a request (round-robin)",
     [](Options &o, std::string_view v) { o.deal_at_random = choice(v, "round-robin", "random"); }},
    {"closed", nullptr, "closed loop: each connection keeps --depth requests unanswered",
     [](Options &o, std::string_view) { o.closed = true; }},
    {"late-us", "US", "handicap, open loop: send so long after the time that latency counts from",
     [](Options &o, std::string_view v) {
         o.late_ns = 1000 * number<uint64_t>(v, 0, most_late_us);
     }},
    {"spin", nullptr, "do not sleep until the next request: less jitter, a whole core",
     [](Options &o, std::string_view) { o.spin = true; }},
    {"warmup", "SECONDS", "sent and verified before measuring begins (0)",
     [](Options &o, std::string_view v) { o.warmup_s = number(v, 0., longest_s); }},
    {"duration", "SECONDS", "measure for so long",
     [](Options &o, std::string_view v) { o.duration_s = number(v, 1e-3, longest_s); }},
    {"requests", "N", "or measure so many requests",
     [](Options &o, std::string_view v) { o.requests = number<uint64_t>(v, 1, most_requests); }},
    {"seed", "S", "of schedule, dealing and cases (1)",
     [](Options &o, std::string_view v) { o.seed = number<uint64_t>(v, 0, UINT64_MAX); }},
    {"timeout", "SECONDS", "wait for replies after the last request (10)",
     [](Options &o, std::string_view v) { o.timeout_s = number(v, 0., longest_s); }},
    {"connect-timeout", "SECONDS", "for opening all connections at the start (10)",
     [](Options &o, std::string_view v) { o.connect_timeout_s = number(v, 1e-3, longest_s); }},
    {"announce", nullptr, "once connected, print when it is and when the schedule begins (ns)",
     [](Options &o, std::string_view) { o.announce = true; }},
    {"json", "FILE", "the result; - is standard output (-)",
     [](Options &o, std::string_view v) { o.json = v; }},
    {"records", "FILE", "one binary record per measured request",
     [](Options &o, std::string_view v) { o.records = v; }},
};

[[noreturn]] void print_help() {
    puts("load: send requests on a schedule, check every reply, measure from the intended time.\n"
         "usage: load --port P (--cases FILE | --echo) (--rate R | --closed)\n"
         "            (--duration S | --requests N) [option ...]\n");
    for (const Row &row : rows) {
        std::string left = std::string("--") + row.name + (row.value ? " " : "");
        printf("  %-32s %s\n", (left + (row.value ? row.value : "")).c_str(), row.help);
    }
    puts(
        "\nStatus: 0 every reply verified and the run valid; 1 could not run; 2 ran, but requests\n"
        "failed or the generator could not keep up (the result says which)");
    exit(0);
}

const Row &find_row(std::string_view name) {
    for (const Row &row : rows)
        if (name == row.name)
            return row;
    throw Failure("reading the options", "there is no option --" + std::string(name),
                  "load --help lists them");
}

void require(bool condition, const char *said, const char *remedy) {
    if (!condition)
        throw Failure("reading the options", said, remedy);
}

void check(const Options &o) {
    require(o.port != 0, "--port is missing", "Give the port that the server listens on");
    require(o.cases.empty() == o.echo, "exactly one of --cases and --echo is needed",
            "Give --cases FILE to check replies, --echo against an echo server");
    require((o.rate > 0) != o.closed, "exactly one of --rate and --closed is needed",
            "Give --rate R for an open loop, --closed for a closed one");
    require(!o.closed || o.late_ns == 0, "--late-us is for an open loop",
            "In a closed one a request counts from when it was sent");
    require((o.duration_s > 0) != (o.requests > 0),
            "exactly one of --duration and --requests is needed", "Say how long to measure");
    require(o.openai.empty() || (o.depth == 1 && !o.echo),
            "the OpenAI API has one request at a time on a connection, and no echo",
            "Give --depth 1 and --cases with --openai");
    require(o.threads <= o.connections, "there are more threads than connections",
            "Give --connections at least as many as --threads");
    double expected = o.rate * (o.warmup_s + o.duration_s) + static_cast<double>(o.requests);
    require(expected < 0.9 * static_cast<double>(most_requests),
            "the run has more requests than fit in 32 bits", "Make it shorter");
}

} // namespace

Options parse_options(int argc, char **argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        std::string_view word = argv[i];
        if (word == "--help" || word == "-h")
            print_help();
        require(word.starts_with("--"), "every option begins with --", "load --help lists them");
        size_t equals = word.find('=');
        const Row &row = find_row(word.substr(2, equals - (equals != word.npos ? 2 : 0)));
        std::string_view value;
        if (row.value && equals != word.npos)
            value = word.substr(equals + 1);
        else if (row.value && i + 1 < argc)
            value = argv[++i];
        else
            require(!row.value, "the last option needs a value", "load --help says which");
        try {
            row.apply(options, value);
        } catch (const std::invalid_argument &error) {
            throw Failure(std::string("reading the option --") + row.name, error.what(),
                          "load --help says what it takes");
        }
    }
    check(options);
    return options;
}

} // namespace load
