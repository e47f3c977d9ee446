/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The life of a connection in the loop: accepted into a fixed file, matched
 * with the entry that ingress gave it, sent its replies in order, closed, and
 * its entry released. Nothing here waits for another connection.
 */
#ifndef BPF_CONNECTION_H
#define BPF_CONNECTION_H

#include "ring.h"
#include "shared_page/egress.h"
#include <asm/poll.h>
#include <asm/socket.h>

enum loop_limits {
	SEND_BATCH = 8, /* replies in one SENDMSG */
	/* Entries, and some for connections that are being refused. */
	FILE_COUNT = CONNECTION_COUNT + 64,
};

/* user_data = operation << 56 | generation (24 bits) << 32 | index */
enum operation {
	OP_ACCEPT = 1,
	OP_MARK, /* index is a file's */
	OP_REFUSE, /* index is a file's */
	OP_KICK,
	OP_POLL,
	OP_SEND,
	OP_SHUTDOWN,
	OP_LINGER,
	OP_CLOSE,
	OP_TIMER,
	OP_DOORBELL,
	OP_STOP,
	OP_DEADLINE,
	OP_OTHER,
};

enum connection_flags {
	CONNECTION_USED = 1, /* accepted and matched with its entry */
	CONNECTION_SENDING = 2,
	CONNECTION_ENDED = 4, /* the peer sent FIN; all before it is admitted */
	CONNECTION_GONE = 8, /* reset or failed: nothing can be sent */
	CONNECTION_LINGERS = 16, /* FIN sent after an error; waits for theirs */
	CONNECTION_SHUT = 32, /* SHUTDOWN of both directions submitted */
	CONNECTION_CLOSING = 64, /* CLOSE submitted */
	CONNECTION_READY = 128, /* stands in ready[] */
};

/* What the SEND in flight consists of. */
struct send_part {
	__u16 slot;
	__u16 length;
	__u8 tokens;
	__u8 last;
};

/* Private to the loop. */
struct connection_state {
	__u32 file;
	__u32 pending; /* completions to come, POLL included */
	__u8 flags;
	__u8 parts; /* collected for sending */
	__u8 first; /* the first of them that has not left */
	struct send_part part[SEND_BATCH];
};

static struct connection_state state[CONNECTION_COUNT];
static __u32 open_connections;

/*
 * Connections to look at in this step, each once. Whatever happens to a
 * connection only marks it; connection_pump() then has one call site, so the
 * verifier walks it once.
 */
static __u32 ready[CONNECTION_COUNT];
static __u32 ready_head;
static __u32 ready_tail;

static void connection_ready(__u32 index)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];

	if (c->flags & CONNECTION_READY || !(c->flags & CONNECTION_USED))
		return;
	c->flags |= CONNECTION_READY;
	ready[ready_tail & CONNECTION_MASK] = index;
	ready_tail++;
}

/*
 * What SQEs point to. The loop's process maps it; before the start it writes
 * the first members, by which the loop knows that process's addresses.
 */
struct {
	__u64 address; /* of this map */
	__u64 page_address;
	__s64 linger[2]; /* struct __kernel_timespec */
	__s64 drain[2];
	__u8 sink[16];
	__u32 mark[FILE_COUNT];
	struct send_message message[CONNECTION_COUNT];
	struct send_buffer buffer[CONNECTION_COUNT][SEND_BATCH];
} scratch SEC(".bss.scratch");

#define SCRATCH_ADDRESS(member)                                                \
	(scratch.address + __builtin_offsetof(__typeof__(scratch), member))

static __u64 tag(__u8 operation, __u32 index)
{
	__u64 generation = shared_page.connection[index & CONNECTION_MASK]
				   .ingress.generation &
			   0xffffff;

	return (__u64)operation << 56 | generation << 32 | index;
}

/* An SQE on the connection's socket whose completion is waited for. */
static struct io_uring_sqe *connection_sqe(struct ring *ring, __u8 opcode,
					   __u8 operation, __u32 index)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];
	struct io_uring_sqe *sqe =
		sqe_next(ring, opcode, tag(operation, index));

	sqe->fd = c->file;
	sqe->flags = IOSQE_FIXED_FILE;
	c->pending++;
	return sqe;
}

