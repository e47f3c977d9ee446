"""How many system calls threads make: perf events on the tracepoint raw_syscalls/sys_enter.

The kernel counts by itself, a counter a thread. While any is open, every system call of the machine
takes the slow way in (SYSCALL_WORK_SYSCALL_TRACEPOINT is set for all tasks), a fifth of a short
call's cost: so nothing else is measured meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from experiments.errors import ExperimentError
from experiments.perf_events import open_event, refused

_TRACEPOINT = 2  # PERF_TYPE_TRACEPOINT
_INHERIT = 1 << 1  # threads that these start are counted too
_WHAT = "count system calls"
_TRACEFS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))


def threads_of(pids: Iterable[int]) -> dict[int, str]:
    """Names of all threads of some processes, by thread id, but for those that just end."""
    found = {}
    for pid in pids:
        for task in Path("/proc").glob(f"{pid}/task/*"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found[int(task.name)] = (task / "comm").read_text().strip()
    return found


def unknown() -> str:
    """Why this machine cannot count them; nothing where it can."""
    try:
        _tracepoint_id()
    except ExperimentError as error:
        return error.said
    return ""


class SystemCalls:
    """Counts while the `with` block runs, and keeps the counts: `{thread id: calls}`."""

    def __init__(self, tids: Iterable[int]) -> None:
        self._tids = list(tids)
        self._fds: dict[int, int] = {}
        self.counts: dict[int, int] = {}

    def __enter__(self) -> Self:
        event = _tracepoint_id() if self._tids else 0
        try:
            for tid in self._tids:
                try:
                    self._fds[tid] = _open_counter(event, tid)
                except ExperimentError:
                    if Path(f"/proc/{tid}").exists():
                        raise
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for tid, fd in self._fds.items():
            (self.counts[tid],) = struct.unpack("<Q", os.read(fd, 8))
        self._close()

    def _close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


def _tracepoint_id() -> int:
    for tracefs in _TRACEFS:
        file = tracefs / "events/raw_syscalls/sys_enter/id"
        try:
            return int(file.read_text())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise refused(_WHAT, f"{file}", error.errno or 0) from None
    raise ExperimentError(
        _WHAT,
        "ENOENT: no events/raw_syscalls in " + " or ".join(map(str, _TRACEFS)),
        "mount tracefs: `mount -t tracefs none /sys/kernel/tracing`",
    )


def _open_counter(event: int, tid: int) -> int:
    # struct perf_event_attr, its first version: type, size, config, sample_period, sample_type,
    # read_format, flags, wakeup_events, bp_type, config1.
    attributes = struct.pack("<IIQQQQQIIQ", _TRACEPOINT, 64, event, 0, 0, 0, _INHERIT, 0, 0, 0)
    return open_event(attributes, tid, -1, _WHAT)
