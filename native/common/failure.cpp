// SPDX-License-Identifier: MIT
#include <cstring>

#include "native/common/failure.hpp"

static std::string describe(int error) {
    const char *name = strerrorname_np(error);
    return (name ? std::string(name) : std::to_string(error)) + " (" + std::strerror(error) + ")";
}

Failure::Failure(const std::string &tried, int error, const std::string &remedy)
    : Failure(tried, describe(error), remedy) {}
