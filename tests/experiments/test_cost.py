"""Where CPU time goes: samples, their layers, and what is made of them."""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path

import pytest

from experiments import bcc
from experiments.cost import events, flame, layers, page, shares
from experiments.cost.events import EVENTS, GROUPS, program
from experiments.cost.runs import Asked
from experiments.cost.samples import Sample, Sampler, records
from experiments.cost.symbols import Symbols
from experiments.errors import ExperimentError
from loader import cli

pytestmark = pytest.mark.beside

CALL = ("entry_SYSCALL_64_after_hwframe", "do_syscall_64")
SEND = (*CALL, "__x64_sys_sendto", "__sys_sendto", "tcp_sendmsg", "tcp_sendmsg_locked",
        "__tcp_push_pending_frames", "tcp_write_xmit", "__tcp_transmit_skb")  # fmt: skip
WIRE = (*SEND, "__ip_queue_xmit", "ip_output", "ip_finish_output2", "__dev_queue_xmit")
RECEIVE = (*WIRE, "__local_bh_enable_ip", "do_softirq.part.0", "handle_softirqs", "net_rx_action",
           "__napi_poll", "process_backlog", "__netif_receive_skb_one_core",
           "ip_local_deliver", "ip_protocol_deliver_rcu", "tcp_v4_rcv")  # fmt: skip
DATA = (*RECEIVE, "tcp_v4_do_rcv", "tcp_rcv_established")
POLL = (*CALL, "__x64_sys_epoll_pwait2", "do_epoll_wait")
LOOP = (*CALL, "__do_sys_io_uring_enter", "io_run_loop", "bpf__io_uring_bpf_ops_loop_step",
        "bpf_prog_d6546325fd3506af_BPF_loop_step")  # fmt: skip
IDLE = ("common_startup_64", "cpu_startup_entry", "do_idle", "default_idle_call")
LOOK = (*IDLE, "asm_sysvec_apic_timer_interrupt", "sysvec_apic_timer_interrupt",
        "__irq_exit_rcu", "handle_softirqs", "hrtimer_run_softirq", "__hrtimer_run_queues",
        "bpf_timer_cb", "bpf_prog_8f19528a6f2bb7b8_look")  # fmt: skip

# As Linux 7.3.4 showed them, outermost first: group, stack; whose, direction, layer.
SEEN = [
    ("service", CALL, "server", "between", "system-call entry"),
    ("service", (*CALL, "fdget"), "server", "between", "system-call entry"),
    ("service", (*POLL, "ep_send_events"), "server", "between", "epoll"),
    ("service", (*POLL, "schedule_hrtimeout_range_clock", "schedule", "__schedule",
                 "finish_task_switch.isra.0"), "server", "between", "scheduling, wake-ups"),
    ("service", (*POLL, "schedule_hrtimeout_range_clock", "hrtimer_start_range_ns"),
     "server", "between", "timers"),
    ("service", (*CALL, "__sys_recvfrom", "tcp_recvmsg", "__skb_datagram_iter", "_copy_to_iter"),
     "server", "receive", "socket read"),
    ("service", (*SEND, "__alloc_skb", "memset"), "server", "send", "TCP send"),
    ("service", WIRE, "server", "send", "driver, NAPI"),
    ("service", WIRE[:-1], "server", "send", "IP"),
    ("service", DATA, "client", "receive", "TCP receive"),
    ("client", DATA, "server", "receive", "TCP receive"),
    ("client", RECEIVE[:-2], "server", "receive", "IP"),
    ("client", RECEIVE[:-3], "server", "receive", "driver, NAPI"),
    ("client", (*DATA, "sock_def_readable", "_raw_spin_unlock_irqrestore"),
     "server", "between", "scheduling, wake-ups"),
    ("client", (*DATA, "sk_psock_verdict_data_ready", "bpf_prog_7a4020f7eb51844e_admit",
                "bpf_skb_load_bytes"), "server", "receive", "sockmap, BPF programs"),
    ("client", (*POLL, "ep_poll"), "client", "between", "epoll"),
    ("service", LOOP, "server", "send", "sockmap, BPF programs"),
    ("service", (*LOOP, "bpf_io_uring_submit_sqes", "io_submit_sqes", "memset"),
     "server", "send", "io_uring"),
    ("idle", LOOK, "server", "between", "sockmap, BPF programs"),
    ("other", ("ret_from_fork_asm", "kthread"), "other", "between", layers.UNKNOWN),
]  # fmt: skip


