// SPDX-License-Identifier: MIT
#include <cerrno>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>

#include "native/common/failure.hpp"
#include "native/epoll/listener.hpp"

// Bounds what a burst of connections can cost those that are served.
static constexpr int ACCEPTS_PER_TURN = 64;

static constexpr int64_t PAUSE = 100 * MILLISECOND;

Listener::Listener(Descriptor socket, shared_page &page, Poller &poller, uint64_t tag,
                   Connections &connections)
    : socket_(std::move(socket)), page_(page), poller_(poller), tag_(tag),
      connections_(connections) {
    int fd = socket_.get();
    std::string tried = "taking descriptor " + std::to_string(fd) + " as the listening socket";
    const char *remedy = "Pass a TCP socket on which listen() was called";
    int listening = 0;
    socklen_t size = sizeof(listening);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size))
        throw Failure(tried, errno, remedy);
    if (!listening)
        throw Failure(tried, EINVAL, remedy);
    // Accepted sockets inherit TCP_NODELAY. Without it a small reply waits for the ACK of the
    // reply before, which the peer may delay by 40 ms.
    int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) || !poller_.add(fd, EPOLLIN, tag_))
        throw Failure(tried, errno, remedy);
}

void Listener::accept_ready() {
    for (int n = 0; n < ACCEPTS_PER_TURN && socket_; n++) {
        Descriptor accepted(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (accepted) {
            connections_.open(std::move(accepted));
            continue;
        }
        switch (errno) {
        case EAGAIN:
            return;
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM:
            return pause();
        case EBADF:
        case EINVAL:
        case ENOTSOCK:
            throw Failure("accepting a connection", errno, "Do not close or shut down the socket");
        default: // that connection failed before it was accepted (accept(2) lists how)
            break;
        }
    }
}

// The waiting connection stays ready; without a pause the loop would spin on it.
void Listener::pause() {
    page_.egress.accept_failures++;
    poller_.modify(socket_.get(), 0, tag_);
    resume_at_ = monotonic_now() + PAUSE;
}

void Listener::resume_if_due(int64_t now) {
    if (now < resume_at_)
        return;
    resume_at_ = NEVER;
    poller_.modify(socket_.get(), EPOLLIN, tag_);
}

void Listener::close() {
    socket_.close();
    resume_at_ = NEVER;
}
