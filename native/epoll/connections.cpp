// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cerrno>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "native/epoll/connections.hpp"

// How long a peer may take to close after our FIN. Closing before that would, if more of its bytes
// came, send a reset, which destroys what it has not read yet: the very reply that says why.
static constexpr int64_t LINGER = 1'000 * MILLISECOND;

// Sends for one connection in a turn; only a stream, a frame a send, needs more than two.
static constexpr int SENDS_PER_TURN = 8;

static uint64_t tag_of(uint32_t index, uint32_t generation) {
    return uint64_t{generation} << 32 | index;
}

Connections::Connections(shared_page &page, Poller &poller, int64_t send_timeout, int refusal_fd)
    : page_(page), poller_(poller), table_(page.identity.max_connections), refusal_fd_(refusal_fd),
      unread_(page.identity.max_connections, send_timeout),
      lingering_(page.identity.max_connections, LINGER) {
    queue_.reserve(table_.size());
    sending_.reserve(table_.size());
}

void Connections::open(Descriptor socket) {
    uint32_t index;
    if (!connection_open(&page_, &index))
        return tell_refusal(); // counted there
    page_.egress.connections_accepted++;
    count_++;
    Connection &connection = table_[index];
    connection.socket = std::move(socket);
    connection.generation = page_.connection[index].ingress.generation;
    connection.interest = EPOLLIN;
    if (!poller_.add(connection.socket.get(), EPOLLIN, tag_of(index, connection.generation)))
        close(index);
}

// Tells the supervisor, unless it has not heard the last time yet.
void Connections::tell_refusal() {
    if (refusal_fd_ < 0 || load_acquire(&page_.supervisor.refusals_heard) != refusals_told_)
        return;
    refusals_told_++;
    eventfd_write(refusal_fd_, 1);
}

void Connections::handle(uint64_t tag, uint32_t events) {
    uint32_t index = static_cast<uint32_t>(tag);
    Connection &connection = table_[index];
    if (!connection.socket || connection.generation != tag >> 32)
        return;
    if (events & (EPOLLERR | EPOLLHUP)) // a reset, or both sides have closed
        return close(index);
    if (events & EPOLLOUT) {
        connection.blocked = false;
        queue(index);
    }
    if (events & EPOLLIN)
        receive(index);
}

void Connections::receive(uint32_t index) {
    Connection &connection = table_[index];
    ssize_t length = ::recv(connection.socket.get(), bytes_, sizeof(bytes_), 0);
    if (length > 0) {
        if (frames_admit(&page_, index, bytes_, static_cast<uint32_t>(length)) & ADMITTED_REPLY)
            queue(index);
        frame_watch(&page_, index);
    } else if (length == 0) {
        connection.peer_closed = true;
        end_if_settled(index);
        if (connection.socket)
            watch(index);
    } else if (errno != EAGAIN && errno != EINTR) {
        close(index);
    }
}

void Connections::queue(uint32_t index) {
    Connection &connection = table_[index];
    if (!connection.socket || connection.queued || connection.blocked)
        return;
    connection.queued = true;
    queue_.push_back(static_cast<uint16_t>(index));
}

void Connections::send_queued() {
    std::swap(queue_, sending_);
    for (uint16_t index : sending_) {
        table_[index].queued = false;
        send_replies(index);
    }
    sending_.clear();
}

void Connections::send_replies(uint32_t index) {
    if (!table_[index].socket)
        return; // closed since it was queued
    for (int n = 0; n < SENDS_PER_TURN; n++) {
        switch (send_batch(index)) {
        case Sent::everything:
            break;
        case Sent::nothing:
            unblock(index);
            return end_if_settled(index);
        case Sent::part:
            return block(index);
        case Sent::failed:
            return close(index);
        }
    }
    unblock(index);
    queue(index);
}

Connections::Sent Connections::send_batch(uint32_t index) {
    uint32_t count = gather(index);
    if (!count)
        return Sent::nothing;
    int fd = table_[index].socket.get();
    ssize_t sent;
    if (count == 1) {
        sent = ::send(fd, piece_[0].iov_base, piece_[0].iov_len, MSG_NOSIGNAL);
    } else {
        msghdr message{};
        message.msg_iov = piece_;
        message.msg_iovlen = count;
        sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
    }
    page_.egress.sends++;
    if (sent < 0)
        return errno == EAGAIN ? Sent::part : Sent::failed;
    page_.egress.bytes_sent += static_cast<uint64_t>(sent);
    return account(index, count, static_cast<size_t>(sent)) ? Sent::everything : Sent::part;
}

