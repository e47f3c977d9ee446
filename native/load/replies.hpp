// SPDX-License-Identifier: MIT
// Cuts what a connection received into frames and checks each against its request.
#pragma once

#include <optional>
#include <span>

#include "native/load/cases.hpp"
#include "native/load/connection.hpp"

namespace load {

class Replies {
  public:
    Replies(const Cases &cases, RequestLog &log) : cases_(cases), log_(log) {}

    // Only replies to requests intended from here on count in digest and token statistics.
    void measure_from(uint64_t time_ns) { measured_from_ns_ = time_ns; }

    struct Read {
        size_t consumed;
        std::optional<Outcome> fault; // the connection's frames can no longer be told apart
    };
    Read read(Connection &connection, std::span<const uint8_t> bytes, uint64_t now_ns);

    // Ends every unanswered request of the connection.
    void fail_pending(Connection &connection, Outcome outcome);

    // Ends one request without a reply.
    void fail(uint32_t request, Outcome outcome);

    uint64_t settled() const { return settled_; }
    uint64_t last_reply_ns() const { return last_reply_ns_; }
    uint64_t digest() const { return digest_; }
    uint64_t tokens() const { return tokens_; }
    const ChunkedLog<uint64_t> &token_gaps() const { return token_gaps_; }

  private:
    std::optional<Outcome> take_frame(Connection &connection, const reply_header &header,
                                      std::span<const uint8_t> payload, uint64_t now_ns);
    void check_frame(Pending &pending, const Case &expected, const reply_header &header,
                     std::span<const uint8_t> payload);
    void count_tokens(Pending &pending, const Record &record, size_t count, uint64_t now_ns);
    void settle(Pending &pending, std::span<const uint8_t> payload, uint64_t now_ns);

    const Cases &cases_;
    RequestLog &log_;
    uint64_t measured_from_ns_ = 0;
    uint64_t settled_ = 0;
    uint64_t last_reply_ns_ = 0;
    uint64_t digest_ = 0; // sum of hashes: the order of the replies does not matter
    uint64_t tokens_ = 0;
    ChunkedLog<uint64_t> token_gaps_;
};

} // namespace load
