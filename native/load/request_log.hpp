// SPDX-License-Identifier: MIT
// Everything the run leaves behind, one entry a request. Counts, percentiles and the records
// file are made from it after the run, so that the hot path counts nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "native/load/outcome.hpp"

namespace load {

// One line of the records file, little endian. Times are CLOCK_MONOTONIC; 0: never happened.
struct Record {
    uint64_t intended_ns; // when the schedule wanted it sent (closed loop: when it was sent)
    uint64_t sent_ns;     // when it was handed to the kernel
    uint64_t first_ns;    // first frame of the reply: time to the first token
    uint64_t done_ns;     // last frame of the reply
    uint32_t connection;
    uint16_t status; // status_word(): 0 is "verified, STATUS_OK"
    uint16_t case_index;
};
static_assert(sizeof(Record) == 40);

struct Request {
    Record record;
    uint64_t dispatched_ns; // when the generator came to it: its own lag
    uint32_t index;         // in the whole schedule; makes the request id and the case
    uint32_t next;          // next in the queue of its connection
    uint32_t held_back;     // 1: due while its connection could not take it
    uint32_t unused;
};
static_assert(sizeof(Request) == 64, "one cache line");

// Grows by whole chunks: no allocation per entry, and entries never move.
template <typename T>
class ChunkedLog {
  public:
    T &append() {
        if (size_ % chunk_size == 0)
            chunks_.push_back(std::make_unique_for_overwrite<T[]>(chunk_size));
        return (*this)[size_++];
    }
    T &operator[](size_t i) { return chunks_[i / chunk_size][i % chunk_size]; }
    const T &operator[](size_t i) const { return chunks_[i / chunk_size][i % chunk_size]; }
    size_t size() const { return size_; }

  private:
    static constexpr size_t chunk_size = 1 << 16;
    std::vector<std::unique_ptr<T[]>> chunks_;
    size_t size_ = 0;
};

using RequestLog = ChunkedLog<Request>;

} // namespace load
