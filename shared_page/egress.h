/* SPDX-License-Identifier: MIT */
/*
 * The egress side of the page: notices in, replies out in arrival order, slots
 * and connection entries given back. One source for the io_uring loop and the
 * native servers. One thread at a time may call it.
 */
#ifndef SHARED_PAGE_EGRESS_H
#define SHARED_PAGE_EGRESS_H

#include "deadlines.h"
#include "wake.h"

#define PAGE_OFFSET(member) __builtin_offsetof(struct shared_page, member)
#define SLOT_OFFSET(at, member)                                                \
	(PAGE_OFFSET(slot) + (at) * sizeof(struct request_slot) +              \
	 __builtin_offsetof(struct request_slot, member))

/* A piece of the page that can go on the wire as it is. */
struct reply_view {
	uint64_t offset; /* bytes from the page's start */
	uint32_t length;
	uint32_t slot; /* SLOT_NONE for an error reply */
	uint32_t tokens; /* of a stream, in this frame */
	uint32_t last; /* the request is answered when this is sent */
};

PAGE_FUNCTION void slot_free(struct shared_page *page, uint32_t slot)
{
	uint64_t tail = page->egress.free_slot_tail;

	store_release(&page->free_slot[tail & SLOT_MASK], slot);
	store_release(&page->egress.free_slot_tail, tail + 1);
}

/* Nobody waits for the slot's request: its final notice will free it. */
PAGE_FUNCTION void slot_orphan(struct shared_page *page, uint32_t slot,
			       uint64_t ticket)
{
	store_release(&page->cancel_close[slot], ticket);
	store_release(&page->egress.cancel_count,
		      page->egress.cancel_count + 1);
}

/*
 * The executor is through with a slot: its reply may go, if anybody waits. A
 * notice of a slot that holds no result (ticket 0, as in an unset word of
 * cancel_close[]), or not of its request, frees nothing, whatever the executor
 * does.
 */
PAGE_FUNCTION void final_take(struct shared_page *page, uint32_t slot)
{
	uint64_t ticket = load_acquire(&page->slot[slot].executor.done);

	if (!ticket || ticket != page->slot[slot].ingress.ticket)
		return;
	page->final_taken[slot] = ticket;
	if (page->cancel_close[slot] != ticket)
		return;
	store_release(&page->cancel_close[slot], 0);
	page->egress.stale_results++;
	slot_free(page, slot);
}

/* The executor has posted a notice that was not taken yet, or could have. */
PAGE_FUNCTION int completion_waits(struct shared_page *page)
{
	uint64_t head = load_acquire(&page->egress.completion_head);

	if (results_fall_due(page) && due_waits(page))
		return 1;
	return load_acquire(&page->completion[head & (COMPLETION_DEPTH - 1)]) >>
		       TICKET_SHIFT ==
	       head + 1;
}

/*
 * Takes the executor's next notice. Returns 0 when there is none; otherwise
 * *index is the connection to look at, perhaps for nothing: the slot of a
 * notice of progress may have been answered, and used again, since.
 */
PAGE_FUNCTION int completion_take(struct shared_page *page, uint32_t *index)
{
	uint64_t head = page->egress.completion_head;
	uint64_t entry;
	uint32_t slot;

	if (results_fall_due(page) && due_waits(page))
		due_answer(page);
	entry = load_acquire(&page->completion[head & (COMPLETION_DEPTH - 1)]);
	slot = entry & SLOT_MASK;
	if (entry >> TICKET_SHIFT != head + 1)
		return 0;
	*index = page->slot[slot].ingress.connection & CONNECTION_MASK;
	store_release(&page->egress.completion_head, head + 1);
	if (entry & COMPLETION_FINAL) {
		final_take(page, slot);
		/* After the head, for results_to_come(). */
		store_release(&page->egress.finals, page->egress.finals + 1);
	}
	return 1;
}

/* Takes ingress's next notice; *index is the connection to look at. */
PAGE_FUNCTION int attention_take(struct shared_page *page, uint32_t *index)
{
	uint64_t head = page->egress.attention_head;
	uint64_t entry = load_acquire(&page->attention[head & CONNECTION_MASK]);
	struct connection_entry *connection;

	if (entry >> TICKET_SHIFT != head + 1)
		return 0;
	store_release(&page->egress.attention_head, head + 1);
	*index = entry & CONNECTION_MASK;
	connection = &page->connection[*index];
	/*
	 * From here on ingress may post again: whatever it added before it saw
	 * this word is seen by the caller, who reads order_tail after it.
	 */
	shared_add(&connection->egress.attention_seen,
		   load_acquire(&connection->ingress.attention_posted) -
			   connection->egress.attention_seen);
	frame_watch(page, *index);
	return 1;
}

