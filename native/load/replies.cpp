// SPDX-License-Identifier: MIT
#include "native/load/replies.hpp"

#include <cmath>
#include <cstring>

#include "native/load/random.hpp"

namespace load {
namespace {

constexpr uint16_t finish_mask = 0xff;

bool possible(const reply_header &header) {
    uint16_t finish = header.flags >> REPLY_FINISH_SHIFT;
    uint16_t known = REPLY_LAST | finish_mask << REPLY_FINISH_SHIFT;
    return header.length <= RESULT_MAX && header.status < status_count &&
           (header.flags & ~known) == 0 && finish <= FINISH_ABORT;
}

bool close_enough(const Case &expected, std::span<const uint8_t> payload) {
    for (size_t at = 0; at < payload.size(); at += sizeof(float)) {
        float got, want;
        memcpy(&got, payload.data() + at, sizeof(float));
        memcpy(&want, expected.expected.data() + at, sizeof(float));
        // Written so that a NaN fails.
        if (!(std::fabs(got - want) <= expected.atol + expected.rtol * std::fabs(want)))
            return false;
    }
    return true;
}

// The bytes lie within the expected ones, from offset on.
bool equal(const Case &expected, size_t offset, std::span<const uint8_t> payload) {
    if (payload.empty() || expected.compare == Compare::token_count ||
        memcmp(payload.data(), expected.expected.data() + offset, payload.size()) == 0)
        return true;
    return expected.compare == Compare::float32 && close_enough(expected, payload);
}

void note(Pending &pending, Outcome fault) {
    if (pending.outcome == Outcome::verified)
        pending.outcome = fault;
}

} // namespace

Replies::Read Replies::read(Connection &connection, std::span<const uint8_t> bytes,
                            uint64_t now_ns) {
    size_t at = 0;
    while (bytes.size() - at >= REPLY_HEADER_SIZE) {
        reply_header header;
        static_assert(sizeof(header) == REPLY_HEADER_SIZE);
        memcpy(&header, bytes.data() + at, sizeof(header));
        if (!possible(header))
            return {at, Outcome::bad_header};
        if (bytes.size() - at - REPLY_HEADER_SIZE < header.length)
            break;
        std::span payload = bytes.subspan(at + REPLY_HEADER_SIZE, header.length);
        if (std::optional<Outcome> fault = take_frame(connection, header, payload, now_ns))
            return {at, fault};
        at += REPLY_HEADER_SIZE + header.length;
    }
    return {at, std::nullopt};
}

std::optional<Outcome> Replies::take_frame(Connection &connection, const reply_header &header,
                                           std::span<const uint8_t> payload, uint64_t now_ns) {
    PendingRing &ring = connection.pending;
    if (ring.empty())
        return Outcome::wrong_id; // nobody asked
    Pending *pending = &ring.front();
    if (pending->id != header.request_id) {
        Pending *other = ring.find(header.request_id);
        if (!other && ring.answered(header.request_id))
            return Outcome::wrong_id; // a second reply: all after it would be off by one
        // Any other unknown id stands where the front's reply belongs.
        pending = other ? other : pending;
        note(*pending, other ? Outcome::wrong_order : Outcome::wrong_id);
    }
    Request &request = log_[pending->request];
    const Case &expected = cases_[request.record.case_index];
    bool stream = expected.streams();
    bool last = header.flags & REPLY_LAST;
    if (!last && !stream)
        return Outcome::bad_header;
    if (request.record.first_ns == 0)
        request.record.first_ns = now_ns;
    check_frame(*pending, expected, header, payload);
    if (stream && !payload.empty())
        count_tokens(*pending, request.record, payload.size() / TOKEN_SIZE, now_ns);
    last_reply_ns_ = now_ns;
    if (last) {
        settle(*pending, payload, now_ns);
        ring.pop_done();
        ++connection.answered_since_open;
    }
    return std::nullopt;
}

void Replies::check_frame(Pending &pending, const Case &expected, const reply_header &header,
                          std::span<const uint8_t> payload) {
    size_t end = pending.received + payload.size();
    size_t whole = expected.expected.size();
    bool last = header.flags & REPLY_LAST;
    bool broken_token = expected.streams() && payload.size() % TOKEN_SIZE;
    if (header.status != expected.status)
        note(pending, header.status == STATUS_BUSY ? Outcome::busy : Outcome::error_status);
    else if (end > whole || (last && end != whole) || broken_token)
        note(pending, Outcome::wrong_length);
    else if (!equal(expected, pending.received, payload))
        note(pending, Outcome::wrong_payload);
    else if (header.flags >> REPLY_FINISH_SHIFT != (last ? expected.finish : uint32_t{FINISH_NONE}))
        note(pending, Outcome::bad_finish);
    pending.status = static_cast<uint8_t>(header.status);
    pending.received = static_cast<uint32_t>(end);
}

// The tokens of a frame arrive together, so a gap lies between two frames.
void Replies::count_tokens(Pending &pending, const Record &record, size_t count, uint64_t now_ns) {
    if (record.intended_ns >= measured_from_ns_) {
        tokens_ += count;
        if (pending.last_token_ns)
            token_gaps_.append() = now_ns - pending.last_token_ns;
    }
    pending.last_token_ns = now_ns;
}

void Replies::settle(Pending &pending, std::span<const uint8_t> payload, uint64_t now_ns) {
    Record &record = log_[pending.request].record;
    record.done_ns = now_ns;
    record.status = status_word(pending.outcome, pending.status);
    pending.done = true;
    ++settled_;
    if (pending.outcome != Outcome::verified || record.intended_ns < measured_from_ns_)
        return;
    // Only a float reply can be right and yet differ from the expected bytes.
    const Case &expected = cases_[record.case_index];
    digest_ += expected.compare == Compare::float32 ? hash_bytes(record.case_index, payload)
                                                    : expected.expected_hash;
}

void Replies::fail(uint32_t request, Outcome outcome) {
    log_[request].record.status = status_word(outcome, no_status);
    ++settled_;
}

void Replies::fail_pending(Connection &connection, Outcome outcome) {
    PendingRing &ring = connection.pending;
    for (uint32_t i = 0; i < ring.size(); ++i)
        if (!ring[i].done)
            fail(ring[i].request, outcome);
    ring.clear();
}

} // namespace load
