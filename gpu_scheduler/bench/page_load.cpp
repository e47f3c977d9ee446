// SPDX-License-Identifier: MIT
// page-load: drives an executor through the page, without sockets. One thread keeps so many
// requests outstanding, checks every result and times each from its submission to its notice.
#include <atomic> // before memory_order.h, whose macros are named like its members

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>
#include <vector>

static int copy_bytes(const void *source, uint32_t offset, uint8_t *to, uint32_t length) {
    std::memcpy(to, static_cast<const char *>(source) + offset, length);
    return 0;
}

#include "shared_page/attach.h"
#include "shared_page/egress.h"
#include "shared_page/ingress.h"

namespace {

constexpr uint64_t PATIENCE_NS = 20'000'000'000;
constexpr uint64_t CLOCK_EVERY = 1024; // looks: a look at the clock costs more than one at the page
constexpr char USAGE[] =
    "usage: page-load --page-fd N --cases FILE --in-flight N --requests N [--warmup N]\n"
    "Sends the requests of a cases file (gpu_scheduler.workloads.write_cases) through the shared\n"
    "page and writes a JSON object to stdout: seconds, wrong results, latencies in nanoseconds.\n";

[[noreturn]] void fail(const std::string &tried, const std::string &said,
                       const std::string &remedy) {
    throw std::runtime_error(tried + ": " + said + ". " + remedy + ".");
}

uint64_t now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

struct Case {
    std::vector<uint8_t> frame; // header and payload
    std::vector<uint8_t> expected;
    uint32_t compare; // 0: bytes, 1: float32
    float rtol, atol;
    uint32_t status;
};

class Reader {
  public:
    explicit Reader(const std::string &path) {
        std::FILE *file = std::fopen(path.c_str(), "rb");
        if (!file)
            fail("reading " + path, std::strerror(errno), "Write it with write_cases()");
        uint8_t buffer[65536];
        for (size_t got; (got = std::fread(buffer, 1, sizeof(buffer), file));)
            data_.insert(data_.end(), buffer, buffer + got);
        std::fclose(file);
    }

    template <typename T>
    T take() {
        T value;
        std::memcpy(&value, bytes(sizeof(T)), sizeof(T));
        return value;
    }

    const uint8_t *bytes(size_t count) {
        if (data_.size() - at_ < count)
            fail("reading the cases", "the file ends too early", "Write it with write_cases()");
        at_ += count;
        return data_.data() + at_ - count;
    }

  private:
    std::vector<uint8_t> data_;
    size_t at_ = 0;
};

Case read_case(Reader &reader) {
    auto kind = reader.take<uint32_t>();
    auto request = reader.take<uint32_t>(), expected = reader.take<uint32_t>();
    Case read{};
    read.compare = reader.take<uint32_t>();
    read.rtol = reader.take<float>();
    read.atol = reader.take<float>();
    read.status = reader.take<uint32_t>();
    reader.take<uint32_t>(); // finish: of streams, which this program does not check
    request_header header = {PROTOCOL_MAGIC, PROTOCOL_VERSION, static_cast<uint16_t>(kind), 0, 0,
                             request};
    read.frame.resize(sizeof(header) + request);
    std::memcpy(read.frame.data(), &header, sizeof(header));
    std::memcpy(read.frame.data() + sizeof(header), reader.bytes(request), request);
    const uint8_t *bytes = reader.bytes(expected);
    read.expected.assign(bytes, bytes + expected);
    return read;
}

std::vector<Case> read_cases(const std::string &path) {
    Reader reader(path);
    if (std::memcmp(reader.bytes(4), "BGC1", 4))
        fail("reading " + path, "it is no cases file", "Write it with write_cases()");
    std::vector<Case> cases(reader.take<uint32_t>());
    for (Case &read : cases)
        read = read_case(reader);
    if (cases.empty())
        fail("reading " + path, "it has no cases", "Write at least one");
    return cases;
}

bool right(const Case &sent, uint32_t status, const uint8_t *result, uint32_t length) {
    if (status != sent.status || length != sent.expected.size())
        return false;
    if (sent.compare == 0)
        return !std::memcmp(result, sent.expected.data(), length);
    for (uint32_t at = 0; at < length; at += sizeof(float)) {
        float got, wanted;
        std::memcpy(&got, result + at, sizeof(float));
        std::memcpy(&wanted, sent.expected.data() + at, sizeof(float));
        if (!(std::fabs(got - wanted) <= sent.atol + sent.rtol * std::fabs(wanted)))
            return false;
    }
    return true;
}

struct Options {
    int page_fd = -1;
    std::string cases;
    uint32_t in_flight = 1;
    uint64_t requests = 100'000;
    uint64_t warmup = 1000;
};

class Load {
  public:
    Load(shared_page *page, const Options &options)
        : page_(page), options_(options), cases_(read_cases(options.cases)),
          places_(CONNECTION_COUNT) {
        latency_.reserve(options.requests);
    }

