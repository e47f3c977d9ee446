/* SPDX-License-Identifier: MIT */
/*
 * The ingress side of the page: entries for new connections, and bytes to
 * admitted requests. One source for the sk_skb program, the native servers
 * and the fuzzer, so that they answer alike.
 *
 * The includer defines, before this file,
 *   copy_bytes(source, offset, to, length)   0 when length bytes were copied
 * length is 1..REQUEST_MAX. Calls for one connection must not overlap (the
 * socket lock, or the server's thread); calls for different ones may.
 */
#ifndef SHARED_PAGE_INGRESS_H
#define SHARED_PAGE_INGRESS_H

#include "deadlines.h"
#include "wake.h"

/* What frames_admit() asks of the caller. */
enum admitted {
	ADMITTED_REQUEST = 1, /* the executor has something to do */
	ADMITTED_REPLY = 2, /* egress has: an error reply, perhaps a close */
	ADMITTED_SOONER = 4, /* a look for results was planned, see wake.h */
};

enum ingress_limits {
	/* Compare-and-swap attempts before a claim counts as failed. */
	CLAIM_ATTEMPTS = 64,
	/*
	 * Parsing steps for one segment. A frame takes at most three and has
	 * 24 bytes or more; GRO builds segments of up to 512 KiB (BIG TCP).
	 */
	SEGMENT_STEPS = 1 << 17,
	/* See slot_claim(). */
	FREE_SLOTS_FOR_EACH_HELD = 4,
};

/*
 * Takes an index from a ring that egress fills; 0 when it is empty. Who loses
 * the race for a place may have read it while egress was writing its next use.
 */
PAGE_FUNCTION int ring_claim(uint64_t *head, uint64_t *tail, uint32_t *ring,
			     uint32_t mask, uint32_t *index)
{
	uint32_t attempt;

	bounded_for (attempt, CLAIM_ATTEMPTS) {
		uint64_t at = load_acquire(head);
		uint32_t value;

		if (at == load_acquire(tail))
			return 0;
		value = load_acquire(&ring[at & mask]);
		if (shared_swap(head, at, at + 1)) {
			*index = value & mask;
			return 1;
		}
	}
	return 0;
}

/*
 * Claims and resets the entry of a new connection. Returns 0, and counts it,
 * when all are in use. Its order ring is empty: egress gave it back so.
 */
PAGE_FUNCTION int connection_open(struct shared_page *page, uint32_t *index)
{
	struct connection_ingress *in;
	uint32_t generation;

	if (!ring_claim(&page->ingress.free_connection_head,
			&page->egress.free_connection_tail,
			page->free_connection, CONNECTION_MASK, index)) {
		shared_add(&page->ingress.connections_refused, 1);
		return 0;
	}
	in = &page->connection[*index & CONNECTION_MASK].ingress;
	in->order_tail =
		page->connection[*index & CONNECTION_MASK].egress.order_head;
	in->closing = INGRESS_OPEN;
	in->header_have = 0;
	in->inside = INSIDE_NOTHING;
	in->slot = SLOT_NONE;
	in->payload_have = 0;
	in->discard = 0;
	generation = in->generation + 1;
	if (!(uint32_t)(generation << CONNECTION_BITS))
		generation++; /* see mark_of() in bpf/ingress.bpf.c */
	store_release(&in->generation, generation);
	return 1;
}

/* Owes the connection a reply that needs no executor. */
PAGE_FUNCTION void owe_error(struct connection_entry *connection, uint64_t id,
			     uint16_t status)
{
	struct connection_ingress *in = &connection->ingress;
	struct order_entry *entry =
		&connection->order[in->order_tail & (ORDER_DEPTH - 1)];

	entry->request_id = id;
	entry->length = 0;
	entry->status = status;
	entry->flags = REPLY_LAST;
	if (status == STATUS_BAD_FRAME || status == STATUS_TOO_LARGE ||
	    status == STATUS_TOO_MANY)
		in->closing = INGRESS_CLOSING;
	/* A full barrier: attention_post() reads a word of egress next. */
	shared_add(&in->order_tail, 1);
}

/*
 * Says what the connection is inside of, if egress has to know. Returns 0 when
 * egress has declared that frame late meanwhile.
 */
PAGE_FUNCTION int inside_move(struct connection_ingress *in, uint32_t inside)
{
	uint32_t before = load_acquire(&in->inside);

	if (before == INSIDE_LATE)
		return 0;
	return before == inside || shared_swap(&in->inside, before, inside);
}

/*
 * Hands the assembled request over. Its place in the order ring comes first:
 * egress looks there as soon as the executor has answered. Of a late frame the
 * slot stays held, and egress answers it.
 */
