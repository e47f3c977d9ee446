// SPDX-License-Identifier: MIT
// What an id determines of its request and its reply, and the complaint when it is otherwise.
#pragma once

#include "shared_page/attach.h"

#include <cstdint>
#include <unistd.h>
#include <vector>

constexpr uint32_t sequence_bits = 24; // of an id; above them the connection's serial

[[noreturn]] inline void fail(const char *what, uint64_t id, uint64_t got, uint64_t wanted) {
    fprintf(stderr, "page-stress: %s: request %#llx has %#llx instead of %#llx\n", what,
            static_cast<unsigned long long>(id), static_cast<unsigned long long>(got),
            static_cast<unsigned long long>(wanted));
    _exit(1);
}

// splitmix64
inline uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

// What an id determines.
struct Shape {
    uint32_t request_words, result_words, tokens;
    bool cancellable;

    explicit Shape(uint64_t id) {
        uint64_t bits = mix(id);

        request_words = bits % 512 ? bits >> 10 & 15 : REQUEST_MAX / 8;
        result_words = bits % 511 ? bits >> 20 & 15 : RESULT_MAX / 8;
        tokens = bits % 16 ? 0 : 1 + (bits >> 30) % 40; // 0: one plain reply
        cancellable = bits % 61 == 0;
    }
};

inline uint64_t request_word(uint64_t id, uint32_t at) {
    return mix(id ^ uint64_t{at} << 48);
}
inline uint64_t result_word(uint64_t id, uint32_t at) {
    return ~request_word(id, at);
}
inline uint32_t token_of(uint64_t id, uint32_t at) {
    return static_cast<uint32_t>(request_word(id, at) >> 7);
}

// Appends the frame of a request.
inline void frame_append(std::vector<uint8_t> &bytes, uint16_t kind, uint64_t id, uint32_t words) {
    request_header header{PROTOCOL_MAGIC, PROTOCOL_VERSION, kind, id, 0, words * 8};
    size_t at = bytes.size();

    bytes.resize(at + sizeof(header) + words * 8);
    memcpy(&bytes[at], &header, sizeof(header));
    for (uint32_t i = 0; i < words; i++) {
        uint64_t word = request_word(id, i);
        memcpy(&bytes[at + sizeof(header) + i * 8], &word, 8);
    }
}

struct Random {
    uint64_t state;
    uint64_t below(uint64_t n) { return mix(state++) % n; }
};
