/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What wakes the loop: completions, and the doorbell that ingress rings when
 * its timer has found a result, or when it owes an error reply.
 */
#ifndef BPF_WAKE_H
#define BPF_WAKE_H

#include "connection.h"

static __u32 sleep_number;

static void poll_arm(struct ring *ring, __s32 fd, __u8 operation, __u32 flags)
{
	struct io_uring_sqe *sqe =
		sqe_next(ring, IORING_OP_POLL_ADD, tag(operation, 0));

	sqe->fd = fd;
	sqe->poll32_events = POLLIN;
	sqe->len = flags;
}

static __u32 ticks_seen; /* of ingress's timer */

static int work_waits(void)
{
	__u64 at = shared_page.egress.attention_head;

	return completion_waits(&shared_page) ||
	       load_acquire(&shared_page.ingress.attention_tail) != at ||
	       load_acquire(&shared_page.ingress.ticks) != ticks_seen;
}

/*
 * Says whether the loop may sleep. Ingress must know that it does before the
 * last look at the rings: the exchange is a full barrier.
 */
static int may_sleep(void)
{
	__u32 sleep = shared_page.egress.sleep;

	if (!sleep || sleep == load_acquire(&shared_page.ingress.rung)) {
		sleep_number += sleep_number + 1 ? 1 : 2; /* never 0 */
		__sync_lock_test_and_set(&shared_page.egress.sleep,
					 sleep_number);
	}
	return !work_waits();
}

#endif
