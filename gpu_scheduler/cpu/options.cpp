// SPDX-License-Identifier: MIT
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <getopt.h>
#include <iterator>
#include <stdexcept>

#include "gpu_scheduler/cpu/options.hpp"

static const char help[] =
    "usage: executor-cpu --page-fd N --workloads SPEC[;SPEC...] [OPTIONS]\n"
    "Takes requests from a shared page, computes them on the CPU and publishes the results there.\n"
    "\n"
    "  --page-fd N         descriptor of the page, inherited (required)\n"
    "  --page-frames FILE  the descriptor is the memory of a virtual machine, and the page "
    "consists\n"
    "                      of the frames whose numbers the file lists\n"
    "  --workloads SPECS   what to serve (required), for example "
    "'gemm:m=4,k=16,n=15,work=1;empty'\n"
    "  --poll sleep|spin   while there is nothing to do: sleep after a short spin (default), or\n"
    "                      keep a core busy for the least latency\n"
    "  --sleep-us N        length of the first sleeps, 1 to 1000000 (default 50); they grow to a\n"
    "                      millisecond while no request comes\n"
    "\n"
    "SIGTERM, SIGINT and the page's stop word let it finish what was submitted and leave.\n";

[[noreturn]] static void fail(const std::string &option, const std::string &said,
                              const std::string &remedy) {
    throw std::runtime_error("reading " + option + ": " + said + ". " + remedy + ".");
}

static long number(const char *option, const char *text, long least, long most) {
    char *end;
    long value = std::strtol(text, &end, 10);
    if (end == text || *end || value < least || value > most)
        fail(option, "'" + std::string(text) + "' is not usable",
             "Give a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return value;
}

static bool spin_wanted(const char *text) {
    if (std::strcmp(text, "spin") && std::strcmp(text, "sleep"))
        fail("--poll", "'" + std::string(text) + "' is no policy", "Take spin or sleep");
    return !std::strcmp(text, "spin");
}

static std::vector<uint64_t> read_frames(const char *path) {
    std::ifstream file(path);
    std::istream_iterator<uint64_t> first(file), last;
    std::vector<uint64_t> frames(first, last);
    if (!file.eof() || frames.empty())
        fail("--page-frames", "'" + std::string(path) + "' is no list of numbers",
             "Give the file that `serve --page-frames` wrote");
    return frames;
}

Options parse_options(int argc, char **argv) {
    static const option table[] = {
        {"page-fd", required_argument, nullptr, 'p'},
        {"page-frames", required_argument, nullptr, 'f'},
        {"workloads", required_argument, nullptr, 'w'},
        {"poll", required_argument, nullptr, 'o'},
        {"sleep-us", required_argument, nullptr, 's'},
        {"help", no_argument, nullptr, 'h'},
        {},
    };
    Options options;
    opterr = 0;
    for (int found; (found = getopt_long(argc, argv, "h", table, nullptr)) != -1;) {
        if (found == 'p')
            options.page_fd = static_cast<int>(number("--page-fd", optarg, 0, 1 << 20));
        else if (found == 'f')
            options.page_frames = read_frames(optarg);
        else if (found == 'w')
            options.workloads = optarg;
        else if (found == 'o')
            options.spin = spin_wanted(optarg);
        else if (found == 's')
            options.sleep_us = number("--sleep-us", optarg, 1, 1'000'000);
        else if (found == 'h')
            std::exit(std::fputs(help, stdout) < 0);
        else
            fail("the command line", std::string("'") + argv[optind - 1] + "' is not understood",
                 "See --help for the options");
    }
    if (optind < argc)
        fail("the command line", std::string("'") + argv[optind] + "' is not understood",
             "See --help for the options");
    if (options.page_fd < 0)
        fail("the command line", "--page-fd is missing", "Pass the descriptor of a shared page");
    if (options.workloads.empty())
        fail("the command line", "--workloads is missing", "Name what to serve, such as 'empty'");
    return options;
}