/* Asks for the mark, by which ingress named the accepted socket. */
static void mark_ask(struct ring *ring, __u32 file)
{
	struct getsockopt_sqe *sqe = (struct getsockopt_sqe *)sqe_next(
		ring, IORING_OP_URING_CMD, (__u64)OP_MARK << 56 | file);

	sqe->fd = file;
	sqe->flags = IOSQE_FIXED_FILE;
	sqe->cmd_op = SOCKET_URING_OP_GETSOCKOPT;
	sqe->level = SOL_SOCKET;
	sqe->optname = SO_MARK;
	sqe->optlen = sizeof(__u32);
	sqe->optval = SCRATCH_ADDRESS(mark) + file * sizeof(__u32);
}

static void file_refuse(struct ring *ring, __u32 file)
{
	struct io_uring_sqe *sqe =
		sqe_next(ring, IORING_OP_CLOSE, (__u64)OP_REFUSE << 56 | file);

	sqe->file_index = file + 1;
}

/*
 * A receive that never yields bytes: it runs ingress over what came before
 * the socket was accepted, and, since it takes the socket's lock, returns
 * after ingress has seen all that came before a FIN.
 */
static void ingress_kick(struct ring *ring, __u32 index)
{
	struct io_uring_sqe *sqe =
		connection_sqe(ring, IORING_OP_RECV, OP_KICK, index);

	sqe->addr = SCRATCH_ADDRESS(sink);
	sqe->len = 1;
	sqe->msg_flags = MSG_DONTWAIT;
}

/* A file was accepted and its mark read: it becomes a connection. */
static void connection_adopt(struct ring *ring, __u32 file, __s32 result)
{
	__u32 mark = file < FILE_COUNT ? scratch.mark[file] : 0;
	__u32 index = mark & CONNECTION_MASK;
	struct connection_state *c = &state[index];
	__u32 generation = shared_page.connection[index].ingress.generation;
	struct io_uring_sqe *sqe;

	if (result < 0 || !mark || c->flags & CONNECTION_USED ||
	    (mark >> CONNECTION_BITS) !=
		    (generation & (~0U >> CONNECTION_BITS))) {
		file_refuse(ring, file);
		return;
	}
	c->file = file;
	c->pending = 0;
	c->parts = 0;
	c->first = 0;
	c->flags = CONNECTION_USED;
	open_connections++;
	shared_page.egress.connections_accepted++;
	sqe = connection_sqe(ring, IORING_OP_POLL_ADD, OP_POLL, index);
	/* POLLIN would match each segment's wake-up, these only the end's. */
	sqe->poll32_events = POLLRDHUP | POLLHUP | POLLERR;
	ingress_kick(ring, index);
}

static void connection_shutdown(struct ring *ring, __u32 index, __u32 how)
{
	struct io_uring_sqe *sqe =
		connection_sqe(ring, IORING_OP_SHUTDOWN, OP_SHUTDOWN, index);

	sqe->len = how;
}

/* Ends both directions: the poll and a blocked send complete by it. */
static void connection_end(struct ring *ring, __u32 index)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];

	if (c->flags & CONNECTION_SHUT)
		return;
	c->flags |= CONNECTION_SHUT;
	connection_shutdown(ring, index, SHUT_RDWR);
}

/*
 * After an error reply: sends FIN and goes on discarding, because a close with
 * bytes unread would reset the connection and could destroy the reply.
 */
static void connection_linger(struct ring *ring, __u32 index)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];
	struct io_uring_sqe *sqe;

	if (c->flags & CONNECTION_ENDED) {
		connection_end(ring, index);
		return;
	}
	if (c->flags & CONNECTION_LINGERS)
		return;
	c->flags |= CONNECTION_LINGERS;
	connection_shutdown(ring, index, SHUT_WR);
	sqe = sqe_next(ring, IORING_OP_TIMEOUT, tag(OP_LINGER, index));
	sqe->addr = SCRATCH_ADDRESS(linger);
	sqe->len = 1;
}

