// SPDX-License-Identifier: MIT
// executor-due: lets results fall due a set time after their requests, and computes nothing
// (shared_page/due.h). For experiments that count instructions, which it adds none to.
#include "shared_page/attach.h" // first: it asks for declarations of _GNU_SOURCE

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <getopt.h>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <unistd.h>

#include "shared_page/memory_order.h"

namespace {

constexpr useconds_t LOOK_US = 100'000; // between looks at the page's stop word

volatile std::sig_atomic_t signalled;

struct Options {
    int page_fd = -1;
    uint64_t service_ns = 0;
};

uint64_t parse_spec(const std::string &spec) {
    long service_us = 0;
    int length = 0;
    if (std::sscanf(spec.c_str(), "due:service_us=%ld%n", &service_us, &length) != 1 ||
        static_cast<size_t>(length) != spec.size() || service_us < 1 || service_us > 1'000'000)
        throw std::runtime_error("reading --workloads: '" + spec + "' is not usable. Give " +
                                 "due:service_us=N, with N from 1 to 1000000.");
    return static_cast<uint64_t>(service_us) * 1000;
}

// The supervisor's words for any executor; --poll and --sleep-us mean nothing here.
Options parse_options(int argc, char **argv) {
    static const option table[] = {
        {"page-fd", required_argument, nullptr, 'p'},
        {"workloads", required_argument, nullptr, 'w'},
        {"poll", required_argument, nullptr, 'i'},
        {"sleep-us", required_argument, nullptr, 'i'},
        {},
    };
    Options options;
    for (int found; (found = getopt_long(argc, argv, "", table, nullptr)) != -1;) {
        if (found == 'p')
            options.page_fd = std::atoi(optarg);
        else if (found == 'w')
            options.service_ns = parse_spec(optarg);
        else if (found == '?')
            std::exit(1); // getopt has said why
    }
    if (options.page_fd < 0 || !options.service_ns)
        throw std::runtime_error("reading the command line: --page-fd or --workloads is missing. "
                                 "Give --page-fd N --workloads due:service_us=20.");
    return options;
}

void die_with_parent() {
    pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) // it died before prctl()
        std::exit(1);
}

void serve(const Options &options) {
    char error[512];
    shared_page *page = page_attach(options.page_fd, error, sizeof(error));
    if (!page)
        throw std::runtime_error(error);
    store_release(&page->due.service_ns, options.service_ns);
    store_release(&page->executor.state, static_cast<uint32_t>(EXECUTOR_READY));
    while (!signalled && !load_acquire(&page->supervisor.stop))
        usleep(LOOK_US);
    store_release(&page->executor.state, static_cast<uint32_t>(EXECUTOR_STOPPED));
}

} // namespace

int main(int argc, char **argv) {
    die_with_parent();
    struct sigaction action = {};
    action.sa_handler = [](int) { signalled = 1; };
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
    try {
        serve(parse_options(argc, argv));
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "executor-due: %s\n", error.what());
        return 1;
    }
}
