"""Measures, prints the tables of docs/gpu.md and writes the raw figures as JSON."""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_scheduler.bench import page as pages
from gpu_scheduler.bench import tables
from gpu_scheduler.bench.timeline import timeline_ns
from gpu_scheduler.cuda.device import require_gpu
from gpu_scheduler.cuda.errors import GpuError

SPECS = ("empty", "gemm:m=4,k=16,n=15,work=1", "fft:points=32,bins=30,work=1")
IN_FLIGHT = ((1, 50_000), (64, 300_000), (512, 1_000_000))
_POWER_S = 5.0


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    query = "--query-gpu=name,driver_version,pcie.link.gen.max,pcie.link.width.max"
    smi = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=True
    )
    name, driver, generation, width = smi.stdout.strip().split(", ")
    return {
        "gpu": f"one {name}",
        "driver": driver,
        "pcie": f"generation {generation}, {width} lanes",
        "kernel": platform.release(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def power_w(seconds: float = _POWER_S) -> dict[str, float]:
    """Mean power draw and GPU utilization, as nvidia-smi reports them, sampled for some seconds."""
    query = [
        "nvidia-smi",
        "--query-gpu=power.draw,utilization.gpu",
        "--format=csv,noheader,nounits",
    ]
    samples = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        line = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        samples.append([float(value) for value in line.split(",")])
        time.sleep(0.2)
    watts, busy = (sum(column) / len(samples) for column in zip(*samples, strict=True))
    return {"watts": round(watts, 1), "utilization_percent": round(busy, 1)}


def idle_cost() -> dict[str, Any]:
    """With no process on the GPU, with one that holds it, and with a scheduler that polls."""
    found: dict[str, Any] = {"no_process": power_w()}
    holder = "import cupy, sys; cupy.zeros(1); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        found["context_only"] = power_w()
        process.terminate()
    with pages.serving("empty") as page:
        heartbeat = page.struct.executor.heartbeat
        found["polling"] = power_w()
        beats = page.struct.executor.heartbeat - heartbeat
        found["polling"]["polls_per_s"] = round(beats * 1024 / _POWER_S)
    return found


def measure() -> dict[str, Any]:
    """Everything, as one object. Raises GpuError or RuntimeError when something fails."""
    results: dict[str, Any] = {"machine": machine(), "idle": idle_cost(), "page": {}}
    for spec in SPECS:
        with pages.serving(spec) as page:
            runs = [pages.load(page, spec, depth, count) for depth, count in IN_FLIGHT]
        results["page"][spec] = {str(run["in_flight"]): run for run in runs}
    require_gpu()
    from gpu_scheduler.bench.references import References

    references = References()
    results["device_launch_us"] = references.device_launch_us()
    results["host_replay_us"] = {spec: references.host_replay_us(spec) for spec in SPECS}
    results["timeline_ns"] = {spec: timeline_ns(spec) for spec in SPECS}
    return results


def main() -> int:
    """Returns the exit status: 1 when a result was wrong or something failed."""
    parser = argparse.ArgumentParser(prog="python3 -m gpu_scheduler.bench", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the raw figures there")
    options = parser.parse_args()
    try:
        results = measure()
    except (GpuError, RuntimeError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    renderers: tuple[Callable[[dict[str, Any]], str], ...] = tables.ALL
    print("\n\n".join(render(results) for render in renderers))
    wrong = sum(run["wrong"] for runs in results["page"].values() for run in runs.values())
    print(f"\n{wrong} wrong results")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
