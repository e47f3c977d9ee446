// SPDX-License-Identifier: GPL-2.0
/*
 * Ingress: a connection of the service's port gets an entry on the page when
 * it is established, and each of its segments is cut into requests there, in
 * softirq, before any process knows of it. No user space takes part.
 *
 * There is no stream parser: the verdict program sees raw segments and keeps
 * the state of a half-received frame in the connection's entry, so nothing is
 * cloned, no message has a hidden offset and no parser can stall.
 */
#include "kernel.h"
#include <asm/socket.h>
#include <linux/in.h>
#include <linux/tcp.h>
#include <linux/time.h>

static inline int copy_bytes(void *skb, __u32 offset, void *to, __u32 length)
{
	return bpf_skb_load_bytes(skb, offset, to, length);
}

#include "shared_page/egress.h"
#include "shared_page/ingress.h"

/* A section of its own: libbpf makes it a map that can be mmapped. */
struct shared_page shared_page SEC(".bss.page");

/*
 * Set by the loader: the service's port in host order; how long a result may
 * stand before somebody looks; a tick of the hand that finds overdue requests
 * (0: none); whether frames have a time limit.
 */
const volatile __u32 service_port = 0;
const volatile __u64 wake_ns = 60000;
const volatile __u64 tick_ns = 0;
const volatile __u32 watches_frames = 0;

struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, CONNECTION_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} sockets SEC(".maps");

/*
 * Wakes a loop that sleeps: the ring polls this map. Records are of no
 * interest, so they overwrite each other.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_RB_OVERWRITE);
} doorbell SEC(".maps");

/*
 * A result announces itself to nobody, so a timer looks for it while any is to
 * come. It runs in softirq and wakes the loop only when there is one: a look
 * costs a fraction of what waking a thread for nothing does.
 */
struct look_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct look_timer);
} look_timers SEC(".maps");

static const __u32 the_timer = 0;

/* mark = generation << 12 | index; the generation outlives the entry's use */
static __u32 mark_of(__u32 index)
{
	return shared_page.connection[index & CONNECTION_MASK]
			       .ingress.generation
		       << CONNECTION_BITS |
	       (index & CONNECTION_MASK);
}

SEC("sockops")
int establish(struct bpf_sock_ops *ops)
{
	__u32 index, mark;
	int on = 1;

	if (ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB ||
	    ops->local_port != service_port)
		return 1;
	/* Without an entry or a mark the loop refuses it after accept. */
	if (!connection_open(&shared_page, &index))
		return 1;
	index &= CONNECTION_MASK;
	mark = mark_of(index);
	bpf_setsockopt(ops, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	bpf_setsockopt(ops, SOL_SOCKET, SO_MARK, &mark, sizeof(mark));
	if (bpf_sock_map_update(ops, &sockets, &index, BPF_ANY)) {
		/* Its bytes would reach nobody: the loop closes it. */
		shared_add(&shared_page.ingress.insert_failures, 1);
		shared_page.connection[index].ingress.closing = INGRESS_CLOSING;
	}
	return 1;
}

/* Once a sleep; two CPUs at the same moment ring twice, which does no harm. */
static void ring_doorbell(void)
{
	__u32 sleep = load_acquire(&shared_page.egress.sleep);
	__u64 *record;

	/* Ordered after what it is rung for by an atomic of the caller. */
	if (!sleep || sleep == shared_page.ingress.rung)
		return;
	store_release(&shared_page.ingress.rung, sleep);
	record = bpf_ringbuf_reserve(&doorbell, sizeof(*record), 0);
	if (!record)
		return;
	shared_add(&shared_page.ingress.doorbells, 1);
	bpf_ringbuf_discard(record, BPF_RB_FORCE_WAKEUP);
}

static __u64 ticked_ns;

/* Time for egress to look for overdue requests. */
static int tick(__u64 now)
{
	if (!tick_ns || now - ticked_ns < tick_ns)
		return 0;
	ticked_ns = now;
	shared_add(&shared_page.ingress.ticks, 1);
	return 1;
}

static void look_again(struct look_timer *at, __u64 now)
{
	if (wake_adapts(&shared_page))
		bpf_timer_start(&at->timer, wake_plan(&shared_page, now),
				BPF_F_TIMER_ABS);
	else
		bpf_timer_start(&at->timer, wake_ns, 0);
}

/*
 * Nothing is to come: the timer may stop. The exchange is a full barrier;
 * admit() has one between the same two words.
 */
static int may_stop(__u64 now)
{
	if (results_to_come(&shared_page, now))
		return 0;
	shared_page.wake.next_ns = 0;
	__sync_lock_test_and_set(&shared_page.ingress.timer_armed, 0);
	return !results_to_come(&shared_page, now) ||
	       !shared_swap(&shared_page.ingress.timer_armed, 0, 1);
}

static int look(void *map, __u32 *key, struct look_timer *at)
{
	__u64 now = bpf_ktime_get_ns();
	int stops;

	shared_add(&shared_page.ingress.timer_looks, 1);
	if (wake_adapts(&shared_page))
		wake_learn(&shared_page, now);
	stops = may_stop(now);
	/* Last: nobody else rings for a result that came until then. */
	if (tick(now) | completion_waits(&shared_page))
		ring_doorbell();
	if (!stops)
		look_again(at, now);
	return 0;
}

/* Runs once, before the first connection. */
SEC("syscall")
int prepare(void *unused)
{
	struct look_timer *at = bpf_map_lookup_elem(&look_timers, &the_timer);

	if (!at)
		return -1;
	if (bpf_timer_init(&at->timer, &look_timers, CLOCK_MONOTONIC))
		return -1;
	return bpf_timer_set_callback(&at->timer, look);
}

/*
 * One timer for all: whoever finds it idle starts it, and under the adaptive
 * policy who needs it sooner starts it anew.
 */
static void timer_arm(__u32 sooner)
{
	__u64 planned = shared_page.wake.next_ns;
	struct look_timer *at;

	if ((load_acquire(&shared_page.ingress.timer_armed) ||
	     !shared_swap(&shared_page.ingress.timer_armed, 0, 1)) &&
	    !sooner)
		return;
	at = bpf_map_lookup_elem(&look_timers, &the_timer);
	if (!at ||
	    (planned ? bpf_timer_start(&at->timer, planned, BPF_F_TIMER_ABS)
		     : bpf_timer_start(&at->timer, wake_ns, 0)))
		store_release(&shared_page.ingress.timer_armed, 0);
}

SEC("sk_skb/verdict")
int admit(struct __sk_buff *skb)
{
	struct tcp_sock *tcp;
	__u32 mark, index, result;

	if (!skb->sk)
		return SK_DROP;
	tcp = bpf_skc_to_tcp_sock(skb->sk);
	if (!tcp)
		return SK_DROP;
	mark = tcp->inet_conn.icsk_inet.sk.sk_mark;
	index = mark & CONNECTION_MASK;
	if (!mark || mark != mark_of(index)) {
		shared_add(&shared_page.ingress.stale_segments, 1);
		return SK_DROP;
	}
	result = frames_admit(&shared_page, index, skb, skb->len);
	if (result & ADMITTED_REQUEST)
		timer_arm(result & ADMITTED_SOONER);
	if (watches_frames && frame_unwatched(&shared_page, index))
		result |= ADMITTED_REPLY;
	if (result & ADMITTED_REPLY) {
		attention_post(&shared_page, index);
		ring_doorbell();
	}
	/* Dropping consumes: the window reopens, nothing is queued (6.14). */
	return SK_DROP;
}

char LICENSE[] SEC("license") = "GPL";
