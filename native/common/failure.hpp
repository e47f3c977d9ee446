// SPDX-License-Identifier: MIT
// Errors are for people: what was tried, what the kernel said, what to do.
#pragma once

#include <stdexcept>
#include <string>

class Failure : public std::runtime_error {
  public:
    Failure(const std::string &tried, const std::string &said, const std::string &remedy)
        : std::runtime_error(tried + ": " + said + ". " + remedy + ".") {}
    // said is errno's name and meaning.
    Failure(const std::string &tried, int error, const std::string &remedy);
};
