/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the loop knows of a connection, and how one begins: accepted into a
 * fixed file and matched with the entry that ingress gave it.
 */
#ifndef BPF_CONNECTION_H
#define BPF_CONNECTION_H

#include "ring.h"
#include "shared_page/egress.h"
#include <asm/poll.h>
#include <asm/socket.h>

enum loop_limits {
	SEND_BATCH = 8, /* SEND_BATCH_MAX, as a power of two */
	/*
	 * As many again for connections that came in one burst and will be
	 * refused: the listener's backlog is shorter. A full table would drop
	 * an accepted socket whose entry nobody could give back.
	 */
	FILE_COUNT = 2 * CONNECTION_COUNT,
};

/* user_data = operation << 56 | generation (24 bits) << 32 | index */
enum operation {
	OP_ACCEPT = 1,
	OP_MARK, /* index is a file's */
	OP_REFUSE, /* index is a file's */
	OP_KICK,
	OP_POLL,
	OP_SEND,
	OP_SEND_LIMIT,
	OP_CANCEL,
	OP_LINGER,
	OP_CLOSE,
	OP_DOORBELL,
	OP_STOP,
	OP_DEADLINE,
	OP_RETRY,
	OP_FRAME_TICK,
};

enum connection_flags {
	CONNECTION_USED = 1, /* accepted and matched with its entry */
	CONNECTION_POLLING = 2,
	CONNECTION_SENDING = 4,
	CONNECTION_BLOCKED = 8, /* the peer does not read: sends may wait */
	CONNECTION_ENDED = 16, /* the peer sent FIN; all before is admitted */
	CONNECTION_GONE = 32, /* reset or failed: nothing can be sent */
	CONNECTION_LINGERS = 64, /* closes soon, after an error reply */
	CONNECTION_ENDING = 128, /* takes no more part; collects completions */
	CONNECTION_CLOSING = 256, /* CLOSE submitted */
	CONNECTION_READY = 512, /* stands in ready[] */
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
	__u16 flags;
	__u8 parts; /* collected for sending */
	__u8 first; /* the first of them that has not left */
	struct send_part part[SEND_BATCH];
};

const volatile __s32 refusal_fd = -1;

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
	__s64 send_limit[2];
	__s64 retry[2];
	__s64 frame_tick[2];
	__u64 one;
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
	sqe->cmd_op = SOCKET_OP_GETSOCKOPT;
	sqe->level = SOL_SOCKET;
	sqe->optname = SO_MARK;
	sqe->optlen = sizeof(__u32);
	sqe->optval = SCRATCH_ADDRESS(mark) + file * sizeof(__u32);
}

static __u32 refusals_told;

/* Tells the supervisor, unless it has not heard the last time yet. */
static void refusal_tell(struct ring *ring)
{
	struct io_uring_sqe *sqe;

	if (load_acquire(&shared_page.supervisor.refusals_heard) !=
	    refusals_told)
		return;
	refusals_told++;
	/* The eventfd does not block, so that no io-wq worker takes part. */
	sqe = sqe_next(ring, IORING_OP_WRITE, (__u64)OP_REFUSE << 56);
	scratch.one = 1;
	sqe->fd = refusal_fd;
	sqe->addr = SCRATCH_ADDRESS(one);
	sqe->len = sizeof(scratch.one);
}

/* A file was closed; its socket is released by task work, before a step. */
static __u8 refused;

static void file_refuse(struct ring *ring, __u32 file)
{
	struct io_uring_sqe *sqe =
		sqe_next(ring, IORING_OP_CLOSE, (__u64)OP_REFUSE << 56 | file);

	sqe->file_index = file + 1;
	refused = 1;
	refusal_tell(ring);
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
	c->flags = CONNECTION_USED | CONNECTION_POLLING;
	open_connections++;
	shared_page.egress.connections_accepted++;
	sqe = connection_sqe(ring, IORING_OP_POLL_ADD, OP_POLL, index);
	/* POLLIN would match each segment's wake-up, these only the end's. */
	sqe->poll32_events = POLLRDHUP | POLLHUP | POLLERR;
	ingress_kick(ring, index);
}

#endif