// Lays out what can be sent now, in order. Returns the number of pieces.
uint32_t Connections::gather(uint32_t index) {
    const Connection &connection = table_[index];
    char *page = reinterpret_cast<char *>(&page_);
    uint32_t count = 0;
    if (connection.begun)
        view_[count++] = connection.partial;
    while (count < ORDER_DEPTH && (!count || view_[count - 1].last) &&
           reply_ready(&page_, index, count, &view_[count]))
        count++;
    for (uint32_t i = 0; i < count; i++)
        piece_[i] = {page + view_[i].offset, view_[i].length};
    if (connection.begun) {
        piece_[0].iov_base = static_cast<char *>(piece_[0].iov_base) + connection.begun;
        piece_[0].iov_len -= connection.begun;
    }
    return count;
}

// Gives back what has left. Returns false when a part has not.
bool Connections::account(uint32_t index, uint32_t count, size_t sent) {
    Connection &connection = table_[index];
    for (uint32_t i = 0; i < count; i++) {
        const reply_view &view = view_[i];
        if (sent < piece_[i].iov_len) {
            connection.partial = view;
            connection.begun += static_cast<uint32_t>(sent);
            return false;
        }
        sent -= piece_[i].iov_len;
        connection.begun = 0;
        reply_sent(&page_, index, view.slot, view.tokens, view.last);
    }
    return true;
}

void Connections::block(uint32_t index) {
    table_[index].blocked = true;
    unread_.restart(index, monotonic_now());
    watch(index);
}

void Connections::unblock(uint32_t index) {
    if (!(table_[index].interest & EPOLLOUT))
        return;
    unread_.remove(index);
    watch(index);
}

void Connections::end_if_settled(uint32_t index) {
    Connection &connection = table_[index];
    if (!replies_settled(&page_, index))
        return;
    if (connection.peer_closed)
        return close(index);
    if (page_.egress.draining) // before this, a late request is told so
        page_.connection[index].ingress.closing = INGRESS_CLOSING;
    if (!connection_closing(&page_, index) || connection.lingering)
        return;
    ::shutdown(connection.socket.get(), SHUT_WR);
    connection.lingering = true;
    lingering_.restart(index, monotonic_now());
}

// Lets epoll watch for what matters now: EPOLLOUT only while a send was short, EPOLLIN until the
// peer's FIN, which would be reported for ever.
void Connections::watch(uint32_t index) {
    Connection &connection = table_[index];
    uint32_t wanted = (connection.peer_closed ? 0u : static_cast<uint32_t>(EPOLLIN)) |
                      (connection.blocked ? static_cast<uint32_t>(EPOLLOUT) : 0u);
    if (wanted == connection.interest)
        return;
    connection.interest = wanted;
    poller_.modify(connection.socket.get(), wanted, tag_of(index, connection.generation));
}

void Connections::close(uint32_t index) {
    bool queued = table_[index].queued;
    unread_.remove(index);
    lingering_.remove(index);
    table_[index] = Connection{}; // closes the socket, which leaves epoll with it
    table_[index].queued = queued;
    connection_release(&page_, index);
    count_--;
}

int64_t Connections::next_deadline() const {
    return std::min(unread_.next_deadline(), lingering_.next_deadline());
}

void Connections::close_expired(int64_t now) {
    uint32_t index;
    while (unread_.take_expired(now, index) || lingering_.take_expired(now, index))
        close(index);
}

void Connections::finish() {
    for (uint32_t index = 0; index < table_.size(); index++) {
        if (table_[index].socket)
            queue(index);
    }
}

uint64_t Connections::unanswered() const {
    uint64_t count = 0;
    for (uint32_t index = 0; index < table_.size(); index++) {
        const connection_entry &entry = page_.connection[index];
        if (table_[index].socket && !table_[index].blocked)
            count += entry.ingress.order_tail - entry.egress.order_head;
    }
    return count;
}

void Connections::close_all() {
    for (uint32_t index = 0; index < table_.size(); index++)
        if (table_[index].socket)
            close(index);
}
