// SPDX-License-Identifier: MIT
// Clients that send anything, cut anywhere, and leave at any time; an executor and an egress that
// do what they should, at times of the fuzzer's choice. The page has to agree with the model, and
// in the end everything has to be free.
#include "tests/fuzz/model.hpp"

namespace {

class Admission {
  public:
    Admission(shared_page *page, Input input) : page_(page), input_(input) {}

    void run() {
        while (!input_.empty())
            step(input_.below(16));
        finish();
    }

  private:
    struct Connection {
        uint32_t index;
        Peer peer;
        std::vector<uint8_t> unsent; // bytes of the client that did not arrive yet
    };

    void step(uint32_t choice) {
        Connection *client = connections_.empty() ? nullptr : pick();

        if (choice == 0 || !client)
            return open();
        switch (choice) {
        case 1:
        case 2:
            return write_frame(*client);
        case 3:
            return write_raw(*client, input_.bytes(1 + input_.below(32)));
        case 4:
            return deliver(*client, 1 + input_.below(32));
        case 5:
            return deliver(*client, input_.half());
        case 6:
            return deliver(*client, client->unsent.size());
        case 7:
            return execute_take();
        case 8:
        case 9:
            return execute_step();
        case 10:
            return take_notices();
        case 11:
            return send_reply(*client);
        case 12:
            return close(*client);
        case 13:
            return drain(input_.below(4) == 0);
        case 14:
            return wait_for_results();
        case 15:
            return wait_for_frames();
        }
    }

    Connection *pick() {
        return &*std::next(connections_.begin(), input_.below(connections_.size()));
    }

    void open() {
        uint64_t refused = page_->ingress.connections_refused;
        uint32_t index;
        bool opened = connection_open(page_, &index);

        require(opened == (connections_.size() < CONNECTIONS),
                "an entry is claimed if one is free");
        require(page_->ingress.connections_refused == refused + !opened, "refusals are counted");
        if (!opened)
            return;
        for (auto &other : connections_)
            require(other.index != index, "an entry is claimed twice");
        connections_.push_back({index, Peer(service_), {}});
    }

    // A frame that is right but for what the fuzzer chose to spoil.
    void write_frame(Connection &client) {
        static constexpr uint32_t lengths[] = {0, 1, 23, 24, 256, 4095, 4096, 4097};
        uint32_t spoil = input_.byte(), size = input_.byte();
        request_header header = {
            .magic = spoil == 1 ? 0u : PROTOCOL_MAGIC,
            .version = static_cast<uint16_t>(spoil == 2 ? 2 : PROTOCOL_VERSION),
            .kind = static_cast<uint16_t>(input_.below(KIND_COUNT + 1)),
            .request_id = input_.below(8),
            .flags = spoil,
            .length = size < 128 ? size : lengths[size % 8],
        };
        if (spoil == 3)
            header.length = static_cast<uint32_t>(input_.word());
        auto *bytes = reinterpret_cast<const uint8_t *>(&header);
        write_raw(client, {bytes, sizeof(header)});
        for (uint32_t at = 0; at < std::min<uint32_t>(header.length, REQUEST_MAX); at++)
            client.unsent.push_back(static_cast<uint8_t>(at * 7 + header.request_id));
    }

    void write_raw(Connection &client, std::span<const uint8_t> bytes) {
        client.unsent.insert(client.unsent.end(), bytes.begin(), bytes.end());
    }

    void deliver(Connection &client, size_t count) {
        auto end =
            client.unsent.begin() + static_cast<ptrdiff_t>(std::min(count, client.unsent.size()));
        std::vector<uint8_t> bytes(client.unsent.begin(), end);
        client.unsent.erase(client.unsent.begin(), end);
        if (bytes.empty())
            return;
        Segment segment{page_, client.index, bytes};
        uint32_t asks =
            frames_admit(page_, client.index, &segment, static_cast<uint32_t>(bytes.size()));
        if (asks & ADMITTED_REPLY)
            attention_post(page_, client.index);
        frame_watch(page_, client.index);
        require(asks == client.peer.receive(bytes), "what ingress asks for");
        watch(client);
        check_counters();
        check_owed(client);
    }

    void watch(const Connection &client) {
        if (!client.peer.inside() || client.peer.late || watched_[client.index])
            return;
        watched_[client.index] = true;
        watches_.push_back({client.index, client.peer.frame, page_->egress.frame_ticks});
    }

    void wait_for_results() {
        hand_round(page_);
        for (auto &client : connections_)
            for (auto &request : client.peer.owed)
                request->look();
    }

