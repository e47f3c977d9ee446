// SPDX-License-Identifier: GPL-2.0
/*
 * The loop: accepts connections, notices results, sends replies, reclaims. It
 * runs inside io_uring_enter() of one thread that does nothing else; its work
 * is proportional to what changed since the last step, and it sleeps until a
 * completion or the doorbell says that something did.
 */
#include "kernel.h"
#include "shared_page/layout.h"

/* Ingress's map, reused by the loader. */
struct shared_page shared_page SEC(".bss.page");

#include "close.h"
#include "overdue.h"
#include "send.h"
#include "wake.h"
#include <asm/errno.h>

enum step_limits {
	/* Bounds of one step; what is left over is the next step's. */
	STEP_COMPLETIONS = 1024,
	STEP_NOTICES = 1024,
	STEP_ATTENTION = 1024,
	STEP_ROUNDS = 4,
};

const volatile __u32 listener_file = 0; /* fixed */
const volatile __s32 doorbell_fd = -1;
const volatile __s32 stop_fd = -1;

static __u8 started;
static __u8 accept_armed;
static __u8 finished;

static void accept_arm(struct ring *ring)
{
	struct io_uring_sqe *sqe;

	if (accept_armed || shared_page.egress.draining)
		return;
	sqe = sqe_next(ring, IORING_OP_ACCEPT, tag(OP_ACCEPT, 0));
	sqe->fd = listener_file;
	sqe->flags = IOSQE_FIXED_FILE;
	sqe->ioprio = IORING_ACCEPT_MULTISHOT;
	sqe->file_index = IORING_FILE_INDEX_ALLOC;
	accept_armed = 1;
}

/* User space has shut the listener; each connection ends as soon as nothing is
 * owed to it. */
static void drain_begin(struct ring *ring)
{
	struct io_uring_sqe *sqe;
	__u32 i;

	if (shared_page.egress.draining)
		return;
	shared_page.egress.draining = 1;
	sqe = sqe_next(ring, IORING_OP_TIMEOUT, tag(OP_DEADLINE, 0));
	sqe->addr = SCRATCH_ADDRESS(drain);
	sqe->len = 1;
	bpf_for (i, 0, CONNECTION_COUNT)
		connection_ready(i);
}

/* The deadline of the drain has passed: whatever is open is given up. */
static void drain_expire(void)
{
	__u32 i;

	finished = 1;
	bpf_for (i, 0, CONNECTION_COUNT) {
		if (!(state[i & CONNECTION_MASK].flags & CONNECTION_USED))
			continue;
		state[i & CONNECTION_MASK].flags |= CONNECTION_GONE;
		connection_ready(i);
	}
}

static void accepted(struct ring *ring, struct io_uring_cqe *cqe)
{
	struct io_uring_sqe *sqe;

	if (!(cqe->flags & IORING_CQE_F_MORE))
		accept_armed = 0;
	if (cqe->res >= 0) {
		mark_ask(ring, cqe->res);
		accept_arm(ring);
		return;
	}
	/* Out of files or memory: at once would be over and over. */
	shared_page.egress.accept_failures++;
	if (accept_armed || shared_page.egress.draining)
		return;
	sqe = sqe_next(ring, IORING_OP_TIMEOUT, tag(OP_RETRY, 0));
	sqe->addr = SCRATCH_ADDRESS(retry);
	sqe->len = 1;
}

static void send_done(__u32 index, __s32 result)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];

	c->flags &= ~CONNECTION_SENDING;
	if (result == -EAGAIN && !(c->flags & CONNECTION_BLOCKED))
		c->flags |= CONNECTION_BLOCKED;
	else if (result < 0)
		c->flags |= CONNECTION_GONE; /* or the time limit: ECANCELED */
	else
		parts_sent(index, result);
}

static void poll_done(struct ring *ring, __u32 index, __s32 events)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];

	c->flags &= ~CONNECTION_POLLING;
	if (events < 0 || events & (POLLERR | POLLHUP))
		c->flags |= CONNECTION_GONE;
	else if (!(c->flags & CONNECTION_ENDING))
		ingress_kick(ring, index);
}

static void kick_done(__u32 index, __s32 result)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];

	if (result == 0)
		c->flags |= CONNECTION_ENDED;
	else if (result != -EAGAIN)
		c->flags |= CONNECTION_GONE;
	/* EAGAIN: ingress has seen all that came, and no FIN yet. */
}

/* A completion of a connection's socket. */
static void connection_done(struct ring *ring, __u8 operation, __u32 index,
			    __s32 result)
{
	state[index & CONNECTION_MASK].pending--;
	if (operation == OP_SEND)
		send_done(index, result);
	else if (operation == OP_POLL)
		poll_done(ring, index, result);
	else if (operation == OP_KICK)
		kick_done(index, result);
	connection_ready(index);
}

/* The peer did not end its side in time after an error reply. */
static void linger_expire(__u64 user_data)
{
	__u32 index = (__u32)user_data & CONNECTION_MASK;
	struct connection_state *c = &state[index];

	if (user_data != tag(OP_LINGER, index) ||
	    !(c->flags & CONNECTION_LINGERS))
		return;
	c->flags |= CONNECTION_GONE;
	connection_ready(index);
}

