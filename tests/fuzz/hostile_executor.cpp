// SPDX-License-Identifier: MIT
// An executor that has gone mad: it writes what it wants into every word of the page that is its
// own, while clients and egress do what they should. It may answer wrongly, or never. But what
// leaves must be a frame of the connection's own requests, from their own slots, and no slot may
// be given to two requests at once.
//
// Egress works as bpf/include/send.h does: a batch of replies is collected, sent some time later
// from the page as it is then, and given up when the connection goes first.
#include "tests/fuzz/page.hpp"

#include <deque>

namespace {

constexpr uint32_t batch = 8; // SEND_BATCH
constexpr uint32_t INTERVAL_NS = 60'000;

class Hostile {
  public:
    Hostile(shared_page *page, Input input) : page_(page), input_(input) {}

    void run() {
        for (auto &client : clients_)
            open(client);
        page_->supervisor.adaptive_wake_ns = input_.below(2) * INTERVAL_NS;
        while (!input_.empty()) {
            step(input_.below(14), clients_[input_.below(CONNECTIONS)]);
            check_slots();
        }
    }

  private:
    struct Client {
        uint32_t index = 0;
        uint64_t sent = 0;
        std::deque<uint64_t> waits; // ids, in order
        std::vector<reply_view> parts;
    };

    void step(uint32_t choice, Client &client) {
        switch (choice) {
        case 0:
        case 1:
            return request(client);
        case 2:
            return serve();
        case 3:
            return scribble_slot();
        case 4:
        case 5:
            return scribble_notice();
        case 6:
            return scribble_words();
        case 7:
            return take_notices();
        case 8:
        case 9:
            return collect(client);
        case 10:
            return sent(client);
        case 11:
            return reopen(client);
        case 12:
            return hand_round(page_);
        case 13:
            return look();
        }
    }

    // As ingress's timer does, whose next look must come, whatever the executor says.
    void look() {
        uint64_t now = page_clock += input_.half() * uint64_t{1000};
        wake_learn(page_, now);
        if (!results_to_come(page_, now))
            return;
        uint64_t next = page_->supervisor.adaptive_wake_ns ? wake_plan(page_, now) : now + 1;
        require(next > now && next <= now + EXPECTED_MOST_NS, "the next look comes");
    }

    void open(Client &client) {
        client = {};
        require(connection_open(page_, &client.index), "an entry is free");
    }

    void request(Client &client) {
        struct {
            request_header header;
            uint8_t payload[8];
        } frame{{.magic = PROTOCOL_MAGIC,
                 .version = PROTOCOL_VERSION,
                 .kind = KIND_ECHO,
                 .request_id = ++client.sent << 8 | client.index,
                 .flags = 0,
                 .length = sizeof(frame.payload)},
                {}};

        if (client.waits.size() == PIPELINE_MAX)
            return;
        client.waits.push_back(frame.header.request_id);
        Segment segment{page_, client.index, {reinterpret_cast<uint8_t *>(&frame), sizeof(frame)}};
        frames_admit(page_, client.index, &segment, sizeof(frame));
        check_claimed(client);
    }

    // The slot of the request that was admitted last must not be another's as well.
    void check_claimed(const Client &client) {
        auto &entry = page_->connection[client.index];
        auto &last = entry.order[(entry.ingress.order_tail - 1) % ORDER_DEPTH];

        require(last.length == ORDER_IS_SLOT || last.status == STATUS_BUSY, "an admission");
    }

    // As an executor should: takes a request and answers it.
    void serve() {
        uint32_t slot;

        if (request_take(page_, &slot))
            result_publish(page_, slot, input_.byte(), STATUS_OK, FINISH_NONE);
    }

    uint32_t any_slot() { return FIRST_SLOT + input_.below(SLOTS); }

    // Values near the ones that mean something.
    uint64_t any_value(uint32_t slot) {
        switch (input_.below(6)) {
        case 0:
            return 0;
        case 1:
            return page_->slot[slot].ingress.ticket;
        case 2:
            return page_->ingress.submit_tail + input_.below(3);
        case 3:
            return page_->cancel_close[slot];
        case 4:
            return input_.byte();
        default:
            return input_.word();
        }
    }

    void scribble_slot() {
        uint32_t index = any_slot();
        auto &slot = page_->slot[index];

        switch (input_.below(7)) {
        case 0:
            slot.executor.done = any_value(index);
            break;
        case 1:
            slot.executor.tokens = any_value(index);
            break;
        case 2:
            slot.executor.tokens_ticket = any_value(index);
            break;
        case 3:
            slot.executor.length = static_cast<uint32_t>(any_value(index));
            break;
        case 4:
            slot.executor.status = input_.half();
            break;
        case 5:
            slot.executor.finish = input_.half();
            break;
        case 6:
            memset(slot.result, input_.byte(), sizeof(slot.result));
        }
    }

