"""A handicap of known size in one arm: what an experiment ought to find at its size.

`cpu`: a process in the service's cgroup uses so much more for each request, by its own clock. It
runs when nothing else wants the CPU, for a server that is slower itself would also wake up at other
times, and save elsewhere. `latency`: the load generator sends each request so much later than the
time that its latency counts from, as over a longer wire; nothing else changes.

Sizes are asked for as shares of what the baseline has in a run of its own before the others. What
was injected in the end is known better, from the process's clock in each run.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.plan import Plan, Run

# What each is a share of, and found in.
FIGURES = {"cpu": "machine_cpu_us", "latency": "p99_us"}
BURN_EVERY_S = 0.02


def parse(texts: Iterable[str]) -> dict[str, float]:
    """Shares by name, of `cpu=+10%` or `latency=+10%`. Raises ValueError."""
    found = {}
    for text in texts:
        match = re.fullmatch(r"(cpu|latency)=\+(\d+(?:\.\d+)?)%", text)
        if not match or not 0 < (share := float(match[2]) / 100) <= 1:
            said = f"{text!r} is neither cpu=+N% nor latency=+N%, N above 0 and up to 100"
            raise ValueError(said)
        found[match[1]] = share
    return found


@dataclass(frozen=True)
class Handicap:
    """Of an arm; none, but for what is given. `burnt` is a share of a CPU."""

    burnt: float = 0.0
    late_us: int = 0

    @contextmanager
    def burning(self, group: Path, like: int) -> Iterator[int | None]:
        """A process in a cgroup, on the CPUs of the process `like`, while the block runs; its id.
        None where nothing is to be burnt."""
        if not self.burnt:
            yield None
            return
        pid = os.fork()
        if not pid:
            try:
                _burn(self.burnt, group, like)
            finally:
                os._exit(1)
        try:
            yield pid
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _burn(share: float, group: Path, like: int) -> None:
    # Else what the parent counts with would stay open, and go on counting, until this ends.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    (group / "cgroup.procs").write_text("0")
    os.sched_setaffinity(0, os.sched_getaffinity(like))
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    began, used = time.monotonic(), time.thread_time()
    while True:
        until = used + share * (time.monotonic() - began)
        while time.thread_time() < until:
            pass
        time.sleep(BURN_EVERY_S)


def of_run(plan: Plan, run: Run, raw: Path) -> Handicap:
    """The arm's, by what the reference run of its point came to. Raises what summarise_run() does:
    a reference that cannot be read is no size."""
    if not plan.inject or run.arm != plan.handicapped or not run.pair:
        return Handicap()
    from experiments.summary import summarise_run  # which itself needs what measures
    from experiments.verdicts import figures

    (reference,) = (one for one in plan.references() if one.point == run.point)
    found = figures(summarise_run(plan, reference, raw / reference.name))
    us = {name: share * found[FIGURES[name]] for name, share in plan.inject.items()}
    burnt = us.get("cpu", 0.0) * 1e-6 * found["throughput_rps"]
    return Handicap(burnt, round(us.get("latency", 0.0)))


def injected(used: dict[str, float], answered: int, late_us: int) -> dict[str, float]:
    """µs a request by name, of a run; none that is not there."""
    found: dict[str, Any] = {"cpu": used.get("burner", 0.0) / answered, "latency": float(late_us)}
    return {name: us for name, us in found.items() if us}
