"""From raw data to `summary.json`: counts, latency, CPU µs a request by account, counters."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from experiments.accounts import Sample, parse, spent, within
from experiments.errors import ExperimentError
from experiments.handicap import injected
from experiments.hypervisor import kept
from experiments.measure import ENVIRONMENT, RUN, complete
from experiments.plan import Plan, Run, labels
from experiments.records import answered_between, read_verified

# Accounts shown a request; a transport that has no such account has no such key.
ACCOUNTS = {
    "service.user": "service_user",
    "service.system": "service_system",
    "executor": "executor",
    "machine": "machine",
    "idle": "idle_interrupts",
    "loop": "loop",
    "client": "client",
    "observer": "observer",
    "vm": "vm_on_host",
    "by_tick": "machine_by_tick",
}
# Of /proc/stat, as they are shown.
KINDS = {
    "user": ("user", "nice"),
    "system": ("system",),
    "irq": ("irq",),
    "softirq": ("softirq",),
    "steal": ("steal",),
    "idle": ("idle", "iowait"),
}
# Counters shown a reply: (name, its group and name on the page).
COUNTERS = {
    "loop_steps": ("egress", "steps"),
    "timer_wakes": ("egress", "timer_wakes"),
    "doorbell_wakes": ("egress", "doorbell_wakes"),
    "sqes": ("egress", "submissions"),
    "sends": ("egress", "sends"),
    "executor_steps": ("executor", "steps"),
    "batches": ("executor", "launches"),
}
REPLIES = ("egress", "replies")

Json = dict[str, Any]


def summarise(raw: Path) -> Json:
    """The summary of an experiment: its complete runs, in the order in which they ran.

    Raises ExperimentError when there is none, or raw data are missing or damaged.
    """
    try:
        plan = Plan.read(raw)
        environment = json.loads((raw / ENVIRONMENT).read_text())
        done = [run for run in plan.runs() if complete(raw / run.name)]
        runs, unmeasured = [], []
        for run in done:
            try:
                runs.append(summarise_run(plan, run, raw / run.name))
            except Unmeasured as why:
                unmeasured.append(f"Run {run.number} ({run.arm}) has no figures: {why}.")
        host = json.loads((raw / "host.json").read_text())
    except (OSError, ValueError, KeyError) as error:
        raise ExperimentError(
            f"read the raw data in {raw}", f"{type(error).__name__}: {error}",
            "run it again, to its end",
        ) from error  # fmt: skip
    if not runs:
        said = "\n".join(unmeasured) or "no run is complete"
        raise ExperimentError(f"read the raw data in {raw}", said, "run it again")
    return {
        "kernel": environment["kernel"],
        "runs": runs,
        "runs_missing": plan.run_count() - len(done),
        "unmeasured": unmeasured,
        "plan": asdict(plan),
        "arms": list(plan.arms),
        "points": {
            point: {"label": label, "condition": asdict(plan.points[point])}
            for point, label in labels(plan.points).items()
        },
        "environment": environment,
        "host": host,
    }


def of_point(summary: Json, point: str) -> Json:
    """The part of a summary that is about one point, with its `condition` and `label`."""
    runs = [run for run in summary["runs"] if run["point"] == point]
    return {**summary, **summary["points"][point], "runs": runs}


class Unmeasured(Exception):
    """A run that fell so far behind that its CPU accounts say nothing."""


def summarise_run(plan: Plan, run: Run, folder: Path) -> Json:
    """One run. Raises Unmeasured, OSError, ValueError or KeyError."""
    load = json.loads((folder / "load.json").read_text())
    facts = json.loads((folder / RUN).read_text())
    ahead_us = facts.get("clock_ahead_ns", 0) / 1e3  # of the load's, on another machine
    start_us = load["measured_from_monotonic_ns"] / 1e3 + ahead_us
    # To the last reply: a service that fell behind answers after the measured time.
    end_us = start_us + max(plan.timing.measured, load["span_s"]) * 1e6
    samples = read_samples(folder)
    try:
        first, last = within(samples, start_us, end_us)
    except ValueError:
        raise Unmeasured("its accounts were not read twice in the measured time") from None
    window = first["at"] - ahead_us, last["at"] - ahead_us
    answered = answered_between(read_verified(folder), *window)
    if not answered:
        raise Unmeasured("no verified reply while the accounts were read")
    irq_apart = accounts_interrupts_apart(folder.parent)
    used = spent(first, last, facts["cpus"], irq_apart)
    if "client" not in used:
        used["client"] = load["cpu"]["total_s"] * 1e6 / load["sent"] * answered
    idle = facts.get("idle_interrupts", {"unknown": "they were not timed"})
    if irq_apart:
        idle = {}  # all are in the machine's
    if "us" in idle:
        used["idle"] = idle["us"] / idle["seconds"] * used["at"] / 1e6
    calls = facts["system_calls"]
    late_us = facts.get("handicap", {}).get("late_us", 0)
    reasons = [*load["invalid_reasons"], *unsettled(facts.get("settled_s", 0.0))]
    counters = json.loads((folder / "counters.json").read_text())["counters"]
    return {
        "arm": run.arm,
        "transport": run.transport,
        "point": run.point,
        "pair": run.pair,
        "workload": plan.points[run.point].workload,
        "sent": load["sent"],
        "verified": load["verified"],
        "failures": load["failures"],
        "throughput_rps": load["throughput_rps"],
        "injected_us": injected(used, answered, late_us),
        "latency_us": {key: load["latency_us"][key] for key in PERCENTILES},
        "streams": load.get("streams"),
        "cpu_us_per_request": per_request(used, answered),
        "loop_user_us": used.get("loop.ticks.user"),
        "service_syscalls_after_start": None
        if calls["unknown"]
        else sum(thread["calls"] for thread in calls["threads"]),
        "number": run.number,
        "rate": facts["rate"],
        "seed": run.seed,
        "valid": not reasons,
        "invalid_reasons": reasons,
        "warmup_failures": load["warmup"]["failures"],
        "loop_run_us": used.get("loop"),
        "service_ticks_us": {mode: used[f"service.ticks.{mode}"] for mode in ("user", "system")},
        "accounted": {"seconds": used["at"] / 1e6, "requests": answered},
        "machine_busy_share": used["machine"] / (used["at"] * facts["cpus"]),
        "machine_at_ticks": machine_at_ticks(used, facts["cpus"]),
        "machine_source": "/proc/schedstat" if "tasks" in used else "/proc/stat",
        "syscall_window": calls,
        "idle_interrupts_unknown": idle.get("unknown", ""),
        "counters_per_reply": counters_per_reply(counters),
        "commands": facts["commands"],
    }


def accounts_interrupts_apart(raw: Path) -> bool:
    """Whether the kernel that was measured on does. Raises OSError or ValueError."""
    accounting = json.loads((raw / ENVIRONMENT).read_text()).get("accounting", {})
    return bool(accounting.get("CONFIG_IRQ_TIME_ACCOUNTING") == "y")


def unsettled(settled_s: float) -> list[str]:
    """Why a run is not valid whose warm-up was over so long after what is counted in it."""
    if settled_s >= 0:
        return []
    return [
        f"what the warm-up counts was still being counted {-settled_s:.2f} s after its end: "
        "give a longer warmup_s, of which two thirds are for this"
    ]


def machine_at_ticks(used: Sample, cpus: int) -> dict[str, float]:
    """Shares of the CPUs' time by kind, from /proc/stat: for what ticks happen to meet."""
    time_us = used["at"] * cpus
    return {
        kind: round(sum(used.get(f"machine.{one}", 0.0) for one in of) / time_us, 4)
        for kind, of in KINDS.items()
    }


