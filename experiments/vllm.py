"""vLLM under experiment: started with its defaults, looked at while it serves, ended."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from experiments import cgroups, llm, programs
from experiments.errors import ExperimentError
from experiments.plan import Condition

PROGRAM = "BPF_GPU_SERVER_VLLM"  # in the environment: another program than `vllm` of PATH
HOST = "127.0.0.1"
START_S = 900.0  # the first time it fetches a model and compiles kernels
STOP_S = 30.0
LOOK_S, LOOK_TIMEOUT_S = 0.2, 5.0
# It is in its cgroup before its first instruction, and ends with whoever started it.
_STARTED = ("setpriv", "--pdeathsig", "TERM", "sh", "-c", 'echo 0 >"$0" && exec "$@"')


def program() -> str:
    """Path of vLLM's program. Raises ExperimentError where it is not installed."""
    named = os.environ.get(PROGRAM, "vllm")
    if found := shutil.which(named):
        return found
    raise ExperimentError(
        "find vLLM for the arm vllm", f"there is no program {named} on PATH",
        "install it where a GPU is (`pip install vllm`, in an environment of its own), and put its "
        f"folder on PATH or its path in {PROGRAM}; or remove vllm from transports",
    )  # fmt: skip


class Vllm:
    """`vllm serve MODEL`, from the start of the `with` block, where it already serves, to its end,
    where it has left with all its processes. What experiments.service.Service has, it has too.

    All its processes are one account, the service's: what serves HTTP and what drives the GPU are
    not apart in every version. Raises ExperimentError when it does not start or leaves early.
    """

    def __init__(self, condition: Condition, log: Path, prefix: Sequence[str] = ()) -> None:
        self.model, self._log = llm.parse(condition.workload).model, log
        self.port = free_port()
        self.command = [*prefix, program(), "serve", self.model,
                        "--host", HOST, "--port", str(self.port)]  # fmt: skip

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._groups = stack.enter_context(cgroups.groups("bpf-gpu-server-vllm"))
            members = str(self._groups[0] / "cgroup.procs")
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*_STARTED, members, *self.command], stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, process_group=0,
                )  # fmt: skip
            stack.callback(programs.end, self._process, STOP_S)
            self._wait_healthy()
            self._version = json.loads(self._get("/version") or b"{}")
            self._stack = stack.pop_all()
        return self

    def _wait_healthy(self) -> None:
        deadline = time.monotonic() + START_S
        while self._get("/health") is None:
            self._check_runs("start vLLM")
            if time.monotonic() > deadline:
                do = "see service.log; fetch the model before"
                raise ExperimentError("start vLLM", f"it did not serve after {START_S:g} s", do)
            time.sleep(LOOK_S)

    def _check_runs(self, tried: str) -> None:
        status = self._process.poll()
        if status is not None:
            words = self._log.read_text(errors="replace")
            raise programs.failed(tried, self.command, status, words)

    def _get(self, path: str) -> bytes | None:
        try:
            status, body = llm.call(f"{HOST}:{self.port}", path, None, LOOK_TIMEOUT_S)
        except (OSError, HTTPException):  # it is not there yet
            return None
        return body if status == HTTPStatus.OK else None

    def state(self) -> dict[str, Any]:
        """Port, cgroups, and the process that was started."""
        service, executor = map(str, self._groups)
        return {
            "port": self.port,
            "cgroups": {"service": service, "executor": executor},
            "supervisor": {"pid": self._process.pid},
        }

    def counters(self) -> str:
        """JSON: no counters, since it has no page, but what ran."""
        settings = {name: of for name, of in os.environ.items() if name.startswith("VLLM_")}
        return json.dumps({"counters": {}, "vllm": self._version, "environment": settings})

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            self._check_runs("keep vLLM running")


def free_port() -> int:
    """One that nobody listens on now; vLLM takes no other's."""
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])
