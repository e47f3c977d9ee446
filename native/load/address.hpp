// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <sys/socket.h>
#include <vector>

#include "native/common/descriptor.hpp"
#include "native/load/outcome.hpp"

namespace load {

struct Address {
    sockaddr_storage storage;
    socklen_t size;

    std::string text() const; // "127.0.0.1:80", "[::1]:80"
};

// The server's address. A name with several is tried in order, within the time allowed, and the
// first that accepts a connection is taken. Throws Failure.
Address find_address(const std::string &host, uint16_t port, double timeout_s);

// Begins a non-blocking connect with TCP_NODELAY. Returns 0 or an errno.
int begin_connect(const Address &address, Descriptor &socket);

// Pending error of a socket, as an errno; 0 when there is none.
int socket_error(int fd);

// Which failure this error of connect() is.
Outcome connect_outcome(int error);

// What to do about it, for a message.
const char *connect_remedy(int error);

} // namespace load
