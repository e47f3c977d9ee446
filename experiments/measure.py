"""Runs a plan where it is started (on the host, or in the VM) and leaves raw data, nothing else.

Each run has a folder: `load.json` and `records.bin` (the generator's result and a record a
request), `samples.json` (the accounts over time, as the kernel wrote them), `counters.json` (the
page's counters after the load), `service.log`, and last of all `run.json` (what was run): a folder
that has it is complete, and its run is not run again.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from experiments import environment, handicap, llm, system_calls
from experiments.accounts import Accounts, Raw
from experiments.errors import ExperimentError
from experiments.generator import Generator
from experiments.handicap import Handicap
from experiments.idle_interrupts import IdleInterrupts
from experiments.plan import CLOSED, VLLM, Condition, Plan, Run, Timing
from experiments.progress import Mark, Report, print_event, print_mark
from experiments.service import Service
from experiments.serving import LOOPBACK, serving
from experiments.system_calls import SystemCalls, threads_of
from experiments.vllm import Vllm

RUN, ENVIRONMENT, SATURATION = "run.json", "environment.json", "saturation.json"
SATURATING = Timing(counting=0.0, settling=1.0, measured=2.0)
# Readings of the accounts. Few, for they are not free on an emulated CPU; two would do.
SAMPLES = 5
EDGE_S = 0.05  # that the readings keep from the ends of the measured time
# What starting and stopping take on an emulated CPU; for the time left only.
START_S, STOP_S = 4.0, 1.0
VLLM_START_S = 90.0  # the model is loaded, and kernels are compiled
EXACT_SLOWER = 3.0  # than real time, where instructions are counted; for the time left only
# What has to be the same when an experiment is gone on with.
MACHINE = ("kernel", "architecture", "cpu", "cpus", "accelerator")


def run_seconds(plan: Plan) -> float:
    """Expected length of a run, over all arms."""
    timing = plan.timing
    starting = sum(map(start_seconds, plan.transports)) / len(plan.transports)
    usual = starting + timing.warmup + timing.measured + STOP_S
    return usual * EXACT_SLOWER if plan.exact else usual


def start_seconds(transport: str) -> float:
    """What it takes until it serves."""
    return VLLM_START_S if transport == VLLM else START_S


def cases_file(raw: Path, plan: Plan, condition: Condition) -> Path:
    """The requests of a condition: one file for all that have the same workload."""
    workloads = list(dict.fromkeys(one.workload for one in plan.points.values()))
    return raw / f"cases{workloads.index(condition.workload)}.bin"


def complete(folder: Path) -> bool:
    """Whether a run has come to its end."""
    return (folder / RUN).exists()


def measure(raw: Path, report: Report = print_event, mark: Mark = print_mark) -> None:
    """Runs what the plan in `raw` has left to run, and leaves a folder for each run there. Raises
    ExperimentError."""
    if os.geteuid():
        said = f"user {os.geteuid()} may not read what the accounts are made of (EPERM)"
        raise ExperimentError("run the experiment", said, "run it as root (sudo)")
    plan = Plan.read(raw)
    keep_environment(raw / ENVIRONMENT)
    total = plan.run_count()
    idle = IdleInterrupts()
    for run in chain(plan.references(), plan.runs()):
        folder = raw / run.name
        if complete(folder):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        title = f"run {run.number} of {total}, {run.arm}" if run.pair else f"reference, {run.arm}"

        def phase(name: str, seconds: float, title: str = title) -> None:
            report(f"{title}: {name}", seconds * (EXACT_SLOWER if plan.exact else 1))

        # Where instructions are counted, what the VM costs its host says nothing.
        marked = (lambda: None) if plan.exact else partial(mark, run.name)
        measure_run(plan, run, folder, idle, phase, marked)


def keep_environment(file: Path) -> None:
    """Writes what this machine is, or checks that it still is what it was. Raises
    ExperimentError."""
    here = environment.machine()
    if not file.exists():
        file.write_text(json.dumps(here, indent=2) + "\n")
        return
    before = json.loads(file.read_text())
    changed = [f"{name} was {before[name]}, is {here[name]}" for name in MACHINE
               if before[name] != here[name]]  # fmt: skip
    if changed:
        raise ExperimentError(
            "go on with the experiment on the machine it began on", "; ".join(changed),
            "go on where it began, or begin again in another folder with --out",
        )  # fmt: skip


def measure_run(
    plan: Plan,
    run: Run,
    folder: Path,
    idle: IdleInterrupts,
    report: Report,
    mark: Callable[[], None],
) -> None:
    """One arm: network and service up, load, accounts, all down. Raises ExperimentError."""
    report("starting", start_seconds(run.transport))
    condition = with_rate(plan, plan.points[run.point], folder.parent)
    began = time.strftime("%Y-%m-%d %H:%M:%S %z")
    with serving(run.transport, condition, folder / "service.log") as (service, loads):
        cases = requests(folder.parent, plan, condition, service)
        given = handicap.of_run(plan, run, folder.parent)
        load = loads(plan.timing, run.seed, cases, given.late_us).write_to(folder)
        state = service.state()
        seen, samples = observe(load, state, plan.timing, idle, given, report, mark)
        report("stopping", STOP_S)
        (folder / "counters.json").write_text(service.counters())
    write_json(folder / "samples.json", samples)
    facts = {
        **asdict(run), "began": began, "rate": condition.rate, **seen, "cpus": environment.cpus(),
        "handicap": asdict(given), "clock_ahead_ns": load.clock_ahead_ns,
        "commands": {"service": service.command, "load": load.command},
    }  # fmt: skip
    write_json(folder / RUN, facts)


def requests(raw: Path, plan: Plan, condition: Condition, service: Service | Vllm) -> Path:
    """The file with them. What a language model answers is known when its server was asked for
    the first time; every later run is compared with that. Raises ExperimentError."""
    file = cases_file(raw, plan, condition)
    if not file.exists() and condition.workload.startswith(llm.LLM):
        address = f"{LOOPBACK}:{service.state()['port']}"
        llm.write_cases(file, condition.workload, plan.seed, address)
    return file


def with_rate(plan: Plan, condition: Condition, raw: Path) -> Condition:
    """The condition with a rate in place of a share of what the baseline sustains, which is
    measured when it is first asked for. Raises ExperimentError."""
    if not condition.share:
        return condition
    # In a closed loop without refusals; whatever is the same for all shares is measured once.
    depth = max(1, min(condition.depth, condition.slots // condition.connections))
    closed = replace(condition, rate=CLOSED, share=0.0, depth=depth)
    file = raw / SATURATION
    known = json.loads(file.read_text()) if file.exists() else []
    found = [one["throughput_rps"] for one in known if one["condition"] == asdict(closed)]
    if not found:
        found = [saturate(plan, closed, raw)]
        write_json(file, [*known, {"condition": asdict(closed), "throughput_rps": found[0]}])
    return replace(condition, rate=round(condition.share * found[0], 1))


def saturate(plan: Plan, closed: Condition, raw: Path) -> float:
    """Verified replies a second of the first transport. Raises ExperimentError."""
    with (
        tempfile.TemporaryDirectory(dir=raw) as folder,
        serving(plan.transports[0], closed, Path(folder) / "service.log") as (service, loads),
    ):
        cases = requests(raw, plan, closed, service)
        load = loads(SATURATING, plan.seed, cases, 0)
        with load.write_to(Path(folder)):
            load.finish()
        rps = float(json.loads((Path(folder) / "load.json").read_text())["throughput_rps"])
    if not rps:
        raise ExperimentError(
            "find out what the service sustains", "it verified no reply in a closed loop",
            "give rates as requests a second",
        )  # fmt: skip
    return rps


def write_json(file: Path, value: object) -> None:
    """The whole file, or what was there before."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(unfinished, file)


