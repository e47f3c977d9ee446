"""Signals that ask the supervisor to stop, as a descriptor to wait for."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from types import FrameType, TracebackType
from typing import Self

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _noted(number: int, frame: FrameType | None) -> None:
    """The wake-up descriptor has it already."""


class StopSignal:
    """While entered, SIGTERM, SIGINT and SIGHUP raise nothing and make `fd` readable.

    A signal that was ignored when the program started (nohup, a shell's background job) stays so.
    """

    def __enter__(self) -> Self:
        self.fd, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before = {
            number: signal.signal(number, _noted)
            for number in STOPPING
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self.fd)
        os.close(self._writer)

    def take(self) -> bool:
        """Whether a signal came since the last call."""
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self.fd, 64))
        return False

    def wait(self, *fds: int, timeout_s: float | None = None) -> set[int]:
        """Which of these descriptors, and of `fd`, are readable; empty after `timeout_s`."""
        poll = select.poll()
        for fd in {self.fd, *fds}:
            poll.register(fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)}
