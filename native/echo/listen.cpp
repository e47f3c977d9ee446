// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "native/common/failure.hpp"
#include "native/echo/listen.hpp"

Descriptor listen_tcp(const std::string &address, uint16_t port) {
    std::string tried = "listening on " + address + " port " + std::to_string(port);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    if (inet_pton(AF_INET, address.c_str(), &name.sin_addr) != 1)
        throw Failure(tried, "'" + address + "' is no IPv4 address", "Give one like 127.0.0.1");
    Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int on = 1;
    if (!listener || setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
        setsockopt(listener.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
        bind(listener.get(), reinterpret_cast<sockaddr *>(&name), sizeof(name)) ||
        listen(listener.get(), SOMAXCONN))
        throw Failure(tried, errno, "Choose an address of this machine and a port that is free");
    return listener;
}

uint16_t local_port(const Descriptor &listener) {
    sockaddr_in name{};
    socklen_t size = sizeof(name);
    getsockname(listener.get(), reinterpret_cast<sockaddr *>(&name), &size);
    return ntohs(name.sin_port);
}
