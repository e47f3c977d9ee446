// SPDX-License-Identifier: MIT
// One thread of the generator with its own connections, schedule and log. Workers share nothing
// while they run.
#pragma once

#include <deque>
#include <map>
#include <sys/epoll.h>

#include "native/load/address.hpp"
#include "native/load/replies.hpp"
#include "native/load/schedule.hpp"
#include "native/load/usage.hpp"

namespace load {

struct ConnectionCounts {
    uint64_t opened = 0;
    std::map<std::string, uint64_t> failures; // by outcome_names
};

class Worker {
  public:
    // stop_fd becomes readable when the run shall end early.
    Worker(const Options &options, const Cases &cases, const Address &address, uint32_t thread,
           int stop_fd);

    // Throws Failure when one cannot be opened in time.
    void open_connections();

    // Sends from start_ns (CLOCK_MONOTONIC) on, and returns when every request has an outcome.
    void run(uint64_t start_ns);

    const RequestLog &log() const { return log_; }
    const Replies &replies() const { return replies_; }
    const ConnectionCounts &connection_counts() const { return counts_; }
    bool interrupted() const { return interrupted_; }
    // Marks of the run: measuring began; the last request was dispatched; the run ended.
    const Usage &began() const { return began_; }
    const Usage &dispatched() const { return dispatched_; }
    const Usage &ended() const { return ended_; }

  private:
    // worker.cpp: time
    void dispatch(uint64_t now);
    void enqueue(const Arrival &arrival, uint64_t due_ns, uint64_t now);
    void update_sending(uint64_t now);
    bool all_dispatched(uint64_t now) const;
    bool finished(uint64_t now) const;
    uint64_t next_event_ns() const;
    void wait(uint64_t until_ns);
    void fail_unsettled();
    uint64_t share(const Connection &connection) const;
    std::optional<uint32_t> next_request(Connection &connection, uint64_t now);
    uint32_t new_request(uint32_t index, uint32_t connection, uint64_t due_ns, uint64_t now);
    void stop();

    // worker_io.cpp: sockets
    void begin_open(Connection &connection);
    void finish_open(Connection &connection);
    void reopen_due(uint64_t now);
    void reopen(Connection &connection, bool at_once);
    void connect_failed(Connection &connection, int error);
    void lose(Connection &connection, Outcome outcome);
    void retire_if_worn(Connection &connection);
    void close(Connection &connection);
    void on_event(Connection &connection, uint32_t events);
    bool can_send(const Connection &connection) const;
    void mark_to_send(Connection &connection);
    void send_marked();
    void send_due(Connection &connection);
    void send_unsent(Connection &connection);
    size_t send_bytes(Connection &connection, const uint8_t *bytes, size_t size);
    bool receive(Connection &connection);
    Replies::Read read(Connection &connection, std::span<const uint8_t> bytes);
    bool may_close(const Connection &connection) const;
    void watch(Connection &connection, int operation, uint32_t events);
    uint64_t tag(const Connection &connection) const {
        return connection.number / options_.threads;
    }

    const Options &options_;
    const Cases &cases_;
    const Address &address_;
    int stop_fd_;
    Descriptor epoll_;
    std::vector<Connection> connections_;
    Schedule schedule_;
    RequestLog log_;
    Replies replies_;
    ConnectionCounts counts_;
    uint64_t id_salt_; // a reply of another run is not taken for one of this

    struct Reopening {
        uint64_t at_ns;
        uint64_t tag;
    };
    std::deque<Reopening> reopening_; // in order of time: the delay is constant
    std::vector<uint64_t> to_send_;
    std::vector<uint8_t> send_buffer_;
    std::vector<uint8_t> receive_buffer_;
    std::vector<uint8_t> frames_; // what a response came to

    uint64_t start_ns_ = 0;
    uint64_t measured_from_ns_ = 0;
    uint64_t end_ns_ = 0; // closed loop with a duration
    uint64_t drain_until_ns_ = 0;
    uint64_t measured_left_ = 0; // closed loop with a number of requests
    bool running_ = false;
    bool sending_ = true; // there will be more requests
    bool interrupted_ = false;
    Usage began_, dispatched_, ended_;
};

} // namespace load
