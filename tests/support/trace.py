# SPDX-License-Identifier: MIT
"""What the kernel's tracepoints saw."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

TRACEFS = Path("/sys/kernel/tracing")


class Events:
    """Those of one tracepoint, since the block began."""

    def __init__(self, instance: Path) -> None:
        self._instance = instance

    def count(self) -> int:
        lines = (self._instance / "trace").read_text().splitlines()
        return sum(not line.startswith("#") for line in lines)


@contextlib.contextmanager
def traced(event: str) -> Iterator[Events]:
    """`subsystem/name`, in a trace instance of its own, which the block's end removes."""
    if not (TRACEFS / "instances").exists():
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACEFS], check=True)
    instance = TRACEFS / "instances" / f"test-{os.getpid()}"
    instance.mkdir()
    enable = instance / "events" / event / "enable"
    try:
        enable.write_text("1")
        yield Events(instance)
        enable.write_text("0")
    finally:
        instance.rmdir()
