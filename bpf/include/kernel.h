/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the programs need of the kernel beyond Debian 12's UAPI headers (6.1):
 * types relocated at load (CO-RE), kfuncs, newer constants. Every difference
 * between kernels is kept here.
 */
#ifndef BPF_KERNEL_H
#define BPF_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define core_type __attribute__((preserve_access_index))

/* Open-coded iterators: Linux 6.4; bpf_for() came with libbpf 1.3. */
#ifndef bpf_for
struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

#define bpf_for(i, start, end)                                                 \
	for (struct bpf_iter_num it_                                           \
	     __attribute__((cleanup(bpf_iter_num_destroy))),                   \
	     *once_ __attribute__((unused)) =                                  \
		     (bpf_iter_num_new(&it_, (start), (end)), (void *)0);      \
	     ({                                                                \
		     int *next_ = bpf_iter_num_next(&it_);                     \
		     next_ && ((i) = *next_, (i) >= (start) && (i) < (end));   \
	     });)
#endif

/* The mark is the connection's name for ingress, see docs/page.md. */
struct sock {
	__u32 sk_mark;
} core_type;

struct inet_sock {
	struct sock sk;
} core_type;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
} core_type;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
} core_type;

/* include/uapi/linux/bpf.h, Linux 6.4 */
#define BPF_F_TIMER_ABS (1ULL << 0)

/* include/uapi/linux/bpf.h, Linux 6.19 */
#ifndef BPF_F_RB_OVERWRITE
#define BPF_F_RB_OVERWRITE (1U << 19)
#endif

#endif
