// SPDX-License-Identifier: MIT
// The listening socket: accepts in batches, and rests when the process is out of descriptors.
#pragma once

#include <cstdint>

#include "native/common/clock.hpp"
#include "native/common/descriptor.hpp"
#include "native/common/page.hpp"
#include "native/common/poller.hpp"
#include "native/epoll/connections.hpp"

class Listener {
  public:
    // Throws Failure when the socket does not listen.
    Listener(Descriptor socket, shared_page &page, Poller &poller, uint64_t tag,
             Connections &connections);

    void accept_ready();
    void resume_if_due(int64_t now);
    int64_t next_deadline() const { return resume_at_; }
    // Its port is free as soon as nobody else holds the socket.
    void close();

  private:
    void pause();

    Descriptor socket_;
    shared_page &page_;
    Poller &poller_;
    uint64_t tag_;
    Connections &connections_;
    int64_t resume_at_ = NEVER;
};