    // A notice that egress will take, of any slot, or an entry that means nothing.
    void scribble_notice() {
        uint64_t tail = page_->executor.completion_tail;
        uint32_t slot = any_slot(), kind = input_.below(4);
        uint64_t position = kind == 3 ? input_.word() : tail + 1;
        uint64_t flags = kind == 0 ? 0 : COMPLETION_FINAL;

        if (kind == 2)
            page_->slot[slot].executor.done = any_value(slot);
        page_->completion[tail % COMPLETION_DEPTH] =
            position << TICKET_SHIFT | flags | slot | (input_.byte() & 0x70u) << 8;
        page_->executor.completion_tail = tail + 1;
    }

    void scribble_words() {
        uint64_t value = input_.word();

        switch (input_.below(4)) {
        case 0:
            page_->executor.submit_head = value;
            break;
        case 1:
            page_->executor.completion_tail = value;
            break;
        case 2:
            page_->executor.completion_tail = page_->egress.completion_head;
            break;
        case 3:
            page_->completion[value % COMPLETION_DEPTH] = input_.word();
        }
    }

    void take_notices() {
        uint32_t index, count = 0;

        while (count++ < COMPLETION_DEPTH && completion_take(page_, &index))
            require(index < CONNECTIONS, "a notice's connection");
        while (attention_take(page_, &index))
            require(index < CONNECTIONS, "a notice's connection");
    }

    void collect(Client &client) {
        if (!client.parts.empty())
            return;
        for (uint32_t nth = 0; nth < batch; nth++) {
            reply_view view;
            if (!reply_ready(page_, client.index, nth, &view))
                break;
            require(nth < client.waits.size(), "a reply for nobody");
            check_view(client, client.waits[nth], view);
            client.parts.push_back(view);
            if (!view.last)
                break;
        }
    }

    void check_view(const Client &client, uint64_t id, const reply_view &view) {
        auto *page = reinterpret_cast<const uint8_t *>(page_);
        reply_header header;

        memcpy(&header, page + view.offset, sizeof(header));
        require(header.request_id == id, "a reply to another request");
        require(view.length == REPLY_HEADER_SIZE + header.length, "a frame of another length");
        require(header.length <= RESULT_MAX, "a frame longer than any");
        require((header.flags & REPLY_LAST) == view.last, "a frame that is the last, or not");
        if (view.slot == SLOT_NONE)
            return;
        require(view.slot >= FIRST_SLOT && view.slot < SLOT_COUNT, "a slot that does not exist");
        auto &slot = page_->slot[view.slot];
        require(slot.ingress.connection == client.index, "a slot of another connection");
        bool fits = within(page + view.offset, view.length, slot.egress.frame,
                           sizeof(slot.egress) + sizeof(slot.result));
        require(fits, "bytes from outside the slot");
        bool single = view.offset == SLOT_OFFSET(view.slot, egress.header);
        require(single || view.length <= sizeof(slot.egress), "a stream's frame reaches further");
    }

    void sent(Client &client) {
        for (auto &view : client.parts) {
            reply_sent(page_, client.index, view.slot, view.tokens, view.last);
            if (view.last)
                client.waits.pop_front();
        }
        client.parts.clear();
    }

    void reopen(Client &client) {
        connection_release(page_, client.index);
        open(client);
    }

    // A slot is free, or owed to one connection, or waits for the notice of one that is gone.
    void check_slots() {
        auto used = free_slots(page_);
        auto claim = [&](uint32_t slot) {
            require(slot >= FIRST_SLOT && slot < SLOT_COUNT, "a slot that does not exist");
            require(!used[slot], "a slot has two owners");
            used[slot] = true;
        };

        for (auto &connection : std::span(page_->connection, CONNECTIONS)) {
            uint32_t at = connection.egress.order_head, end = connection.ingress.order_tail;
            for (; at != end; at++) {
                auto &owed = connection.order[at % ORDER_DEPTH];
                if (owed.length == ORDER_IS_SLOT)
                    claim(owed.request_id & SLOT_MASK);
            }
        }
        for (uint32_t slot = FIRST_SLOT; slot < SLOT_COUNT; slot++) {
            if (page_->cancel_close[slot])
                claim(slot);
        }
        require(std::count(used.begin(), used.end(), true) == SLOTS, "a slot is lost");
    }

    shared_page *page_;
    Input input_;
    Client clients_[CONNECTIONS];
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static Page page;

    Hostile(page.reset(0), Input(data, size)).run();
    page.check_untouched();
    return 0;
}