    // Half of a frame's time passes; the page and the model say whose turn it is.
    void wait_for_frames() {
        uint32_t index;

        page_->egress.frame_ticks += FRAME_TICKS / 2;
        while (frame_turn(page_, &index)) {
            require(!watches_.empty() && watches_.front().connection == index, "whose turn it is");
            require(page_->egress.frame_ticks - watches_.front().since >= FRAME_TICKS, "its time");
            take_turn();
        }
        require(watches_.empty() ||
                    page_->egress.frame_ticks - watches_.front().since < FRAME_TICKS,
                "a connection's turn has come");
        for (auto &client : connections_)
            require(page_->connection[client.index].egress.late == client.peer.late, "who is late");
    }

    void take_turn() {
        Watch turn = watches_.front();

        watches_.pop_front();
        watched_[turn.connection] = false;
        for (auto &client : connections_) {
            if (client.index != turn.connection || !client.peer.inside())
                continue;
            if (client.peer.frame != turn.frame)
                watch(client);
            else
                client.peer.late = client.peer.header_whole() ? FRAME_LATE_OWED : FRAME_LATE;
        }
    }

    void check_counters() {
        require(page_->ingress.bytes_received == service_.received, "bytes are counted");
        require(page_->ingress.frames_busy == service_.busy, "BUSY is counted");
        require(page_->ingress.frames_bad == service_.bad, "bad frames are counted");
        require(page_->ingress.cancels == service_.cancels, "CANCELs are counted");
        auto claimed = page_->ingress.free_slot_head, back = page_->egress.free_slot_tail;
        require(back - claimed == service_.free_slots, "slots are conserved");
    }

    void check_owed(Connection &client) {
        auto &entry = page_->connection[client.index];
        uint32_t at = entry.egress.order_head;

        require(entry.ingress.order_tail - at == client.peer.owed.size(), "a reply for each frame");
        require(entry.ingress.closing == client.peer.closing, "closing");
        require((entry.ingress.slot != SLOT_NONE) == client.peer.assembling(), "a slot is held");
        for (auto &request : client.peer.owed) {
            auto &owed = entry.order[at++ % ORDER_DEPTH];
            if (request->error == STATUS_OK) {
                require(owed.length == ORDER_IS_SLOT, "an admitted request has a slot");
                check_slot(client, *request, owed.request_id & SLOT_MASK);
                continue;
            }
            require(owed.length == 0 && owed.status == request->error, "an error's status");
            require(owed.request_id == request->header.request_id, "an error's id");
        }
    }

    void check_slot(const Connection &client, const Request &request, uint32_t index) {
        auto &slot = page_->slot[index];

        require(slot.ingress.connection == client.index, "a request's connection");
        require(slot.ingress.request_id == request.header.request_id, "a request's id");
        require(slot.ingress.kind == request.header.kind, "a request's kind");
        require(slot.ingress.length == request.payload.size(), "a request's length");
        require(std::equal(request.payload.begin(), request.payload.end(), slot.request),
                "a request's payload");
    }

    void execute_take() {
        uint32_t slot;
        bool taken = request_take(page_, &slot);

        require(taken == !service_.submitted.empty(), "the executor gets what was submitted");
        if (!taken)
            return;
        auto request = service_.submitted.front();
        service_.submitted.pop_front();
        require(page_->slot[slot].ingress.request_id == request->header.request_id, "in order");
        request->slot = slot;
        request->streams = request->header.kind == KIND_TOYLM;
        if (request->streams)
            stream_begin(page_, slot);
        running_.push_back(request);
    }

    // A token of a stream, or the end of a request.
    void execute_step() {
        if (running_.empty())
            return;
        auto at = running_.begin() + input_.below(static_cast<uint32_t>(running_.size()));
        auto request = *at;
        bool cancelled = request->cancelled || request->orphaned;

        require(request_cancelled(page_, request->slot) == cancelled, "who waits for a request");
        if (request->streams && request->tokens.size() < STREAM_TOKENS_MAX && input_.below(3)) {
            request->tokens.push_back(static_cast<uint32_t>(request->tokens.size() * 3 + 1));
            return token_publish(page_, request->slot, request->tokens.back(), input_.below(2));
        }
        running_.erase(at);
        complete(*request);
        finals_.push_back(request);
    }

    void complete(Request &request) {
        uint32_t length = request.streams ? 0 : input_.half() % (RESULT_MAX + 1);

        request.status = static_cast<uint16_t>(input_.below(9));
        request.result.assign(length, static_cast<uint8_t>(length));
        std::copy(request.result.begin(), request.result.end(), page_->slot[request.slot].result);
        result_publish(page_, request.slot, length, request.status,
                       request.streams ? FINISH_STOP : FINISH_NONE);
    }

    void take_notices() {
        uint32_t index;

        while (completion_take(page_, &index))
            require(index < CONNECTIONS, "a notice's connection");
        while (attention_take(page_, &index))
            require(index < CONNECTIONS, "a notice's connection");
        for (auto &request : finals_) {
            request->answered = true;
            service_.free_slots += request->orphaned;
        }
        finals_.clear();
        require(!completion_waits(page_), "a notice was left");
        require(requests_in_flight(page_) == service_.submitted.size() + running_.size(),
                "the requests in flight");
        check_counters();
    }