def innermost_first(stack: tuple[str, ...]) -> list[str]:
    return list(reversed(stack))


@pytest.mark.parametrize(("group", "stack", "whose", "way", "layer"), SEEN)
def test_a_stack_has_a_place(
    group: str, stack: tuple[str, ...], whose: str, way: str, layer: str
) -> None:
    names = innermost_first(stack)
    assert not layers.rests(names)
    assert layers.classify(names, user=False) == layer
    assert (shares.side(group, names), shares.direction(layer, names)) == (whose, way)


def test_every_layer_of_the_table_is_shown_by_an_example() -> None:
    rare = {layers.USER, "softirq, interrupts", "page faults, memory"}
    assert {layer for *_, layer in SEEN} | rare == set(layers.LAYERS)


def test_an_idle_cpu_is_nobodys() -> None:
    assert layers.rests(innermost_first((*IDLE, "default_idle", "pv_native_safe_halt")))
    assert layers.classify([], user=True) == layers.USER


def test_samples_add_up() -> None:
    stacks = [[group, False, innermost_first(stack), 10] for group, stack, *_ in SEEN]
    stacks += [["service", True, [], 3], ["idle", False, innermost_first(IDLE), 1000]]
    parts, busy, idle = shares.sort_stacks(stacks)
    assert (sum(busy.values()), idle) == (10 * len(SEEN) + 3, 10)
    assert sum(shares.total(ways) for ways in parts.values()) == 10 * len(SEEN) + 3  # type: ignore[arg-type]
    assert parts["server"]["between"][layers.USER] == 3
    assert shares.unclassified(parts) == 0
    parts["server"]["between"][layers.UNKNOWN] = shares.total({"all": parts["server"]["send"]})
    assert 0 < shares.unclassified(parts) < 0.5
    accounts = {
        "sampled": {"service": 55.0, "client": 25.0},
        "plain": {"service": 50.0, "client": 24.0},
    }
    made = shares.sums({"service": 50, "client": 24, "other": 26, "idle": 7}, 1.0, accounts)
    assert made == {"service": (50 / 55, 1.0), "client": (0.96, 1.0)}


def test_a_switch_to_an_idle_cpu_is_of_the_one_before() -> None:
    switch = [*reversed((*IDLE[:-1], "schedule_idle", "__schedule", "finish_task_switch.isra.0"))]
    look = innermost_first(LOOK)
    stacks = [["idle", False, switch, 8], ["idle", False, look, 5], ["client", True, [], 1]]
    given = list(shares.apportion(stacks, {"service": 3, "client": 1, "other": 0}))
    assert [(row[0], row[3]) for row in given if row[3]] == [
        ("service", 6), ("client", 2), ("idle", 5), ("client", 1),
    ]  # fmt: skip
    assert [row[3] for row in shares.apportion(stacks, {"service": 0})] == [8, 5, 1]
    parts, busy, _ = shares.sort_stacks(given)
    assert parts["server"]["between"]["scheduling, wake-ups"] == 6
    assert (busy["service"], busy["client"]) == (6, 3)


def test_what_does_not_add_up_is_said() -> None:
    summary = {"sums": {"service": (1.04, 1.06), "client": (0.9, 0.96)}, "unclassified": 0.01,
               "accounts": {"service": 60.0, "client": 40.0}, "tool": {"sampled": 9.0}}  # fmt: skip
    assert shares.problems({"bpf": summary}) == []
    for wrong in ({"sums": {"client": (1.06, 1.1)}}, {"sums": {"client": (0.8, 0.94)}},
                  {"tool": {"sampled": 11.0}}, {"unclassified": 0.03}):  # fmt: skip
        assert len(shares.problems({"bpf": summary | wrong})) == 1


def test_a_flame_graph_has_every_frame_at_its_width() -> None:
    stacks = [["service", False, innermost_first(SEND), 30], ["client", True, [], 10]]
    root = flame.tree(stacks)
    assert root.samples == 40
    server = root.callees["for the server"]
    assert server.samples == 30
    assert root.callees["for the client"].callees[layers.USER].samples == 10
    svg = flame.render(stacks, "a <title>")
    assert "a &lt;title&gt;" in svg
    assert f'width="{30 / 40 * flame.WIDTH:.1f}"' in svg
    assert "<title>__tcp_transmit_skb, TCP send: 75.0%</title>" in svg


