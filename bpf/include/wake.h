/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What wakes the loop: completions; a timer while requests are in flight,
 * since a result posts no completion; else the doorbell that ingress rings.
 */
#ifndef BPF_WAKE_H
#define BPF_WAKE_H

#include "connection.h"

static __u8 timer_armed;
static __u32 sleep_number;

static void poll_arm(struct ring *ring, __s32 fd, __u8 operation, __u32 flags)
{
	struct io_uring_sqe *sqe =
		sqe_next(ring, IORING_OP_POLL_ADD, tag(operation, 0));

	sqe->fd = fd;
	sqe->poll32_events = POLLIN;
	sqe->len = flags;
}

static void timer_arm(struct ring *ring)
{
	struct io_uring_sqe *sqe;

	if (timer_armed)
		return;
	sqe = sqe_next(ring, IORING_OP_TIMEOUT, tag(OP_TIMER, 0));
	sqe->addr = scratch.page_address + PAGE_OFFSET(egress.timer);
	sqe->len = 1;
	timer_armed = 1;
}

static int work_waits(void)
{
	__u64 at = shared_page.egress.attention_head;

	return requests_in_flight(&shared_page) ||
	       load_acquire(&shared_page.ingress.attention_tail) != at;
}

/*
 * Decides how to sleep. Without a timer, ingress must know before the last
 * look at its rings: the exchange is a full barrier, and it has one, too.
 */
static void wake_plan(struct ring *ring)
{
	if (!work_waits()) {
		if (shared_page.egress.sleep &&
		    shared_page.egress.sleep !=
			    load_acquire(&shared_page.ingress.rung))
			return; /* still the same sleep */
		sleep_number += sleep_number + 1 ? 1 : 2; /* never 0 */
		__sync_lock_test_and_set(&shared_page.egress.sleep,
					 sleep_number);
		if (!work_waits())
			return;
	}
	shared_page.egress.sleep = 0;
	timer_arm(ring);
}

#endif
