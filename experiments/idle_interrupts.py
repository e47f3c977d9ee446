"""What interrupts and softirqs of idle CPUs take, which the kernel charges to no task.

A BCC program on the tracepoints at both ends of them adds up the time between, while the CPU's task
is the idle one. It costs some hundred instructions an interrupt, so it runs in the warm-up, like
the counting of system calls, and what it found of a second there stands for the measured seconds.
Its own time is partly in that: the figure is an upper bound of what the tracepoints enclose. What
entering and leaving the idle loop costs is outside of them.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Self

from experiments import bcc
from experiments.closing import Closing
from experiments.errors import ExperimentError

_WHAT = "time interrupts of idle CPUs"
# The last ones are x86's vectors without a device. All follow each other, or are nested.
_NAMES = ("irq_handler", "softirq", "local_timer", "reschedule", "call_function",
          "call_function_single", "irq_work")  # fmt: skip
_PROGRAM = """
struct idle { u64 since, total_ns; u32 depth; };
BPF_PERCPU_ARRAY(idles, struct idle, 1);
static struct idle *of_idle_task(void)
{
    int first = 0;
    return (u32)bpf_get_current_pid_tgid() ? 0 : idles.lookup(&first);
}
static void enter(void)
{
    struct idle *idle = of_idle_task();
    if (idle && idle->depth++ == 0)
        idle->since = bpf_ktime_get_ns();
}
static void leave(void)
{
    struct idle *idle = of_idle_task();
    u64 now = bpf_ktime_get_ns(), since = idle ? idle->since : 0;
    if (idle && idle->depth && --idle->depth == 0)
        idle->total_ns += now - since;
}
"""
# A program each, for one that is interrupted would not run again for what interrupts it, and an end
# that is missed leaves the depth wrong for good. None of these can be interrupted by its own like.
_PROGRAMS = """
int on_%s_entry(void *context) { enter(); return 0; }
int on_%s_exit(void *context) { leave(); return 0; }
"""

Json = dict[str, Any]


def program() -> str:
    """The text that BCC compiles."""
    return _PROGRAM + "".join(_PROGRAMS % (name, name) for name in _NAMES)


class IdleInterrupts(Closing):
    """Compiled once; times while a `with` block runs. Where that cannot be had it does nothing, and
    `unknown` says why."""

    def __init__(self) -> None:
        self._bpf: Any = None
        self.unknown = ""
        try:
            self._bpf = bcc.compiled(program(), _WHAT)
        except ExperimentError as error:
            self.unknown = error.said

    def __enter__(self) -> Self:
        if not self.unknown:
            self._bpf[b"idles"].clear()  # one that was interrupted half-way is forgotten
            try:
                for end in ("exit", "entry"):
                    for name in _NAMES:
                        point = f"{name}_{end}"
                        self._bpf.attach_raw_tracepoint(
                            tp=point.encode(), fn_name=f"on_{point}".encode()
                        )
            except Exception as error:  # BCC raises Exception itself
                self._detach()
                self.unknown = f"{error}"
        self.start()
        return self

    def start(self) -> None:
        """The time to look at begins now."""
        self._began, self._before = time.monotonic(), self.us()

    def found(self) -> Json:
        """`seconds` since start(), and `us` of CPU in them, of all CPUs; or why it is `unknown`."""
        if self.unknown:
            return {"unknown": self.unknown}
        return {"seconds": time.monotonic() - self._began, "us": self.us() - self._before}

    def us(self, cpu: int | None = None) -> float:
        """µs so far, of a CPU or of all; 0 where it is unknown."""
        if self.unknown:
            return 0.0
        (idles,) = self._bpf[b"idles"].values()  # a row for each CPU
        return sum(int(idle.total_ns) for idle in (idles if cpu is None else [idles[cpu]])) / 1e3

    def _detach(self) -> None:
        for end in ("entry", "exit"):
            for name in _NAMES:
                with contextlib.suppress(Exception):  # it was not attached
                    self._bpf.detach_raw_tracepoint(tp=f"{name}_{end}".encode())

    def close(self) -> None:
        """Takes the programs off."""
        if not self.unknown:
            self._detach()
