// SPDX-License-Identifier: MIT
// The epoll server: one thread that waits for sockets, signals and, while requests are in flight,
// for the next look at the page.
#pragma once

#include <cstdint>

#include "native/common/clock.hpp"
#include "native/common/descriptor.hpp"
#include "native/common/page.hpp"
#include "native/common/poller.hpp"
#include "native/epoll/connections.hpp"
#include "native/epoll/listener.hpp"
#include "native/epoll/ticker.hpp"

// All in nanoseconds.
struct ServerTimes {
    int64_t wake;         // between looks at the page while requests are in flight
    int64_t drain;        // from the first SIGTERM or SIGINT to leaving at the latest
    int64_t send_timeout; // 0: none
    int64_t request_tick; // between looks for overdue requests, 0: none
    int64_t frame_tick;   // and for frames that do not end, 0: none
};

class Server {
  public:
    // signals is of open_leave_signals(), refusal_fd an eventfd or -1. Throws Failure.
    Server(shared_page &page, Descriptor signals, Descriptor listener, int refusal_fd,
           const ServerTimes &times);

    // Serves until a signal and the drain that follows. Throws Failure when requests that were
    // admitted are still with the executor at the drain's end.
    void run();

  private:
    void turn();
    void dispatch(const epoll_event &event);
    void take_completions();
    int64_t timeout() const;
    void plan_look();
    int64_t until_look() const;
    int64_t next_deadline() const;
    void handle_deadlines();
    void look_for_overdue();
    void look_for_late();
    void read_signal();
    void leave();

    shared_page &page_;
    ServerTimes times_;
    Poller poller_;
    Descriptor signals_;
    Ticker request_ticker_; // runs while requests are in flight
    Ticker frame_ticker_;   // runs while a connection is inside a frame
    Connections connections_;
    Listener listener_;
    bool draining_ = false;
    int64_t leave_at_ = NEVER; // the end of the drain
};