static void completion_handle(struct ring *ring, struct io_uring_cqe *cqe)
{
	__u8 operation = cqe->user_data >> 56;
	__u32 index = cqe->user_data;

	switch (operation) {
	case OP_ACCEPT:
		accepted(ring, cqe);
		break;
	case OP_MARK:
		connection_adopt(ring, index, cqe->res);
		break;
	case OP_SEND:
	case OP_POLL:
	case OP_KICK:
	case OP_SEND_LIMIT:
	case OP_CANCEL:
		connection_done(ring, operation, index & CONNECTION_MASK,
				cqe->res);
		break;
	case OP_LINGER:
		linger_expire(cqe->user_data);
		break;
	case OP_CLOSE:
		connection_closed(index);
		break;
	case OP_RETRY:
		accept_arm(ring);
		break;
	case OP_FRAME_TICK:
		frames_look();
		break;
	case OP_DOORBELL:
		shared_page.egress.doorbell_wakes++;
		if (!(cqe->flags & IORING_CQE_F_MORE))
			poll_arm(ring, doorbell_fd, OP_DOORBELL,
				 IORING_POLL_ADD_MULTI);
		break;
	case OP_STOP:
		drain_begin(ring);
		break;
	case OP_DEADLINE:
		drain_expire();
		break;
	}
}

static void start(struct ring *ring)
{
	started = 1;
	accept_arm(ring);
	poll_arm(ring, doorbell_fd, OP_DOORBELL, IORING_POLL_ADD_MULTI);
	poll_arm(ring, stop_fd, OP_STOP, 0);
}

static void completions_reap(struct ring *ring)
{
	__u32 i;

	bpf_for (i, 0, STEP_COMPLETIONS) {
		struct io_uring_cqe cqe;

		if (!ring_room(ring) || !cqe_take(ring, &cqe))
			break;
		completion_handle(ring, &cqe);
	}
}

static void notices_take(struct ring *ring)
{
	__u32 index;
	__u32 i;

	bpf_for (i, 0, STEP_NOTICES) {
		if (!completion_take(&shared_page, &index))
			break;
		connection_ready(index);
	}
	bpf_for (i, 0, STEP_ATTENTION) {
		if (!attention_take(&shared_page, &index))
			break;
		connection_ready(index);
	}
	requests_look();
	if (ring_room(ring))
		frame_tick_arm(ring);
}

/* Nothing is owed to the connection: decides whether it goes on. */
static void connection_settled(struct ring *ring, __u32 index)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];

	if (c->flags & CONNECTION_ENDED || shared_page.egress.draining)
		connection_end(ring, index);
	else if (connection_closing(&shared_page, index))
		connection_linger(ring, index);
}

/* Sends what can be sent; ends the connection if nothing is left to do. */
static void connection_pump(struct ring *ring, __u32 index)
{
	struct connection_state *c = &state[index & CONNECTION_MASK];

	if (c->flags & CONNECTION_GONE)
		connection_end(ring, index);
	if (c->flags & CONNECTION_ENDING) {
		connection_close(ring, index);
		return;
	}
	if (c->flags & CONNECTION_SENDING)
		return;
	if (c->parts || parts_collect(index))
		parts_send(ring, index);
	else if (replies_settled(&shared_page, index))
		connection_settled(ring, index);
	if (c->flags & CONNECTION_ENDING)
		connection_close(ring, index);
}

static void connections_pump(struct ring *ring)
{
	__u32 i;

	bpf_for (i, 0, CONNECTION_COUNT) {
		__u32 index;

		if (ready_head == ready_tail || !ring_room(ring))
			break;
		index = ready[ready_head & CONNECTION_MASK] & CONNECTION_MASK;
		ready_head++;
		state[index].flags &= ~CONNECTION_READY;
		connection_pump(ring, index);
	}
}

SEC("struct_ops.s/loop_step")
int BPF_loop_step(unsigned long long *context)
{
	struct iou_ctx *ctx = (struct iou_ctx *)context[0];
	struct iou_loop_params *params = (struct iou_loop_params *)context[1];
	struct ring ring;
	__u32 round, sleeps;

	if (ring_map(&ring, ctx))
		return IOU_LOOP_STOP;
	shared_page.egress.steps++;
	if (!started)
		start(&ring);
	connections_release();
	/* Most sends complete while they are submitted: reap them at once. */
	bpf_for (round, 0, STEP_ROUNDS) {
		completions_reap(&ring);
		notices_take(&ring);
		connections_pump(&ring);
		if (!sq_queued)
			break;
		ring_submit(&ring);
	}
	if (shared_page.egress.draining && (!open_connections || finished))
		return IOU_LOOP_STOP;
	/* With something left to do at once, the next step comes at once. */
	sleeps = !sq_queued && closed_head == closed_tail && !refused &&
		 may_sleep();
	refused = 0;
	params->cq_wait_idx = cq_head + sleeps;
	return IOU_LOOP_CONTINUE;
}

SEC(".struct_ops.link")
struct io_uring_bpf_ops loop = {
	.loop_step = (void *)BPF_loop_step,
};

char LICENSE[] SEC("license") = "GPL";
