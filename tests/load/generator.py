# SPDX-License-Identifier: MIT
"""Runs the load generator, and writes the cases it needs."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_scheduler.workloads import case
from gpu_scheduler.workloads.case import Compare, Expected
from loader import paths
from loader.load_results import Records, read_records
from shared_page import constants

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Run:
    """What a run left behind."""

    status: int
    errors: str
    result: dict[str, Any]
    records: Records

    @property
    def clean(self) -> bool:
        """Every reply was right. On a crowded machine the run may be not valid all the same."""
        found = self.result
        broken = found["failures"] | found["warmup"]["failures"]
        broken |= found["connection_counts"]["failures"]
        said_nothing = self.status == 0 and self.errors == ""
        return not broken and said_nothing == found["valid"]


def command(port: int, cases: Path | None, *options: str) -> list[str]:
    source = ["--echo"] if cases is None else ["--cases", str(cases)]
    return [str(paths.program("load")), "--port", str(port), *source, *options]


def load(port: int, cases: Path | None, folder: Path, *options: str) -> Run:
    """Runs it to its end; fails when there is no result."""
    files = ["--json", str(folder / "result.json"), "--records", str(folder / "records")]
    ended = subprocess.run(
        [*command(port, cases, *options), *files],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode in (0, 2), ended.stderr
    assert ended.stdout == ""
    result = json.loads((folder / "result.json").read_text())
    return Run(ended.returncode, ended.stderr, result, read_records(folder / "records"))


def refuse(*options: str) -> str:
    """Runs it with options with which it cannot run; what it says on stderr."""
    ended = subprocess.run(
        [str(paths.program("load")), *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    assert ended.stderr.startswith("load: ")
    assert ended.stderr.count("\n") == 1
    return ended.stderr


def echo_cases(path: Path, count: int = 16, size: int = 256, seed: int = 7) -> Path:
    """Requests of random bytes whose reply is the same bytes."""
    numbers = random.Random(seed)
    payloads = [numbers.randbytes(size) for _ in range(count)]
    return write(path, [(payload, Expected(payload)) for payload in payloads])


def write(path: Path, cases: list[tuple[bytes, Expected]], kind: int | None = None) -> Path:
    case.write(path, constants.KIND_ECHO if kind is None else kind, cases)
    return path


__all__ = ["Compare", "Expected", "Run", "command", "echo_cases", "load", "refuse", "write"]
