// SPDX-License-Identifier: MIT
// The requests of a run and the replies they must get.
#pragma once

#include <cstdint>
#include <vector>

#include "native/load/options.hpp"

namespace load {

// token_count: the tokens of a stream, of which nobody knows more than how many there must be.
enum class Compare : uint32_t { exact = 0, float32 = 1, tokens = 2, token_count = 3 };

struct Case {
    std::vector<uint8_t> frame; // header and payload; the request id is filled in when sent
    std::vector<uint8_t> expected;
    Compare compare;
    float rtol;
    float atol;
    uint32_t status;
    uint32_t finish;
    uint64_t expected_hash; // of the case's number and the expected bytes

    bool streams() const { return compare >= Compare::tokens; }
};

using Cases = std::vector<Case>;

// Throws Failure, naming the file, the case and what is wrong with it.
Cases read_cases(const std::string &path);

// The one case of --echo: payloads of zeros, which the bare echo server and a true echo of
// equal sizes both answer.
Cases echo_cases(const Options &options);

} // namespace load
