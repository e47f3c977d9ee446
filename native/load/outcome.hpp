// SPDX-License-Identifier: MIT
// What became of a request. Each request ends in exactly one outcome.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "shared_page/protocol.h"

namespace load {

enum class Outcome : uint8_t {
    verified,
    connect,      // no connection: any error but a refusal
    refused,      // no connection: ECONNREFUSED
    reset,        // the connection broke (ECONNRESET, EPIPE, ETIMEDOUT)
    closed_early, // end of stream before the reply
    timeout,      // no reply until the end of the run and the time allowed after it
    busy,         // STATUS_BUSY
    error_status, // another status than the case expects
    wrong_id,     // a reply to something this connection has not asked
    wrong_order,  // a reply, or a stream's frame, before its turn
    wrong_length,
    wrong_payload,
    bad_header, // impossible length, status or flags: the frames after it are lost
    bad_finish, // another finish reason than the case expects
    count,
};

inline constexpr std::array<const char *, static_cast<size_t>(Outcome::count)> outcome_names = {
    "verified",     "connect",       "refused",      "reset",      "closed_early",
    "timeout",      "busy",          "error_status", "wrong_id",   "wrong_order",
    "wrong_length", "wrong_payload", "bad_header",   "bad_finish",
};

inline constexpr uint32_t status_count = STATUS_TIMEOUT + 1;
inline constexpr std::array<const char *, status_count> status_names = {
    "ok",          "busy",      "bad_frame", "too_large",     "too_many", "unknown_kind",
    "bad_payload", "cancelled", "internal",  "shutting_down", "timeout",
};

// The record's status word: the outcome above, the reply's status below.
inline constexpr uint8_t no_status = 0xff;
inline constexpr uint16_t pending_word = 0xffff;

constexpr uint16_t status_word(Outcome outcome, uint8_t status) {
    return static_cast<uint16_t>(static_cast<uint16_t>(outcome) << 8 | status);
}

constexpr Outcome outcome_of(uint16_t word) {
    return static_cast<Outcome>(word >> 8);
}

// "busy", or "error_status:internal": the key of a failure in the JSON.
inline std::string failure_name(uint16_t word) {
    std::string name = outcome_names[word >> 8];
    if (outcome_of(word) == Outcome::error_status)
        name += std::string(":") + status_names[word & 0xff];
    return name;
}

} // namespace load
