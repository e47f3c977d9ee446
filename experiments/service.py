"""One service under experiment: started, looked at while it serves, stopped."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from experiments import programs
from experiments.cases import DUE
from experiments.errors import ExperimentError
from experiments.plan import Condition

START_S = 120.0
STOP_S = 15.0
RUNTIME = Path("/run/bpf-gpu-server")


class Service:
    """`bpf-gpu-server serve` from the start of the `with` block, where it already serves, to its
    end, where it has left. `suffix` tells services of one process apart.

    Raises ExperimentError when either does not work.
    """

    def __init__(
        self, transport: str, condition: Condition, log: Path, prefix: Sequence[str] = (),
        suffix: str = "",
    ) -> None:  # fmt: skip
        self.transport, self._log = transport, log
        self.name = f"experiment-{os.getpid()}{suffix}"
        serve = programs.command_line(
            "serve", "--instance", self.name, "--port", "0", "--transport", transport,
            "--workload", condition.workload, "--wake-us", str(condition.wake_us),
            "--wake-policy", condition.wake_policy,
            "--max-connections", str(max(1024, condition.connections)),
            "--slots", str(condition.slots),
        )  # fmt: skip
        self.command = [*prefix, *serve]
        if condition.workload.startswith(DUE):
            self.command += ["--executor", "due"]

    def listen_on(self, address: str) -> Self:
        """On an address that another network namespace reaches, instead of loopback."""
        self.command += ["--bind", address, "--allow-remote"]
        return self

    def __enter__(self) -> Self:
        ready, ready_end = os.pipe()
        try:
            with self._log.open("wb") as log:
                command = [*self.command, "--ready-fd", str(ready_end)]
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    pass_fds=[ready_end], process_group=0,
                )  # fmt: skip
            os.close(ready_end)
            self._wait_ready(ready)
        finally:
            os.close(ready)
        return self

    def _wait_ready(self, ready: int) -> None:
        try:
            readable, _, _ = select.select([ready], [], [], START_S)
            if readable and os.read(ready, 1):
                return
            tried = f"start the service with transport {self.transport}"
            if not readable:
                do = "see its log, and whether the machine is overloaded"
                raise ExperimentError(tried, f"it did not serve after {START_S:g} s", do)
            status = self._process.wait(STOP_S)
            raise programs.failed(tried, self.command, status, self._words())
        except BaseException:
            programs.end(self._process, STOP_S)
            raise

    def state(self) -> dict[str, Any]:
        """What the service says about itself: address, cgroups, processes, the loop's thread."""
        state = json.loads((RUNTIME / self.name / "state.json").read_text())
        assert isinstance(state, dict)
        if not state["cgroups"]["service"]:
            raise ExperimentError(
                "read the service's CPU accounts", "it has no cgroups; see its log",
                "run as root (sudo), where cgroup v2 can be written",
            )  # fmt: skip
        return state

    def wait(self, timeout_s: float) -> None:
        """Until it has left on its own. Raises subprocess.TimeoutExpired."""
        self._process.wait(timeout_s)

    def counters(self) -> str:
        """JSON: the counters on its page, from its start until now. Raises ExperimentError."""
        command = programs.command_line("stats", "--instance", self.name, "--json")
        return programs.output_of(command, "read the counters")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        early = self._process.poll()
        status = programs.end(self._process, STOP_S)
        if early is not None or status:
            what = "keep the service running" if early is not None else "stop the service"
            tried = f"{what} with transport {self.transport}"
            failure = programs.failed(tried, self.command, status, self._words())
            if error is None or early is not None:
                raise failure from error
            error.add_note(failure.render())

    def _words(self) -> str:
        return self._log.read_text(errors="replace")
