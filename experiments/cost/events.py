"""How often things happen for a request: BCC programs on raw tracepoints and function entries.

BCC compiles them against the kernel's headers. They include none of the network's, which its
compiler rejects since Linux 7.3: counting needs only who runs, and whom a switch goes to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from experiments import bcc

TO_IDLE = "switches to an idle CPU"
# Title, how, and where: raw tracepoints, the one tracepoint that is read, and functions by fentry.
EVENTS = (
    ("system calls", "tracepoint", "sys_enter"),
    ("switches of a thread", "tracepoint", "sched_switch"),
    (TO_IDLE, "switch", "sched_switch"),
    ("wake-ups", "tracepoint", "sched_waking"),
    ("softirqs", "tracepoint", "softirq_entry"),
    ("NAPI polls", "tracepoint", "napi_poll"),
    ("timers that went off", "tracepoint", "hrtimer_expire_entry"),
    ("io_uring completions", "tracepoint", "io_uring_complete"),
    ("packets sent", "tracepoint", "net_dev_xmit"),
    ("segments received", "function", "tcp_v4_rcv"),
    ("TCP sends", "function", "tcp_sendmsg"),
    ("TCP reads", "function", "tcp_recvmsg"),
    ("sockmap verdicts", "function", "sk_psock_verdict_recv"),
)
GROUPS = ("other", "service", "client")
MOST_PROCESSES = 64
_PROGRAM = """
BPF_HASH(groups, u32, u32, %d);
BPF_ARRAY(counts, u64, %d);
static void count(int event)
{
    u32 process = bpf_get_current_pid_tgid() >> 32;
    u32 *group = groups.lookup(&process);
    counts.atomic_increment(event * %d + (group ? *group : 0));
}
"""
_KFUNC = b"kfunc__vmlinux__"  # what KFUNC_PROBE puts before the name
_BODIES = {
    "tracepoint": "int on_%s(void *context) {{ count({}); return 0; }}\n",
    "switch": """
int to_idle(struct tracepoint__sched__%s *args)
{{
    if (!args->next_pid)
        count({});
    return 0;
}}
""",
    "function": "KFUNC_PROBE(%s) {{ count({}); return 0; }}\n",
}


def program() -> str:
    """The text that BCC compiles."""
    text = _PROGRAM % (MOST_PROCESSES, len(EVENTS) * len(GROUPS), len(GROUPS))
    for number, (_, kind, name) in enumerate(EVENTS):
        text += (_BODIES[kind] % name).format(number)
    return text


class Events:
    """Compiled once; counts while attached. Raises ExperimentError where BCC does not work."""

    def __init__(self) -> None:
        self._bpf = bcc.compiled(program(), "count events with BCC")  # attaches functions at once
        self._detach_functions()

    def attach(self, groups: Mapping[str, Iterable[int]]) -> None:
        """Counts from now on, by the group of the process that runs; others are `other`."""
        table = self._bpf[b"groups"]
        for name, pids in groups.items():
            for pid in pids:
                table[ctypes.c_uint32(pid)] = ctypes.c_uint32(GROUPS.index(name))
        for _, kind, name in EVENTS:
            if kind == "tracepoint":
                self._bpf.attach_raw_tracepoint(tp=name.encode(), fn_name=f"on_{name}".encode())
            elif kind == "switch":
                self._bpf.attach_tracepoint(tp=f"sched:{name}".encode(), fn_name=b"to_idle")
            else:
                self._bpf.attach_kfunc(fn_name=_KFUNC + name.encode())

    def detach(self) -> None:
        """Counts no more."""
        for _, kind, name in EVENTS:
            if kind == "tracepoint":
                self._bpf.detach_raw_tracepoint(tp=name.encode())
            elif kind == "switch":
                self._bpf.detach_tracepoint(tp=f"sched:{name}".encode())
        self._detach_functions()

    def counts(self) -> dict[str, dict[str, int]]:
        """By event and group, so far."""
        values = [int(value.value) for value in self._bpf[b"counts"].values()]
        rows = (values[at : at + len(GROUPS)] for at in range(0, len(values), len(GROUPS)))
        return {
            title: dict(zip(GROUPS, row, strict=True))
            for (title, _, _), row in zip(EVENTS, rows, strict=True)
        }

    def _detach_functions(self) -> None:
        for _, kind, name in EVENTS:
            if kind == "function":
                self._bpf.detach_kfunc(fn_name=_KFUNC + name.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bpf.cleanup()
