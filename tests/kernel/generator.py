# SPDX-License-Identifier: MIT
"""The load generator on a service of the tests: every reply is checked."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from gpu_scheduler.workloads import write_cases
from tests.support.service import ROOT, Service

GEMM = "gemm:m=4,k=16,n=15,work=1"
LIMIT_S = 300


class Load:
    """A running generator; `result` waits for it."""

    def __init__(self, service: Service, *options: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        cases = Path(self._folder.name) / "cases"
        write_cases(cases, GEMM, 64, seed=1)
        host, port = service.address
        command = [str(ROOT / "build/bin/load"), "--host", host, "--port", str(port)]
        command += ["--cases", str(cases), "--connect-timeout", "60", "--timeout", "60", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def result(self, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Its report. Raises AssertionError when it could not run."""
        with self.process, self._folder:
            output, errors = self.process.communicate(timeout=limit_s)
        assert self.process.returncode in (0, 2), errors.decode()
        report = json.loads(output)
        assert isinstance(report, dict)
        return report


def load(service: Service, *options: str) -> dict[str, Any]:
    """Runs the generator to its end; every request must have been answered rightly."""
    report = Load(service, *options).result()
    assert not any(report["failures"].values()), report["failures"]
    assert report["verified"] == report["sent"] > 0
    return report
