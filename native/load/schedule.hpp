// SPDX-License-Identifier: MIT
// When each request of an open loop is due, and on which connection: a pure function of the
// seed. Every thread walks the whole schedule and takes its own connections' requests.
#pragma once

#include <cmath>
#include <cstdint>

#include "native/load/clock.hpp"
#include "native/load/options.hpp"
#include "native/load/random.hpp"

namespace load {

struct Arrival {
    uint64_t offset_ns; // from the start of the run
    uint32_t index;
    uint32_t connection;
};

class Schedule {
  public:
    Schedule(const Options &options, uint32_t thread) : options_(options), thread_(thread) {
        gap_ns_ = options.closed ? 0 : 1e9 / options.rate;
        // A whole number, as the records have it: both sides of the border agree.
        measured_from_ns_ = static_cast<double>(seconds_to_ns(options.warmup_s));
        end_ns_ = options.duration_s > 0 ? (options.warmup_s + options.duration_s) * 1e9 : INFINITY;
        at_ns_ = options.constant ? 0 : gap(0);
        skip_others();
    }

    bool exhausted() const { return exhausted_; }

    Arrival next() const {
        return {static_cast<uint64_t>(at_ns_), static_cast<uint32_t>(index_), connection_};
    }

    void advance() {
        step();
        skip_others();
    }

  private:
    double gap(uint64_t index) const {
        // In (0, 1]: the logarithm is finite.
        double uniform =
            static_cast<double>((draw(options_.seed, Stream::arrivals, index) >> 11) + 1) * 0x1p-53;
        return -std::log(uniform) * gap_ns_;
    }

    void step() {
        measured_ += at_ns_ >= measured_from_ns_;
        ++index_;
        // The product, not a sum of gaps: no error builds up in a long constant run.
        at_ns_ = options_.constant ? static_cast<double>(index_) * gap_ns_ : at_ns_ + gap(index_);
    }

    void skip_others() {
        for (;; step()) {
            exhausted_ = at_ns_ >= end_ns_ || (options_.requests && measured_ == options_.requests);
            connection_ = deal();
            if (exhausted_ || connection_ % options_.threads == thread_)
                return;
        }
    }

    uint32_t deal() const {
        uint64_t number =
            options_.deal_at_random ? draw(options_.seed, Stream::dealing, index_) : index_;
        return static_cast<uint32_t>(number % options_.connections);
    }

    const Options &options_;
    uint32_t thread_;
    double gap_ns_, measured_from_ns_, end_ns_, at_ns_;
    uint64_t index_ = 0;
    uint64_t measured_ = 0;
    uint32_t connection_ = 0;
    bool exhausted_ = false;
};

} // namespace load