def observe(
    load: Generator,
    state: dict[str, Any],
    timing: Timing,
    idle: IdleInterrupts,
    given: Handicap,
    report: Report,
    mark: Callable[[], None],
) -> tuple[dict[str, Any], list[Raw]]:
    """The load from its start to its end. Gives what was counted first, and readings of the
    accounts in the measured time. Counted are `system_calls`, the service's, while it connected and
    for a time after that, and `idle_interrupts` in that time, or why these are unknown. `settled_s`
    is how long before the measured time the counting of system calls was over, which costs who
    makes them. Raises ExperimentError.
    """
    report("warming up", timing.warmup)
    names, unknown = thread_names(state), system_calls.unknown()
    with ExitStack() as stack:
        with idle:
            with SystemCalls(() if unknown else names) as counted:
                began = time.monotonic()
                stack.enter_context(load)
                burner = stack.enter_context(given.burning(*burn_beside(state)))
                start_s = load.wait_until_sending() + timing.warmup
                idle.start()
                load.ended(timing.counting)
                interrupts = idle.found()
                seconds = time.monotonic() - began
            settled = start_s - time.monotonic()
        load.ended(max(start_s - time.monotonic(), 0))
        report("measuring", timing.measured)
        accounts = partial(
            Accounts, **cgroups(state), threads=names, loop=state.get("loop_tid"),
            client=load.client, burner=burner,
        )  # fmt: skip
        samples = sample(load, accounts, start_s, timing.measured, mark)
        load.finish()
    threads = [{"name": names[tid], "calls": calls} for tid, calls in counted.counts.items()]
    calls = {"seconds": seconds, "threads": threads, "unknown": unknown}
    return {"system_calls": calls, "idle_interrupts": interrupts, "settled_s": settled}, samples


def sample(
    load: Generator,
    accounts_of_all: Callable[[], Accounts],
    start_s: float,
    length_s: float,
    mark: Callable[[], None],
) -> list[Raw]:
    """Readings of the accounts, from EDGE_S after the start to EDGE_S before the end, and a mark
    with each. Less when the generator ends. Raises ExperimentError."""
    samples: list[Raw] = []
    try:
        with accounts_of_all() as accounts:
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


def cgroups(state: dict[str, Any]) -> dict[str, Path]:
    """The service's and the executor's."""
    return {name: Path(path) for name, path in state["cgroups"].items()}


def burn_beside(state: dict[str, Any]) -> tuple[Path, int]:
    """Where a handicap burns: the cgroup, and a process with the CPUs."""
    return cgroups(state)["service"], int(state["supervisor"]["pid"])


def thread_names(state: dict[str, Any]) -> dict[int, str]:
    """The service's threads by id: the supervisor's, one of which is the loop of `bpf`, and the
    native server's. The executor is another part."""
    pids = (Path(state["cgroups"]["service"]) / "cgroup.procs").read_text().split()
    ours = {state["supervisor"]["pid"]: "supervisor", state.get("loop_tid"): "loop"}
    return {tid: ours.get(tid, name) for tid, name in threads_of(map(int, pids)).items()}
