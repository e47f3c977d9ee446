"""The tables of docs/gpu.md, from the raw figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpu_scheduler.bench.timeline import STEPS


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def latency(results: dict[str, Any]) -> str:
    """Through the page, by workload and requests in flight."""
    head = ("workload", "in flight", "P50 µs", "P99 µs", "requests/s", "requests a launch", "wrong")
    rows = [
        (
            f"`{spec}`",
            depth,
            f"{run['latency_ns']['p50'] / 1000:.1f}",
            f"{run['latency_ns']['p99'] / 1000:.1f}",
            f"{run['rate']:,}",
            f"{run['batch']:.1f}",
            run["wrong"],
        )
        for spec, runs in results["page"].items()
        for depth, run in runs.items()
    ]
    return table(head, rows)


def references(results: dict[str, Any]) -> str:
    """The same run's references, next to one request in flight through the page."""
    device = results["device_launch_us"]
    rows = [
        ("device launch of an empty graph, until the call returns", f"{device['call']['p50']:.1f}"),
        ("device launch of an empty graph, until its flag is seen", f"{device['flag']['p50']:.1f}"),
    ]
    for spec, replay in results["host_replay_us"].items():
        rows.append((f"`{spec}` replayed by a host thread, no data moved", f"{replay['p50']:.1f}"))
        through = results["page"][spec]["1"]["latency_ns"]["p50"] / 1000
        rows.append((f"`{spec}` through the page, one in flight", f"{through:.1f}"))
    written = results["timeline_ns"]["empty"][STEPS["MARK_PUBLISHED"]] / 1000
    rows.append(("`empty` on the GPU: found in the ring until written, mean", f"{written:.1f}"))
    return table(("", "P50 µs"), rows)


def timeline(results: dict[str, Any]) -> str:
    """When each step of a request ends, counted from the look at the ring that found it."""
    specs = list(results["timeline_ns"])
    steps = list(results["timeline_ns"][specs[0]])
    rows = [
        (step, *(f"{results['timeline_ns'][spec][step] / 1000:.2f}" for spec in specs))
        for step in steps
    ]
    head = "mean µs after the look, one in flight"
    return table((head, *(f"`{spec.split(':')[0]}`" for spec in specs)), rows)


def idle(results: dict[str, Any]) -> str:
    """What it costs to wait."""
    names = {
        "no_process": "no process on the GPU",
        "context_only": "a process with a CUDA context",
        "polling": "the scheduler, polling",
    }
    rows = [
        (names[key], found["watts"], found["utilization_percent"])
        for key, found in results["idle"].items()
    ]
    return table(("idle", "power, W", "utilization by nvidia-smi, %"), rows)


ALL = (latency, references, timeline, idle)
