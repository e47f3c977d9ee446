// SPDX-License-Identifier: MIT
// One connection: its socket, the requests that wait to be sent, the replies that are due.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "native/common/descriptor.hpp"
#include "native/load/completion.hpp"
#include "native/load/request_log.hpp"

namespace load {

// A request that was sent and whose reply is not complete.
struct Pending {
    uint64_t id;
    uint64_t last_token_ns; // when the newest tokens of a stream came
    uint32_t request;       // in the log
    uint32_t received;      // payload bytes so far
    uint8_t status;
    Outcome outcome; // verified until something is wrong; the first fault stays
    bool done;       // answered before its turn; leaves when it is at the front
};

// The unanswered requests of a connection in the order they were sent.
class PendingRing {
  public:
    uint32_t size() const { return last_ - first_; }
    bool empty() const { return first_ == last_; }
    Pending &front() { return (*this)[0]; }
    Pending &operator[](uint32_t i) { return ring_[(first_ + i) % capacity]; }
    void push(uint64_t id, uint32_t request) {
        ring_[last_++ % capacity] = {id, 0, request, 0, STATUS_OK, Outcome::verified, false};
    }
    void pop_done() {
        while (!empty() && front().done)
            ++first_;
    }
    void clear() { first_ = last_; }
    Pending *find(uint64_t id) {
        for (uint32_t i = 0; i < size(); ++i)
            if ((*this)[i].id == id && !(*this)[i].done)
                return &(*this)[i];
        return nullptr;
    }
    // Among the last ones; those that have left the ring are still in its memory.
    bool answered(uint64_t id) const {
        return std::ranges::any_of(ring_, [id](const Pending &p) { return p.done && p.id == id; });
    }

  private:
    static constexpr uint32_t capacity = 32;
    static_assert(capacity >= PIPELINE_DEPTH);
    std::array<Pending, capacity> ring_ = {};
    uint32_t first_ = 0;
    uint32_t last_ = 0;
};

// Requests that are due and not sent, linked through the log.
class DueQueue {
  public:
    bool empty() const { return size_ == 0; }
    uint32_t size() const { return size_; }
    void push(RequestLog &log, uint32_t request) {
        if (size_++ == 0)
            head_ = request;
        else
            log[tail_].next = request;
        tail_ = request;
    }
    uint32_t pop(const RequestLog &log) {
        uint32_t request = head_;
        head_ = log[request].next;
        --size_;
        return request;
    }

  private:
    uint32_t head_ = 0;
    uint32_t tail_ = 0;
    uint32_t size_ = 0;
};

enum class State : uint8_t { closed, connecting, open };

struct Connection {
    uint32_t number = 0; // among all connections of the run
    State state = State::closed;
    bool closing = false; // the server takes no other request, and means no harm
    bool to_send = false; // is in the worker's list of connections to send on
    Outcome last_failure = Outcome::connect;
    Descriptor socket;

    DueQueue due;
    PendingRing pending;
    std::vector<uint8_t> partial; // beginning of a frame whose end has not come
    Completion completion;        // with --openai
    std::vector<uint8_t> unsent;  // what the kernel did not take; nothing more is sent meanwhile

    uint64_t sent = 0; // in all: numbers the requests of a closed loop
    uint64_t measured_sent = 0;
    uint64_t sent_since_open = 0;
    uint64_t answered_since_open = 0;
};

} // namespace load
