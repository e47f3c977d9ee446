/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Time limits of requests and frames: see shared_page/deadlines.h. Ingress's
 * timer ticks while requests are in flight, a time-out of the ring while
 * connections are watched.
 */
#ifndef BPF_OVERDUE_H
#define BPF_OVERDUE_H

#include "connection.h"
#include "wake.h"

static __u8 frame_tick_armed;

/* After a tick: looks at the next slots. */
static void requests_look(void)
{
	__u32 ticks = load_acquire(&shared_page.ingress.ticks);
	__u32 index = 0;
	__u32 i;

	if (ticks == ticks_seen)
		return;
	ticks_seen = ticks;
	bpf_for (i, 0, HAND_SLOTS) {
		if (hand_move(&shared_page, &index))
			connection_ready(index);
	}
}

static void frame_tick_arm(struct ring *ring)
{
	struct io_uring_sqe *sqe;

	if (frame_tick_armed || !frames_watched(&shared_page) ||
	    !(scratch.frame_tick[0] | scratch.frame_tick[1]))
		return;
	sqe = sqe_next(ring, IORING_OP_TIMEOUT, tag(OP_FRAME_TICK, 0));
	sqe->addr = SCRATCH_ADDRESS(frame_tick);
	sqe->len = 1;
	frame_tick_armed = 1;
}

static void frames_look(void)
{
	__u32 index = 0;
	__u32 i;

	frame_tick_armed = 0;
	shared_page.egress.frame_ticks++;
	bpf_for (i, 0, CONNECTION_COUNT) {
		if (!frame_turn(&shared_page, &index))
			break;
		connection_ready(index);
	}
}

#endif
