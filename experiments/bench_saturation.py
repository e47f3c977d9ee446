"""What one CPU sustains: `epoll` with its executor against a bare echo of the same frame sizes.

Both arms have one CPU for all that serves (the service's server *and* executor share it), and the
load generator has another. The arms take turns within a run, so that what else the machine does
meets both.

Compared are requests for each second of that CPU, not of the wall clock: a scheduler that is fair
to threads gives the arm with two of them more of a CPU that others want too. The comparison leans
towards the echo: only the CPU time that it used is counted, whereas what the CPU idled meanwhile is
counted to the service as if it had been used. Requests a second by the wall clock are shown beside.

All run at the highest priority (nice -20), and a round in which the service still had less than
70 % of its CPU does not count: sleeps go by the wall clock, so that a service that gets half a CPU
wakes twice as often for a request.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from experiments import cases, programs
from experiments.accounts import TICK_US, process_clock
from experiments.bench_memory import resident_bytes
from experiments.errors import ExperimentError
from experiments.plan import Condition
from experiments.progress import Report
from experiments.service import Service

CONDITION = Condition(workload="empty", connections=120)
REQUEST_BYTES, REPLY_BYTES = 280, 16  # of `empty`, headers included
DEPTHS = (1, 8)  # unanswered requests of a connection; 8 × 120 are what all may have
# Asleep for less, the executor keeps interrupting the server, whose CPU it shares, for nothing.
EXECUTOR_OPTIONS = ("--executor-poll", "sleep", "--executor-sleep-us", "200")
ROUNDS = 5
AUTOGROUP = Path("/proc/self/autogroup")
ROUNDS_LEAST = 3  # that have to be undisturbed
UNDISTURBED = 0.7
# Starting and ending a load take some 5 % of a turn. An echo that idles more than this has answered
# all that the generator, with its one CPU, could ask: it was not saturated.
IDLE_MOST = 0.15
WARMUP_S, MEASURED_S = 0.2, 1.0
# One load, and half a start of the two servers, with what starting processes takes.
ROUND_S = 2 * (2 * (WARMUP_S + MEASURED_S + 0.2) + 1.0)


@dataclass(frozen=True)
class Place:
    """One CPU for who serves, another for who asks."""

    server: int
    client: int

    @classmethod
    def choose(cls) -> Place:
        """The last and the first CPU that we may use. Raises ExperimentError when there is one."""
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            raise ExperimentError(
                "pin server and load generator apart", "there is one CPU",
                "run it where there are two or more",
            )  # fmt: skip
        return cls(cpus[-1], cpus[0])


@dataclass(frozen=True)
class Turn:
    """What one arm did in one round. Times are in µs."""

    requests: int
    throughput_rps: float  # by the wall clock
    cpu_us: float  # of all processes that serve
    idle_us: float  # of the CPU that they are pinned to
    wall_us: float

    @property
    def undisturbed(self) -> bool:
        """Whether it had its CPU: the rest others took, or it waited for the generator."""
        return self.cpu_us + self.idle_us >= UNDISTURBED * self.wall_us


def compare(folder: Path, report: Report) -> dict[str, Any]:
    """Runs the rounds. Returns, for each depth, each arm's figures and the ratio of the arms."""
    place = Place.choose()
    cases.write({folder / "empty.bin": CONDITION.workload}, seed=1)
    with foremost():
        turns, resident = take_turns(place, folder, report)
    return {
        "resident_bytes": resident,
        "connections": CONDITION.connections,
        "frame_bytes": {"request": REQUEST_BYTES, "reply": REPLY_BYTES},
        "cpus": {"service": place.server, "load": place.client},
        "by_depth": {
            str(depth): figures(turns[depth, "echo"], turns[depth, "epoll"]) for depth in DEPTHS
        },
    }


@contextmanager
def foremost() -> Iterator[None]:
    """Where the scheduler shares CPUs among sessions first (sched_autogroup), ours comes before
    others meanwhile: there nice only counts within a session."""
    try:
        group = AUTOGROUP.read_text()
    except OSError:  # a kernel without it
        group = ""
    if not group:  # the task is in none: proc_sched_autogroup_show_task(), 6.18
        yield
        return
    AUTOGROUP.write_text("-20")
    try:
        yield
    finally:
        AUTOGROUP.write_text(group.split()[-1])


Turns = dict[tuple[int, str], list[Turn]]  # by depth and arm, in order of rounds


def take_turns(place: Place, folder: Path, report: Report) -> tuple[Turns, dict[str, int]]:
    """All rounds, and the memory of the service's processes at the end. Raises
    ExperimentError."""
    turns: Turns = {}
    resident: dict[str, int] = {}
    for round_ in range(ROUNDS):
        report(f"saturation, round {round_ + 1} of {ROUNDS}", ROUND_S)
        for arm in ("echo", "epoll") if round_ % 2 else ("epoll", "echo"):
            with echo(place) if arm == "echo" else service(place, folder) as (port, pids):
                for depth in DEPTHS:
                    turn = measure(arm, port, pids.values(), depth, place, folder)
                    turns.setdefault((depth, arm), []).append(turn)
                resident |= {name: resident_bytes(pid) for name, pid in pids.items()}
    return turns, resident


