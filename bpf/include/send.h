/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Replies leave in the order in which ingress owes them: those that are ready
 * go out in one send, straight from the page. One send a connection at a time.
 */
#ifndef BPF_SEND_H
#define BPF_SEND_H

#include "connection.h"

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

	bpf_for (i, 0, SEND_BATCH_MAX) {
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
	int blocked = c->flags & CONNECTION_BLOCKED;
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
	sqe->msg_flags = MSG_NOSIGNAL | (blocked ? MSG_WAITALL : MSG_DONTWAIT);
	if (!blocked || !(scratch.send_limit[0] | scratch.send_limit[1]))
		return;
	/* Only a peer that does not read costs a timer. */
	sqe->flags |= IOSQE_IO_LINK;
	sqe = connection_sqe(ring, IORING_OP_LINK_TIMEOUT, OP_SEND_LIMIT,
			     index);
	sqe->fd = -1;
	sqe->flags = 0;
	sqe->addr = SCRATCH_ADDRESS(send_limit);
	sqe->len = 1;
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
			c->flags |= CONNECTION_BLOCKED;
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

#endif
