// SPDX-License-Identifier: MIT
// The OpenAI API at the socket: a case leaves as POST /v1/completions, and the events that stream
// back become frames of the project's protocol. Schedule, checks and results know nothing of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "native/load/cases.hpp"

namespace load {

// Makes the frame of each case its HTTP request. Throws Failure for one that generates nothing.
void make_completions(Cases &cases, const std::string &model, const std::string &host);

// What a connection has received of a response.
class Completion {
  public:
    Completion() noexcept;
    Completion(Completion &&) noexcept;
    ~Completion();

    struct Read {
        size_t consumed;
        bool fault;   // not HTTP, or not such events
        bool closing; // the response is complete, and the server takes no other request
    };
    // Appends frames of the request `id`: one for each event with tokens, and a last one when the
    // response is complete.
    Read read(std::span<const uint8_t> bytes, uint64_t id, std::vector<uint8_t> &frames);

    // For a new connection.
    void reset();

  private:
    struct Response;
    std::unique_ptr<Response> response_; // none before its first byte
};

} // namespace load
