// SPDX-License-Identifier: MIT
// The established connections of the epoll server: bytes in, replies out, and their end.
//
// Epoll reports levels, not edges: a turn reads each readable connection once, so that none can
// keep the others waiting, and what is left is reported again. Edges would save the kernel a look
// at each connection it has just reported, too little to measure, and cost a list of the unfinished
// ones here.
#pragma once

#include <cstdint>
#include <sys/uio.h>
#include <vector>

#include "native/common/descriptor.hpp"
#include "native/common/page.hpp"
#include "native/common/poller.hpp"
#include "native/epoll/deadline_list.hpp"

// What the page does not hold about a connection.
struct Connection {
    Descriptor socket;
    uint32_t generation = 0;
    uint32_t interest = 0;    // events that epoll watches for
    bool queued = false;      // stands in queue_
    bool blocked = false;     // a send was short; waits for EPOLLOUT
    bool peer_closed = false; // its FIN was read
    bool lingering = false;   // our FIN was sent
    uint32_t begun = 0;       // bytes of partial that have left
    reply_view partial{};     // a begun reply goes out as it was begun
};
static_assert(sizeof(Connection) <= 64);

class Connections {
  public:
    // send_timeout: nanoseconds that a peer may leave a full socket unread, 0 for no limit.
    // refusal_fd: an eventfd by which the supervisor is told of refused connections, or -1.
    Connections(shared_page &page, Poller &poller, int64_t send_timeout, int refusal_fd);

    void open(Descriptor socket);
    // The event of a connection that is gone is ignored.
    void handle(uint64_t tag, uint32_t events);
    // Replies of that connection may have become ready.
    void queue(uint32_t index);
    bool has_queued() const { return !queue_.empty(); }
    void send_queued();

    int64_t next_deadline() const;
    void close_expired(int64_t now);

    // Every connection ends as soon as what it was promised is sent.
    void finish();
    // Replies that wait for the executor, not for a peer to read those before.
    uint64_t unanswered() const;
    void close_all();
    uint32_t count() const { return count_; }

  private:
    enum class Sent { nothing, everything, part, failed };

    void tell_refusal();
    void receive(uint32_t index);
    void send_replies(uint32_t index);
    Sent send_batch(uint32_t index);
    uint32_t gather(uint32_t index);
    bool account(uint32_t index, uint32_t count, size_t sent);
    void block(uint32_t index);
    void unblock(uint32_t index);
    void end_if_settled(uint32_t index);
    void watch(uint32_t index);
    void close(uint32_t index);

    shared_page &page_;
    Poller &poller_;
    std::vector<Connection> table_;
    uint32_t count_ = 0;
    int refusal_fd_;
    uint32_t refusals_told_ = 0;
    DeadlineList unread_;    // peers that do not read what they asked for
    DeadlineList lingering_; // peers that do not answer our FIN
    std::vector<uint16_t> queue_;
    std::vector<uint16_t> sending_; // the queue of this turn

    // One batch of replies.
    reply_view view_[ORDER_DEPTH];
    iovec piece_[ORDER_DEPTH];

    // Holds all that a well-behaved peer can have sent: its requests before it must wait.
    char bytes_[PIPELINE_MAX * (REQUEST_HEADER_SIZE + REQUEST_MAX)];
};
