/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's interface for a BPF program that is an io_uring's loop
 * (io_uring/bpf-ops.c, io_uring/loop.h of Linux 7.3; 7.2 is the same). 7.1
 * names the context's type differently, which the type check refuses; `doctor`
 * reports such a kernel.
 */
#ifndef BPF_IO_URING_BPF_H
#define BPF_IO_URING_BPF_H

#include "kernel.h"

struct iou_ctx {
};

struct iou_loop_params {
	__u32 cq_wait_idx; /* the CQ tail to sleep for */
} core_type;

struct io_uring_bpf_ops {
	int (*loop_step)(struct iou_ctx *ctx, struct iou_loop_params *params);
	__u32 ring_fd;
	void *priv;
};

enum iou_region {
	IOU_REGION_MEM = 0,
	IOU_REGION_CQ = 1,
	IOU_REGION_SQ = 2,
};

enum iou_loop {
	IOU_LOOP_CONTINUE = 0,
	IOU_LOOP_STOP = 1,
};

/* include/linux/socket.h, net.h: not in the UAPI headers */
enum socket_flags {
	MSG_DONTWAIT = 0x40,
	MSG_WAITALL = 0x100,
	MSG_NOSIGNAL = 0x4000,
};

/*
 * Linux 6.7: io_uring/cmd_net.c; the fields of the SQE that it reads. Headers
 * of that version have SOCKET_URING_OP_GETSOCKOPT, those of Debian 12 do not.
 */
enum { SOCKET_OP_GETSOCKOPT = 2 };

struct getsockopt_sqe {
	__u8 opcode;
	__u8 flags;
	__u16 ioprio;
	__s32 fd;
	__u32 cmd_op;
	__u32 pad0;
	__u32 level;
	__u32 optname;
	__u32 len;
	__u32 uring_cmd_flags;
	__u64 user_data;
	__u16 buf_index;
	__u16 personality;
	__u32 optlen;
	__u64 optval;
	__u64 pad1;
};

/* struct user_msghdr and struct iovec, as SENDMSG reads them */
struct send_buffer {
	__u64 base;
	__u64 length;
};

struct send_message {
	__u64 name;
	__u32 name_length;
	__u32 pad0;
	__u64 buffers;
	__u64 buffer_count;
	__u64 control;
	__u64 control_length;
	__u32 flags;
	__u32 pad1;
};

extern int bpf_io_uring_submit_sqes(struct iou_ctx *ctx, __u32 count) __ksym;
extern __u8 *bpf_io_uring_get_region(struct iou_ctx *ctx, __u32 region_id,
				     const __u64 rdwr_buf_size) __ksym;

#endif
