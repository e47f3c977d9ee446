/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a connection ends: what waits is cancelled, the file is closed, and one
 * step later the entry is given back, whatever the others do.
 */
#ifndef BPF_CLOSE_H
#define BPF_CLOSE_H

#include "connection.h"

/* Completes an operation of the connection that still waits. */
static void operation_cancel(struct ring *ring, __u8 operation, __u32 index)
{
	struct io_uring_sqe *sqe =
		connection_sqe(ring, IORING_OP_ASYNC_CANCEL, OP_CANCEL, index);

	sqe->fd = -1;
	sqe->flags = 0;
	sqe->addr = tag(operation, index);
}

/*
 * Takes no more part. A connection whose peer has ended has nothing waiting
 * and is closed at once.
 *
 * No SHUTDOWN: it always runs on an io-wq worker (io_shutdown_prep() forces
 * it), and a worker that is forked while this program runs inherits its
 * disabled migration for good, of which the scheduler warns (seen on 7.3.4).
 */
static void connection_end(struct ring *ring, __u32 index)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];

	if (c->flags & CONNECTION_ENDING)
		return;
	c->flags |= CONNECTION_ENDING;
	if (c->flags & CONNECTION_POLLING)
		operation_cancel(ring, OP_POLL, index);
	if (c->flags & CONNECTION_SENDING)
		operation_cancel(ring, OP_SEND, index);
}

/*
 * After an error reply, unless the peer has ended: discards for a moment
 * before it closes, since bytes that come after a close are answered with a
 * reset, which can overtake the reply.
 */
static void connection_linger(struct ring *ring, __u32 index)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];
	struct io_uring_sqe *sqe;

	if (c->flags & CONNECTION_LINGERS)
		return;
	c->flags |= CONNECTION_LINGERS;
	sqe = sqe_next(ring, IORING_OP_TIMEOUT, tag(OP_LINGER, index));
	sqe->addr = SCRATCH_ADDRESS(linger);
	sqe->len = 1;
}

/* All completions are in: closes the file. */
static void connection_close(struct ring *ring, __u32 index)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];
	struct io_uring_sqe *sqe;

	if (c->pending || c->flags & CONNECTION_CLOSING)
		return;
	c->flags |= CONNECTION_CLOSING;
	sqe = sqe_next(ring, IORING_OP_CLOSE, tag(OP_CLOSE, index));
	sqe->file_index = c->file + 1;
}

/*
 * Connections whose file is closed. The socket is only released by task work,
 * which the kernel runs before the next step; until then ingress may still
 * see its segments, so the entry is given back in the next step.
 */
static __u32 closed[CONNECTION_COUNT];
static __u32 closed_head;
static __u32 closed_tail;

static void connection_closed(__u32 index)
{
	closed[closed_tail & CONNECTION_MASK] = index;
	closed_tail++;
}

static void connections_release(void)
{
	__u32 i;

	bpf_for (i, 0, CONNECTION_COUNT) {
		__u32 index;

		if (closed_head == closed_tail)
			break;
		index = closed[closed_head & CONNECTION_MASK] & CONNECTION_MASK;
		closed_head++;
		state[index].flags = 0;
		open_connections--;
		connection_release(&shared_page, index);
	}
}

#endif