enum reply_end {
	REPLY_GOES_ON,
	REPLY_DONE, /* as the executor says */
	REPLY_OVERDUE, /* for want of the executor */
};

/* The next frame of a stream, built in the slot's egress line. */
PAGE_FUNCTION int stream_frame(struct shared_page *page, uint32_t index,
			       uint64_t ticket, enum reply_end end,
			       struct reply_view *view)
{
	struct request_slot *slot = &page->slot[view->slot & SLOT_MASK];
	struct reply_header *header = (struct reply_header *)slot->egress.frame;
	uint32_t *frame = (uint32_t *)(slot->egress.frame + REPLY_HEADER_SIZE);
	const uint32_t *tokens = (const uint32_t *)slot->result;
	uint32_t sent = page->connection[index].egress.tokens_sent;
	uint32_t left = tokens_standing(slot, ticket);
	uint32_t i;

	if (left)
		left -= sent;
	if (!left && end == REPLY_GOES_ON)
		return 0;
	view->last = end != REPLY_GOES_ON && left <= FRAME_TOKENS_MAX;
	view->tokens = left;
	if (view->tokens > FRAME_TOKENS_MAX)
		view->tokens = FRAME_TOKENS_MAX;
	bounded_for (i, FRAME_TOKENS_MAX) {
		if (i >= view->tokens)
			break;
		frame[i] = tokens[(sent + i) & (STREAM_TOKENS_MAX - 1)];
	}
	header->request_id = slot->ingress.request_id;
	header->length = view->tokens * TOKEN_SIZE;
	header->status = STATUS_OK;
	header->flags = 0;
	if (view->last) {
		header->status = end == REPLY_DONE ? slot->executor.status
						   : (uint16_t)STATUS_TIMEOUT;
		header->flags = end == REPLY_DONE ? slot->executor.finish
						  : (uint16_t)FINISH_ABORT;
		header->flags = (uint16_t)(header->flags << REPLY_FINISH_SHIFT |
					   REPLY_LAST);
	}
	view->offset = SLOT_OFFSET(view->slot & SLOT_MASK, egress);
	view->length = REPLY_HEADER_SIZE + header->length;
	return 1;
}

/* A single reply: its header, before the length bytes of result[]. */
PAGE_FUNCTION int single_reply(struct shared_page *page, uint32_t length,
			       uint16_t status, struct reply_view *view)
{
	struct request_slot *slot = &page->slot[view->slot & SLOT_MASK];

	if (length > RESULT_MAX)
		length = RESULT_MAX;
	slot->egress.header.request_id = slot->ingress.request_id;
	slot->egress.header.length = length;
	slot->egress.header.status = status;
	slot->egress.header.flags = REPLY_LAST;
	view->offset = SLOT_OFFSET(view->slot & SLOT_MASK, egress.header);
	view->length = REPLY_HEADER_SIZE + length;
	return 1;
}

/*
 * All that was owed has left. If the connection is closed for a frame whose
 * header was whole, that is answered at last; the frame's slot is released with
 * the connection.
 */
PAGE_FUNCTION int late_reply(struct shared_page *page, uint32_t index,
			     struct reply_view *view)
{
	struct connection_entry *connection =
		&page->connection[index & CONNECTION_MASK];

	if (connection->egress.late != FRAME_LATE_OWED)
		return 0;
	view->slot = load_acquire(&connection->ingress.slot);
	if (view->slot == SLOT_NONE) {
		connection->egress.late = FRAME_LATE; /* it was refused */
		return 0;
	}
	view->last = 0;
	return single_reply(page, 0, STATUS_TIMEOUT, view);
}

/* The reply to an admitted request, or the next frame of it. */
PAGE_FUNCTION int request_reply(struct shared_page *page, uint32_t index,
				uint64_t named, uint32_t nth,
				struct reply_view *view)
{
	struct request_slot *slot = &page->slot[named & SLOT_MASK];
	uint64_t ticket = named >> TICKET_SHIFT;
	enum reply_end end = REPLY_GOES_ON;

	view->slot = named & SLOT_MASK;
	if (page->final_taken[view->slot] == ticket) {
		if (slot->executor.finish == FINISH_NONE)
			return single_reply(page, slot->executor.length,
					    slot->executor.status, view);
		end = REPLY_DONE;
	} else if (request_overdue(page, view->slot, ticket)) {
		if (load_acquire(&slot->executor.tokens_ticket) != ticket)
			return single_reply(page, 0, STATUS_TIMEOUT, view);
		end = REPLY_OVERDUE;
	}
	return nth ? 0 : stream_frame(page, index, ticket, end, view);
}

/*
 * The nth reply owed to a connection, if it can be sent now and all before it
 * could. Streams are only sent as the first. Returns 0 when there is none.
 */
