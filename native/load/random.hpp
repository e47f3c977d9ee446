// SPDX-License-Identifier: MIT
// Counter-based random numbers: draw i of a stream depends on the seed and i only, so any
// thread computes any part of the schedule alone, and a seed gives the same run everywhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

namespace load {

enum class Stream : uint64_t { arrivals = 1, dealing, cases, ids };

// Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (OOPSLA 2014).
constexpr uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

constexpr uint64_t draw(uint64_t seed, Stream stream, uint64_t index) {
    constexpr uint64_t golden = 0x9e3779b97f4a7c15;
    uint64_t key = mix(seed + golden * static_cast<uint64_t>(stream));
    return mix(key + golden * (index + 1));
}

// 64 bits that stand for these bytes; the digest of a run adds them up.
inline uint64_t hash_bytes(uint64_t seed, std::span<const uint8_t> bytes) {
    uint64_t hash = mix(seed + bytes.size() + 1);
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, bytes.data() + at, std::min(sizeof(word), bytes.size() - at));
        hash = mix(hash ^ word) + at;
    }
    return hash;
}

} // namespace load
