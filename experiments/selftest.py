"""`selftest`: which CPU account finds a known amount of CPU, how exactly, and what each misses.

One CPU burns in user mode, in the kernel, on an io_uring's threads, in softirq inside the calls of
a task, and in softirq while it has nothing else to do (experiments/burns.py); all accounts are read
before and after. Where the CPU is the machine's only one, a counting process of the lowest priority
is an account too (experiments/soak.py): it says what it could not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from experiments import burns, environment, place
from experiments.accounts import Accounts, Sample, parse, spent
from experiments.burns import Burn, Burner, Burnt
from experiments.cgroups import groups
from experiments.errors import ExperimentError
from experiments.idle_interrupts import IdleInterrupts
from experiments.soak import Soak

TRIES = 3
WITHIN = 0.02
VM_TAKES_S = 60.0  # expected, on an emulated CPU
PAUSE_S = 0.3
RATE_S, RATES = 0.3, 3
SHORT_BURNS, SHORTEST_S, LONGEST_S = 20, 0.001, 0.010
READER_PRIORITY = burns.PRIORITY + 10
USER, SYSTEM, SOFTIRQ, IDLE = "user", "system", "softirq", "idle softirq"
WORKER, SQPOLL, COUNTED = "io_uring worker", "SQPOLL", "counted softirq"
BURNS: dict[str, Callable[[], Burn]] = {
    USER: burns.user,
    SYSTEM: burns.system,
    WORKER: burns.io_uring_worker,
    SQPOLL: burns.io_uring_sqpoll,
    SOFTIRQ: burns.softirq,
    IDLE: burns.idle_softirq,
    COUNTED: burns.idle_softirq,  # beside the counter, which the CPU is then never without
}
# Burns that differ from others by what is known: the other's figures are taken off.
BLANKS = {IDLE: burns.idle_packets, COUNTED: burns.idle_packets}
TASKS = (USER, SYSTEM, WORKER, SQPOLL, SOFTIRQ)
Json = dict[str, Any]


@dataclass(frozen=True)
class Account:
    """`name` as accounts.spent() has it; `finds`: the burns that are its own. It ought to find them
    within 2 %, unless it only samples, at ticks: then it is shown what that comes to."""

    title: str
    name: str
    finds: tuple[str, ...]
    samples: bool = False


ACCOUNTS = (
    Account("cpu.stat of the cgroup", "service", TASKS),
    Account("schedstat of the thread", "loop", (USER, SYSTEM, SOFTIRQ)),
    Account("CPU clock of the process", "client", TASKS),
    Account("/proc/schedstat", "tasks", TASKS),
    Account("interrupts of an idle CPU", "idle", (IDLE,)),
    Account("counter of lowest priority", "soak", TASKS),
    Account("/proc/stat, not idle", "by_tick", TASKS, True),
    Account("/proc/stat, user", "machine.user", (USER,), True),
    Account("/proc/stat, system", "machine.system", (SYSTEM,), True),
    Account("/proc/stat, softirq", "machine.softirq", (SOFTIRQ,), True),
    Account("taskstats, user", "service.ticks.user", (USER,), True),
    Account("taskstats, system", "service.ticks.system", (SYSTEM,), True),
)


def run(seconds: float) -> Json:
    """All burns, each so long: below 0.95 s. Leaves scheduling and cgroups as they were.

    Raises ExperimentError.
    """
    if os.geteuid():
        said = f"user {os.geteuid()} may not use real-time priorities and cgroups (EPERM)"
        raise ExperimentError("test the accounts", said, "run it as root (sudo)")
    affinity, policy = os.sched_getaffinity(0), os.sched_getscheduler(0)
    parameters = os.sched_getparam(0)
    try:
        os.sched_setaffinity(0, {max(affinity)})
        with groups("selftest") as folders:
            bench = Bench(seconds, max(affinity), *folders)
            return bench.run(counting=os.cpu_count() == 1)
    finally:
        os.sched_setscheduler(0, policy, parameters)
        os.sched_setaffinity(0, affinity)


class Bench:
    """How long each burn is, the CPU, the cgroup, and the counter once there is one."""

    def __init__(self, seconds: float, cpu: int, service: Path, executor: Path) -> None:
        self._seconds, self._cpu = seconds, cpu
        self._service, self._executor = service, executor
        self._soak: Soak | None = None
        self._idle = IdleInterrupts()
        self._rate = 0.0  # counts a second of an idle CPU

    def run(self, counting: bool) -> Json:
        """Every burn that can be had here; `counting`: with the counter where that is possible."""
        found: dict[str, Json] = {}
        skipped: dict[str, str] = {}

        def burn(name: str) -> None:
            try:
                found[name] = middle([self._burn(name) for _ in range(TRIES)])
            except ExperimentError as error:
                skipped[name] = error.said

        self._read_at_once()
        with ExitStack() as stack:
            stack.enter_context(self._idle)
            burn(IDLE)
            if counting:
                self._count(stack)
            for name in (*TASKS, *([COUNTED] if counting else [])):
                burn(name)
            resolution = self._resolution()
        return {
            "burns": {name: found[name] for name in BURNS if name in found},
            "skipped": skipped,
            "resolution_us": resolution,
            "environment": environment.machine(),
        }

    @staticmethod
    def _read_at_once() -> None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(READER_PRIORITY))

    def _count(self, stack: ExitStack) -> None:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # which a child inherits
        self._soak = stack.enter_context(Soak())
        self._read_at_once()
        self._rate = max(self._soak.rate(RATE_S) for _ in range(RATES))

    def _burn(self, name: str) -> Json:
        burnt, used = self._once(BURNS[name])
        if name in BLANKS:
            _, blank = self._once(BLANKS[name])
            used = {key: value - blank.get(key, 0.0) for key, value in used.items()}
        return {
            "known_us": burnt.known / 1e3,
            "softirq_us": burnt.softirq / 1e3,
            "found_us": {one.name: used[one.name] for one in ACCOUNTS if one.name in used},
        }

    def _once(self, make: Callable[[], Burn]) -> tuple[Burnt, Sample]:
        with self._burning(make) as (burner, accounts):
            return self._measure(burner, accounts, self._seconds)

    @contextmanager
    def _burning(self, make: Callable[[], Burn]) -> Iterator[tuple[Burner, Accounts]]:
        with Burner(self._service, make) as burner:
            time.sleep(PAUSE_S)  # what it took to prepare is over, and others had the CPU
            pid = burner.pid
            with Accounts(self._service, self._executor, [pid], pid, pid) as accounts:
                yield burner, accounts

    def _measure(self, burner: Burner, accounts: Accounts, seconds: float) -> tuple[Burnt, Sample]:
        first = self._read(accounts)
        burnt = burner.burn(seconds)
        last = self._read(accounts)
        used = spent(first, last, cpus=1)
        if self._soak:
            used["soak"] = used["at"] - used["counted"] / self._rate * 1e6
        return burnt, used

    def _read(self, accounts: Accounts) -> Sample:
        """Of the machine, this CPU alone."""
        raw = accounts.read()
        counted = self._soak.counted if self._soak else 0
        for name in {"machine", "tasks"} & raw.keys():
            lines = raw[name].splitlines()
            raw[name] = next(line for line in lines if line.startswith(f"cpu{self._cpu} "))
        timed = {} if self._idle.unknown else {"idle": self._idle.us(self._cpu)}
        return {**parse(raw), **timed, "counted": counted}

    def _resolution(self) -> dict[str, float]:
        """µs by which each account is off, at most, for short burns in user mode."""
        randomness = Random(1)
        worst: dict[str, float] = {}
        with self._burning(burns.user) as (burner, accounts):
            for _ in range(SHORT_BURNS):
                seconds = randomness.uniform(SHORTEST_S, LONGEST_S)
                burnt, used = self._measure(burner, accounts, seconds)
                for one in ACCOUNTS:
                    if one.name in used and USER in one.finds:
                        off = abs(used[one.name] - burnt.known / 1e3)
                        worst[one.name] = max(worst.get(one.name, 0.0), off)
        return worst


def middle(tries: list[Json]) -> Json:
    """Of some burns the one of which the machine's account found a middling share: what others run
    now and then is in that account too, of one burn or of its blank."""
    machine = next(one for one in ACCOUNTS if one.title == "/proc/schedstat")
    return sorted(tries, key=lambda burn: share(burn, machine) or 0.0)[len(tries) // 2]


def share(burn: Json, account: Account) -> float | None:
    """What an account found of what it could: 1 is all. None where there is no such account."""
    found = burn["found_us"].get(account.name)
    if found is None:
        return None
    part = burn["softirq_us"] if account.name == "machine.softirq" else burn["known_us"]
    return float(found / part) if part else None


def problems(result: Json) -> list[str]:
    """Burns that an account ought to have found within 2 %, and has not, in words."""
    found = []
    for account in ACCOUNTS:
        for name in () if account.samples else account.finds:
            burn = result["burns"].get(name)
            part = share(burn, account) if burn else None
            if part is not None and abs(part - 1) > WITHIN:
                found.append(f"{account.title} found {part:.1%} of {name}")
    return found


def run_and_show(seconds: float, file: Path | None) -> int:
    """Writes the result to a file too, if one is named. Gives the exit status: 1 when an account
    does not find what it ought to. Raises ExperimentError."""
    result = run(seconds)
    if file:
        file.write_text(json.dumps(result, indent=2) + "\n")
    show(result)
    missed = problems(result)
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


def run_in_vm(seconds: float, file: Path | None) -> int:
    """The same where a nanosecond of run time is an instruction. Raises ExperimentError."""
    where = place.find((), VM_TAKES_S, exact=True)
    if file:
        where.check_sees(file.parent)
    words = ["-m", "loader", "ab", "selftest", "--seconds", str(seconds)]
    words += ["--json", str(file.absolute())] if file else []
    command = [*where.prefix, where.python, *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode


def show(result: Json) -> None:
    """Prints what each account found of each burn."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Found of what was burnt, Linux {result['environment']['kernel']}")
    for title in ("account", *result["burns"], "short burns\noff by, µs"):
        table.add_column(title, justify="left" if title == "account" else "right")
    for account in ACCOUNTS:
        parts = [share(burn, account) for burn in result["burns"].values()]
        off = result["resolution_us"].get(account.name)
        cells = ["-" if part is None else f"{part:.2%}" for part in parts]
        table.add_row(account.title, *cells, "-" if off is None else f"{off:,.0f}")
    known = [f"{burn['known_us'] / 1e3:.0f} ms" for burn in result["burns"].values()]
    table.add_row("burnt", *known, "")
    Console(width=140).print(table)
    for name, why in result["skipped"].items():
        print(f"not burnt: {name}: {why}")
