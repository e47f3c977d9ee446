"""Samples of kernel stacks on all CPUs at a steady pace: perf events on the software CPU clock.

No hardware counter is needed, so it works in a VM. The clock is an hrtimer, whose interrupt waits
where interrupts are off: such time is found at the place where they come on again, which is within
the same layer, mostly.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from experiments.closing import Closing
from experiments.errors import ExperimentError
from experiments.perf_events import open_event

WHAT = "sample what the CPUs do"
RING_PAGES = 1 << 12  # of a CPU: some 50,000 stacks
PAGE = mmap.PAGESIZE

# include/uapi/linux/perf_event.h
_SOFTWARE, _CPU_CLOCK = 1, 0
_SAMPLE_TYPE = 1 << 0 | 1 << 1 | 1 << 5  # IP, TID, CALLCHAIN
_DISABLED, _NO_USER_STACK = 1 << 0, 1 << 22  # exclude_callchain_user
_ENABLE, _DISABLE = 0x2400, 0x2401
_LOST, _THROTTLE, _SAMPLE = 2, 5, 9
_DATA_HEAD = 1024  # in struct perf_event_mmap_page
_USER_MODE = 2  # PERF_RECORD_MISC_USER
_CONTEXT = 2**64 - 4096  # addresses from here on are marks between parts of a stack
_SAMPLE_HEADER = struct.Struct("<QIIQ")  # instruction pointer, process, thread, addresses


@dataclass(frozen=True)
class Sample:
    """What a CPU did at a moment. `stack`: kernel addresses, innermost first; none in user mode."""

    pid: int  # 0: the idle task
    tid: int
    user: bool
    stack: tuple[int, ...]


class Sampler(Closing):
    """Open on every CPU; samples between `start` and `stop`, every `period_ns`.

    Raises ExperimentError when the kernel refuses.
    """

    def __init__(self, period_ns: int) -> None:
        # type, size, config, period, sample type, read format, flags, wake-up, breakpoint; the
        # kernel takes the first version's size.
        attributes = struct.pack(
            "<IIQQQQQIIQ", _SOFTWARE, 64, _CPU_CLOCK, period_ns, _SAMPLE_TYPE, 0,
            _DISABLED | _NO_USER_STACK, 0, 0, 0,
        )  # fmt: skip
        self._rings: dict[int, mmap.mmap] = {}
        try:
            for cpu in sorted(os.sched_getaffinity(0)):
                fd = open_event(attributes, -1, cpu, WHAT)
                try:
                    self._rings[fd] = mmap.mmap(fd, (1 + RING_PAGES) * PAGE)
                except OSError:
                    os.close(fd)
                    raise
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Begins on all CPUs."""
        for fd in self._rings:
            fcntl.ioctl(fd, _ENABLE, 0)

    def stop(self) -> None:
        """Ends on all CPUs; what was sampled stays."""
        for fd in self._rings:
            fcntl.ioctl(fd, _DISABLE, 0)

    def samples(self) -> Counter[Sample]:
        """All so far, and how often each. Raises ExperimentError when some were lost."""
        found: Counter[Sample] = Counter()
        for ring in self._rings.values():
            (head,) = struct.unpack_from("<Q", ring, _DATA_HEAD)
            found.update(records(ring[PAGE : PAGE + head]))
        return found

    def close(self) -> None:
        """Gives the rings back."""
        for fd, ring in self._rings.items():
            ring.close()
            os.close(fd)
        self._rings.clear()


def records(data: bytes) -> Iterator[Sample]:
    """The samples in a ring that has not wrapped. Raises ExperimentError when some were lost."""
    at = 0
    while at < len(data):
        kind, misc, size = struct.unpack_from("<IHH", data, at)
        if kind in (_LOST, _THROTTLE):
            raise ExperimentError(WHAT, "the kernel left samples out", "take fewer --samples")
        if kind == _SAMPLE:
            _, pid, tid, depth = _SAMPLE_HEADER.unpack_from(data, at + 8)
            stack = struct.unpack_from(f"<{depth}Q", data, at + 8 + _SAMPLE_HEADER.size)
            user = misc & 7 == _USER_MODE
            yield Sample(pid, tid, user, tuple(ip for ip in stack if ip < _CONTEXT))
        at += size
