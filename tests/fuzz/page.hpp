// SPDX-License-Identifier: MIT
// The page under the fuzzer: the sources that the BPF programs are made of, on a small part of a
// page, with a segment that checks every copy.
#pragma once

#include "tests/fuzz/input.hpp"

#include <cstring>
#include <memory>
#include <vector>

// The clock of the page's code, in ns. It moves when an input says so and not before: what an input
// does is then the same each time, however long the fuzzer itself is kept waiting.
inline uint64_t page_clock;
#define page_now() page_clock

#include "shared_page/attach.h"

#include "shared_page/egress.h"
#include "shared_page/executor.h"

// One segment of a connection. It lies in memory of its own, so that the sanitizer sees a read
// past its end, and knows where in the page its bytes may go.
struct Segment {
    shared_page *page;
    uint32_t index;
    std::span<const uint8_t> bytes;
    bool fails = false; // as bpf_skb_load_bytes() may
};

inline bool within(const void *to, uint32_t length, const uint8_t *area, size_t size) {
    auto *at = static_cast<const uint8_t *>(to);
    return at >= area && at + length <= area + size;
}

inline int copy_bytes(void *source, uint32_t offset, void *to, uint32_t length) {
    auto *segment = static_cast<Segment *>(source);
    auto &in = segment->page->connection[segment->index].ingress;

    require(length >= 1 && length <= REQUEST_MAX, "a copy of a length the verifier refuses");
    require(offset + length <= segment->bytes.size(), "a copy from behind the segment");
    bool fits = in.slot == SLOT_NONE
                    ? within(to, length, in.header, sizeof(in.header))
                    : within(to, length, segment->page->slot[in.slot].request, REQUEST_MAX);
    require(fits, "a copy to where this frame does not belong");
    if (segment->fails)
        return -1;
    memcpy(to, segment->bytes.data() + offset, length);
    return 0;
}

#include "shared_page/ingress.h"

enum : uint32_t {
    CONNECTIONS = 5,
    SLOTS = 40, // a few for each connection
    FIRST_SLOT = SLOT_COUNT - SLOTS,
};

// One page for all inputs: making one takes longer than most inputs. Only what an input can touch
// is set back; that nothing else was touched is checked at both ends of it.
class Page {
  public:
    Page() : page_(static_cast<shared_page *>(calloc(1, sizeof(shared_page)))) {}

    // Counters that only grow start anywhere, so that rings and words wrap.
    shared_page *reset(uint64_t start) {
        memset(page_.get(), 0, offsetof(shared_page, connection));
        memset(page_->connection, 0, CONNECTIONS * sizeof(connection_entry));
        memset(page_->slot + FIRST_SLOT, 0, SLOTS * sizeof(request_slot));
        page_clock = 3'600'000'000'000;
        page_initialise(page_.get(), CONNECTIONS, SLOT_COUNT);
        page_->ingress.free_slot_head = FIRST_SLOT;
        page_->ingress.submit_tail = page_->executor.submit_head = start;
        page_->egress.finals = start;
        page_->egress.completion_head = page_->executor.completion_tail = start;
        for (auto &connection : std::span(page_->connection, CONNECTIONS))
            connection.egress.order_head = static_cast<uint32_t>(start);
        return page_.get();
    }

    void check_untouched() const {
        static const request_slot slot{};
        static const connection_entry connection{};

        require(!memcmp(page_->slot + FIRST_SLOT - 1, &slot, sizeof(slot)), "a foreign slot");
        require(!memcmp(page_->connection + CONNECTIONS, &connection, sizeof(connection)),
                "a foreign connection");
        require(page_->identity.magic == PAGE_MAGIC && !page_->supervisor.stop, "the page's head");
        for (uint8_t byte : page_->tail_guard)
            require(!byte, "the page's end");
    }

  private:
    struct Free {
        void operator()(void *at) const { free(at); }
    };
    std::unique_ptr<shared_page, Free> page_;
};

// Time passes: the hand goes once over the slots that are in use.
inline void hand_round(shared_page *page) {
    uint32_t index;

    page->egress.hand = FIRST_SLOT;
    for (uint32_t n = 0; n < SLOTS; n++)
        if (hand_move(page, &index))
            require(index < CONNECTIONS, "an overdue request's connection");
}

// The free slots, each of which must be free once.
inline std::vector<bool> free_slots(const shared_page *page) {
    std::vector<bool> free(SLOT_COUNT);
    uint64_t head = page->ingress.free_slot_head, tail = page->egress.free_slot_tail;

    require(tail - head <= SLOTS, "more slots are free than there are");
    for (; head != tail; head++) {
        uint32_t slot = page->free_slot[head & SLOT_MASK];
        require(slot >= FIRST_SLOT && slot < SLOT_COUNT, "a slot that does not exist is free");
        require(!free[slot], "a slot is free twice");
        free[slot] = true;
    }
    return free;
}

inline uint64_t free_connections(const shared_page *page) {
    return page->egress.free_connection_tail - page->ingress.free_connection_head;
}
