"""Which part of the kernel a stack belongs to: its innermost function that has a layer.

Helpers that everybody calls (locks, copying, memory) have none, so they count for their caller.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

USER = "user code"
UNKNOWN = "unclassified"
IDLE = "idle"

# Layer, and functions as regular expressions of whole names, without the compiler's suffixes. The
# first that fits counts. In the order of a request's way.
_TABLE = {
    "driver, NAPI": r"net_rx_action|(__)?napi_\w+|process_backlog|loopback_xmit|veth_\w+|vxlan_\w+"
    r"|(__)?netif_\w+|enqueue_to_backlog|skb_defer_free_flush|br_\w+|dev_gro_receive"
    r"|eth_type_trans|(__)?virtnet_\w+|__netif_receive_skb\w*|net_tx_action|dev_hard_start_xmit"
    r"|__dev_queue_xmit|validate_xmit_\w+|sch_\w+|netem_\w+|noqueue_\w+|qdisc_\w+|__qdisc_run",
    "IP": r"(__)?ip_(rcv|local|queue|output|finish|protocol|route|build|copy|send|make)\w*"
    r"|__ip_\w+|ipv4_\w+|fib_\w+|nf_\w+|iptable_\w+|ip6_\w+|ipv6_\w+|inet6?_(ehash|lookup)\w*",
    "TCP receive": r"tcp_(v4_|v6_)?(do_)?rcv\w*|tcp_(ack|data|fast_path|queue_rcv|try|event_data"
    r"|clean_rtx|rcv|rack|rearm|sacktag|check_space|grow|measure|parse|validate|urg|send_dupack"
    r"|newly|rate|update_p|cong|in_ack|snd_una|oow|mstamp|rbtree|current_mss|prequeue)\w*"
    r"|__tcp_(ack|select)\w*|tcp_v[46]_\w+|bictcp_\w+|cubictcp_\w+|bbr_\w+|tcp_reno_\w+"
    r"|tcp_filter|tcp_timewait\w*|tcp_child\w*|tcp_early\w*|tcp_ofo\w*|__inet6?_lookup\w*"
    r"|tcp_inbound\w*|tcp_fin|tcp_reset|tcp_check_req",
    "socket read": r"tcp_recvmsg\w*|inet6?_recvmsg|__sys_recvfrom|sock_recvmsg|tcp_cleanup_rbuf"
    r"|__tcp_cleanup_rbuf|tcp_eat_recv_skb|skb_copy_datagram_iter|__skb_datagram_iter|tcp_poll"
    r"|sock_poll|__sys_recvmsg|tcp_read_skb|tcp_read_sock\w*|__x64_sys_recv\w+|sock_read_iter",
    "sockmap, BPF programs": r"bpf_\w*|__bpf_\w+|sk_psock_\w+|sk_skb_\w+|tcp_bpf_\w+|sock_map_\w+"
    r"|sock_hash_\w+|tcp_eat_skb|__cgroup_bpf_\w+|trie_\w+|htab_\w+|array_map_\w+|ringbuf_\w+",
    "io_uring": r"_*io_(?!schedule)\w+|__do_sys_io_uring_\w+|__x64_sys_io_uring_\w+|iou_\w+"
    r"|tctx_task_work\w*",
    "TCP send": r"tcp_(sendmsg|push|write|transmit|send|stream_alloc|skb_entail|established_options"
    r"|wfree|chrono|tso|small_queue|options|release_cb|event_new|schedule_loss|pacing|init_tso"
    r"|tx_timestamp|skb_collapse|remove_empty|rate_skb|current|cwnd|wmem|snd)\w*|__tcp_\w+"
    r"|inet6?_sendmsg|__sys_sendto|__sys_sendmsg|sock_sendmsg|__sock_sendmsg|__x64_sys_send\w+"
    r"|skb_do_copy_data\w*|sock_write_iter|sk_stream_\w+|sk_page_frag\w*",
    "epoll": r"ep_\w+|do_epoll_\w+|__x64_sys_epoll_\w+|__do_sys_epoll_\w+|eventpoll_\w+"
    r"|epoll_\w+|__ep_\w+",
    # sock_def_*() wake up with interrupts off, so samples of that are found at its end.
    "scheduling, wake-ups": r"sock_def_\w+|(__)?schedule(?!_hrtimeout|_timeout)\w*"
    r"|try_to_wake_up|ttwu_\w+"
    r"|__wake_up\w*|wake_up_\w+|autoremove_wake_function|default_wake_function|finish_task_switch"
    r"|enqueue_task\w*|dequeue_(task|entity|entities)\w*|enqueue_entity|pick_\w+|__pick_\w+"
    r"|select_(task_rq|idle)\w*|update_(curr|load_avg|rq_clock|cfs_\w+|se|min_\w+|entity_\w+)\w*"
    r"|place_entity|reweight_\w+|set_next_\w+|put_prev_\w+|switch_\w+|__switch_to\w*"
    r"|sched_(?!clock)\w+|resched_\w+|check_preempt\w*|wakeup_preempt\w*|prepare_task_switch"
    r"|futex_\w+|do_futex|__x64_sys_(futex|sched_yield)|psi_\w+|dl_\w+|cpuacct_\w+|__calc_delta"
    r"|avg_vruntime|vruntime_\w+|swake_\w+|complete\w*|newidle_\w+|sched_balance_\w+|kick_\w+"
    r"|irq_work_\w+|arch_irq_work_\w+|arch_send_\w+|native_(smp_)?send_\w+|default_send_IPI\w*"
    r"|sysvec_(reschedule_ipi|irq_work|call_function\w*)|tick_nohz_(idle|stop|restart|next)\w*"
    r"|update_blocked\w*|rcu_note_context_switch|hrtick_\w+|call_function_single\w*",
    "timers": r"_*hrtimer_\w+|schedule_(hr)?timeout\w*|timerqueue_\w+|tick_\w+|clockevents_\w+"
    r"|(native_|lapic_|apic_)?\w*_deadline|lapic_\w+|sysvec_apic_timer_interrupt|_*mod_timer"
    r"|add_timer\w*|_*run_timer\w*|call_timer_fn|timer_\w+|_*timer_delete\w*|del_timer\w*"
    r"|lock_timer_base|sk_reset_timer|sk_stop_timer|update_process_times|calc_wheel_index"
    r"|enqueue_timer|get_nohz_timer_target|internal_add_timer|detach_if_pending|timekeeping_\w+"
    r"|update_wall_time|__x64_sys_(clock_)?nanosleep|common_nsleep|do_nanosleep|rb_(insert|erase)\w*"
    r"|timerlat_\w+|ktime_get_update_offsets_now|__note_gp_\w+|task_tick_\w+|account_\w+",
    "softirq, interrupts": r"_*handle_softirqs|do_softirq\w*|_*irq_(enter|exit)\w*|__do_softirq"
    r"|run_ksoftirqd|smpboot_thread_fn|sysvec_\w+|common_interrupt|handle_\w*irq\w*"
    r"|__local_bh_enable_ip|asm_\w*interrupt|rcu_core\w*|tasklet_\w+",
    "system-call entry": r"entry_SYSCALL_\w+|do_syscall_64|x64_sys_call|syscall_\w+"
    r"|entry_SYSRETQ\w*|exit_to_user_mode\w*|__x64_sys_\w+|__do_sys_\w+|fdget\w*|__fdget\w*|fput\w*"
    r"|sockfd_lookup\w*|arch_exit_to_\w+|vfs_\w+|ksys_\w+|new_sync_\w+",
    "page faults, memory": r"handle_mm_fault|do_anonymous_page|do_user_addr_fault"
    r"|khugepaged\w*|kswapd\w*|exc_\w+|asm_exc_\w+",
}
LAYERS = (USER, *_TABLE, UNKNOWN)
_PATTERNS = {layer: re.compile(pattern) for layer, pattern in _TABLE.items()}
_IDLE = {"do_idle", "cpu_idle_poll"}
_WORKING_IDLE = {"handle_softirqs", "sysvec_apic_timer_interrupt", "schedule_idle"}


@functools.cache
def layer_of(function: str) -> str | None:
    """The layer of one function; None for those that count for their caller."""
    name = function.partition(".")[0]
    return next((layer for layer, one in _PATTERNS.items() if one.fullmatch(name)), None)


def classify(stack: Sequence[str], user: bool) -> str:
    """The layer of a stack of function names, innermost first; `user`: it was in user mode."""
    if user:
        return USER
    return next(filter(None, map(layer_of, stack)), UNKNOWN)


def rests(stack: Sequence[str]) -> bool:
    """Whether the idle task did nothing for anybody: no softirq, no interrupt, no switch."""
    return not _IDLE.isdisjoint(stack) and _WORKING_IDLE.isdisjoint(stack)
