// SPDX-License-Identifier: MIT
// A language model without weights: the next token is a hash of all tokens before it. One source
// for the CPU and the GPU; reference.py replays it.
#pragma once

#include "gpu_scheduler/workloads/mix.hpp"

// The state after the prompt. Greedy requests (temperature 0) do not depend on the seed.
POLICY_FUNCTION uint64_t toylm_begin(const generation_request &request, const uint32_t *prompt) {
    uint64_t state = mix(request.temperature > 0 ? request.seed : 0);

    for (uint32_t i = 0; i < request.prompt_count; i++)
        state = mix(state ^ prompt[i]);
    return state;
}

// The next token, 0..vocab-1; the state moves on.
POLICY_FUNCTION uint32_t toylm_next(uint64_t &state, uint32_t vocab) {
    uint32_t token = static_cast<uint32_t>((state >> 32) * vocab >> 32);

    state = mix(state ^ token);
    return token;
}
