// SPDX-License-Identifier: MIT
// Connections in the order of their deadlines. All of one list wait equally long, so that a new
// one goes last and neither arming nor expiry searches.
#pragma once

#include <cstdint>
#include <vector>

#include "native/common/clock.hpp"

class DeadlineList {
  public:
    // wait is in nanoseconds; 0 means that the list stays empty.
    DeadlineList(uint32_t connections, int64_t wait) : link_(connections + 1), wait_(wait) {
        for (uint32_t i = 0; i < link_.size(); i++)
            link_[i].previous = link_[i].next = static_cast<uint16_t>(i);
    }

    // Arms it, or starts its wait again.
    void restart(uint32_t index, int64_t now) {
        remove(index);
        if (!wait_)
            return;
        Link &head = link_.back();
        link_[index] = {now + wait_, head.previous, static_cast<uint16_t>(link_.size() - 1)};
        link_[head.previous].next = static_cast<uint16_t>(index);
        head.previous = static_cast<uint16_t>(index);
    }

    void remove(uint32_t index) {
        Link &link = link_[index];
        link_[link.previous].next = link.next;
        link_[link.next].previous = link.previous;
        link.previous = link.next = static_cast<uint16_t>(index);
    }

    int64_t next_deadline() const { return empty() ? NEVER : link_[link_.back().next].deadline; }

    // Takes one whose deadline has passed; false when there is none.
    bool take_expired(int64_t now, uint32_t &index) {
        if (next_deadline() > now)
            return false;
        index = link_.back().next;
        remove(index);
        return true;
    }

  private:
    struct Link {
        int64_t deadline = NEVER;
        uint16_t previous = 0; // itself while it is in no list
        uint16_t next = 0;
    };

    bool empty() const { return link_.back().next == link_.size() - 1; }

    std::vector<Link> link_; // by connection; the last is the list's head
    int64_t wait_;
};