    void run() {
        uint64_t all = options_.warmup + options_.requests;
        for (uint32_t i = 0; i < options_.in_flight; i++) {
            uint32_t connection;
            if (!connection_open(page_, &connection))
                fail("opening a connection", "all entries are in use", "Lower --in-flight");
            send(connection);
        }
        uint64_t heard = now();
        for (uint64_t looks = 0; answered_ < all; looks++) {
            uint32_t connection;
            if (completion_take(page_, &connection)) {
                heard = now();
                collect(connection, heard, sent_ < all);
            } else if (looks % CLOCK_EVERY == 0 && now() - heard > PATIENCE_NS) {
                fail("waiting for results", "none came for 20 s", "See what the executor says");
            }
        }
        ended_ = now();
    }

    void print() {
        std::sort(latency_.begin(), latency_.end());
        auto at = [this](double share) {
            return latency_[std::min<size_t>(share * latency_.size(), latency_.size() - 1)];
        };
        std::printf("{\"requests\": %zu, \"in_flight\": %u, \"wrong\": %lu, \"seconds\": %.6f, "
                    "\"latency_ns\": {\"min\": %u, \"p50\": %u, \"p90\": %u, \"p99\": %u, "
                    "\"p999\": %u, \"max\": %u}}\n",
                    latency_.size(), options_.in_flight, static_cast<unsigned long>(wrong_),
                    (ended_ - began_) * 1e-9, at(0), at(.5), at(.9), at(.99), at(.999), at(1));
    }

  private:
    struct Place {
        const Case *sent;
        uint64_t at;
    };

    void send(uint32_t connection) {
        const Case &next = cases_[sent_++ % cases_.size()];
        if (sent_ == options_.warmup + 1)
            began_ = now();
        places_[connection] = {&next, now()};
        frames_admit(page_, connection, const_cast<uint8_t *>(next.frame.data()),
                     static_cast<uint32_t>(next.frame.size()));
    }

    void collect(uint32_t connection, uint64_t heard, bool more) {
        reply_view view;
        if (!reply_ready(page_, connection, 0, &view))
            return;
        const uint8_t *bytes = reinterpret_cast<uint8_t *>(page_) + view.offset;
        reply_header header;
        std::memcpy(&header, bytes, sizeof(header));
        wrong_ +=
            !right(*places_[connection].sent, header.status, bytes + sizeof(header), header.length);
        reply_sent(page_, connection, view.slot, view.tokens, view.last);
        if (answered_++ >= options_.warmup)
            latency_.push_back(static_cast<uint32_t>(heard - places_[connection].at));
        if (more)
            send(connection);
    }

    shared_page *page_;
    const Options &options_;
    std::vector<Case> cases_;
    std::vector<Place> places_; // by connection, each of which has one request outstanding
    std::vector<uint32_t> latency_;
    uint64_t sent_ = 0, answered_ = 0, wrong_ = 0, began_ = 0, ended_ = 0;
};

Options parse_options(int argc, char **argv) {
    Options options;
    for (int i = 1; i + 1 < argc; i += 2) {
        std::string name = argv[i];
        if (name == "--page-fd")
            options.page_fd = std::atoi(argv[i + 1]);
        else if (name == "--cases")
            options.cases = argv[i + 1];
        else if (name == "--in-flight")
            options.in_flight = static_cast<uint32_t>(std::atoi(argv[i + 1]));
        else if (name == "--requests")
            options.requests = std::strtoull(argv[i + 1], nullptr, 10);
        else if (name == "--warmup")
            options.warmup = std::strtoull(argv[i + 1], nullptr, 10);
        else
            fail("reading the command line", "'" + name + "' is not understood", "See --help");
    }
    if (argc % 2 == 0 || options.page_fd < 0 || options.cases.empty() || !options.requests ||
        !options.in_flight)
        fail("reading the command line", "an option or its value is missing", "See --help");
    return options;
}

int run(int argc, char **argv) {
    if (argc == 2 && !std::strcmp(argv[1], "--help"))
        return std::fputs(USAGE, stdout) < 0;
    Options options = parse_options(argc, argv);
    char error[512];
    shared_page *page = page_attach(options.page_fd, error, sizeof(error));
    if (!page)
        throw std::runtime_error(error);
    Load load(page, options);
    load.run();
    load.print();
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "page-load: %s\n", error.what());
        return 1;
    }
}
