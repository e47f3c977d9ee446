"""What a VM costs its host, read on the host.

The guest does not see all that its CPUs do: it charges interrupts of an idle CPU to nobody. On the
host a virtual CPU is a thread, and its run time has everything, and nothing of the time in which it
only waited for a CPU of the host. It also has the emulator's own work.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from experiments.accounts import process_clock

READINGS = "hypervisor.json"  # in a run's folder, one for each reading of the accounts
_NAME = b"qemu-system"


class Hypervisor:
    """The CPU time of the QEMU that some process started, once there is one."""

    def __init__(self, ancestor: int) -> None:
        self._ancestor = ancestor
        self._pid: int | None = None

    def cpu_us(self) -> float | None:
        """µs of all its threads since it started; None where there is no QEMU."""
        if self._pid is None:
            self._pid = next(_named(self._ancestor), None)
        try:
            return time.clock_gettime_ns(process_clock(self._pid)) / 1e3 if self._pid else None
        except OSError:
            return None


def keep(folder: Path, readings: list[float]) -> None:
    """Into a run's folder, which the VM has made."""
    (folder / READINGS).write_text(json.dumps(readings) + "\n")


def kept(folder: Path) -> list[float]:
    """Those of a run; none of one that was in no VM. Raises OSError or ValueError."""
    file = folder / READINGS
    readings: list[float] = json.loads(file.read_text()) if file.exists() else []
    return readings


def _named(ancestor: int) -> Iterator[int]:
    for pid in descendants(ancestor):
        try:
            # Not its name in comm: it may have been started through a dynamic linker.
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(os.path.basename(word).startswith(_NAME) for word in words):
                yield pid
        except OSError:
            continue  # it has just ended


def descendants(ancestor: int) -> Iterator[int]:
    """Processes that a process started, that these started, and so on."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # Field 4; the second, the name in brackets, may have spaces and brackets itself.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    waiting = children.get(ancestor, [])
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children.get(pid, [])
