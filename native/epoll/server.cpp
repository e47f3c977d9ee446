// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cerrno>
#include <string>

#include "native/common/failure.hpp"
#include "native/common/signals.hpp"
#include "native/epoll/server.hpp"

// Tags of what is no connection; a connection's generation, in the upper half, is never 0.
enum : uint64_t { LISTENER_TAG, SIGNAL_TAG, REQUEST_TICK_TAG, FRAME_TICK_TAG };

static shared_page &require_unused(shared_page &page) {
    uint64_t free = page.egress.free_connection_tail - page.ingress.free_connection_head;
    uint64_t used = page.identity.max_connections - free;
    if (used)
        throw Failure("taking over the page",
                      std::to_string(used) + " connections of another server stand in it",
                      "Let that server finish, or make a new page if it was killed");
    return page;
}

Server::Server(shared_page &page, Descriptor signals, Descriptor listener, int refusal_fd,
               const ServerTimes &times)
    : page_(require_unused(page)), times_(times), signals_(std::move(signals)),
      request_ticker_(times.request_tick, poller_, REQUEST_TICK_TAG),
      frame_ticker_(times.frame_tick, poller_, FRAME_TICK_TAG),
      connections_(page_, poller_, times.send_timeout, refusal_fd),
      listener_(std::move(listener), page_, poller_, LISTENER_TAG, connections_) {
    if (!poller_.add(signals_.get(), EPOLLIN, SIGNAL_TAG))
        throw Failure("waiting for signals", errno, "Raise the limit of open files");
}

void Server::run() {
    while (!draining_ || (connections_.count() && monotonic_now() < leave_at_))
        turn();
    leave();
}

void Server::turn() {
    take_completions(); // those that came while this thread was busy
    std::span<const epoll_event> events = poller_.wait(timeout());
    page_.egress.steps++;
    if (events.empty())
        page_.egress.timer_wakes++;
    for (const epoll_event &event : events)
        dispatch(event);
    take_completions();
    connections_.send_queued();
    if (next_deadline() != NEVER)
        handle_deadlines();
    if (wake_adapts(&page_))
        plan_look();
    if (requests_in_flight(&page_))
        request_ticker_.start();
    if (frames_watched(&page_))
        frame_ticker_.start();
}

void Server::dispatch(const epoll_event &event) {
    if (event.data.u64 == LISTENER_TAG)
        listener_.accept_ready();
    else if (event.data.u64 == SIGNAL_TAG)
        read_signal();
    else if (event.data.u64 == REQUEST_TICK_TAG)
        look_for_overdue();
    else if (event.data.u64 == FRAME_TICK_TAG)
        look_for_late();
    else
        connections_.handle(event.data.u64, event.events);
}

void Server::take_completions() {
    uint32_t index;
    for (uint32_t n = 0; n < COMPLETION_DEPTH && completion_take(&page_, &index); n++)
        connections_.queue(index);
}

// Under the adaptive policy: each turn looks for results.
void Server::plan_look() {
    uint64_t now = static_cast<uint64_t>(monotonic_now());
    wake_learn(&page_, now);
    if (requests_in_flight(&page_))
        wake_plan(&page_, now);
    else
        page_.wake.next_ns = 0;
}

int64_t Server::until_look() const {
    if (!wake_adapts(&page_))
        return times_.wake;
    return std::max(static_cast<int64_t>(page_.wake.next_ns) - monotonic_now(), int64_t{0});
}

void Server::look_for_overdue() {
    request_ticker_.take();
    uint32_t index;
    for (uint32_t n = 0; n < HAND_SLOTS; n++)
        if (hand_move(&page_, &index))
            connections_.queue(index);
    if (!requests_in_flight(&page_))
        request_ticker_.stop();
}

void Server::look_for_late() {
    frame_ticker_.take();
    page_.egress.frame_ticks++;
    uint32_t index;
    while (frame_turn(&page_, &index))
        connections_.queue(index);
    if (!frames_watched(&page_))
        frame_ticker_.stop();
}

int64_t Server::timeout() const {
    if (connections_.has_queued())
        return 0;
    int64_t limit = requests_in_flight(&page_) ? until_look() : NEVER;
    int64_t deadline = next_deadline();
    if (deadline != NEVER)
        limit = std::min(limit, std::max(deadline - monotonic_now(), int64_t{0}));
    return limit == NEVER ? -1 : limit;
}

int64_t Server::next_deadline() const {
    return std::min({connections_.next_deadline(), listener_.next_deadline(), leave_at_});
}

void Server::handle_deadlines() {
    int64_t now = monotonic_now();
    connections_.close_expired(now);
    listener_.resume_if_due(now);
}

// The first signal begins the drain, another one ends it.
void Server::read_signal() {
    if (!take_leave_signal(signals_))
        return;
    leave_at_ = draining_ ? 0 : monotonic_now() + times_.drain;
    if (draining_)
        return;
    draining_ = true;
    store_release(&page_.egress.draining, 1u);
    listener_.close();
    connections_.finish();
}

void Server::leave() {
    uint64_t lost = connections_.unanswered();
    connections_.close_all();
    store_release(&page_.egress.draining, 0u);
    if (lost)
        throw Failure("answering what was admitted before leaving",
                      std::to_string(lost) + " requests were still with the executor",
                      "See why it was slow or gone, or give a larger --drain-ms");
}
