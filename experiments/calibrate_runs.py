"""The runs of a calibration, in the VM under --icount: four arms that serve at the same time.

`baseline` and `twin` are the same; `cpu` and `latency` have a handicap of known size, as
handicap.py gives it. All have the same transport, and results that fall due (`--executor due`). A
load is cut into windows, each of which is a run: the windows at the same place in two arms' loads,
which have the same arrivals, are a pair. So few processes are started, which costs an emulated CPU
more than serving; arms take turns load by load, in random order.

The size of a handicap comes from a reference load of the baseline: it is a share of what the
whole-machine account shows for a request there, or of the P99.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from experiments.accounts import Accounts, Sample, parse, spent
from experiments.cases import DUE
from experiments.errors import ExperimentError
from experiments.exact_runs import CASES
from experiments.generator import Generator, Server
from experiments.handicap import Handicap
from experiments.measure import burn_beside, cgroups, thread_names
from experiments.plan import Condition, Timing
from experiments.progress import Report, print_event
from experiments.records import Records, answered_between, latency_us, read_verified
from experiments.service import Service

BASELINE, TWIN = "baseline", "twin"
PLAN, SIZES, RUNS = "calibration.json", "sizes.json", "runs.jsonl"
CONDITION = Condition(workload=f"{DUE}service_us=20", rate=1000, connections=32)
WARMUP_S, WINDOW_S, TAIL_S = 0.1, 0.3, 0.2  # so that the load outlasts the last reading
GUARD_US = 10_000  # next to a reading, which may delay a request
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
    transport: str = "epoll"
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
        arms = {BASELINE: stack.enter_context(serving(folder, plan.transport, BASELINE))}
        sizes = reference(arms[BASELINE], plan.reference, randomness)
        # In whole instructions, or µs.
        more = {name: share * sizes[name] for name, share in plan.handicaps.items()}
        more = {name: round(us, 0 if name == "latency" else 3) for name, us in more.items()}
        (folder / SIZES).write_text(json.dumps({"reference_us": sizes, "more_us": more}) + "\n")
        for name in (TWIN, *more):
            arm = serving(folder, plan.transport, name, more.get(name, 0.0))
            arms[name] = stack.enter_context(arm)
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
def serving(folder: Path, transport: str, name: str, more_us: float = 0.0) -> Iterator[Arm]:
    """An arm that serves. `more_us`: of the handicap that it is named after."""
    burnt = more_us * 1e-6 * CONDITION.rate if name == "cpu" else 0.0
    given = Handicap(burnt, round(more_us) if name == "latency" else 0)
    with Service(transport, CONDITION, folder / f"{name}.log", suffix=f"-{name}") as service:
        yield Arm(folder, service.state(), given)


class Arm:
    """A service with a handicap or none, and loads for it."""

    def __init__(self, folder: Path, state: dict[str, Any], given: Handicap) -> None:
        self._folder, self._server = folder, Server("127.0.0.1", int(state["port"]))
        self._given, self._state = given, state
        self._threads = list(thread_names(state))

    def runs(self, windows: int, seed: int) -> list[dict[str, float]]:
        """Figures of the windows of a load: what `statistics.Observation` has, and `injected_us`.

        Raises ExperimentError when a reply was not the expected one.
        """
        timing = Timing(counting=0.0, settling=WARMUP_S, measured=windows * WINDOW_S + TAIL_S)
        load = Generator(
            CONDITION, timing, seed, self._server, self._folder / CASES, late_us=self._given.late_us
        )
        os.sync()  # else the kernel writes back during the load
        with ExitStack() as stack:
            memory = stack.enter_context(TemporaryDirectory(dir="/dev/shm"))
            burner = stack.enter_context(self._given.burning(*burn_beside(self._state)))
            stack.enter_context(load.write_to(Path(memory)))
            start_s = load.wait_until_sending() + WARMUP_S
            with Accounts(
                **cgroups(self._state), threads=self._threads, loop=None, client=load.pid,
                burner=burner,
            ) as accounts:  # fmt: skip
                raw = []
                for i in range(windows + 1):
                    load.ended(max(start_s + i * WINDOW_S - time.monotonic(), 0))
                    raw.append(accounts.read())
            load.finish()
            result = json.loads((Path(memory) / "load.json").read_text())
            records = read_verified(Path(memory))
        if result["failures"] or result["warmup"]["failures"]:
            said = f"requests failed: {result['failures']}, {result['warmup']['failures']}"
            raise ExperimentError("calibrate", said, f"see the logs in {self._folder}")
        late_us = self._given.late_us
        return [figures_of(records, *edges, late_us) for edges in pairwise(map(parse, raw))]


def figures_of(records: Records, first: Sample, last: Sample, late_us: int) -> dict[str, float]:
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
        "injected_us": late_us + used.get("burner", 0.0) / answered,
    }