def read_samples(folder: Path) -> list[Sample]:
    """The readings of a run, with what the VM had cost its host at each, where that was seen."""
    samples = [parse(raw) for raw in json.loads((folder / "samples.json").read_text())]
    for sample, cpu_us in zip(samples, kept(folder), strict=False):
        sample["vm"] = cpu_us
    return samples


def run_folder(run: Json) -> str:
    """Name of the folder with a run's raw data."""
    return Run(**{one.name: run[one.name] for one in fields(Run)}).name


PERCENTILES = ("p50", "p90", "p99", "p999", "max")


def per_request(used: Sample, answered: int) -> dict[str, float]:
    """CPU µs a request, by account."""
    shown = {ours: used[theirs] for theirs, ours in ACCOUNTS.items() if theirs in used}
    return {name: round(value / answered, 3) for name, value in shown.items()}


def failures_of(runs: list[Json]) -> dict[str, int]:
    """Requests that were not verified, warm-up included, by kind, over runs."""
    total: dict[str, int] = {}
    for run in runs:
        for kind, count in [*run["failures"].items(), *run["warmup_failures"].items()]:
            total[kind] = total.get(kind, 0) + count
    return total


def counters_per_reply(counters: dict[str, dict[str, int]]) -> dict[str, float]:
    """What a reply took, from the service's start to the end of the load: the warm-up and the
    opening of connections are in it."""
    if not counters:
        return {}  # it has no page
    group, name = REPLIES
    replies = counters[group][name]
    return {
        ours: round(counters[group][name] / replies, 4) for ours, (group, name) in COUNTERS.items()
    }
