/* SPDX-License-Identifier: MIT */
/*
 * Results that fall due: an executor that takes no CPU, for experiments that
 * count instructions. The result of a request exists a set time after it was
 * admitted, and is the first bytes of the request; who looks for results, on
 * either transport, makes it. Requests are admitted in the order in which they
 * fall due, so that only the oldest has to be looked at.
 */
#ifndef SHARED_PAGE_DUE_H
#define SHARED_PAGE_DUE_H

#include "executor.h"

enum due_constants {
	DUE_RESULT = 240, /* bytes: those of the default gemm */
};

#if defined(__bpf__)
#define page_now() bpf_ktime_get_ns()
#elif !defined(page_now) /* a fuzzer brings a clock of its own */
#include <time.h>

/* Nanoseconds on CLOCK_MONOTONIC, as bpf_ktime_get_ns() counts them. */
PAGE_FUNCTION uint64_t page_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
#endif

PAGE_FUNCTION int results_fall_due(struct shared_page *page)
{
	return __builtin_expect(load_acquire(&page->due.service_ns) != 0, 0);
}

/* The oldest request that was not answered is due. */
PAGE_FUNCTION int due_waits(struct shared_page *page)
{
	uint64_t head = load_acquire(&page->executor.submit_head);
	uint64_t entry = load_acquire(&page->submit[head & SLOT_MASK]);

	if (entry >> TICKET_SHIFT != head + 1)
		return 0;
	return page->slot[entry & SLOT_MASK].ingress.admitted_ns +
		       page->due.service_ns <=
	       page_now();
}

/* Answers it. Egress calls this in executor's place. */
PAGE_FUNCTION void due_answer(struct shared_page *page)
{
	struct request_slot *at;
	uint32_t slot;

	if (!request_take(page, &slot))
		return;
	at = &page->slot[slot & SLOT_MASK];
	__builtin_memcpy(at->result, at->request, DUE_RESULT);
	result_publish(page, slot, DUE_RESULT, STATUS_OK, FINISH_NONE);
}

#endif
