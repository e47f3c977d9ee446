// SPDX-License-Identifier: MIT
// What docs/protocol.md says becomes of a connection's bytes, one byte at a time: no segments, no
// rings, no slots but their number.
#pragma once

#include "tests/fuzz/page.hpp"

#include <deque>
#include <list>
#include <memory>

struct Request {
    request_header header{};
    std::vector<uint8_t> payload{};
    uint16_t error = STATUS_OK; // answered without the executor
    bool cancelled = false;     // by its client
    bool orphaned = false;      // its connection is gone
    bool answered = false;      // egress has taken the final notice
    uint32_t slot = SLOT_NONE;  // known once the executor has taken it
    std::vector<uint32_t> tokens{};
    uint32_t tokens_sent = 0;
    bool streams = false;
    uint16_t status = STATUS_OK;
    std::vector<uint8_t> result{};
    size_t seen = SIZE_MAX; // tokens, when the hand passed last
    uint32_t same = 0;      // rounds since then that found as many

    // TIMEOUT answers it, unless the result comes first.
    bool overdue() const { return error == STATUS_OK && !answered && same == LOOKS_UNTIL_OVERDUE; }

    // A token that comes before the TIMEOUT has left makes it no longer overdue.
    void look() {
        if (error != STATUS_OK || answered)
            return;
        same = seen == tokens.size() ? std::min<uint32_t>(same + 1, LOOKS_UNTIL_OVERDUE) : 0;
        seen = tokens.size();
    }
};

using RequestRef = std::shared_ptr<Request>;

// Of all connections together.
struct Service {
    uint32_t free_slots = SLOTS;
    bool draining = false;
    std::deque<RequestRef> submitted;
    uint64_t received = 0, busy = 0, bad = 0, cancels = 0;
    uint64_t frames = 0; // begun
};

class Peer {
  public:
    explicit Peer(Service &service) : service_(service) {}

    // Returns what frames_admit() has to return.
    uint32_t receive(std::span<const uint8_t> bytes) {
        uint32_t asks = 0;
        closing |= late != FRAME_IN_TIME;
        for (uint8_t byte : bytes)
            asks |= take(byte);
        service_.received += bytes.size();
        return asks;
    }

    // The connection is gone: what it holds is free, now or when the executor is through with it.
    void leave() {
        service_.free_slots += assembling_;
        for (auto &request : owed) {
            request->orphaned = true;
            service_.free_slots += request->error == STATUS_OK && request->answered;
        }
    }

    bool assembling() const { return assembling_; }
    bool inside() const { return !closing && (assembling_ || discard_ || !buffer_.empty()); }
    bool header_whole() const { return assembling_ || discard_; }
    uint64_t assembled_id() const { return header_.request_id; }

    std::deque<RequestRef> owed; // in the order in which replies have to leave
    bool closing = false;
    frame_late late = FRAME_IN_TIME;
    uint64_t frame = 0; // the one begun last, of all that anybody began

  private:
    uint32_t take(uint8_t byte) {
        if (closing)
            return 0;
        if (discard_) {
            discard_--;
            return 0;
        }
        if (buffer_.empty() && !assembling_)
            frame = ++service_.frames;
        buffer_.push_back(byte);
        if (assembling_)
            return buffer_.size() == header_.length ? submit() : 0;
        return buffer_.size() == REQUEST_HEADER_SIZE ? begin() : 0;
    }

    uint32_t begin() {
        memcpy(&header_, buffer_.data(), sizeof(header_));
        buffer_.clear();
        if (header_.magic != PROTOCOL_MAGIC) {
            header_.request_id = 0;
            return refuse(STATUS_BAD_FRAME);
        }
        if (header_.version != PROTOCOL_VERSION)
            return refuse(STATUS_BAD_FRAME);
        if (header_.length > REQUEST_MAX)
            return refuse(STATUS_TOO_LARGE);
        if (header_.kind == KIND_CANCEL)
            return cancel();
        if (owed.size() >= PIPELINE_MAX)
            return refuse(STATUS_TOO_MANY);
        if (service_.draining)
            return refuse(STATUS_SHUTTING_DOWN);
        if (service_.free_slots < std::max<size_t>(1, 4 * owed.size()))
            return refuse(STATUS_BUSY);
        service_.free_slots--;
        assembling_ = true;
        return header_.length ? 0 : submit();
    }

    uint32_t refuse(uint16_t status) {
        bool closes =
            status == STATUS_BAD_FRAME || status == STATUS_TOO_LARGE || status == STATUS_TOO_MANY;

        closing = closes;
        discard_ = closes ? 0 : header_.length;
        bool full = status == STATUS_BUSY || status == STATUS_SHUTTING_DOWN;
        (full ? service_.busy : service_.bad)++;
        owed.push_back(std::make_shared<Request>(Request{.header = header_, .error = status}));
        return ADMITTED_REPLY;
    }

    uint32_t cancel() {
        service_.cancels++;
        discard_ = header_.length;
        for (auto &request : owed) {
            if (request->error != STATUS_OK || request->header.request_id != header_.request_id)
                continue;
            request->cancelled = true;
            break;
        }
        return 0;
    }

    uint32_t submit() {
        auto request = std::make_shared<Request>(Request{.header = header_, .payload = buffer_});
        owed.push_back(request);
        service_.submitted.push_back(request);
        buffer_.clear();
        assembling_ = false;
        return ADMITTED_REQUEST;
    }

    Service &service_;
    std::vector<uint8_t> buffer_; // of the header, then of the payload
    request_header header_{};
    bool assembling_ = false;
    uint32_t discard_ = 0;
};