    void send_reply(Connection &client) {
        auto &owed = client.peer.owed;
        reply_view view;

        bool late_owed = client.peer.late == FRAME_LATE_OWED;
        require(replies_settled(page_, client.index) == (owed.empty() && !late_owed),
                "nothing is owed");
        if (owed.empty() && late_owed)
            return send_late(client);
        if (!reply_ready(page_, client.index, 0, &view)) {
            require(owed.empty() || waits(*owed.front()), "a reply that stands can be sent");
            return;
        }
        require(!owed.empty(), "a reply for nobody");
        auto request = owed.front();
        check_frame(*request, view);
        reply_sent(page_, client.index, view.slot, view.tokens, view.last);
        request->tokens_sent += view.tokens;
        if (!view.last)
            return;
        owed.pop_front();
        service_.free_slots += request->error == STATUS_OK && request->answered;
        request->orphaned = request->error == STATUS_OK && !request->answered;
    }

    // The last reply of a connection that is closed inside a frame.
    void send_late(Connection &client) {
        reply_view view;
        reply_header header;

        client.peer.late = FRAME_LATE;
        bool ready = reply_ready(page_, client.index, 0, &view);
        require(ready == client.peer.assembling(), "a late frame's reply");
        if (!ready)
            return;
        memcpy(&header, reinterpret_cast<uint8_t *>(page_) + view.offset, sizeof(header));
        require(header.request_id == client.peer.assembled_id(), "a late frame's id");
        require(header.status == STATUS_TIMEOUT && !header.length, "a late frame's status");
        require(header.flags == REPLY_LAST && view.length == sizeof(header), "a late frame's end");
        reply_sent(page_, client.index, view.slot, view.tokens, view.last);
    }

    static bool waits(const Request &request) {
        if (request.error != STATUS_OK || request.answered || request.overdue())
            return false;
        return !request.streams || request.tokens.size() == request.tokens_sent;
    }

    void check_frame(const Request &request, const reply_view &view) {
        auto *frame = reinterpret_cast<const uint8_t *>(page_) + view.offset;
        auto *body = frame + REPLY_HEADER_SIZE;
        reply_header header;

        memcpy(&header, frame, sizeof(header));
        require(header.request_id == request.header.request_id, "a reply's id");
        require(view.length == REPLY_HEADER_SIZE + header.length, "a reply's length");
        require((header.flags & REPLY_LAST) == view.last, "a reply's last frame");
        if (request.error != STATUS_OK)
            return require(header.status == request.error && !header.length, "an error reply");
        uint16_t status = request.answered ? request.status : uint16_t{STATUS_TIMEOUT};
        require(header.status == (view.last ? status : 0), "a reply's status");
        if (request.streams) {
            auto *tokens = request.tokens.data() + request.tokens_sent;
            require(header.length == view.tokens * TOKEN_SIZE, "a frame's tokens");
            require(request.tokens_sent + view.tokens <= request.tokens.size(), "too many tokens");
            require(!header.length || !memcmp(body, tokens, header.length), "a stream's tokens");
            return;
        }
        if (!request.answered)
            return require(!header.length, "a result before its notice");
        require(header.length == request.result.size(), "a result's length");
        require(std::equal(request.result.begin(), request.result.end(), body), "a result");
    }

    void close(Connection &client) {
        client.peer.leave();
        connection_release(page_, client.index);
        connections_.remove_if([&](auto &one) { return &one == &client; });
        check_counters();
    }

    void drain(bool draining) {
        service_.draining = draining;
        store_release(&page_->egress.draining, static_cast<uint32_t>(draining));
    }

    // Everybody leaves, the executor finishes: what was claimed is free again.
    void finish() {
        while (!connections_.empty())
            close(connections_.front());
        while (!service_.submitted.empty())
            execute_take();
        while (!running_.empty())
            execute_step();
        take_notices();
        auto free = free_slots(page_);
        require(std::count(free.begin(), free.end(), true) == SLOTS, "a slot is lost");
        require(free_connections(page_) == CONNECTIONS, "an entry is lost");
        require(page_->egress.stale_results <= page_->executor.completed, "stale results");
    }

    shared_page *page_;
    Input input_;
    Service service_;
    std::list<Connection> connections_;
    std::vector<RequestRef> running_;
    std::vector<RequestRef> finals_; // published, not noticed yet

    struct Watch {
        uint32_t connection;
        uint64_t frame;
        uint32_t since;
    };
    std::deque<Watch> watches_;
    bool watched_[CONNECTIONS] = {};
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static Page page;
    Input input(data, size);
    uint64_t start = input.byte() % 2 ? (uint64_t{1} << 32) - input.byte() : input.byte();

    Admission(page.reset(start), input).run();
    page.check_untouched();
    return 0;
}
