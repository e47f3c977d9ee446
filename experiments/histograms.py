"""HdrHistogram logs of the latencies, one an arm: the runs of all pairs together."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from experiments import programs, records
from experiments.experiment import RAW
from experiments.means import Json, arms
from experiments.summary import run_folder


def write(summary: Json, out: Path) -> list[Path]:
    """Writes `latency-ARM.hlog` (nanoseconds). Raises ExperimentError."""
    return [_write(summary, arm, out) for arm in arms(summary)]


def _write(summary: Json, arm: str, out: Path) -> Path:
    log = out / f"latency-{arm}.hlog"
    folders = [out / RAW / run_folder(run) for run in summary["runs"] if run["arm"] == arm]
    with tempfile.NamedTemporaryFile() as file:
        file.write(np.concatenate([records.read(folder) for folder in folders]).tobytes())
        file.flush()
        words = ["-m", "loader.load_results", file.name, "--hdr", str(log)]
        programs.output_of([sys.executable, *words], f"write {log}")
    return log