/* All completions are in and ingress is quiet: closes the file. */
static void connection_close(struct ring *ring, __u32 index)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];
	struct io_uring_sqe *sqe;

	if (!(c->flags & CONNECTION_SHUT) || c->pending ||
	    c->flags & CONNECTION_CLOSING)
		return;
	c->flags |= CONNECTION_CLOSING;
	sqe = sqe_next(ring, IORING_OP_CLOSE, tag(OP_CLOSE, index));
	sqe->file_index = c->file + 1;
}

static void connection_closed(__u32 index)
{
	index &= CONNECTION_MASK;
	state[index].flags = 0;
	open_connections--;
	connection_release(&shared_page, index);
}

static struct send_buffer *part_buffer(__u32 index, __u32 part)
{
	return &scratch.buffer[index & CONNECTION_MASK]
			      [part & (SEND_BATCH - 1)];
}

/* Collects the replies that can leave now. Returns how many. */
static __u32 parts_collect(__u32 index)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];
	__u32 i;

	bpf_for (i, 0, SEND_BATCH) {
		struct send_part *part = &c->part[i & (SEND_BATCH - 1)];
		struct send_buffer *buffer = part_buffer(index, i);
		struct reply_view view;

		if (!reply_ready(&shared_page, index, i, &view))
			break;
		buffer->base = scratch.page_address + view.offset;
		buffer->length = view.length;
		part->slot = view.slot;
		part->length = view.length;
		part->tokens = view.tokens;
		part->last = view.last;
		c->parts = i + 1;
		if (!view.last)
			break;
	}
	return c->parts;
}

/* Sends what parts_collect() found, or what a short send left of it. */
static void parts_send(struct ring *ring, __u32 index)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];
	struct send_message *message =
		&scratch.message[index & CONNECTION_MASK];
	struct send_buffer *buffer = part_buffer(index, c->first);
	struct io_uring_sqe *sqe;

	c->flags |= CONNECTION_SENDING;
	shared_page.egress.sends++;
	if (c->parts - c->first == 1) {
		sqe = connection_sqe(ring, IORING_OP_SEND, OP_SEND, index);
		sqe->addr = buffer->base;
		sqe->len = buffer->length;
	} else {
		message->buffers =
			SCRATCH_ADDRESS(buffer) +
			((index & CONNECTION_MASK) * SEND_BATCH + c->first) *
				sizeof(*buffer);
		message->buffer_count = c->parts - c->first;
		sqe = connection_sqe(ring, IORING_OP_SENDMSG, OP_SEND, index);
		sqe->addr = SCRATCH_ADDRESS(message) +
			    (index & CONNECTION_MASK) * sizeof(*message);
		sqe->len = 1;
	}
	sqe->msg_flags = MSG_NOSIGNAL | MSG_WAITALL;
}

/*
 * A send completed with sent bytes: gives back what left entirely. After a
 * short send the next one starts where it stopped.
 */
static void parts_sent(__u32 index, __u32 sent)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];
	__u32 i;

	shared_page.egress.bytes_sent += sent;
	bpf_for (i, 0, SEND_BATCH) {
		struct send_part *part = &c->part[i & (SEND_BATCH - 1)];
		struct send_buffer *buffer = part_buffer(index, i);

		if (i < c->first)
			continue;
		if (i >= c->parts)
			break;
		if (sent < part->length) {
			part->length -= sent;
			buffer->base += sent;
			buffer->length -= sent;
			return;
		}
		sent -= part->length;
		c->first = i + 1;
		reply_sent(&shared_page, index, part->slot, part->tokens,
			   part->last);
	}
	c->parts = 0;
	c->first = 0;
}

/* Sends what can be sent; ends the connection if nothing is left to do. */
static void connection_pump(struct ring *ring, __u32 index)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];

	if (c->flags & (CONNECTION_SENDING | CONNECTION_SHUT)) {
		connection_close(ring, index);
		return;
	}
	if (c->flags & CONNECTION_GONE) {
		connection_end(ring, index);
		return;
	}
	if (c->parts || parts_collect(index)) {
		parts_send(ring, index);
		return;
	}
	if (!replies_settled(&shared_page, index))
		return;
	if (load_acquire(&shared_page.connection[index & CONNECTION_MASK]
				  .ingress.closing))
		connection_linger(ring, index);
	else if (c->flags & CONNECTION_ENDED || shared_page.egress.draining)
		connection_end(ring, index);
}

#endif
