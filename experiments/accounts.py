"""CPU accounts: what the kernel has charged to whom so far. They are apart, and never added.

| account         | source                                    | resolution                         |
|-----------------|-------------------------------------------|------------------------------------|
| `service`       | cpu.stat of the instance's cgroup         | exact                              |
| `service.ticks` | taskstats: ticks of the service's threads | a tick, 4 ms or less               |
| `executor`      | cpu.stat of the instance's cgroup         | exact                              |
| `loop`          | schedstat of the loop's thread            | exact                              |
| `client`        | CPU clock of the load generator's process | exact                              |
| `burner`        | the same, of a process that burns on purpose | exact                       |
| `observer`      | the clock of the process that reads them  | exact                              |
| `machine`       | /proc/schedstat: run time of all tasks    | exact; see below                   |
| `by_tick`       | /proc/stat: wall time × CPUs less idle    | a tick, where idle times are short |

A task's run time is brought up to date at each tick, so "exact" is within a tick at either end.
The service's user and system time are its exact time, split as the ticks between two samples are.

Interrupts and softirqs stick to the task that they interrupt, so `machine` has them, but for those
of an idle CPU, which experiments/idle_interrupts.py times. Where the kernel accounts them apart
(CONFIG_IRQ_TIME_ACCOUNTING), no task has them, and /proc/stat has them all, exactly: there they are
added, and nothing is missing. Idle time in /proc/stat is exact only while the tick is
stopped, that is in idle times above 4 ms, which a loaded server has none of; else the tick samples
it (kernel/sched/cputime.c), and loses busy time when the hypervisor lets a CPU wait. So `machine`
is not made from it where /proc/schedstat exists.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.closing import Closing
from experiments.task_ticks import TaskTicks

Raw = dict[str, Any]  # what a reading got, as the kernel wrote it
Sample = dict[str, float]  # µs so far by account, and `at`: µs of CLOCK_MONOTONIC

TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")
MACHINE_SCHEDSTAT = Path("/proc/schedstat")
_STAT = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


class Accounts(Closing):
    """The accounts of one run, open for reading again and again.

    `service` and `executor` are cgroups, `threads` the ids of the service's threads, `loop` is one
    of these, or None; `client` is the load generator's process id, where it is one of this machine,
    `burner` that of a handicap. Raises OSError when one is gone, ExperimentError without taskstats.
    """

    def __init__(
        self,
        service: Path,
        executor: Path,
        threads: Iterable[int],
        loop: int | None,
        client: int | None,
        burner: int | None = None,
    ) -> None:
        self._threads, self._loop = tuple(threads), loop
        processes = {"client": client, "burner": burner}
        self._clocks = {name: process_clock(pid) for name, pid in processes.items() if pid}
        paths = {
            "service": service / "cpu.stat",
            "executor": executor / "cpu.stat",
            "machine": Path("/proc/stat"),
        }
        if MACHINE_SCHEDSTAT.exists():  # with CONFIG_SCHEDSTATS
            paths["tasks"] = MACHINE_SCHEDSTAT
        if loop is not None:
            paths["loop"] = Path(f"/proc/{loop}/schedstat")
        self._files: dict[str, int] = {}
        self._ticks = TaskTicks()
        self._seen: dict[int, tuple[float, float]] = {}
        try:
            for name, path in paths.items():
                self._files[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except BaseException:
            self.close()
            raise

    def read(self) -> Raw:
        """All accounts now, one right after another: a dozen system calls, and no parsing, which
        would cost an emulated CPU more than the request path. Raises OSError when one is gone."""
        raw: Raw = {"at": time.monotonic_ns()}
        for name, fd in self._files.items():
            raw[name] = os.pread(fd, 65536, 0).decode()
        for tid in self._threads:
            with contextlib.suppress(ProcessLookupError):  # it ended, and keeps what it had
                self._seen[tid] = self._ticks.read(tid)
        raw["ticks"] = list(self._seen.values())
        if self._loop is not None:
            raw["loop.ticks"] = self._seen[self._loop]
        for name, clock in self._clocks.items():
            raw[name] = time.clock_gettime_ns(clock)
        raw["observer"] = time.process_time_ns()
        return raw

    def close(self) -> None:
        """Ends the reading."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
        self._ticks.close()


