"""The load generator as a process: started, seen to send, waited for."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from experiments import programs
from experiments.errors import ExperimentError
from experiments.plan import CLOSED, Condition, Timing

REPLY_S = 10.0  # the last replies may come so late before they count as lost
CONNECT_S = 20.0
LOOK_S = 0.02  # between looks at whether it has begun
WRITE_S = 20.0  # for sorting out its results on a busy machine


@dataclass(frozen=True)
class Server:
    """Whom to send to."""

    address: str
    port: int
    model: str = ""  # of an OpenAI API; none: the project's own protocol


class Generator:
    """Open loop with Poisson arrivals, or a closed loop; every reply compared with the expected
    one.

    Starts with the `with` block, and is ended with it if it still runs.
    """

    def __init__(
        self, condition: Condition, timing: Timing, seed: int, server: Server, cases: Path,
        prefix: Sequence[str] = (), late_us: int = 0, program: Path | None = None,
    ) -> None:  # fmt: skip
        self._timing = timing
        self.clock_ahead_ns = 0  # this machine's clock, of the generator's
        loop = ["--rate", str(condition.rate), "--arrivals", "poisson"]
        loop += ["--late-us", str(late_us)] if late_us else []
        self.command = [
            *prefix, str(program or programs.native_program("load")),
            "--host", server.address, "--port", str(server.port), "--cases", str(cases),
            "--connections", str(condition.connections), "--depth", str(condition.depth),
            *(["--closed"] if condition.rate == CLOSED else loop), "--warmup", str(timing.warmup),
            "--duration", str(timing.measured), "--timeout", str(REPLY_S), "--seed", str(seed),
            *(["--openai", server.model] if server.model else []),
        ]  # fmt: skip

    def write_to(self, folder: Path) -> Self:
        """Adds where the results go: `load.json`, and `records.bin`."""
        self.command += ["--json", str(folder / "load.json")]
        self.command += ["--records", str(folder / "records.bin")]
        return self

    @property
    def client(self) -> int | None:
        """The process whose CPU clock is an account; None where the result alone says what it
        used."""
        return self.pid

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        return self

    def wait_until_sending(self) -> float:
        """Waits until all connections are open, when it starts its threads; gives the time
        (CLOCK_MONOTONIC, s), about 10 ms before its schedule begins. Raises ExperimentError."""
        tasks = Path(f"/proc/{self.pid}/task")
        for _ in range(int(CONNECT_S / LOOK_S)):
            if self.ended(LOOK_S):
                self.finish()
                break
            if len(list(tasks.iterdir())) > 1:
                return time.monotonic()
        raise self.not_begun()

    @staticmethod
    def not_begun() -> ExperimentError:
        """For a load that does not come to sending."""
        return ExperimentError(
            "see the load begin", f"it had not opened its connections after {CONNECT_S:g} s",
            "see service.log, and whether the machine is overloaded",
        )  # fmt: skip

    def finish(self) -> None:
        """Waits for its end. Raises ExperimentError when it could not run; a request that failed
        is a result."""
        limit_s = self._timing.warmup + self._timing.measured + REPLY_S + WRITE_S
        try:
            _, said = self._process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise ExperimentError(
                "wait for the load's end", f"it still ran after {limit_s:g} s",
                "see whether the machine is overloaded, or take a lower --rate",
            ) from None  # fmt: skip
        if self._process.returncode not in (0, 2):  # 2: requests failed, or it could not keep up
            raise programs.failed("run the load", self.command, self._process.returncode, said)

    def ended(self, timeout_s: float) -> bool:
        """Whether it ends within a time. Sleeps meanwhile; Popen.wait() would wake up often."""
        with contextlib.suppress(OSError):  # it is gone already
            pidfd = os.pidfd_open(self.pid)
            try:
                select.select([pidfd], [], [], timeout_s)
            finally:
                os.close(pidfd)
        return self._process.poll() is not None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        programs.end(self._process, 1.0)
        assert self._process.stderr
        self._process.stderr.close()
