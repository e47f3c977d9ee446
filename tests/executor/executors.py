"""The executors under test. Another one conforms when its row in EXECUTORS passes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_scheduler.cuda.device import NO_GPU, gpu_present
from shared_page import SharedPage, constants

from .driver import PATIENCE_S, ROOT, wait_until


@dataclass(frozen=True)
class Program:
    """How an executor is started: the command line before --page-fd.

    `missing` says why it cannot serve on this machine; it still reads its command line.
    """

    command: tuple[str, ...]
    missing: str = ""


EXECUTORS: Mapping[str, Program] = {
    "cpu": Program((str(ROOT / "build/bin/executor-cpu"),)),
    "cuda": Program((sys.executable, "-m", "gpu_scheduler.cuda"), "" if gpu_present() else NO_GPU),
}


class Executor:
    """A running executor; `stop()`, or `kill()`, or the fixture ends it."""

    def __init__(self, program: Program, page: SharedPage, workloads: str, *options: str) -> None:
        self.page = page
        self._heartbeat = page.struct.executor.heartbeat
        command = [*program.command, "--page-fd", str(page.fd), "--workloads", workloads, *options]
        self.process = subprocess.Popen(
            command, pass_fds=[page.fd], stderr=subprocess.PIPE, text=True
        )

    def ready(self) -> Executor:
        """Waits until it serves."""
        wait_until(self._serves, "the executor to be ready")
        return self

    def _serves(self) -> bool:
        assert self.process.poll() is None, f"it left: {self.errors()}"
        executor = self.page.struct.executor
        return bool(
            executor.heartbeat > self._heartbeat and executor.state == constants.EXECUTOR_READY
        )

    def errors(self) -> str:
        """What it wrote to stderr, once it has left."""
        assert self.process.stderr
        return self.process.stderr.read()

    def terminate(self) -> int:
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL, in the middle of whatever it does."""
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        assert self.process.stderr
        self.process.stderr.close()


def refusal(program: Program, *options: str, fd: int | None = None) -> str:
    """What it says on stderr when it refuses to start; the test fails when it starts."""
    command = [*program.command, *options]
    passed = [] if fd is None else [fd]
    result = subprocess.run(
        command, check=False, pass_fds=passed, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert result.returncode == 1, result
    assert result.stderr.count("\n") == 1, "one message"
    return result.stderr