def figures(echo: list[Turn], epoll: list[Turn]) -> dict[str, Any]:
    """Medians over the undisturbed rounds, and of the ratios of the arms within a round.

    Raises ExperimentError when there are too few of these.
    """
    pairs = [pair for pair in zip(echo, epoll, strict=True) if pair[1].undisturbed]
    if len(pairs) < ROUNDS_LEAST:
        raise ExperimentError(
            "saturate a CPU",
            f"in {len(echo) - len(pairs)} of {len(echo)} rounds the service had less than "
            f"{UNDISTURBED:.0%} of it",
            "let the machine do nothing else meanwhile, and try again",
        )
    ours = [turn.requests / (turn.cpu_us + turn.idle_us) * 1e6 for _, turn in pairs]
    bare = [turn.requests / turn.cpu_us * 1e6 for turn, _ in pairs]
    return {
        "saturated": median(turn.idle_us / turn.wall_us for turn, _ in pairs) <= IDLE_MOST,
        "epoll_per_cpu_second": median(ours),
        "echo_per_cpu_second": median(bare),
        "ratio": median(a / b for a, b in zip(ours, bare, strict=True)),
        "epoll_rps": median(turn.throughput_rps for _, turn in pairs),
        "echo_rps": median(turn.throughput_rps for turn, _ in pairs),
        "wall_ratio": median(b.throughput_rps / a.throughput_rps for a, b in pairs),
        "rounds": {"echo": list(map(asdict, echo)), "epoll": list(map(asdict, epoll))},
    }


Serving = tuple[int, dict[str, int]]  # port, and the ids of the processes that serve


@contextmanager
def echo(place: Place) -> Iterator[Serving]:
    """A bare echo server. Raises ExperimentError when it does not start."""
    command = [*pinned(place.server), str(programs.native_program("echo-epoll")), "--port", "0"]
    command += ["--request", str(REQUEST_BYTES), "--reply", str(REPLY_BYTES)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        with process.stdout:
            said = process.stdout.readline()
        found = re.search(r"port (\d+)", said)
        if not found:
            raise programs.failed("start the echo server", command, process.wait(), said)
        yield int(found[1]), {"echo": process.pid}
    finally:
        programs.end(process, 2.0)


@contextmanager
def service(place: Place, folder: Path) -> Iterator[Serving]:
    """Transport epoll with the CPU executor, which sleeps when it has nothing to do: spinning, it
    would take turns with the server on their CPU. Raises ExperimentError."""
    serve = Service("epoll", CONDITION, folder / "service.log")
    serve.command = [*pinned(place.server), *serve.command, *EXECUTOR_OPTIONS]
    with serve:
        state = serve.state()
        processes = {"supervisor": state["supervisor"], **state["processes"]}
        yield int(state["port"]), {name: int(who["pid"]) for name, who in processes.items()}


def measure(
    arm: str, port: int, pids: Collection[int], depth: int, place: Place, folder: Path
) -> Turn:
    """One closed-loop load. Raises ExperimentError when a request failed."""
    result = folder / "load.json"
    command = [
        *pinned(place.client), str(programs.native_program("load")), "--port", str(port),
        "--closed", "--connections", str(CONDITION.connections), "--depth", str(depth),
        "--warmup", str(WARMUP_S), "--duration", str(MEASURED_S), "--json", str(result),
    ]  # fmt: skip
    if arm == "echo":
        command += ["--echo", "--request", str(REQUEST_BYTES), "--reply", str(REPLY_BYTES)]
    else:
        command += ["--cases", str(folder / "empty.bin")]
    before = cpu_us(pids), idle_us(place.server), time.monotonic_ns() / 1e3
    programs.output_of(command, f"saturate {arm}")
    after = cpu_us(pids), idle_us(place.server), time.monotonic_ns() / 1e3
    load = json.loads(result.read_text())
    requests = load["verified"] + load["warmup"]["verified"]
    used = (then - now for now, then in zip(before, after, strict=True))
    return Turn(requests, load["throughput_rps"], *used)


def pinned(cpu: int) -> list[str]:
    """What comes before a command to keep it, and its children, on one CPU, before all others."""
    return ["nice", "--adjustment=-20", "taskset", "--cpu-list", str(cpu)]


def cpu_us(pids: Collection[int]) -> float:
    """Exact CPU time of some processes so far."""
    return sum(time.clock_gettime_ns(process_clock(pid)) for pid in pids) / 1e3


def idle_us(cpu: int) -> float:
    """What a CPU idled so far, to a tick."""
    lines = map(str.split, Path("/proc/stat").read_text().splitlines())
    fields = next(line for line in lines if line[0] == f"cpu{cpu}")
    return (int(fields[4]) + int(fields[5])) * TICK_US
