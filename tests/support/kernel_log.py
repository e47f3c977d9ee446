"""The kernel's log from a moment on: what it says while a test runs votes on the test."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from vm.kernel_log import kernel_log_faults

RECORD_MAX = 8192  # PRINTK_MESSAGE_MAX is less


class KernelLog:
    """Follows /dev/kmsg. Where it cannot be read (no root, a container) it has no faults."""

    def __init__(self, device: Path = Path("/dev/kmsg")) -> None:
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)

    def faults(self) -> list[str]:
        """Lines since the last call that mean that the kernel found something wrong."""
        return kernel_log_faults("\n".join(self._lines()))

    def _lines(self) -> list[str]:
        lines: list[str] = []
        while self._fd >= 0:
            try:
                record = os.read(self._fd, RECORD_MAX).decode(errors="replace")
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # the ring overwrote what came next; the following read goes on after it
            if not record:
                break
            # "level,sequence,time,flags;text\n KEY=value\n..."
            lines.append(record.partition(";")[2].partition("\n")[0])
        return lines

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fd >= 0:
            os.close(self._fd)
