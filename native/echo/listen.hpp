// SPDX-License-Identifier: MIT
// A listening TCP socket of the echo server's own; the real server is given one.
#pragma once

#include <cstdint>
#include <string>

#include "native/common/descriptor.hpp"

// Non-blocking, TCP_NODELAY. port 0 takes a free one. Throws Failure.
Descriptor listen_tcp(const std::string &address, uint16_t port);

uint16_t local_port(const Descriptor &listener);
