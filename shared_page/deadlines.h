/* SPDX-License-Identifier: MIT */
/*
 * Requests that are not answered in time, and frames that do not end in time.
 * Egress calls all of it but frame_unwatched().
 *
 * Neither costs anything while all goes well. A hand goes round the slots, as
 * that of the CLOCK page replacement does, a bounded way each tick and only
 * while requests are in flight: no request is stamped, queued or searched for.
 * A connection is watched once a segment of it has ended inside a frame.
 */
#ifndef SHARED_PAGE_DEADLINES_H
#define SHARED_PAGE_DEADLINES_H

#include "memory_order.h"

/* Tokens of a stream that stand, of this use of the slot. */
PAGE_FUNCTION uint32_t tokens_standing(struct request_slot *slot,
				       uint64_t ticket)
{
	if (load_acquire(&slot->executor.tokens_ticket) != ticket)
		return 0;
	return (uint32_t)load_acquire(&slot->executor.tokens);
}

/*
 * Moves the hand over a slot. Returns 1 when its request has become overdue:
 * its result, or the next token of its stream, did not come between
 * LOOKS_UNTIL_OVERDUE looks. *index is then the connection to look at.
 */
PAGE_FUNCTION int hand_move(struct shared_page *page, uint32_t *index)
{
	uint32_t at = page->egress.hand++ & SLOT_MASK;
	struct request_slot *slot = &page->slot[at];
	struct slot_look *look = &page->look[at];
	uint64_t ticket = load_acquire(&slot->ingress.ticket);
	uint32_t tokens;

	if (page->final_taken[at] == ticket || page->cancel_close[at] == ticket)
		return 0; /* free, or waited for by nobody */
	tokens = tokens_standing(slot, ticket);
	if (look->ticket != ticket || look->tokens != tokens) {
		look->ticket = ticket;
		look->tokens = tokens;
		look->same = 0;
		return 0;
	}
	if (look->same >= LOOKS_UNTIL_OVERDUE)
		return 0;
	look->same++;
	*index = slot->ingress.connection & CONNECTION_MASK;
	return look->same == LOOKS_UNTIL_OVERDUE;
}

/* Of a request whose final notice was not taken. */
PAGE_FUNCTION int request_overdue(struct shared_page *page, uint32_t slot,
				  uint64_t ticket)
{
	return page->look[slot & SLOT_MASK].ticket == ticket &&
	       page->look[slot & SLOT_MASK].same >= LOOKS_UNTIL_OVERDUE;
}

/* Ingress asks, after a full barrier, whether egress has to be told. */
PAGE_FUNCTION int frame_unwatched(struct shared_page *page, uint32_t index)
{
	struct connection_entry *connection =
		&page->connection[index & CONNECTION_MASK];

	return load_acquire(&connection->ingress.inside) > INSIDE_LATE &&
	       !load_acquire(&connection->egress.watched);
}

/* The frame, INSIDE_NOTHING also for a connection that is gone or late. */
PAGE_FUNCTION uint32_t inside_of(struct connection_entry *connection)
{
	uint32_t inside = load_acquire(&connection->ingress.inside);

	if (inside == connection->egress.inside_past ||
	    connection->egress.late != FRAME_IN_TIME)
		return INSIDE_NOTHING;
	return inside;
}

/*
 * Watches a connection if it is inside a frame. It stands in watch[] once, and
 * until its turn comes: if it is inside another frame then, it goes last again.
 */
PAGE_FUNCTION void frame_watch(struct shared_page *page, uint32_t index)
{
	struct connection_entry *connection =
		&page->connection[index & CONNECTION_MASK];
	uint32_t tail = page->egress.watch_tail & CONNECTION_MASK;
	uint32_t inside = inside_of(connection);

	if (!inside || connection->egress.watched)
		return;
	page->watch[tail].connection = (uint16_t)index;
	page->watch[tail].since = (uint16_t)page->egress.frame_ticks;
	page->watch[tail].frame = inside >> 1;
	page->egress.watch_tail++;
	store_release(&connection->egress.watched, 1u);
}

PAGE_FUNCTION int frames_watched(struct shared_page *page)
{
	return page->egress.watch_tail != page->egress.watch_head;
}

/*
 * Takes a connection whose turn has come; 0 when there is none. If it is still
 * inside the same frame, it is late: it is answered, if the header was whole,
 * and closed when nothing is owed to it.
 */
PAGE_FUNCTION int frame_turn(struct shared_page *page, uint32_t *index)
{
	struct frame_watch *watch =
		&page->watch[page->egress.watch_head & CONNECTION_MASK];
	uint16_t ticks = (uint16_t)page->egress.frame_ticks - watch->since;
	struct connection_entry *connection;
	uint32_t inside;

	if (!frames_watched(page) || ticks < FRAME_TICKS)
		return 0;
	page->egress.watch_head++;
	*index = watch->connection & CONNECTION_MASK;
	connection = &page->connection[*index];
	/*
	 * A full barrier: from here on ingress may say again that it is inside
	 * a frame; what it was in before is seen below.
	 */
	shared_add(&connection->egress.watched, -1u);
	inside = inside_of(connection);
	if (!inside)
		return 1;
	if (inside >> 1 != watch->frame ||
	    !shared_swap(&connection->ingress.inside, inside, INSIDE_LATE)) {
		frame_watch(page, *index); /* not inside it any more */
		return 1;
	}
	page->egress.frames_late++;
	store_release(&connection->egress.late,
		      inside & 1 ? FRAME_LATE_OWED : FRAME_LATE);
	return 1;
}

#endif
