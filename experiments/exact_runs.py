"""Instruction-exact runs, in the VM under --icount: both transports, three rates, no executor.

A guest's nanosecond of run time is an instruction there, and one CPU takes part. Results fall due a
set time after their requests, and whoever looks for them makes them (`--executor due`), so nothing
computes beside. What starting and connecting cost falls out: each figure is the difference between
two loads with different numbers of requests, by the difference of these.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from experiments import programs
from experiments.accounts import parse_cpu_stat
from experiments.errors import ExperimentError
from experiments.plan import TRANSPORTS, Condition
from experiments.progress import Report, print_event
from experiments.service import Service
from experiments.soak import Soak

CASES, COUNTERS = "due.bin", "counters.jsonl"
RESULT = "runs.json"
RATES = {"low": 1000, "medium": 5000, "high": 20_000}
# Of the two loads at each rate: what is counted takes 0.6 to 1.8 s of guest time.
REQUESTS = {"low": (150, 1950), "medium": (300, 5300), "high": (300, 12_300)}
CONNECTIONS = 128
SERVICE_US = 20
SEED = 5
CASE_COUNT = 16
PAIRS = 3  # of such loads, by default; figures are medians
CALIBRATE_S = 0.2
COUNTERS_S = 0.2  # between readings of the page's counters
PATIENCE_S = 30.0  # guest time, for the first of them
PAIR_S, MACHINE_S, START_S = 4.0, 6.0, 8.0  # expected, on an emulated CPU


def expected_s(pairs: int) -> float:
    """How long all runs take."""
    return len(TRANSPORTS) * (START_S + len(RATES) * (pairs * PAIR_S + MACHINE_S))


def measure(
    folder: Path, pairs: int, wake_policy: str = "fixed", report: Report = print_event
) -> None:
    """Leaves the figures of all runs in the folder's runs.json. Raises ExperimentError."""
    figures: dict[str, dict[str, Any]] = {name: {} for name in RATES}
    for transport in TRANSPORTS:
        report(f"exact: starting {transport}", START_S)
        with serving(folder, transport, wake_policy) as arm:
            arm.load(RATES["medium"], REQUESTS["medium"][1])  # programs read, slots touched
            for name, rate in RATES.items():
                report(f"exact: {transport}, {name} rate", pairs * PAIR_S + MACHINE_S)
                figures[name][transport] = arm.figures(pairs, rate, *REQUESTS[name])
    (folder / RESULT).write_text(json.dumps(figures, indent=2) + "\n")


@dataclass
class Used:
    """What a load used, in instructions, and the page's counters."""

    service: float
    client: float
    counters: dict[str, int]
    latency_us: dict[str, float]


@contextmanager
def serving(folder: Path, transport: str, wake_policy: str = "fixed") -> Iterator[Arm]:
    """A service without an executor, and a reader of its counters. Raises ExperimentError."""
    condition = Condition(
        workload=f"due:service_us={SERVICE_US}", connections=CONNECTIONS, wake_policy=wake_policy
    )
    service = Service(transport, condition, folder / "service.log")
    with service:
        stats = programs.command_line("stats", "--instance", service.name, "--json")
        with (folder / COUNTERS).open("w") as file:
            stats += ["--watch", str(COUNTERS_S)]
            reader = subprocess.Popen(stats, stdin=subprocess.DEVNULL, stdout=file)
            try:
                wait_until_written(folder / COUNTERS)
                yield Arm(folder, service.state(), reader)
            finally:
                programs.end(reader, 5.0)


def wait_until_written(file: Path) -> None:
    """Until a line stands there. Raises ExperimentError."""
    for _ in range(int(PATIENCE_S / COUNTERS_S)):
        if "\n" in file.read_text():
            return
        time.sleep(COUNTERS_S)
    said = f"`stats` had printed nothing after {PATIENCE_S:g} s"
    raise ExperimentError("read the counters", said, "see whether the machine is overloaded")


