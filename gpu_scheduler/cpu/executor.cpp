// SPDX-License-Identifier: MIT
// executor-cpu: the scheduler's policy in a process of its own, polling the shared page.
#include "shared_page/attach.h" // first: it asks for declarations of _GNU_SOURCE

#include <csignal>
#include <sys/prctl.h>
#include <unistd.h>

#include "gpu_scheduler/cpu/host.hpp"
#include "gpu_scheduler/cpu/idle.hpp"
#include "gpu_scheduler/cpu/options.hpp"
#include "gpu_scheduler/policy/scheduler.hpp"

namespace {

// How long without a request, while it has to leave, until what was claimed counts as lost.
constexpr uint64_t LEAVE_PATIENCE_NS = 1'000'000'000;

volatile std::sig_atomic_t signalled;

void die_with_parent() {
    pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) // it died before prctl()
        std::exit(1);
}

void catch_signals() {
    struct sigaction action = {};
    action.sa_handler = [](int) { signalled = 1; };
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
}

// Returns the number of requests that were claimed by ingress and never came: 0, normally.
uint64_t serve(shared_page *page, Scheduler &scheduler, CpuHost &host, const Options &options) {
    Idle idle(options);
    uint64_t leaving_since = 0;

    while (!scheduler_stopped(scheduler, page)) {
        store_release(&page->executor.heartbeat, page->executor.heartbeat + 1);
        if (signalled || load_acquire(&page->supervisor.stop))
            scheduler_stop(scheduler, page);
        if (scheduler_step(scheduler, page, host)) {
            idle.reset();
            leaving_since = 0;
            continue;
        }
        idle.wait(scheduler.owned > 0);
        if (!scheduler.stopping || scheduler.owned)
            continue;
        if (!leaving_since)
            leaving_since = CpuHost::now();
        if (CpuHost::now() - leaving_since > LEAVE_PATIENCE_NS)
            return scheduler.stop_at - page->executor.submit_head;
    }
    return 0;
}

shared_page *attach(const Options &options) {
    const std::vector<uint64_t> &frames = options.page_frames;
    char error[512];
    shared_page *page = frames.empty() ? page_attach(options.page_fd, error, sizeof(error))
                                       : page_attach_frames(options.page_fd, frames.data(),
                                                            frames.size(), error, sizeof(error));
    if (!page)
        throw std::runtime_error(error);
    return page;
}

int run(int argc, char **argv) {
    Options options = parse_options(argc, argv);
    std::vector<std::unique_ptr<Workload>> workloads = make_workloads(options.workloads);
    shared_page *page = attach(options);
    auto scheduler = std::make_unique<Scheduler>(); // all zero
    for (const auto &workload : workloads)
        scheduler_add(*scheduler, workload->limits);
    CpuHost host(workloads);
    prctl(PR_SET_TIMERSLACK, 1); // by default the kernel adds 50 us to each sleep

    store_release(&page->executor.state, EXECUTOR_ABSENT); // a killed predecessor left READY
    uint32_t lost = scheduler_recover(*scheduler, page);
    if (lost)
        std::fprintf(stderr, "executor-cpu: answered %u lost requests of a predecessor\n", lost);
    store_release(&page->executor.state, EXECUTOR_READY);
    uint64_t missing = serve(page, *scheduler, host, options);
    if (!missing) {
        store_release(&page->executor.state, EXECUTOR_STOPPED);
        return 0;
    }
    page->executor.error = ETIMEDOUT;
    store_release(&page->executor.state, EXECUTOR_FAILED);
    throw std::runtime_error("finishing what was submitted: " + std::to_string(missing) +
                             " requests were claimed, but did not come within a second. "
                             "Make a new page: the transport died while it wrote to this one.");
}

} // namespace

int main(int argc, char **argv) {
    die_with_parent();
    catch_signals();
    try {
        return run(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "executor-cpu: %s\n", error.what());
        return 1;
    }
}
