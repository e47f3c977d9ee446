/* SPDX-License-Identifier: MIT */
/*
 * When to look for results, under the adaptive policy: when the one that is
 * waited for is expected. Without it whoever looks does so at equal intervals,
 * and nothing here is used.
 *
 * Nobody says how long a request takes, and an executor's clock need not be
 * ours, so the expectation is found by looking: a little less after each look
 * that found the result, more after one that came too soon. One request at a
 * time is waited for. All of this is advice: these words are written without
 * locks, by whatever CPU admits or looks, and a wrong one costs a late look,
 * which comes after the fixed interval at the latest while there is more than
 * one request to look for.
 */
#ifndef SHARED_PAGE_WAKE_H
#define SHARED_PAGE_WAKE_H

#include "due.h"

/* The interval, in ns, that the adaptive policy starts from; 0: it is fixed. */
PAGE_FUNCTION uint64_t wake_adapts(struct shared_page *page)
{
	return load_acquire(&page->supervisor.adaptive_wake_ns);
}

/* Requests that the executor has not finished, as far as egress knows. */
PAGE_FUNCTION uint64_t requests_in_flight(struct shared_page *page)
{
	uint64_t finals = load_acquire(&page->egress.finals);

	return load_acquire(&page->ingress.submit_tail) - finals;
}

PAGE_FUNCTION uint32_t wake_kind(struct shared_page *page, uint64_t named)
{
	return page->slot[named & SLOT_MASK].ingress.kind & (KIND_COUNT - 1);
}

/* How long after its admission the request's result is expected, in ns. */
PAGE_FUNCTION uint64_t wake_expected(struct shared_page *page, uint64_t named)
{
	uint32_t value = page->wake.expected_ns[wake_kind(page, named)];

	return value ? value : wake_adapts(page);
}

/* The result of that request, or the beginning of its stream, is there. */
PAGE_FUNCTION int result_stands(struct shared_page *page, uint64_t named,
				uint64_t now)
{
	struct request_slot *slot = &page->slot[named & SLOT_MASK];
	uint64_t ticket = named >> TICKET_SHIFT;

	if (load_acquire(&slot->ingress.ticket) != ticket)
		return 1; /* answered, and its slot used again */
	if (results_fall_due(page))
		return slot->ingress.admitted_ns + page->due.service_ns <= now;
	return load_acquire(&slot->executor.done) == ticket ||
	       load_acquire(&slot->executor.tokens_ticket) == ticket;
}

/* The nth result that egress has not taken stands. */
PAGE_FUNCTION int nth_stands(struct shared_page *page, uint32_t nth,
			     uint64_t now)
{
	uint64_t at, entry;

	if (results_fall_due(page)) {
		at = load_acquire(&page->executor.submit_head) + nth;
		entry = load_acquire(&page->submit[at & SLOT_MASK]);
		return entry >> TICKET_SHIFT == at + 1 &&
		       result_stands(page, entry, now);
	}
	at = load_acquire(&page->egress.completion_head) + nth;
	entry = load_acquire(&page->completion[at & (COMPLETION_DEPTH - 1)]);
	return entry >> TICKET_SHIFT == at + 1 && entry & COMPLETION_FINAL;
}

/*
 * Some result does not stand yet, or that is not certain: there are many, or
 * streams. Those that stand are taken by egress before it sleeps, so nobody has
 * to look for them again; but whoever finds it asleep has to wake it after
 * this. finals is read before completion_head, and written after it: a notice
 * is not counted twice.
 */
PAGE_FUNCTION int results_to_come(struct shared_page *page, uint64_t now)
{
	uint64_t left = requests_in_flight(page);
	uint32_t i;

	bounded_for (i, OLDEST_STEPS) {
		if (i >= left || !nth_stands(page, i, now))
			break;
	}
	return i < left;
}

/*
 * A request was just admitted. Returns 1 when a look for it has to come before
 * the one that is planned, or none is.
 */
PAGE_FUNCTION int wake_admitted(struct shared_page *page, uint64_t named,
				uint64_t now)
{
	uint64_t interval = wake_adapts(page);
	uint64_t wait = wake_expected(page, named);
	uint64_t soonest = page->wake.looked_ns + interval;
	uint64_t planned = page->wake.next_ns;
	uint64_t at;

	if (wait > interval && requests_in_flight(page) > 1)
		wait = interval;
	at = now + wait < soonest ? soonest : now + wait;
	if (planned && planned <= at)
		return 0;
	page->wake.awaited = named;
	page->wake.missed = 0;
	page->wake.next_ns = at;
	return 1;
}

/* Somebody looks: corrects what is expected of the kind that is waited for. */
PAGE_FUNCTION void wake_learn(struct shared_page *page, uint64_t now)
{
	uint64_t named = page->wake.awaited;
	uint64_t value = wake_expected(page, named);
	int planned = now >= page->wake.next_ns;

	if (planned)
		page->wake.looked_ns = now;
	if (!named)
		return;
	if (!result_stands(page, named, now)) {
		page->wake.missed += planned;
		page->ingress.early_looks += planned;
		return;
	}
	if (page->wake.missed)
		value += value / EXPECTED_MORE + EXPECTED_LEAST_NS;
	else if (now - page->slot[named & SLOT_MASK].ingress.admitted_ns <
		 value + value / EXPECTED_MORE)
		value -= value / EXPECTED_LESS;
	if (value > EXPECTED_MOST_NS)
		value = EXPECTED_MOST_NS;
	page->wake.expected_ns[wake_kind(page, named)] = value;
	page->wake.awaited = 0;
	page->wake.missed = 0;
}

/* Waits for the oldest request whose result is not there. */
PAGE_FUNCTION void wake_await_oldest(struct shared_page *page, uint64_t now)
{
	uint64_t position = load_acquire(&page->executor.completed);
	uint32_t i;

	bounded_for (i, OLDEST_STEPS) {
		uint64_t named =
			load_acquire(&page->submit[(position + i) & SLOT_MASK]);

		if (named >> TICKET_SHIFT != position + i + 1)
			break;
		if (result_stands(page, named, now))
			continue;
		page->wake.awaited = named;
		break;
	}
}

/*
 * After a look, with requests in flight: plans the next one. Returns its time
 * on CLOCK_MONOTONIC, in ns.
 */
PAGE_FUNCTION uint64_t wake_plan(struct shared_page *page, uint64_t now)
{
	uint64_t interval = wake_adapts(page);
	uint64_t wait = interval, most = interval;
	uint64_t named, age, value;

	if (page->wake.awaited && !page->wake.missed &&
	    page->wake.next_ns > now)
		return page->wake.next_ns;
	if (!page->wake.awaited)
		wake_await_oldest(page, now);
	named = page->wake.awaited;
	if (named) {
		age = now - page->slot[named & SLOT_MASK].ingress.admitted_ns;
		value = wake_expected(page, named);
		wait = value > age ? value - age : 0;
		if (page->wake.missed)
			wait = age / EXPECTED_MORE;
		if (requests_in_flight(page) == 1)
			most = EXPECTED_MOST_NS;
	}
	if (wait < interval / EXPECTED_MORE)
		wait = interval / EXPECTED_MORE;
	if (wait > most)
		wait = most;
	page->wake.next_ns = now + wait;
	return page->wake.next_ns;
}

#endif
