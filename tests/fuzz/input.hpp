// SPDX-License-Identifier: MIT
// The fuzzer's bytes as choices: what a target does, with which values. At its end all are 0.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

class Input {
  public:
    Input(const uint8_t *data, size_t size) : rest_(data, size) {}

    bool empty() const { return rest_.empty(); }

    uint8_t byte() {
        auto one = bytes(1);
        return one.empty() ? 0 : one[0];
    }

    uint16_t half() { return static_cast<uint16_t>(byte() | byte() << 8); }

    uint64_t word() {
        uint64_t value = 0;
        for (int at = 0; at < 64; at += 16)
            value |= static_cast<uint64_t>(half()) << at;
        return value;
    }

    // 0..count-1
    uint32_t below(uint32_t count) { return byte() % count; }

    // The next bytes, as many as there are.
    std::span<const uint8_t> bytes(size_t count) {
        auto taken = rest_.first(std::min(count, rest_.size()));
        rest_ = rest_.subspan(taken.size());
        return taken;
    }

  private:
    std::span<const uint8_t> rest_;
};

// What must hold. The fuzzer reports an abort as a finding and keeps its input.
inline void require(bool holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "broken: %s\n", what);
    abort();
}
