"""Raw data of an experiment as `measure` leaves them, with figures that are easy to work out.

Each run: 4 s measured at 1,000 requests a second, each answered after 500 µs. Accounts are read
every quarter of a second and go up by so much CPU a second as `CPU_US` says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from experiments.accounts import TICK_US, Raw
from experiments.plan import Plan, Run
from experiments.records import RECORD

RATE = 1000
START_S = 100.0  # CLOCK_MONOTONIC at which measuring begins
LATENCY_US = 500
CPUS = 2
# µs of CPU a second; of 2 CPUs, the idle part leaves 800 ms a second for the machine.
CPU_US = {
    "service": 100_000,
    "service.ticks.user": 12_000,
    "service.ticks.system": 48_000,
    "executor": 100_000,
    "machine.user": 300_000,
    "machine.system": 400_000,
    "machine.idle": 1_150_000,
    "machine.iowait": 50_000,
    "tasks": 750_000,
    "client": 150_000,
    "observer": 5_000,
    "loop": 70_000,
    "loop.ticks.system": 40_000,
}
CALLS = {
    "epoll": [{"name": "supervisor", "calls": 0}, {"name": "server-epoll", "calls": 4_321}],
    "bpf": [{"name": "supervisor", "calls": 0}, {"name": "loop", "calls": 0}],
}
VM_US = 1_300_000  # a second
Figure = Callable[[Run], float]
# Of the egress, a reply.
PER_REPLY = {"steps": 3, "timer_wakes": 1, "doorbell_wakes": 0, "submissions": 2, "sends": 1}
MACHINE = {
    "date": "2026-11-30 12:00:00 +0000",
    "kernel": "7.3.4-test",
    "cpu": "QEMU TCG CPU version 2.5+",
    "cpus": CPUS,
    "accelerator": "TCG (every instruction is emulated)",
}
HOST = {"kernel": "6.12-host", "versions": {"numpy": "2"}, "revision": "0123456789ab"}


def record(
    raw: Path, plan: Plan, failures: dict[str, int] | None = None, vm_us: Figure = lambda run: VM_US
) -> None:
    """Writes a whole folder; `failures` are those of each run, `vm_us` what a second of it costs
    the VM's host."""
    raw.mkdir(parents=True)
    plan.write(raw)
    write(raw / "environment.json", MACHINE)
    write(raw / "host.json", HOST)
    for run in plan.runs():
        record_run(raw / run.name, plan, run, failures or {}, vm_us(run))


def record_run(
    folder: Path, plan: Plan, run: Run, failures: dict[str, int], vm_us: float = VM_US
) -> None:
    folder.mkdir()
    count = int(RATE * plan.timing.measured)
    failed = sum(failures.values())
    records = np.zeros(count, RECORD)
    records["intended_ns"] = (START_S * 1e9 + np.arange(count) * (1e9 / RATE)).astype(np.uint64)
    records["sent_ns"] = records["intended_ns"]
    records["done_ns"] = records["intended_ns"] + LATENCY_US * 1000
    records["status"][:failed] = 6 << 8 | 1  # busy
    records.tofile(folder / "records.bin")
    write(folder / "load.json", load_result(plan, count, failures))
    write(folder / "samples.json", samples(plan, run.transport))
    write(folder / "run.json", facts(run))
    write(folder / "hypervisor.json", on_host(plan, vm_us))
    write(folder / "counters.json", {"counters": counters(count)})


def give_handicap(folder: Path, cpu_us: float, late_us: int) -> None:
    """To a run: what was injected, a request; its figures stay as they are."""
    readings = json.loads((folder / "samples.json").read_text())
    for reading in readings:
        reading["burner"] = round(reading["at"] / 1e9 * RATE * cpu_us * 1e3)
    write(folder / "samples.json", readings)
    run = json.loads((folder / "run.json").read_text())
    write(folder / "run.json", {**run, "handicap": {"burnt": 0.1, "late_us": late_us}})


def load_result(plan: Plan, count: int, failures: dict[str, int]) -> dict[str, Any]:
    verified = count - sum(failures.values())
    percentiles = dict.fromkeys(("p50", "p90", "p99", "p999", "max"), float(LATENCY_US))
    return {
        "valid": True,
        "invalid_reasons": [],
        "measured_from_monotonic_ns": int(START_S * 1e9),
        "span_s": plan.timing.measured,
        "sent": count,
        "verified": verified,
        "failures": failures,
        "throughput_rps": verified / plan.timing.measured,
        "latency_us": {"count": verified, "mean": float(LATENCY_US), **percentiles},
        "warmup": {"scheduled": 1500, "verified": 1500, "failures": {}},
    }


def samples(plan: Plan, transport: str) -> list[Raw]:
    """From a second before measuring to a second after, off the quarters of a second."""
    times = np.arange(-1.1, plan.timing.measured + 1, 0.25)
    return [sample(START_S + t, transport) for t in times.tolist()]


def on_host(plan: Plan, vm_us: float) -> list[float]:
    """What the VM has cost its host at each of the samples."""
    return [(sample["at"] / 1e9 - START_S) * vm_us for sample in samples(plan, "epoll")]


def sample(at_s: float, transport: str) -> Raw:
    """As the kernel writes what has been used by then."""
    us = {name: round(at_s * rate) for name, rate in CPU_US.items()}
    ticks = {name: int(value / TICK_US) for name, value in us.items()}
    kinds = [ticks[f"machine.{kind}"] for kind in ("user", "system", "idle", "iowait")]
    kinds.insert(1, 0)  # nice
    raw = {
        "at": round(at_s * 1e9),
        "service": f"usage_usec {us['service']}\nuser_usec 1\nsystem_usec 2\n",
        "executor": f"usage_usec {us['executor']}\n",
        "machine": f"cpu  {' '.join(map(str, kinds))} 0 0 0 0 0\ncpu0 1\n",
        "tasks": f"version 17\ncpu0 0 0 0 0 0 0 {us['tasks'] * 1000} 5 6\n",
        "client": us["client"] * 1000,
        "observer": us["observer"] * 1000,
        "ticks": [[us["service.ticks.user"], us["service.ticks.system"]], [0, 0]],
    }
    if transport == "bpf":
        raw |= {"loop": f"{us['loop'] * 1000} 5 6\n", "loop.ticks": [0, us["loop.ticks.system"]]}
    return raw


def counters(replies: int) -> dict[str, dict[str, int]]:
    egress = {"replies": replies, **{name: n * replies for name, n in PER_REPLY.items()}}
    return {"egress": egress, "executor": {"steps": replies, "launches": replies // 2}}


def facts(run: Run) -> dict[str, Any]:
    calls = {"seconds": 1.0, "threads": CALLS[run.transport], "unknown": ""}
    command = ["bpf-gpu-server", "serve", "--transport", run.transport]
    return {
        **asdict(run),
        "rate": RATE,
        "cpus": CPUS,
        "system_calls": calls,
        "commands": {"service": command, "load": ["load", "--seed", str(run.seed)]},
    }


def write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))
