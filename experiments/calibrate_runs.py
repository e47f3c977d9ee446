"""The runs of a calibration, in the VM under --icount: four arms that serve at the same time.

`baseline` and `twin` are the same; `cpu` and `latency` have a handicap of known size. All are epoll
with results that fall due (`--executor due`). A load is cut into windows, each of which is a run:
the windows at the same place in two arms' loads, which have the same arrivals, are a pair. So few
processes are started, which costs an emulated CPU more than serving; arms take turns load by load,
in random order.

The size of a handicap comes from a reference load of the baseline. `cpu`: a process in the
service's cgroup uses, by its own clock, so much more for each request as is the share of what the
whole-machine account shows for one; it runs when nothing else wants the CPU, for a server that is
slower itself would also wake up at other times, and save elsewhere. `latency`: so much more time
between looks for results as is the share of the P99; at the rate of CONDITION most requests are
alone, and found at the first look after they came.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from experiments.accounts import Accounts, Sample, parse, process_clock, spent
from experiments.cases import DUE
from experiments.errors import ExperimentError
from experiments.exact_runs import CASES
from experiments.generator import Generator, Server
from experiments.measure import thread_names
from experiments.plan import Condition, Timing
from experiments.progress import Report, print_event
from experiments.records import Records, answered_between, latency_us, read_verified
from experiments.service import Service

TRANSPORT = "epoll"
BASELINE, TWIN = "baseline", "twin"
PLAN, SIZES, RUNS = "calibration.json", "sizes.json", "runs.jsonl"
CONDITION = Condition(workload=f"{DUE}service_us=20", rate=1000, connections=32)
WARMUP_S, WINDOW_S, TAIL_S = 0.1, 0.3, 0.2  # so that the load outlasts the last reading
GUARD_US = 10_000  # next to a reading, which may delay a request
BURN_EVERY_S = 0.02
BLOCK = 4  # tries, at most, that a load of each arm makes
WARM = 5  # windows before anything counts: programs read, slots touched
START_S, WINDOW_TAKES_S = 15.0, 1.0  # expected, on an emulated CPU


@dataclass(frozen=True)
class Calibration:
    """So many tries of so many pairs; shares by which an arm is worse, by its name: `cpu`,
    `latency`."""

    seed: int
    tries: int
    pairs: int
    handicaps: dict[str, float]
    reference: int = 20  # windows

    @property
    def expected_s(self) -> float:
        """How long it takes."""
        return START_S + (self.reference + self.windows(self.tries)) * WINDOW_TAKES_S

    def windows(self, tries: int) -> int:
        """Of so many tries, all arms together."""
        return tries * self.pairs * (2 + len(self.handicaps))


def measure(folder: Path, report: Report = print_event) -> None:
    """Runs the folder's calibration.json; leaves `sizes.json`, the handicaps as they came out, and
    `runs.jsonl`, a line for each arm of each pair. Raises ExperimentError."""
    plan = Calibration(**json.loads((folder / PLAN).read_text()))
    randomness = Random(plan.seed)
    report("calibrate: starting, reference", START_S + plan.reference * WINDOW_TAKES_S)
    with ExitStack() as stack, (folder / RUNS).open("w") as file:
        arms = {BASELINE: stack.enter_context(serving(folder, BASELINE))}
        sizes = reference(arms[BASELINE], plan.reference, randomness)
        # In whole instructions, or µs.
        more = {name: share * sizes[name] for name, share in plan.handicaps.items()}
        more = {name: round(us, 0 if name == "latency" else 3) for name, us in more.items()}
        (folder / SIZES).write_text(json.dumps({"reference_us": sizes, "more_us": more}) + "\n")
        for name in (TWIN, *more):
            arms[name] = stack.enter_context(serving(folder, name, more.get(name, 0.0)))
            arms[name].runs(WARM, randomness.getrandbits(32))
        for first in range(0, plan.tries, BLOCK):
            tries = min(BLOCK, plan.tries - first)
            report(f"calibrate: try {first + 1} of {plan.tries}",
                   plan.windows(tries) * WINDOW_TAKES_S)  # fmt: skip
            seed = randomness.getrandbits(32)
            for name in randomness.sample(sorted(arms), len(arms)):
                for number, figures in enumerate(arms[name].runs(tries * plan.pairs, seed)):
                    at = {"try": first + number // plan.pairs, "pair": number % plan.pairs}
                    file.write(json.dumps({**at, "arm": name, "figures": figures}) + "\n")


def reference(arm: Arm, windows: int, randomness: Random) -> dict[str, float]:
    """µs of what each handicap is a share of. Raises ExperimentError."""
    arm.runs(WARM, randomness.getrandbits(32))
    runs = arm.runs(windows, randomness.getrandbits(32))
    return {
        "cpu": median(figures["machine_cpu_us"] for figures in runs),
        "latency": median(figures["p99_us"] for figures in runs),
    }


@contextmanager
def serving(folder: Path, name: str, more_us: float = 0.0) -> Iterator[Arm]:
    """An arm that serves. `more_us`: of the handicap that it is named after."""
    more = int(more_us) if name == "latency" else 0
    condition = replace(CONDITION, wake_us=CONDITION.wake_us + more)
    with Service(TRANSPORT, condition, folder / f"{name}.log", suffix=f"-{name}") as service:
        burnt = more_us * 1e-6 * CONDITION.rate if name == "cpu" else 0.0
        yield Arm(folder, service.state(), more, burnt)


@contextmanager
def burning(group: Path, share: float) -> Iterator[int]:
    """A process in a cgroup that uses this share of a CPU, when nothing else wants it; its id."""
    pid = os.fork()
    if not pid:
        try:
            (group / "cgroup.procs").write_text("0")
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            began, used = time.monotonic(), time.thread_time()
            while True:
                until = used + share * (time.monotonic() - began)
                while time.thread_time() < until:
                    pass
                time.sleep(BURN_EVERY_S)
        finally:
            os._exit(1)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class Arm:
    """A service, and loads for it. `later_us`: its handicap in time; `burnt`: the share of a CPU
    that is burnt beside it."""

    def __init__(self, folder: Path, state: dict[str, Any], later_us: float, burnt: float) -> None:
        self._folder, self._server = folder, Server("127.0.0.1", int(state["port"]))
        self._later_us, self._burnt = later_us, burnt
        self._groups = {name: Path(path) for name, path in state["cgroups"].items()}
        self._threads = list(thread_names(state))

    def runs(self, windows: int, seed: int) -> list[dict[str, float]]:
        """Figures of the windows of a load: what `statistics.Observation` has, and `injected_us`.

        Raises ExperimentError when a reply was not the expected one.
        """
        timing = Timing(counting=0.0, settling=WARMUP_S, measured=windows * WINDOW_S + TAIL_S)
        load = Generator(CONDITION, timing, seed, self._server, self._folder / CASES)
        os.sync()  # else the kernel writes back during the load
        with ExitStack() as stack:
            memory = stack.enter_context(TemporaryDirectory(dir="/dev/shm"))
            clock = None
            if self._burnt:
                pid = stack.enter_context(burning(self._groups["service"], self._burnt))
                clock = process_clock(pid)
            stack.enter_context(load.write_to(Path(memory)))
            start_s = load.wait_until_sending() + WARMUP_S
            with Accounts(
                **self._groups, threads=self._threads, loop=None, client=load.pid
            ) as accounts:
                raw, burnt = [], []
                for i in range(windows + 1):
                    load.ended(max(start_s + i * WINDOW_S - time.monotonic(), 0))
                    raw.append(accounts.read())
                    burnt.append(time.clock_gettime_ns(clock) / 1e3 if clock else 0.0)
            load.finish()
            result = json.loads((Path(memory) / "load.json").read_text())
            records = read_verified(Path(memory))
        if result["failures"] or result["warmup"]["failures"]:
            said = f"requests failed: {result['failures']}, {result['warmup']['failures']}"
            raise ExperimentError("calibrate", said, f"see the logs in {self._folder}")
        windows_of = zip(pairwise(map(parse, raw)), pairwise(burnt), strict=True)
        return [
            figures_of(records, *edges, self._later_us, after - before)
            for edges, (before, after) in windows_of
        ]


def figures_of(
    records: Records, first: Sample, last: Sample, later_us: float, burnt_us: float
) -> dict[str, float]:
    """Of the window between two samples of a machine with one CPU; and `injected_us`, the handicap
    of a request in it."""
    answered = answered_between(records, first["at"], last["at"])
    intended_us = records["intended_ns"] / 1e3
    undisturbed = (intended_us > first["at"] + GUARD_US) & (intended_us < last["at"] - GUARD_US)
    p50, p99 = np.percentile(latency_us(records[undisturbed]), (50, 99))
    used = spent(first, last, cpus=1)
    return {
        "throughput_rps": answered / used["at"] * 1e6,
        "p50_us": float(p50),
        "p99_us": float(p99),
        "service_cpu_us": used["service"] / answered,
        "machine_cpu_us": used["machine"] / answered,
        "injected_us": later_us + burnt_us / answered,
    }
