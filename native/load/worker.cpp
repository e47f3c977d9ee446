// SPDX-License-Identifier: MIT
// The worker's time: what is due, how long to sleep, when the run is over.
#include "native/load/worker.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/prctl.h>

#include "native/common/failure.hpp"

namespace load {
namespace {

constexpr uint64_t stop_tag = UINT64_MAX;
constexpr size_t frame_max = REQUEST_HEADER_SIZE + REQUEST_MAX;
constexpr size_t receive_size = 256 << 10;
// Few, so that a crowd of replies does not keep the next due request waiting.
constexpr int events_per_wait = 64;

} // namespace

Worker::Worker(const Options &options, const Cases &cases, const Address &address, uint32_t thread,
               int stop_fd)
    : options_(options), cases_(cases), address_(address), stop_fd_(stop_fd),
      epoll_(epoll_create1(EPOLL_CLOEXEC)), schedule_(options, thread), replies_(cases, log_),
      id_salt_(draw(options.seed, Stream::ids, 0) << 32), send_buffer_(PIPELINE_DEPTH * frame_max),
      receive_buffer_(receive_size) {
    epoll_event event = {.events = EPOLLIN, .data = {.u64 = stop_tag}};
    if (!epoll_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop_fd, &event))
        throw Failure("making an epoll instance", errno,
                      "Raise the limit on open files (ulimit -n)");
    for (uint32_t number = thread; number < options.connections; number += options.threads) {
        Connection &connection = connections_.emplace_back();
        connection.number = number;
        measured_left_ += share(connection);
    }
    to_send_.reserve(connections_.size());
}

void Worker::run(uint64_t start_ns) {
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); // the default lets timers fire 50 µs late
    start_ns_ = start_ns;
    measured_from_ns_ = start_ns + seconds_to_ns(options_.warmup_s);
    end_ns_ = measured_from_ns_ + seconds_to_ns(options_.duration_s);
    replies_.measure_from(measured_from_ns_);
    running_ = true;
    while (now_ns() < start_ns && !interrupted_)
        wait(start_ns);
    for (Connection &connection : connections_)
        mark_to_send(connection);
    for (uint64_t now = now_ns(); !finished(now); now = now_ns()) {
        dispatch(now);
        reopen_due(now);
        send_marked();
        update_sending(now);
        wait(next_event_ns());
    }
    fail_unsettled();
    ended_ = read_usage();
}

void Worker::dispatch(uint64_t now) {
    if (began_.at_ns == 0 && now >= measured_from_ns_)
        began_ = read_usage();
    if (options_.closed || !sending_)
        return;
    for (; !schedule_.exhausted(); schedule_.advance()) {
        Arrival arrival = schedule_.next();
        uint64_t due_ns = start_ns_ + arrival.offset_ns;
        if (due_ns + options_.late_ns > now)
            return;
        enqueue(arrival, due_ns, now);
    }
}

void Worker::enqueue(const Arrival &arrival, uint64_t due_ns, uint64_t now) {
    Connection &connection = connections_[arrival.connection / options_.threads];
    uint32_t position = new_request(arrival.index, connection.number, due_ns, now);
    uint32_t before = connection.pending.size() + connection.due.size();
    log_[position].held_back = !can_send(connection) || before >= options_.depth;
    connection.due.push(log_, position);
    mark_to_send(connection);
}

// Returns its position in the log.
uint32_t Worker::new_request(uint32_t index, uint32_t connection, uint64_t due_ns, uint64_t now) {
    uint64_t choice = draw(options_.seed, Stream::cases, index);
    Request &request = log_.append();
    request = {};
    request.record.intended_ns = due_ns;
    request.record.connection = connection;
    request.record.status = pending_word;
    request.record.case_index = static_cast<uint16_t>(choice % cases_.size());
    request.dispatched_ns = now - options_.late_ns; // meant to be late, it is no lag
    request.index = index;
    return static_cast<uint32_t>(log_.size() - 1);
}

