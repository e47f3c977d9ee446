// SPDX-License-Identifier: MIT
#include "native/load/address.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include "native/common/failure.hpp"

namespace load {
namespace {

std::vector<Address> resolve(const std::string &host, uint16_t port) {
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo *list = nullptr;
    int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
    if (error)
        throw Failure("looking up the address of " + host, gai_strerror(error),
                      "Give --host an IPv4 or IPv6 address, or a name that resolves");
    std::unique_ptr<addrinfo, void (*)(addrinfo *)> owner(list, freeaddrinfo);
    std::vector<Address> addresses;
    for (addrinfo *entry = list; entry; entry = entry->ai_next) {
        Address address = {};
        memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
        address.size = entry->ai_addrlen;
        addresses.push_back(address);
    }
    return addresses;
}

int try_connect(const Address &address, double timeout_s) {
    Descriptor socket;
    if (int error = begin_connect(address, socket))
        return error;
    pollfd ready = {socket.get(), POLLOUT, 0};
    int count = poll(&ready, 1, static_cast<int>(timeout_s * 1e3));
    return count < 0 ? errno : count == 0 ? ETIMEDOUT : socket_error(socket.get());
}

} // namespace

std::string Address::text() const {
    char host[NI_MAXHOST], port[NI_MAXSERV];
    const auto *generic = reinterpret_cast<const sockaddr *>(&storage);
    if (getnameinfo(generic, size, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return "an address without a name";
    bool v6 = storage.ss_family == AF_INET6;
    return (v6 ? "[" : "") + std::string(host) + (v6 ? "]:" : ":") + port;
}

Address find_address(const std::string &host, uint16_t port, double timeout_s) {
    std::vector<Address> addresses = resolve(host, port);
    if (addresses.size() == 1)
        return addresses[0]; // spares the server a connection that carries nothing
    int error = 0;
    for (const Address &address : addresses)
        if ((error = try_connect(address, timeout_s)) == 0)
            return address;
    throw Failure("connecting to any address of " + host + ", port " + std::to_string(port), error,
                  connect_remedy(error));
}

int begin_connect(const Address &address, Descriptor &socket) {
    constexpr int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    socket = Descriptor(::socket(address.storage.ss_family, type, 0));
    if (!socket)
        return errno;
    // Without it a request waits for the acknowledgement of the one before it.
    int on = 1;
    if (setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
        return errno;
    const auto *generic = reinterpret_cast<const sockaddr *>(&address.storage);
    bool begun = connect(socket.get(), generic, address.size) == 0 || errno == EINPROGRESS;
    return begun ? 0 : errno;
}

int socket_error(int fd) {
    int error = 0;
    socklen_t size = sizeof(error);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) ? errno : error;
}

Outcome connect_outcome(int error) {
    return error == ECONNREFUSED ? Outcome::refused : Outcome::connect;
}

const char *connect_remedy(int error) {
    switch (error) {
    case ECONNREFUSED:
        return "Start the server, or check --host and --port";
    case EADDRNOTAVAIL:
        return "The local ports are used up: widen net.ipv4.ip_local_port_range or open fewer";
    case EMFILE:
    case ENFILE:
        return "Raise the limit on open files (ulimit -n, fs.file-max) or open fewer";
    case ETIMEDOUT:
        return "See that the server accepts fast enough (its backlog) and that no firewall drops "
               "the packets, or raise --connect-timeout";
    default:
        return "Check --host, --port and the way to the server";
    }
}

} // namespace load