def process_clock(pid: int) -> int:
    """The clock of a process's CPU time, as clock_getcpuclockid(3) makes it: exact, all threads,
    those that ended included."""
    return ~pid << 3 | 2  # CPUCLOCK_SCHED


def parse(raw: Raw) -> Sample:
    """The figures of a reading. Raises KeyError or ValueError when it is not one."""
    sample: Sample = {
        "at": raw["at"] / 1e3,
        "service": parse_cpu_stat(raw["service"]),
        "service.ticks.user": sum(user for user, _ in raw["ticks"]),
        "service.ticks.system": sum(system for _, system in raw["ticks"]),
        "executor": parse_cpu_stat(raw["executor"]),
        "observer": raw["observer"] / 1e3,
    }
    for kind, value in parse_proc_stat(raw["machine"]).items():
        sample[f"machine.{kind}"] = value
    if "tasks" in raw:
        sample["tasks"] = parse_machine_schedstat(raw["tasks"])
    for name in {"client", "burner"} & raw.keys():
        sample[name] = raw[name] / 1e3
    if "loop" in raw:
        sample["loop"] = parse_schedstat(raw["loop"])
        sample["loop.ticks.user"], sample["loop.ticks.system"] = raw["loop.ticks"]
    return sample


def parse_cpu_stat(text: str) -> float:
    """Run time in µs of a cgroup, from its cpu.stat. Raises KeyError where it is missing."""
    values = dict(line.split() for line in text.splitlines())
    return float(values["usage_usec"])


def parse_proc_stat(text: str) -> dict[str, float]:
    """µs of all CPUs together by kind, from /proc/stat. guest time is part of user there."""
    numbers = text.split("\n", 1)[0].split()[1:]
    return {kind: int(n) * TICK_US for kind, n in zip(_STAT, numbers, strict=False)}


def parse_schedstat(text: str) -> float:
    """Run time in µs of one task's schedstat."""
    return int(text.split()[0]) / 1e3


def parse_machine_schedstat(text: str) -> float:
    """Run time in µs of all tasks on all CPUs, from /proc/schedstat."""
    # The seventh number of a CPU's line, in every version of the file so far (15 to 17).
    lines = [line.split() for line in text.splitlines() if line.startswith("cpu")]
    return sum(int(fields[7]) for fields in lines) / 1e3


def within(samples: Iterable[Sample], start_us: float, end_us: float) -> tuple[Sample, Sample]:
    """The first and the last sample of a window. Raises ValueError when it has less than two."""
    inside = [sample for sample in samples if start_us <= sample["at"] <= end_us]
    if len(inside) < 2:
        raise ValueError(f"{len(inside)} samples in {(end_us - start_us) / 1e6:g} s")
    return inside[0], inside[-1]


def spent(first: Sample, last: Sample, cpus: int, irq_apart: bool = False) -> Sample:
    """µs of CPU by account between two samples, and `at`: the wall time between.

    `service.user` and `service.system` add up to `service`. `irq_apart`: whether the kernel
    accounts interrupts apart.
    """
    used = {name: last[name] - first[name] for name in first if name in last}
    idle = used["machine.idle"] + used["machine.iowait"]
    used["by_tick"] = used["at"] * cpus - idle
    used["machine"] = used.get("tasks", used["by_tick"])
    if irq_apart and "tasks" in used:
        used["machine"] += used["machine.irq"] + used["machine.softirq"]
    user, system = used["service.ticks.user"], used["service.ticks.system"]
    used["service.user"] = used["service"] * user / (user + system) if user else 0.0
    used["service.system"] = used["service"] - used["service.user"]
    return used