// Of --requests in a closed loop, each connection sends its part: the run is the same however
// fast each is served.
uint64_t Worker::share(const Connection &connection) const {
    uint64_t remainder = options_.requests % options_.connections;
    return options_.requests / options_.connections + (connection.number < remainder);
}

std::optional<uint32_t> Worker::next_request(Connection &connection, uint64_t now) {
    if (!options_.closed && connection.due.empty())
        return std::nullopt;
    if (!options_.closed)
        return connection.due.pop(log_);
    bool measured = now >= measured_from_ns_;
    if (!sending_ ||
        (options_.requests && measured && connection.measured_sent == share(connection)))
        return std::nullopt;
    connection.measured_sent += measured;
    measured_left_ -= measured && options_.requests;
    auto index = static_cast<uint32_t>(connection.sent * options_.connections + connection.number);
    return new_request(index, connection.number, now, now);
}

bool Worker::all_dispatched(uint64_t now) const {
    if (!options_.closed)
        return schedule_.exhausted();
    if (!options_.requests)
        return now >= end_ns_;
    // No clock ends this run, so a server that has stopped answering must.
    uint64_t alive_ns = std::max(start_ns_, replies_.last_reply_ns());
    return measured_left_ == 0 || now > alive_ns + seconds_to_ns(options_.timeout_s);
}

void Worker::update_sending(uint64_t now) {
    if (!sending_ || !(interrupted_ || all_dispatched(now)))
        return;
    sending_ = false;
    drain_until_ns_ = now + seconds_to_ns(options_.timeout_s);
    dispatched_ = read_usage();
    if (began_.at_ns == 0)
        began_ = dispatched_;
}

bool Worker::finished(uint64_t now) const {
    return !sending_ && (log_.size() == replies_.settled() || now >= drain_until_ns_);
}

uint64_t Worker::next_event_ns() const {
    uint64_t next = drain_until_ns_;
    if (sending_ && options_.spin)
        return 0;
    if (sending_ && !options_.closed)
        next = start_ns_ + schedule_.next().offset_ns + options_.late_ns;
    else if (sending_)
        next = options_.requests ? now_ns() + second_ns / 10 : end_ns_;
    else if (log_.size() == replies_.settled())
        return 0;
    return reopening_.empty() ? next : std::min(next, reopening_.front().at_ns);
}

void Worker::wait(uint64_t until_ns) {
    uint64_t now = now_ns();
    uint64_t left = until_ns > now ? until_ns - now : 0;
    timespec timeout = {static_cast<time_t>(left / second_ns), static_cast<long>(left % second_ns)};
    epoll_event events[events_per_wait];
    int count = epoll_pwait2(epoll_.get(), events, events_per_wait, &timeout, nullptr);
    if (count < 0 && errno != EINTR)
        throw Failure("waiting for replies with epoll_pwait2", errno, "Use Linux 5.11 or newer");
    for (int i = 0; i < count; ++i) {
        if (events[i].data.u64 == stop_tag)
            stop();
        else
            on_event(connections_[events[i].data.u64], events[i].events);
    }
}

void Worker::stop() {
    if (!running_)
        throw Failure("opening connections", "interrupted by a signal", "Nothing was sent");
    interrupted_ = true;
    // It stays readable, for the other workers; this one has seen it.
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stop_fd_, nullptr);
}

// What the run ends with: no reply, or no connection to send on.
void Worker::fail_unsettled() {
    for (uint32_t i = 0; i < log_.size(); ++i) {
        const Record &record = log_[i].record;
        if (record.status != pending_word)
            continue;
        const Connection &connection = connections_[record.connection / options_.threads];
        bool unreachable = record.sent_ns == 0 && connection.state != State::open;
        replies_.fail(i, unreachable ? connection.last_failure : Outcome::timeout);
    }
}

} // namespace load