PAGE_FUNCTION uint32_t request_submit(struct shared_page *page, uint32_t index)
{
	struct connection_entry *connection =
		&page->connection[index & CONNECTION_MASK];
	struct connection_ingress *in = &connection->ingress;
	uint32_t slot = in->slot & SLOT_MASK;
	struct order_entry *entry =
		&connection->order[in->order_tail & (ORDER_DEPTH - 1)];
	uint32_t result = ADMITTED_REQUEST;
	uint64_t position, named;

	if (!inside_move(in, INSIDE_NOTHING)) {
		in->closing = INGRESS_CLOSING;
		return ADMITTED_REPLY;
	}
	position = shared_add(&page->ingress.submit_tail, 1);
	named = (position + 1) << TICKET_SHIFT | slot;
	page->slot[slot].ingress.ticket = position + 1;
	if (results_fall_due(page) || wake_adapts(page))
		page->slot[slot].ingress.admitted_ns = page_now();
	entry->request_id = named;
	entry->length = ORDER_IS_SLOT;
	entry->status = STATUS_OK;
	entry->flags = 0;
	in->slot = SLOT_NONE;
	store_release(&in->order_tail, in->order_tail + 1);
	store_release(&page->submit[position & SLOT_MASK], named);
	if (wake_adapts(page) &&
	    wake_admitted(page, named, page->slot[slot].ingress.admitted_ns))
		result |= ADMITTED_SOONER;
	return result;
}

/*
 * Marks the unanswered request of that id, if this connection has one. It may
 * be answered meanwhile, and its slot be another's: the old ticket cancels
 * nothing.
 */
PAGE_FUNCTION void request_cancel(struct shared_page *page, uint32_t index,
				  uint64_t id)
{
	struct connection_entry *connection =
		&page->connection[index & CONNECTION_MASK];
	uint32_t tail = connection->ingress.order_tail;
	uint32_t head = load_acquire(&connection->egress.order_head);
	uint32_t i;

	shared_add(&page->ingress.cancels, 1);
	bounded_for (i, ORDER_DEPTH) {
		struct order_entry *entry;
		uint32_t slot;

		if (i >= tail - head)
			break;
		entry = &connection->order[(head + i) & (ORDER_DEPTH - 1)];
		if (entry->length != ORDER_IS_SLOT)
			continue;
		slot = entry->request_id & SLOT_MASK;
		if (load_acquire(&page->slot[slot].ingress.request_id) != id)
			continue;
		store_release(&page->cancel_client[slot],
			      entry->request_id >> TICKET_SHIFT);
		shared_add(&page->ingress.cancel_count, 1);
		break;
	}
}

/*
 * Takes a slot for a connection with so many unanswered requests, if it may
 * have one more: a queue may grow as long as it is no longer than a share of
 * what is free, so that many who ask for much leave room for who asks for
 * little (dynamic thresholds, Choudhury and Hahne, 1998). Who holds nothing may
 * have the last one.
 */
PAGE_FUNCTION int slot_claim(struct shared_page *page, uint32_t owed,
			     uint32_t *slot)
{
	uint64_t head = load_acquire(&page->ingress.free_slot_head);

	if (load_acquire(&page->egress.free_slot_tail) - head <
	    owed * FREE_SLOTS_FOR_EACH_HELD)
		return 0;
	return ring_claim(&page->ingress.free_slot_head,
			  &page->egress.free_slot_tail, page->free_slot,
			  SLOT_MASK, slot);
}

/* A header is complete: decides what becomes of its frame. */
PAGE_FUNCTION uint32_t frame_begin(struct shared_page *page, uint32_t index)
{
	struct connection_entry *connection =
		&page->connection[index & CONNECTION_MASK];
	struct connection_ingress *in = &connection->ingress;
	struct request_header *header = (struct request_header *)in->header;
	uint32_t owed =
		in->order_tail - load_acquire(&connection->egress.order_head);
	uint32_t length = header->length;
	uint16_t status = STATUS_OK;
	uint64_t id = header->request_id;
	uint32_t slot = SLOT_NONE;

	in->header_have = 0;
	if (header->magic != PROTOCOL_MAGIC) {
		status = STATUS_BAD_FRAME;
		id = 0; /* nothing in this header can be believed */
	} else if (header->version != PROTOCOL_VERSION) {
		status = STATUS_BAD_FRAME;
	} else if (length > REQUEST_MAX) {
		status = STATUS_TOO_LARGE;
	} else if (header->kind == KIND_CANCEL) {
		in->discard = length;
		request_cancel(page, index, id);
		return 0;
	} else if (owed >= PIPELINE_MAX) {
		status = STATUS_TOO_MANY;
	} else if (load_acquire(&page->egress.draining)) {
		status = STATUS_SHUTTING_DOWN;
		in->discard = length;
	} else if (!slot_claim(page, owed, &slot)) {
		status = STATUS_BUSY;
		in->discard = length;
	}
	if (status != STATUS_OK) {
		shared_add(status == STATUS_BUSY ||
					   status == STATUS_SHUTTING_DOWN
				   ? &page->ingress.frames_busy
				   : &page->ingress.frames_bad,
			   1);
		owe_error(connection, id, status);
		return ADMITTED_REPLY;
	}
	store_release(&page->slot[slot & SLOT_MASK].ingress.request_id, id);
	page->slot[slot & SLOT_MASK].ingress.connection = index;
	page->slot[slot & SLOT_MASK].ingress.generation = in->generation;
	page->slot[slot & SLOT_MASK].ingress.kind = header->kind;
	page->slot[slot & SLOT_MASK].ingress.length = length;
	in->payload_have = 0;
	in->slot = slot;
	if (length)
		return 0;
	return request_submit(page, index);
}

