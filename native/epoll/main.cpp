// SPDX-License-Identifier: MIT
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <sys/prctl.h>
#include <unistd.h>

#include "native/common/limits.hpp"
#include "native/common/options.hpp"
#include "native/common/signals.hpp"
#include "native/epoll/server.hpp"

static shared_page &attach(long fd) {
    char error[256];
    shared_page *page = page_attach(static_cast<int>(fd), error, sizeof(error));
    if (!page)
        throw std::runtime_error(error);
    return *page;
}

// A server without its supervisor would keep the port.
static void leave_with_parent() {
    pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        raise(SIGTERM);
}

static int serve(int argc, char **argv) {
    Descriptor signals = open_leave_signals(); // first: from here on a signal means a drain
    leave_with_parent();
    long page_fd = -1, listen_fd = -1, refusal_fd = -1, wake_us = 60, drain_ms = 5000,
         send_timeout_ms = 30000;
    long request_timeout_ms = 10000, frame_timeout_ms = 10000;
    const Option table[] = {
        {"page-fd", "FD", "shared page: a memfd or a mmapable BPF map", &page_fd, 0, INT32_MAX,
         nullptr, true},
        {"listen-fd", "FD", "listening TCP socket", &listen_fd, 0, INT32_MAX, nullptr, true},
        {"refusal-fd", "FD", "eventfd that is written when connections are refused", &refusal_fd, 0,
         INT32_MAX},
        {"wake-us", "US", "between looks at the page while requests are in flight", &wake_us, 1,
         1'000'000},
        {"drain-ms", "MS", "for what was admitted, after SIGTERM or SIGINT", &drain_ms, 0,
         3'600'000},
        {"send-timeout-ms", "MS", "until a peer that reads nothing is closed, 0: never",
         &send_timeout_ms, 0, 3'600'000},
        {"request-timeout-ms", "MS", "until a request without a result is answered, 0: never",
         &request_timeout_ms, 0, 3'600'000},
        {"frame-timeout-ms", "MS", "until a peer that does not end its request is closed, 0: never",
         &frame_timeout_ms, 0, 3'600'000},
    };
    if (!parse_options(table, "Serves the requests of TCP connections from a shared page.", argc,
                       argv))
        return 0;
    shared_page &page = attach(page_fd);
    raise_open_files(page.identity.max_connections);
    Server server(page, std::move(signals), Descriptor(static_cast<int>(listen_fd)),
                  static_cast<int>(refusal_fd),
                  {.wake = wake_us * MICROSECOND,
                   .drain = drain_ms * MILLISECOND,
                   .send_timeout = send_timeout_ms * MILLISECOND,
                   .request_tick = request_timeout_ms * MILLISECOND / REQUEST_TICKS,
                   .frame_tick = frame_timeout_ms * MILLISECOND / FRAME_TICKS});
    server.run();
    return 0;
}

int main(int argc, char **argv) {
    try {
        return serve(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "server-epoll: %s\n", error.what());
        return 1;
    }
}
