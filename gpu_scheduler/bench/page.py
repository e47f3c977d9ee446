"""Executors behind a page of their own, driven by page-load."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpu_scheduler import workloads
from gpu_scheduler.cuda.kernels import ROOT
from shared_page import SharedPage, constants

PAGE_LOAD = ROOT / "build/bin/page-load"
_START_S = 60.0
_LOAD_S = 120.0


@contextmanager
def serving(specs: str) -> Iterator[SharedPage]:
    """executor-cuda with these workloads, as a process of its own.

    Raises RuntimeError when it does not get ready or does not leave in order.
    """
    with SharedPage.create_memfd(constants.CONNECTION_COUNT) as page:
        command = [sys.executable, "-m", "gpu_scheduler.cuda"]
        command += ["--page-fd", str(page.fd), "--workloads", specs]
        with subprocess.Popen(command, pass_fds=[page.fd], cwd=ROOT) as process:
            end = time.monotonic() + _START_S
            while page.executor_state != constants.EXECUTOR_READY:
                if process.poll() is not None or time.monotonic() > end:
                    process.kill()
                    raise RuntimeError(f"executor-cuda did not get ready for {specs}")
                time.sleep(0.01)
            try:
                yield page
            finally:
                process.terminate()
            if process.wait():
                raise RuntimeError(f"executor-cuda left with status {process.returncode}")


def load(page: SharedPage, spec: str, in_flight: int, requests: int) -> dict[str, Any]:
    """What page-load says: seconds, wrong results, latencies in ns; and the rate in requests/s.

    Raises RuntimeError when it fails, subprocess.TimeoutExpired when it takes too long.
    """
    with tempfile.TemporaryDirectory() as folder:
        cases = Path(folder) / "cases"
        workloads.write_cases(cases, spec, 256, seed=time.time_ns())
        command = [str(PAGE_LOAD), "--page-fd", str(page.fd), "--cases", str(cases)]
        command += ["--in-flight", str(in_flight), "--requests", str(requests)]
        before = page.counters()["executor"]
        done = subprocess.run(
            command,
            pass_fds=[page.fd],
            check=False,
            capture_output=True,
            text=True,
            timeout=_LOAD_S,
        )
        after = page.counters()["executor"]
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    found: dict[str, Any] = json.loads(done.stdout)
    found["rate"] = round(found["requests"] / found["seconds"])
    launches = after["launches"] - before["launches"]
    found["batch"] = round((after["batched"] - before["batched"]) / max(launches, 1), 2)
    return found
