"""Child processes that never outlive us."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import IO


class Daemons:
    """Children killed at `stop`, or by the kernel when the thread that started them ends."""

    def __init__(self, log: IO[bytes]) -> None:
        self.log = log
        self.processes: list[subprocess.Popen[bytes]] = []
        self.pidfds: list[int] = []

    def start(self, command: Sequence[str], inherited: Sequence[int]) -> subprocess.Popen[bytes]:
        """Start a child with the descriptors `inherited`; what it prints goes to the log."""
        # setpriv, not a preexec_fn: that would run Python between fork and exec, which can
        # deadlock when the caller has threads.
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,  # the terminal's Ctrl-C is for us, who pass it to the guest
        )
        self.processes.append(process)
        self.pidfds.append(os.pidfd_open(process.pid))
        return process

    def stop(self) -> None:
        """Kill and reap all, the last one first."""
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        for descriptor in self.pidfds:
            os.close(descriptor)
        self.processes, self.pidfds = [], []

    def messages(self) -> str:
        """What they have printed, for a person to read."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace").strip()
