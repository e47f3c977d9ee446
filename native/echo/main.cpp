// SPDX-License-Identifier: MIT
// A bare epoll echo server with the frame sizes of the real one and nothing behind it: what the
// machine's sockets can do, for `make bench` and for judging the load generator.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "native/common/descriptor.hpp"
#include "native/common/failure.hpp"
#include "native/common/limits.hpp"
#include "native/common/options.hpp"
#include "native/common/poller.hpp"
#include "native/common/signals.hpp"
#include "native/echo/listen.hpp"
#include "shared_page/protocol.h"

struct Peer {
    Descriptor socket;
    uint32_t have = 0; // bytes of the frame being received
    // Its beginning, which names the request.
    uint8_t start[offsetof(request_header, flags)];
    std::string unsent; // not empty: the peer is slow, and nothing is read from it
};

class EchoServer {
  public:
    EchoServer(Descriptor listener, uint32_t request, uint32_t reply);
    void run();

  private:
    void accept_one();
    void receive(Peer &peer);
    size_t answer(Peer &peer, const char *bytes, size_t length);
    void send_first(Peer &peer, const char *bytes, size_t length);
    void send_rest(Peer &peer);
    void close(Peer &peer) { peer = Peer{}; }

    const uint32_t request_, reply_;
    Poller poller_;
    Descriptor signals_ = open_leave_signals();
    Descriptor listener_;
    std::vector<Peer> peer_;  // by descriptor, which is also its tag
    std::vector<char> bytes_; // one read
    // The replies to one read. Only headers are ever written; payloads stay 0.
    std::vector<char> answers_;
};

static constexpr size_t READ_SIZE = 1 << 17;

EchoServer::EchoServer(Descriptor listener, uint32_t request, uint32_t reply)
    : request_(request), reply_(reply), listener_(std::move(listener)), bytes_(READ_SIZE),
      answers_((READ_SIZE / request + 1) * size_t{reply}) {
    for (const Descriptor *watched : {&listener_, &signals_})
        if (!poller_.add(watched->get(), EPOLLIN, static_cast<uint64_t>(watched->get())))
            throw Failure("watching a descriptor", errno, "Raise the limit of open files");
}

void EchoServer::run() {
    for (;;) {
        for (const epoll_event &event : poller_.wait(-1)) {
            int fd = static_cast<int>(event.data.u64);
            if (fd == signals_.get())
                return;
            if (fd == listener_.get())
                accept_one();
            else if (event.events & EPOLLOUT)
                send_rest(peer_[event.data.u64]);
            else
                receive(peer_[event.data.u64]);
        }
    }
}

void EchoServer::accept_one() {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
        if (errno == EMFILE || errno == ENFILE)
            throw Failure("accepting a connection", errno, "Raise the limit of open files");
        return;
    }
    size_t fd = static_cast<size_t>(socket.get());
    if (peer_.size() <= fd)
        peer_.resize(fd + 1);
    if (poller_.add(socket.get(), EPOLLIN, fd))
        peer_[fd].socket = std::move(socket);
}

void EchoServer::receive(Peer &peer) {
    if (!peer.socket)
        return; // closed earlier in this turn
    ssize_t length = recv(peer.socket.get(), bytes_.data(), bytes_.size(), 0);
    if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR))
        return close(peer);
    if (length < 0)
        return;
    if (size_t count = answer(peer, bytes_.data(), static_cast<size_t>(length)))
        send_first(peer, answers_.data(), count * reply_);
}

// Lays out the replies to the frames that end in these bytes. Returns their number.
size_t EchoServer::answer(Peer &peer, const char *bytes, size_t length) {
    size_t count = 0;
    while (length) {
        uint32_t take = static_cast<uint32_t>(std::min<size_t>(length, request_ - peer.have));
        if (peer.have < sizeof(peer.start))
            std::memcpy(peer.start + peer.have, bytes,
                        std::min<size_t>(take, sizeof(peer.start) - peer.have));
        peer.have += take;
        bytes += take;
        length -= take;
        if (peer.have < request_)
            break;
        peer.have = 0;
        reply_header header{.request_id = 0,
                            .length = reply_ - REPLY_HEADER_SIZE,
                            .status = STATUS_OK,
                            .flags = REPLY_LAST};
        std::memcpy(&header.request_id, peer.start + offsetof(request_header, request_id),
                    sizeof(header.request_id));
        std::memcpy(answers_.data() + count++ * reply_, &header, sizeof(header));
    }
    return count;
}

void EchoServer::send_first(Peer &peer, const char *bytes, size_t length) {
    ssize_t sent = send(peer.socket.get(), bytes, length, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN)
        return close(peer);
    size_t left = length - static_cast<size_t>(std::max<ssize_t>(sent, 0));
    if (!left)
        return;
    peer.unsent.assign(bytes + length - left, left);
    poller_.modify(peer.socket.get(), EPOLLOUT, static_cast<uint64_t>(peer.socket.get()));
}

void EchoServer::send_rest(Peer &peer) {
    if (!peer.socket)
        return;
    ssize_t sent = send(peer.socket.get(), peer.unsent.data(), peer.unsent.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN)
        return close(peer);
    peer.unsent.erase(0, static_cast<size_t>(std::max<ssize_t>(sent, 0)));
    if (peer.unsent.empty())
        poller_.modify(peer.socket.get(), EPOLLIN, static_cast<uint64_t>(peer.socket.get()));
}

static int serve(int argc, char **argv) {
    long port = 0, request = 280, reply = 256;
    std::string address = "127.0.0.1";
    const Option table[] = {
        {"port", "PORT", "to listen on; 0 takes a free one", &port, 0, 65535, nullptr, true},
        {"bind", "ADDRESS", "IPv4 address to listen on", nullptr, 0, 0, &address},
        {"request", "BYTES", "size of a request, header included", &request, REQUEST_HEADER_SIZE,
         REQUEST_HEADER_SIZE + REQUEST_MAX},
        {"reply", "BYTES", "size of a reply, header included", &reply, REPLY_HEADER_SIZE,
         REPLY_HEADER_SIZE + RESULT_MAX},
    };
    if (!parse_options(table, "Answers each request-sized piece of a stream with a fixed reply.",
                       argc, argv))
        return 0;
    constexpr rlim_t CONNECTIONS = 1 << 16;
    raise_open_files(CONNECTIONS);
    Descriptor listener = listen_tcp(address, static_cast<uint16_t>(port));
    std::printf("listening on %s port %u\n", address.c_str(), local_port(listener));
    std::fflush(stdout);
    EchoServer(std::move(listener), static_cast<uint32_t>(request), static_cast<uint32_t>(reply))
        .run();
    return 0;
}

int main(int argc, char **argv) {
    try {
        return serve(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "echo-epoll: %s\n", error.what());
        return 1;
    }
}
