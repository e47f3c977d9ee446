// SPDX-License-Identifier: MIT
// The worker's sockets: opening, sending, receiving, losing and reopening connections.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "native/common/failure.hpp"
#include "native/load/worker.hpp"

namespace load {
namespace {

// Fewer than any sensible backlog, so that the server drops no SYN at the start.
constexpr uint64_t opening_at_once = 64;
constexpr uint64_t reopen_delay_ns = second_ns / 10;

} // namespace

void Worker::open_connections() {
    uint64_t deadline = now_ns() + seconds_to_ns(options_.connect_timeout_s);
    size_t begun = 0;
    while (counts_.opened < connections_.size()) {
        for (; begun < connections_.size() && begun - counts_.opened < opening_at_once; ++begun)
            begin_open(connections_[begun]);
        if (now_ns() >= deadline)
            connect_failed(connections_[begun - 1], ETIMEDOUT);
        wait(deadline);
    }
}

void Worker::begin_open(Connection &connection) {
    if (int error = begin_connect(address_, connection.socket)) {
        connect_failed(connection, error);
        return;
    }
    connection.state = State::connecting;
    watch(connection, EPOLL_CTL_ADD, EPOLLOUT);
}

void Worker::finish_open(Connection &connection) {
    if (int error = socket_error(connection.socket.get())) {
        connect_failed(connection, error);
        return;
    }
    connection.state = State::open;
    ++counts_.opened;
    watch(connection, EPOLL_CTL_MOD, EPOLLIN);
    if (running_)
        mark_to_send(connection);
}

void Worker::connect_failed(Connection &connection, int error) {
    if (!running_)
        throw Failure("connecting to " + address_.text() + " (" + std::to_string(counts_.opened) +
                          " of " + std::to_string(connections_.size()) + " connections are open)",
                      error, connect_remedy(error));
    lose(connection, connect_outcome(error));
}

void Worker::reopen_due(uint64_t now) {
    while (!reopening_.empty() && reopening_.front().at_ns <= now) {
        Connection &connection = connections_[reopening_.front().tag];
        reopening_.pop_front();
        reopen(connection, true);
    }
}

void Worker::reopen(Connection &connection, bool at_once) {
    if (!sending_ && connection.due.empty())
        return; // the run is ending and nothing waits for it
    if (at_once)
        begin_open(connection);
    else
        reopening_.push_back({now_ns() + reopen_delay_ns, tag(connection)});
}

void Worker::lose(Connection &connection, Outcome outcome) {
    // A server that closes each connection unused must not be hammered.
    bool served = connection.answered_since_open > 0;
    replies_.fail_pending(connection, outcome);
    connection.last_failure = outcome;
    ++counts_.failures[outcome_names[static_cast<size_t>(outcome)]];
    close(connection);
    reopen(connection, served);
}

void Worker::retire_if_worn(Connection &connection) {
    bool worn =
        connection.closing || (options_.churn && connection.sent_since_open >= options_.churn);
    if (!worn || !connection.pending.empty())
        return;
    close(connection);
    reopen(connection, true);
}

void Worker::close(Connection &connection) {
    connection.socket.close(); // leaves the epoll set by itself
    connection.state = State::closed;
    connection.partial.clear();
    connection.completion.reset();
    connection.closing = false;
    connection.unsent.clear();
    connection.sent_since_open = 0;
    connection.answered_since_open = 0;
}

void Worker::watch(Connection &connection, int operation, uint32_t events) {
    epoll_event event = {.events = events, .data = {.u64 = tag(connection)}};
    if (epoll_ctl(epoll_.get(), operation, connection.socket.get(), &event))
        throw Failure("watching a connection with epoll", errno,
                      "Raise fs.epoll.max_user_watches or open fewer connections");
}

void Worker::on_event(Connection &connection, uint32_t events) {
    if (connection.state == State::connecting) {
        finish_open(connection);
        return;
    }
    if (events & EPOLLOUT)
        send_unsent(connection);
    if (connection.state == State::open && (events & ~EPOLLOUT))
        receive(connection);
}

bool Worker::can_send(const Connection &connection) const {
    return connection.state == State::open && connection.unsent.empty() &&
           connection.pending.size() < options_.depth &&
           (!options_.churn || connection.sent_since_open < options_.churn);
}

void Worker::mark_to_send(Connection &connection) {
    if (connection.to_send)
        return;
    connection.to_send = true;
    to_send_.push_back(tag(connection));
}

void Worker::send_marked() {
    // Sending may mark more connections; they have their turn in the next round.
    size_t count = to_send_.size();
    for (size_t i = 0; i < count; ++i) {
        Connection &connection = connections_[to_send_[i]];
        connection.to_send = false;
        send_due(connection);
    }
    to_send_.erase(to_send_.begin(), to_send_.begin() + static_cast<ptrdiff_t>(count));
}

// Everything that may leave now leaves in one system call.
void Worker::send_due(Connection &connection) {
    size_t used = 0;
    uint64_t now = now_ns();
    while (can_send(connection)) {
        std::optional<uint32_t> position = next_request(connection, now);
        if (!position)
            break;
        Request &request = log_[*position];
        const std::vector<uint8_t> &frame = cases_[request.record.case_index].frame;
        uint8_t *at = send_buffer_.data() + used;
        uint64_t id = id_salt_ | request.index;
        memcpy(at, frame.data(), frame.size());
        if (options_.openai.empty())
            memcpy(at + offsetof(request_header, request_id), &id, sizeof(id));
        used += frame.size();
        request.record.sent_ns = now;
        connection.pending.push(id, *position);
        ++connection.sent;
        ++connection.sent_since_open;
    }
    if (used == 0)
        return;
    size_t taken = send_bytes(connection, send_buffer_.data(), used);
    if (connection.state == State::open && taken < used) {
        connection.unsent.assign(send_buffer_.begin() + static_cast<ptrdiff_t>(taken),
                                 send_buffer_.begin() + static_cast<ptrdiff_t>(used));
        watch(connection, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
    }
}

void Worker::send_unsent(Connection &connection) {
    std::vector<uint8_t> &unsent = connection.unsent;
    size_t taken = send_bytes(connection, unsent.data(), unsent.size());
    if (connection.state != State::open)
        return;
    unsent.erase(unsent.begin(), unsent.begin() + static_cast<ptrdiff_t>(taken));
    if (unsent.empty()) {
        watch(connection, EPOLL_CTL_MOD, EPOLLIN);
        mark_to_send(connection);
    }
}

// Returns how many the kernel took. A broken connection is read to its end, for the replies
// that came before the break, and then lost.
size_t Worker::send_bytes(Connection &connection, const uint8_t *bytes, size_t size) {
    ssize_t taken = send(connection.socket.get(), bytes, size, MSG_NOSIGNAL);
    if (taken >= 0)
        return static_cast<size_t>(taken);
    int error = errno;
    if (error == EAGAIN || error == EINTR)
        return 0;
    while (connection.state == State::open && receive(connection))
        continue;
    if (connection.state == State::open)
        lose(connection, error == EPIPE ? Outcome::closed_early : Outcome::reset);
    return 0;
}

// One read. True when there may be more.
bool Worker::receive(Connection &connection) {
    std::vector<uint8_t> &partial = connection.partial;
    size_t have = partial.size();
    std::copy(partial.begin(), partial.end(), receive_buffer_.begin());
    ssize_t size = recv(connection.socket.get(), receive_buffer_.data() + have,
                        receive_buffer_.size() - have, 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (size == 0 && may_close(connection)) {
        connection.closing = true;
        retire_if_worn(connection);
        return false;
    }
    if (size <= 0) {
        lose(connection, size == 0 ? Outcome::closed_early : Outcome::reset);
        return false;
    }
    std::span bytes(receive_buffer_.data(), have + static_cast<size_t>(size));
    Replies::Read read = this->read(connection, bytes);
    if (read.fault) {
        lose(connection, *read.fault);
        return false;
    }
    partial.assign(bytes.begin() + static_cast<ptrdiff_t>(read.consumed), bytes.end());
    retire_if_worn(connection);
    mark_to_send(connection);
    return true;
}

Replies::Read Worker::read(Connection &connection, std::span<const uint8_t> bytes) {
    uint64_t now = now_ns();
    if (options_.openai.empty())
        return replies_.read(connection, bytes, now);
    frames_.clear();
    uint64_t id = connection.pending.empty() ? 0 : connection.pending.front().id;
    Completion::Read part = connection.completion.read(bytes, id, frames_);
    Replies::Read read = replies_.read(connection, frames_, now);
    connection.closing = part.closing;
    if (part.fault && !read.fault)
        read.fault = Outcome::bad_header;
    return {part.consumed, read.fault};
}

// An HTTP server may close a connection that has been idle for long.
bool Worker::may_close(const Connection &connection) const {
    return !options_.openai.empty() && connection.answered_since_open && connection.pending.empty();
}

} // namespace load
