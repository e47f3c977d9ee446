# SPDX-License-Identifier: MIT
"""A service at 70 % of what it can do while clients come and go: at the end its accounts balance
and nothing has grown."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kernel import bpf_objects
from tests.kernel.generator import Load
from tests.kernel.left import pins
from tests.soak.churner import Churner
from tests.support import sockets
from tests.support.service import Options, Service

SHARE = 0.7
CONNECTIONS, DEPTH = 32, 4
CHURN = 200  # requests of a generator's connection before it is opened anew
SAMPLES = 60
# A host that takes the VM's CPUs away for a fifth of a second fills all slots: then BUSY is the
# right answer. So many of all requests may get it.
BUSY_SHARE = 0.001
# Memory may move by so much between the second quarter of a run and its last one.
GROWTH_KIB = 1024
OBJECTS = {"programs": bpf_objects.PROGRAM, "maps": bpf_objects.MAP, "links": bpf_objects.LINK}

Say = Callable[[str], None]


@dataclass
class Outcome:
    """What a run came to. `problems` is empty when all is well."""

    saturation_rps: float = 0.0
    sent: int = 0
    busy: int = 0
    lives: dict[str, int] = field(default_factory=dict)
    samples: list[dict[str, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def soak(seconds: float, seed: int, say: Say, transport: str = "bpf") -> Outcome:
    """Starts a service and loads it for so long. Raises AssertionError when it cannot end."""
    outcome = Outcome()
    service = Service(Options(transport))
    try:
        outcome.saturation_rps = saturation(service)
        rate = SHARE * outcome.saturation_rps
        say(f"saturation {outcome.saturation_rps:.0f} requests/s; {rate:.0f}/s for {seconds:.0f} s")
        churner = Churner(service.address, seed)
        churner.start()
        running = Load(
            service, "--rate", f"{rate:.0f}", "--duration", f"{seconds:.0f}", "--seed", str(seed),
            "--connections", str(CONNECTIONS), "--churn", str(CHURN),
        )  # fmt: skip
        watch(service, seconds, outcome, say)
        report = running.result(limit_s=seconds + 300)
        churner.end()
        judge(service, report, churner, outcome)
    finally:
        service.stop()
    return outcome


def saturation(service: Service) -> float:
    """Requests a second in a closed loop."""
    options = ("--connections", str(CONNECTIONS), "--depth", str(DEPTH))
    report = Load(service, "--closed", *options, "--duration", "4").result()
    return float(report["throughput_rps"])


def watch(service: Service, seconds: float, outcome: Outcome, say: Say) -> None:
    """Takes samples until the time is over."""
    end = time.monotonic() + seconds
    shown = 0.0
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, max(0.5, seconds / SAMPLES)))
        outcome.samples.append(sample(service))
        if time.monotonic() > shown + 30:
            shown = time.monotonic()
            words = ", ".join(f"{name} {value}" for name, value in outcome.samples[-1].items())
            say(f"{end - shown:.0f} s left: {words}")


def sample(service: Service) -> dict[str, int]:
    """What may not grow, and what has been done meanwhile."""
    processes = service.state["processes"] | {"supervisor": service.state["supervisor"]}
    counters = service.counters()
    return {
        "requests": counters["egress"]["replies"],
        "connections": counters["egress"]["connections_closed"],
        **{f"{name}_kib": memory_kib(one["pid"]) for name, one in processes.items()},
        **{f"{name}_files": descriptors(one["pid"]) for name, one in processes.items()},
        **{name: len(bpf_objects.ids(command)) for name, command in OBJECTS.items()},
        "pins": len(list(pins())),
        "sockets": sum(sockets.states(service.address[1]).values()),
    }


def memory_kib(pid: int) -> int:
    """What a process has allocated, in KiB: its private writable mappings.

    Not what of them is resident: khugepaged (`mm/khugepaged.c`) fills areas that are partly used
    with huge pages, 2 MiB at a time, every 10 s, and the process has allocated nothing. Not the
    shared page either, which counts as it is touched.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmData:\s+(\d+)", status)
    return int(found[1]) if found else 0


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def judge(service: Service, report: dict[str, Any], churner: Churner, outcome: Outcome) -> None:
    """Fills in what is wrong."""
    outcome.sent, outcome.lives = report["sent"], dict(churner.done)
    failures = {kind: count for kind, count in report["failures"].items() if count}
    outcome.busy = failures.pop("busy", 0)
    if failures or report["verified"] + outcome.busy != outcome.sent:
        outcome.problems.append(f"the generator's requests failed: {failures}")
    if outcome.busy > BUSY_SHARE * outcome.sent:
        outcome.problems.append(f"{outcome.busy} requests were refused: the machine is too busy")
    if churner.failures:
        outcome.problems.append(f"{len(churner.failures)} clients failed: {churner.failures[:5]}")
    service.settle()
    if entries := service.map_entries():
        outcome.problems.append(f"{entries} entries stay in the socket map")
    outcome.problems += unbalanced(service.counters())
    outcome.problems += grown(outcome.samples)


def unbalanced(counters: dict[str, dict[str, int]]) -> list[str]:
    """Accounts of a settled service that do not balance."""
    ingress, egress, executor = (counters[name] for name in ("ingress", "egress", "executor"))
    admitted = ingress["submit_tail"]
    equal = {
        "admitted and finished requests": (admitted, egress["finals"]),
        "taken and completed requests": (executor["submit_head"], executor["completed"]),
        "admitted and taken requests": (admitted, executor["submit_head"]),
        "accepted and closed connections": (
            egress["connections_accepted"], egress["connections_closed"],
        ),
        "entries claimed and given back": (
            ingress["free_connection_head"] + Options("").max_connections,
            egress["free_connection_tail"],
        ),
        "slots in use": (counters["depth"]["slots"], 0),
        # A result that came after its TIMEOUT is stale, too, but was answered.
        "requests, and what became of them": (
            admitted + ingress["frames_busy"] + ingress["frames_bad"],
            egress["replies"] + egress["discarded"] + egress["stale_results"] - egress["timeouts"],
        ),
    }  # fmt: skip
    return [f"{name}: {one} and {other}" for name, (one, other) in equal.items() if one != other]


def grown(samples: list[dict[str, int]]) -> list[str]:
    """What is larger in the last quarter of a run than in its second."""
    quarter = len(samples) // 4
    if quarter < 2:
        return ["too few samples to tell whether anything grows"]
    problems = []
    for name in samples[0].keys() - {"requests", "connections", "sockets"}:
        early, late = (
            statistics.median(one[name] for one in part)
            for part in (samples[quarter : 2 * quarter], samples[-quarter:])
        )
        if late > early + (GROWTH_KIB if name.endswith("_kib") else 0):
            problems.append(f"{name} has grown from {early:.0f} to {late:.0f}")
    return problems