class Arm:
    """A transport that serves, and loads for it."""

    def __init__(
        self, folder: Path, state: dict[str, Any], reader: subprocess.Popen[bytes]
    ) -> None:
        self._folder, self._reader, self._port = folder, reader, int(state["port"])
        self._account = Path(state["cgroups"]["service"]) / "cpu.stat"

    def figures(self, pairs: int, rate: int, few: int, many: int) -> dict[str, float]:
        """Of a request at that rate. Raises ExperimentError when one was not answered rightly."""
        found = [self._pair(rate, few, many) for _ in range(pairs)]
        middle = {name: median(pair[name] for pair in found) for name in found[0]}
        services = [pair["service"] for pair in found]
        service, client = round(middle["service"], 1), round(middle["client"], 1)
        return {
            **{name: round(value, 4) for name, value in middle.items()},
            "service": service,
            "client": client,
            "sum": round(service + client, 1),
            "machine": round(self._machine(rate, few, many), 1),
            "service_spread": round((max(services) - min(services)) / service, 5),
        }

    def _pair(self, rate: int, few: int, many: int) -> dict[str, float]:
        """What a request costs that one load has more than the other."""
        less, more = self.load(rate, few), self.load(rate, many)
        requests = many - few
        counted = {
            f"{name}_per_request": (more.counters[name] - less.counters[name]) / requests
            for name in more.counters
        }
        return {
            "service": (more.service - less.service) / requests,
            "client": (more.client - less.client) / requests,
            "p50_us": more.latency_us["p50"],
            "p99_us": more.latency_us["p99"],
            **counted,
        }

    def load(self, rate: int, requests: int) -> Used:
        """Runs one to its end. Raises ExperimentError when a reply was not the expected one."""
        before, service = self._counters(), self._service()
        client, latency_us = self._generate(rate, requests)
        # The counters come after a while, in which the service has closed the connections.
        now, service = self._counters(), self._service() - service
        counters = {name: now[name] - before[name] for name in now}
        return Used(service, client, counters, latency_us)

    def _generate(self, rate: int, requests: int) -> tuple[float, dict[str, float]]:
        """The generator's instructions, and the latency that it saw. Raises ExperimentError."""
        result, log = self._folder / "load.json", self._folder / "load.log"
        result.unlink(missing_ok=True)
        command = [
            str(programs.native_program("load")), "--port", str(self._port),
            "--cases", str(self._folder / CASES), "--connections", str(CONNECTIONS),
            "--rate", str(rate), "--arrivals", "poisson", "--seed", str(SEED),
            "--requests", str(requests), "--json", str(result),
        ]  # fmt: skip
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=file)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        load: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {}
        if load.get("verified") != requests:
            said = log.read_text(errors="replace")
            raise programs.failed("check replies", command, process.returncode, said)
        return (usage.ru_utime + usage.ru_stime) * 1e9, load["latency_us"]

    def _machine(self, rate: int, few: int, many: int) -> float:
        """Instructions of the whole machine for a request, interrupts included."""
        used = []
        self._reader.send_signal(signal.SIGSTOP)
        try:
            with Soak() as soak:
                idle = soak.rate(CALIBRATE_S)
                for requests in (few, many):
                    counted, began = soak.counted, time.monotonic()
                    self._generate(rate, requests)
                    seconds = time.monotonic() - began
                    used.append((seconds - (soak.counted - counted) / idle) * 1e9)
        finally:
            self._reader.send_signal(signal.SIGCONT)
        return (used[1] - used[0]) / (many - few)

    def _service(self) -> float:
        return parse_cpu_stat(self._account.read_text()) * 1e3

    def _counters(self) -> dict[str, int]:
        """The latest reading, which everything so far is in."""
        time.sleep(2.5 * COUNTERS_S)
        last = (self._folder / COUNTERS).read_text().splitlines()[-1]
        counters = json.loads(last)["counters"]
        ingress, egress = counters["ingress"], counters["egress"]
        return {
            "steps": egress["steps"],
            "timer_wakes": egress["timer_wakes"],
            "timer_looks": ingress["timer_looks"],
            "doorbell_wakes": egress["doorbell_wakes"],
        }
