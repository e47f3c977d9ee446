"""HdrHistogram logs of the latencies, one a transport: the runs of all pairs together."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments import programs
from experiments.means import Json, transports
from experiments.summary import run_folder


def write(summary: Json, out: Path) -> list[Path]:
    """Writes `latency-TRANSPORT.hlog` (nanoseconds). Raises ExperimentError."""
    return [_write(summary, transport, out) for transport in transports(summary)]


def _write(summary: Json, transport: str, out: Path) -> Path:
    log = out / f"latency-{transport}.hlog"
    records = [
        out / "raw" / run_folder(run) / "records.bin"
        for run in summary["runs"]
        if run["transport"] == transport
    ]
    words = ["-m", "loader.load_results", *map(str, records), "--hdr", str(log)]
    programs.output_of([sys.executable, *words], f"write {log}")
    return log
