/* SPDX-License-Identifier: MIT */
/*
 * The executor's side of the page: requests in, in submission order; results
 * and notices out, in any order. One thread (one GPU block) calls it.
 */
#ifndef SHARED_PAGE_EXECUTOR_H
#define SHARED_PAGE_EXECUTOR_H

#include "memory_order.h"

/* Takes the next request. Returns 0 when there is none. */
PAGE_FUNCTION int request_take(struct shared_page *page, uint32_t *slot)
{
	uint64_t head = page->executor.submit_head;
	uint64_t entry = load_acquire(&page->submit[head & SLOT_MASK]);

	if (entry >> TICKET_SHIFT != head + 1)
		return 0;
	*slot = entry & SLOT_MASK;
	store_release(&page->executor.submit_head, head + 1);
	return 1;
}

/* Nobody waits for this use of the slot: cancelled, or its peer is gone. */
PAGE_FUNCTION int request_cancelled(struct shared_page *page, uint32_t slot)
{
	uint64_t ticket = page->slot[slot & SLOT_MASK].ingress.ticket;

	return load_acquire(&page->cancel_client[slot & SLOT_MASK]) == ticket ||
	       load_acquire(&page->cancel_close[slot & SLOT_MASK]) == ticket;
}

PAGE_FUNCTION void notice_post(struct shared_page *page, uint32_t slot,
			       uint32_t final)
{
	uint64_t tail = page->executor.completion_tail;

	store_release(&page->completion[tail & (COMPLETION_DEPTH - 1)],
		      (tail + 1) << TICKET_SHIFT | final | slot);
	page->executor.completion_tail = tail + 1;
}

/*
 * The result in slot.result, length bytes of it, stands. finish other than
 * FINISH_NONE ends a stream, whose tokens were published before.
 */
PAGE_FUNCTION void result_publish(struct shared_page *page, uint32_t slot,
				  uint32_t length, uint16_t status,
				  uint16_t finish)
{
	struct slot_executor *out = &page->slot[slot & SLOT_MASK].executor;

	out->length = length;
	out->status = status;
	out->finish = finish;
	store_release(&out->done, page->slot[slot & SLOT_MASK].ingress.ticket);
	page->executor.completed++;
	notice_post(page, slot & SLOT_MASK, COMPLETION_FINAL);
}

/* Begins a stream: no tokens yet. Call it when the request is taken. */
PAGE_FUNCTION void stream_begin(struct shared_page *page, uint32_t slot)
{
	struct request_slot *at = &page->slot[slot & SLOT_MASK];

	at->executor.tokens = 0;
	store_release(&at->executor.tokens_ticket, at->ingress.ticket);
}

/*
 * Appends a token. Egress is told unless its ring is half full: then it has
 * notices enough to look, and room is kept for the final ones.
 * The last token of a stream needs no notice: pass notify = 0 and publish.
 */
PAGE_FUNCTION void token_publish(struct shared_page *page, uint32_t slot,
				 uint32_t token, int notify)
{
	struct request_slot *at = &page->slot[slot & SLOT_MASK];
	uint64_t tokens = at->executor.tokens;

	((uint32_t *)at->result)[tokens & (STREAM_TOKENS_MAX - 1)] = token;
	store_release(&at->executor.tokens, tokens + 1);
	page->executor.tokens++;
	if (notify &&
	    page->executor.completion_tail -
			    load_acquire(&page->egress.completion_head) <
		    SLOT_COUNT)
		notice_post(page, slot & SLOT_MASK, 0);
}

#endif