/* Copies the next bytes of a header; decides about the frame at its end. */
PAGE_FUNCTION uint32_t header_step(struct shared_page *page, uint32_t index,
				   void *source, uint32_t offset, uint32_t left,
				   uint32_t *used)
{
	struct connection_ingress *in =
		&page->connection[index & CONNECTION_MASK].ingress;
	uint32_t have = in->header_have;
	uint32_t take;

	if (have >= REQUEST_HEADER_SIZE)
		have = 0; /* cannot be; shown to the verifier */
	if (!have && !(++in->frames << 1))
		in->frames++;
	take = REQUEST_HEADER_SIZE - have;
	if (take > left)
		take = left;
	*used = take;
	if (take < 1 || take > REQUEST_HEADER_SIZE ||
	    copy_bytes(source, offset, in->header + have, take)) {
		in->closing = INGRESS_CLOSING;
		return ADMITTED_REPLY;
	}
	in->header_have = have + take;
	if (in->header_have < REQUEST_HEADER_SIZE)
		return 0;
	return frame_begin(page, index);
}

/* Copies the next bytes of a payload; submits the request at its end. */
PAGE_FUNCTION uint32_t payload_step(struct shared_page *page, uint32_t index,
				    void *source, uint32_t offset,
				    uint32_t left, uint32_t *used)
{
	struct connection_ingress *in =
		&page->connection[index & CONNECTION_MASK].ingress;
	struct request_slot *slot = &page->slot[in->slot & SLOT_MASK];
	uint32_t have = in->payload_have & (2 * REQUEST_MAX - 1);
	uint32_t take = slot->ingress.length - have;

	if (take > left)
		take = left;
	*used = take;
	if (have >= REQUEST_MAX || take < 1 || take > REQUEST_MAX ||
	    copy_bytes(source, offset, slot->request + have, take)) {
		in->closing = INGRESS_CLOSING;
		return ADMITTED_REPLY;
	}
	in->payload_have = have + take;
	if (in->payload_have < slot->ingress.length)
		return 0;
	return request_submit(page, index);
}

/* Consumes at least one of the left bytes and says in *used how many. */
PAGE_FUNCTION uint32_t frame_step(struct shared_page *page, uint32_t index,
				  void *source, uint32_t offset, uint32_t left,
				  uint32_t *used)
{
	struct connection_ingress *in =
		&page->connection[index & CONNECTION_MASK].ingress;

	if (in->closing) {
		*used = left;
		return 0;
	}
	if (in->discard) {
		*used = in->discard < left ? in->discard : left;
		in->discard -= *used;
		return 0;
	}
	if (in->slot == SLOT_NONE)
		return header_step(page, index, source, offset, left, used);
	return payload_step(page, index, source, offset, left, used);
}

/* What egress has to know of a frame that has begun: see connection_ingress. */
PAGE_FUNCTION uint32_t inside_frame(struct connection_ingress *in)
{
	if (in->closing)
		return INSIDE_NOTHING;
	if (in->slot != SLOT_NONE || in->discard)
		return in->frames << 1 | 1;
	if (in->header_have)
		return in->frames << 1;
	return INSIDE_NOTHING;
}

/*
 * Admits what length bytes of a connection hold; frames may start and end
 * anywhere in them. Returns a set of enum admitted.
 */
PAGE_FUNCTION uint32_t frames_admit(struct shared_page *page, uint32_t index,
				    void *source, uint32_t length)
{
	struct connection_ingress *in =
		&page->connection[index & CONNECTION_MASK].ingress;
	uint32_t offset = 0;
	uint32_t result = 0;
	uint32_t step;

	if (load_acquire(&in->inside) == INSIDE_LATE)
		in->closing = INGRESS_CLOSING;
	bounded_for (step, SEGMENT_STEPS) {
		uint32_t used = 0;

		if (offset >= length)
			break;
		result |= frame_step(page, index, source, offset,
				     length - offset, &used);
		offset += used;
	}
	inside_move(in, inside_frame(in));
	/* A full barrier: the caller reads words of egress next. */
	shared_add(&page->ingress.bytes_received, length);
	return result;
}

/*
 * Tells egress that a connection needs it though no completion will say so.
 * At most one notice a connection stands in the ring, which so never fills.
 */
PAGE_FUNCTION void attention_post(struct shared_page *page, uint32_t index)
{
	struct connection_entry *connection =
		&page->connection[index & CONNECTION_MASK];
	struct connection_ingress *in = &connection->ingress;
	uint64_t position;

	if (in->attention_posted !=
	    load_acquire(&connection->egress.attention_seen))
		return;
	store_release(&in->attention_posted, in->attention_posted + 1);
	position = shared_add(&page->ingress.attention_tail, 1);
	store_release(&page->attention[position & CONNECTION_MASK],
		      (position + 1) << TICKET_SHIFT | index);
}

#endif