PAGE_FUNCTION int reply_ready(struct shared_page *page, uint32_t index,
			      uint32_t nth, struct reply_view *view)
{
	struct connection_entry *connection =
		&page->connection[index & CONNECTION_MASK];
	uint32_t at = connection->egress.order_head + nth;
	uint32_t place = at & (ORDER_DEPTH - 1);
	struct order_entry *entry = &connection->order[place];

	view->tokens = 0;
	view->last = 1;
	if (at == load_acquire(&connection->ingress.order_tail))
		return nth ? 0 : late_reply(page, index, view);
	if (entry->length == ORDER_IS_SLOT)
		return request_reply(page, index & CONNECTION_MASK,
				     entry->request_id, nth, view);
	view->slot = SLOT_NONE;
	view->offset =
		PAGE_OFFSET(connection) +
		(index & CONNECTION_MASK) * sizeof(struct connection_entry) +
		__builtin_offsetof(struct connection_entry, order) +
		place * sizeof(struct order_entry);
	view->length = REPLY_HEADER_SIZE;
	return 1;
}

/* The slot's reply has left: the slot is free when its executor is through. */
PAGE_FUNCTION void slot_answered(struct shared_page *page, uint32_t slot)
{
	uint64_t ticket = page->slot[slot].ingress.ticket;

	if (page->final_taken[slot] == ticket) {
		slot_free(page, slot);
		return;
	}
	page->egress.timeouts++;
	slot_orphan(page, slot, ticket);
}

/*
 * The first owed reply, or a frame of it, has left and its bytes are nobody's
 * any more. slot, tokens and last are those of its view.
 */
PAGE_FUNCTION void reply_sent(struct shared_page *page, uint32_t index,
			      uint32_t slot, uint32_t tokens, uint32_t last)
{
	struct connection_egress *out =
		&page->connection[index & CONNECTION_MASK].egress;

	if (!last) {
		out->tokens_sent += tokens;
		if (!tokens)
			out->late = FRAME_LATE; /* that reply was not owed */
		return;
	}
	out->tokens_sent = 0;
	page->egress.replies++;
	store_release(&out->order_head, out->order_head + 1);
	if (slot != SLOT_NONE)
		slot_answered(page, slot & SLOT_MASK);
}

/* Nothing is owed to the connection. */
PAGE_FUNCTION int replies_settled(struct shared_page *page, uint32_t index)
{
	struct connection_entry *connection =
		&page->connection[index & CONNECTION_MASK];

	return connection->egress.order_head ==
		       load_acquire(&connection->ingress.order_tail) &&
	       connection->egress.late != FRAME_LATE_OWED;
}

/* It is to be closed when nothing is owed to it. */
PAGE_FUNCTION int connection_closing(struct shared_page *page, uint32_t index)
{
	struct connection_entry *connection =
		&page->connection[index & CONNECTION_MASK];

	return load_acquire(&connection->ingress.closing) ||
	       connection->egress.late;
}

/*
 * Gives the entry of a dead connection back. Only when ingress is quiet for it
 * (the socket was shut down) and no send is in flight. Results that are still
 * coming free their slots in completion_take().
 */
PAGE_FUNCTION void connection_release(struct shared_page *page, uint32_t index)
{
	struct connection_entry *connection =
		&page->connection[index & CONNECTION_MASK];
	uint32_t head = connection->egress.order_head;
	uint32_t tail = load_acquire(&connection->ingress.order_tail);
	uint64_t free_tail = page->egress.free_connection_tail;
	uint32_t i;

	bounded_for (i, ORDER_DEPTH) {
		struct order_entry *entry =
			&connection->order[(head + i) & (ORDER_DEPTH - 1)];
		uint32_t slot = entry->request_id & SLOT_MASK;
		uint64_t ticket = entry->request_id >> TICKET_SHIFT;

		if (i >= tail - head)
			break;
		if (entry->length == ORDER_IS_SLOT &&
		    page->final_taken[slot] != ticket) {
			slot_orphan(page, slot, ticket);
			continue;
		}
		page->egress.discarded++;
		if (entry->length == ORDER_IS_SLOT)
			slot_free(page, slot);
	}
	if (connection->ingress.slot != SLOT_NONE)
		slot_free(page, connection->ingress.slot & SLOT_MASK);
	connection->egress.tokens_sent = 0;
	connection->egress.late = FRAME_IN_TIME;
	connection->egress.inside_past = connection->ingress.inside;
	store_release(&connection->egress.order_head, tail);
	store_release(&page->free_connection[free_tail & CONNECTION_MASK],
		      index & CONNECTION_MASK);
	store_release(&page->egress.free_connection_tail, free_tail + 1);
	page->egress.connections_closed++;
}

#endif