def test_names_of_addresses() -> None:
    symbols = Symbols(["ffff00 T one", "ffff40 D data", "ffff80 t two", "c0 t bpf_prog_x [bpf]"])
    assert [symbols.name(at) for at in (0xFFFF00, 0xFFFF7F, 0xFFFF90, 0xC1, 1)] == [
        "one", "one", "two", "bpf_prog_x", "0x1",
    ]  # fmt: skip
    with pytest.raises(ExperimentError, match="kptr_restrict"):
        Symbols(["0 T one", "0 T two"])


def sample(misc: int, *stack: int) -> bytes:
    body = struct.pack("<QIIQ", 1, 7, 8, len(stack)) + struct.pack(f"<{len(stack)}Q", *stack)
    return struct.pack("<IHH", 9, misc, 8 + len(body)) + body


def test_records_of_the_kernel() -> None:
    mark = 2**64 - 128  # PERF_CONTEXT_KERNEL
    other = struct.pack("<IHHQ", 14, 0, 16, 0)  # a kind of record that nobody asked for
    data = sample(1, mark, 5, 6) + other + sample(2)
    assert list(records(data)) == [Sample(7, 8, False, (5, 6)), Sample(7, 8, True, ())]
    with pytest.raises(ExperimentError, match="left samples out"):
        list(records(data + struct.pack("<IHHQQ", 2, 0, 24, 0, 9)))


def test_this_kernel_is_sampled() -> None:
    """A process that asks the kernel for its CPU time is found in user mode and in that call."""
    with Sampler(500_000) as sampler:
        sampler.start()
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        sampler.stop()
        ours = [one for one in sampler.samples() if one.pid == os.getpid()]
    assert any(one.user for one in ours)
    symbols = Symbols()
    called = {symbols.name(address) for one in ours for address in one.stack}
    assert "do_syscall_64" in called


def test_the_programs_count_every_event() -> None:
    text = program()
    assert f"BPF_ARRAY(counts, u64, {len(EVENTS) * len(GROUPS)})" in text
    for number, (_, kind, name) in enumerate(EVENTS):
        begins = {"function": f"KFUNC_PROBE({name})", "tracepoint": f"int on_{name}(",
                  "switch": f"(struct tracepoint__sched__{name} *"}  # fmt: skip
        assert begins[kind] in text
        assert f"count({number});" in text


def test_a_machine_without_bcc_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bcc, "DEBIAN_PACKAGES", "/nowhere")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "bcc", None)
    with pytest.raises(ExperimentError) as caught:
        events.Events()
    assert caught.value.do == "apt-get install python3-bpfcc"


def test_a_picture_has_every_layer_once_for_each_transport() -> None:
    parts = {side: {way: {} for way in shares.DIRECTIONS} for side in shares.SIDES}
    parts["server"]["receive"] = {"IP": 300.0, "TCP receive": 100.0}
    summary = {
        "parts": parts, "accounts": {"service": 300.0, "client": 100.0}, "idle": 0.0,
        "tool": {"sampled": 1.0, "counted": 1.0}, "samples": 7, "unclassified": 0.0,
        "sums": {"service": (0.97, 1.01), "client": (0.97, 1.01)},
        "events": {"wake-ups": {"service": 1.0, "client": 2.0, "other": 0.0}},
    }  # fmt: skip
    facts = dict.fromkeys(("date", "kernel", "where", "unit"), "x")
    facts |= {"cpus": 1, "rate": 5000.0, "connections": 128}
    html = page.render({"epoll": summary, "bpf": summary}, {"bpf": "<svg></svg>"}, facts)
    assert html.count('">IP: 300, 75.0%</div>') == 2
    assert html.count(f"height: {page.PIXELS * 3 // 4}px") == 2
    assert "<svg></svg>" in html
    assert "1.00 + 2.00 + 0.00" in html


def test_a_report_without_raw_data_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["cost", "--again", "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: could not read the raw data in {tmp_path}/raw\n")
    assert "--again" in error
    (tmp_path / "mine").touch()
    assert cli.run(["cost", "--transport", "epoll", "--out", str(tmp_path)]) == 1
    assert "it has other files in it" in capsys.readouterr().err
    assert (tmp_path / "mine").exists()


def test_what_is_asked_survives_its_file(tmp_path: Path) -> None:
    asked = Asked(("bpf",), 200.0, 3, 0.5, exact=True)
    asked.write(tmp_path)
    assert Asked.read(tmp_path) == asked
    assert (asked.condition.rate, asked.condition.connections) == (200.0, 3)
    assert asked.timing.measured > 2 * asked.seconds
    assert asked.expected_s() > asked.timing.measured
