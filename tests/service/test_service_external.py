"""`serve --executor external`: somebody else computes, and the page is all they have in common."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.service.service import ECHO, ROOT, Service, instance_name, traces

Start = Callable[..., Service]
PATIENCE_S = 60.0


def waiting(instance: str) -> dict[str, Any]:
    """The state of a service that waits for its executor."""
    file = Path("/run/bpf-gpu-server", instance, "state.json")
    end = time.monotonic() + PATIENCE_S
    while not file.exists():
        assert time.monotonic() < end, "no state file"
        time.sleep(0.01)
    state = json.loads(file.read_text())
    assert isinstance(state, dict)
    return state


def run_executor(instance: str) -> int:
    """On the page of that service, until it has left; its exit status."""
    page = os.open(waiting(instance)["page"], os.O_RDWR)
    command = [ROOT / "build/bin/executor-cpu", "--page-fd", str(page), "--workloads", ECHO]
    try:
        return subprocess.run(command, pass_fds=[page], timeout=PATIENCE_S, check=False).returncode
    finally:
        os.close(page)


def test_serves_with_it_and_asks_it_to_leave(start: Start, root: None) -> None:
    name = instance_name()
    with ThreadPoolExecutor() as threads:
        executor = threads.submit(run_executor, name)
        service = start("--executor", "external", instance=name).require_ready()
        assert service.ask(b"payload").payload == b"payload"
        assert "executor" not in service.state["processes"]
        assert service.end() == 0, service.output()
        assert executor.result(PATIENCE_S) == 0
    assert not traces(name)


def test_a_signal_ends_the_waiting_for_it(start: Start, root: None) -> None:
    name = instance_name()
    with ThreadPoolExecutor() as threads:
        threads.submit(lambda: os.kill(waiting(name)["supervisor"]["pid"], signal.SIGTERM))
        service = start("--executor", "external", instance=name)
    assert service.process.wait(PATIENCE_S) == 0, service.output()
    assert not service.ready_line
    assert not traces(name)
