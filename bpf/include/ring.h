/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ring from inside the loop program: SQEs are written and CQEs read in the
 * kernel's own mapping of the ring. IORING_SETUP_NO_SQARRAY: the SQE at
 * tail & mask is the one submitted.
 */
#ifndef BPF_RING_H
#define BPF_RING_H

#include "io_uring_bpf.h"
#include <linux/io_uring.h>
#include "shared_page/memory_order.h"

/*
 * Set by the loader from io_uring_params, before load: the verifier takes them
 * for constants, which the size argument of get_region has to be.
 */
const volatile __u32 sq_entries = 1;
const volatile __u32 cq_entries = 1;
const volatile __u32 sq_tail_offset = 0;
const volatile __u32 cq_head_offset = 0;
const volatile __u32 cq_tail_offset = 0;
const volatile __u32 cqes_offset = 0;
const volatile __u32 ring_bytes = 1;
const volatile __u32 sqes_bytes = 1;

struct ring {
	struct iou_ctx *ctx;
	__u8 *rings; /* heads, tails, CQEs */
	__u8 *sqes;
};

/* Ours alone: the program is the only producer and the only consumer. */
static __u32 sq_tail;
static __u32 sq_queued;
static __u32 cq_head;

static int ring_map(struct ring *ring, struct iou_ctx *ctx)
{
	ring->ctx = ctx;
	ring->rings = bpf_io_uring_get_region(ctx, IOU_REGION_CQ, ring_bytes);
	ring->sqes = bpf_io_uring_get_region(ctx, IOU_REGION_SQ, sqes_bytes);
	return ring->rings && ring->sqes ? 0 : -1;
}

/* SQEs that the loop makes for one completion or one connection, at most. */
#define SQES_AT_A_TIME 3

static void ring_submit(struct ring *ring)
{
	int submitted;

	if (!sq_queued)
		return;
	store_release((__u32 *)(ring->rings + sq_tail_offset), sq_tail);
	submitted = bpf_io_uring_submit_sqes(ring->ctx, sq_queued);
	/* What was not taken (no memory) is submitted with the next ones. */
	if (submitted > 0)
		sq_queued -= submitted;
}

/*
 * Makes room for what comes next. Returns 0 when the kernel takes no SQEs now:
 * what would make more of them waits for the next step.
 */
static int ring_room(struct ring *ring)
{
	if (sq_queued + SQES_AT_A_TIME > sq_entries)
		ring_submit(ring);
	return sq_queued + SQES_AT_A_TIME <= sq_entries;
}

/* A zeroed SQE (newer kernels refuse stale fields), for which there is room. */
static struct io_uring_sqe *sqe_next(struct ring *ring, __u8 opcode,
				     __u64 user_data)
{
	__u32 place = sq_tail & (sq_entries - 1);
	struct io_uring_sqe *sqe;

	sqe = (struct io_uring_sqe *)(ring->sqes + place * sizeof(*sqe));
	__builtin_memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = opcode;
	sqe->user_data = user_data;
	sq_tail++;
	sq_queued++;
	shared_page.egress.submissions++;
	return sqe;
}

/* Copies the next CQE and gives its place back. Returns 0 when none is there.
 */
static int cqe_take(struct ring *ring, struct io_uring_cqe *cqe)
{
	__u32 head = cq_head;
	struct io_uring_cqe *at;

	if (head == load_acquire((__u32 *)(ring->rings + cq_tail_offset)))
		return 0;
	at = (struct io_uring_cqe *)(ring->rings + cqes_offset +
				     (head & (cq_entries - 1)) * sizeof(*at));
	cqe->user_data = at->user_data;
	cqe->res = at->res;
	cqe->flags = at->flags;
	cq_head = head + 1;
	store_release((__u32 *)(ring->rings + cq_head_offset), head + 1);
	return 1;
}

#endif
