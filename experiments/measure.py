"""Runs a plan where it is started (on the host, or in the VM) and leaves raw data, nothing else.

Each run has a folder: `run.json` (what was run), `load.json` and `records.bin` (the generator's
result and a record a request), `samples.json` (the accounts over time, as the kernel wrote them),
`counters.json` (the page's counters after the load), `service.log`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from experiments import environment
from experiments.accounts import Accounts, Raw
from experiments.errors import ExperimentError
from experiments.generator import Generator
from experiments.plan import Plan, Run, Timing
from experiments.progress import Mark, Report, print_event, print_mark
from experiments.service import Service
from experiments.system_calls import SystemCalls, threads_of

CASES = "cases.bin"
# Readings of the accounts. Few, for they are not free on an emulated CPU; two would do.
SAMPLES = 5
EDGE_S = 0.05  # that the readings keep from the ends of the measured time
# What starting and stopping take on an emulated CPU; for the time left only.
START_S, STOP_S = 4.0, 1.0


def run_seconds(timing: Timing) -> float:
    """Expected length of a run."""
    return START_S + timing.warmup + timing.measured + STOP_S


def measure(raw: Path, report: Report = print_event, mark: Mark = print_mark) -> None:
    """Runs the plan in `raw`, and leaves a folder for each run there. Raises ExperimentError."""
    if os.geteuid():
        said = f"user {os.geteuid()} may not read what the accounts are made of (EPERM)"
        raise ExperimentError("run the experiment", said, "run it as root (sudo)")
    plan = Plan.read(raw)
    (raw / "environment.json").write_text(json.dumps(environment.machine(), indent=2) + "\n")
    total = plan.pairs * len(plan.transports)
    for run in plan.runs():
        folder = raw / run.name
        folder.mkdir()
        title = f"run {run.number} of {total}, {run.transport}"

        def phase(name: str, seconds: float, title: str = title) -> None:
            report(f"{title}: {name}", seconds)

        measure_run(plan, run, folder, phase, partial(mark, run.name))


def measure_run(
    plan: Plan, run: Run, folder: Path, report: Report, mark: Callable[[], None]
) -> None:
    """One arm: service up, load, accounts, service down. Raises ExperimentError."""
    report("starting", START_S)
    with Service(run.transport, plan.condition, folder / "service.log") as service:
        state = service.state()
        cases = folder.parent / CASES
        load = Generator(plan.condition, plan.timing, run.seed, int(state["port"]), cases)
        calls, samples = observe(load.write_to(folder), state, plan.timing, report, mark)
        report("stopping", STOP_S)
        (folder / "counters.json").write_text(service.counters())
    (folder / "samples.json").write_text(json.dumps(samples) + "\n")
    facts = {
        **asdict(run), "system_calls": calls, "cpus": environment.cpus(),
        "commands": {"service": service.command, "load": load.command},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(facts, indent=2) + "\n")


def observe(
    load: Generator,
    state: dict[str, Any],
    timing: Timing,
    report: Report,
    mark: Callable[[], None],
) -> tuple[dict[str, Any], list[Raw]]:
    """The load from its start to its end. Gives the service's system calls while it connected and
    for a time after that, and readings of the accounts in the measured time.

    Raises ExperimentError.
    """
    report("warming up", timing.warmup)
    names = thread_names(state)
    with ExitStack() as stack:
        with SystemCalls(names) as counted:
            began = time.monotonic()
            stack.enter_context(load)
            sending = load.wait_until_sending()
            load.ended(timing.counting)
            seconds = time.monotonic() - began
        start_s = sending + timing.warmup
        load.ended(max(start_s - time.monotonic(), 0))
        report("measuring", timing.measured)
        samples = sample(load, state, names, start_s, timing.measured, mark)
        load.finish()
    threads = [{"name": names[tid], "calls": calls} for tid, calls in counted.counts.items()]
    return {"seconds": seconds, "threads": threads}, samples


def sample(
    load: Generator,
    state: dict[str, Any],
    threads: Iterable[int],
    start_s: float,
    length_s: float,
    mark: Callable[[], None],
) -> list[Raw]:
    """Readings of the accounts, from EDGE_S after the start to EDGE_S before the end, and a mark
    with each. Less when the generator ends. Raises ExperimentError."""
    groups = {name: Path(path) for name, path in state["cgroups"].items()}
    samples: list[Raw] = []
    try:
        loop = state.get("loop_tid")
        with Accounts(**groups, threads=threads, loop=loop, client=load.pid) as accounts:
            for i in range(SAMPLES):
                due = start_s + EDGE_S + i * (length_s - 2 * EDGE_S) / (SAMPLES - 1)
                if load.ended(max(due - time.monotonic(), 0)):
                    break
                samples.append(accounts.read())
                mark()
    except OSError as error:
        if not load.ended(0):
            raise ExperimentError(
                "read the CPU accounts", str(error), "see service.log: has the service ended?"
            ) from error
    return samples


def thread_names(state: dict[str, Any]) -> dict[int, str]:
    """The service's threads by id: the supervisor's, one of which is the loop of `bpf`, and the
    native server's. The executor is another part."""
    pids = (Path(state["cgroups"]["service"]) / "cgroup.procs").read_text().split()
    ours = {state["supervisor"]["pid"]: "supervisor", state.get("loop_tid"): "loop"}
    return {tid: ours.get(tid, name) for tid, name in threads_of(map(int, pids)).items()}
