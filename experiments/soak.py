"""How much of a CPU is left: a process that only counts, and only when nothing else wants to run.

Idle time in /proc/stat is sampled, and interrupts of an idle CPU are charged to nobody. What a
counter could not count meanwhile was used, whoever it was charged to.
"""

from __future__ import annotations

import mmap
import os
import signal
import time
from itertools import count
from types import TracebackType
from typing import Self

SETTLE_S = 0.05


class Soak:
    """Counts from the start of the `with` block to its end, on one CPU's lowest priority."""

    def __init__(self) -> None:
        self._counted = mmap.mmap(-1, 8)  # shared with the child
        self._words = memoryview(self._counted).cast("Q")

    def __enter__(self) -> Self:
        self._pid = os.fork()
        if not self._pid:
            try:
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
                for number in count():
                    self._words[0] = number
            finally:
                os._exit(1)
        time.sleep(SETTLE_S)
        return self

    @property
    def counted(self) -> int:
        """So far."""
        return self._words[0]

    def rate(self, seconds: float) -> float:
        """Counts a second, over a time in which the caller sleeps."""
        before, began = self._words[0], time.monotonic()
        time.sleep(seconds)
        return (self._words[0] - before) / (time.monotonic() - began)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._words.release()
        self._counted.close()
