"""The summary on a terminal: a column a run, and what two arms' means differ by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.cases import DUE
from experiments.means import Json, arms, mean, values
from experiments.summary import KINDS

Row = tuple[str, Callable[[Json], float | None], str]

ROWS: tuple[Row, ...] = (
    ("requests sent", lambda run: run["sent"], ",.0f"),
    ("replies verified", lambda run: run["verified"], ",.0f"),
    ("requests failed", lambda run: sum(run["failures"].values()), ",.0f"),
    ("replies a second", lambda run: run["throughput_rps"], ",.0f"),
    ("latency P50, µs", lambda run: run["latency_us"]["p50"], ",.0f"),
    ("latency P90, µs", lambda run: run["latency_us"]["p90"], ",.0f"),
    ("latency P99, µs", lambda run: run["latency_us"]["p99"], ",.0f"),
    ("latency P99.9, µs", lambda run: run["latency_us"]["p999"], ",.0f"),
    ("first token P50, µs", lambda run: _stream(run, "first_token_us", "p50"), ",.0f"),
    ("first token P99, µs", lambda run: _stream(run, "first_token_us", "p99"), ",.0f"),
    ("between tokens P50, µs", lambda run: _stream(run, "inter_token_us", "p50"), ",.0f"),
    ("between tokens P99, µs", lambda run: _stream(run, "inter_token_us", "p99"), ",.0f"),
    ("CPU µs/request: VM on host", lambda run: _cpu(run, "vm_on_host"), ",.1f"),
    ("CPU µs/request: machine", lambda run: _cpu(run, "machine"), ",.1f"),
    ("  and interrupts of idle CPUs", lambda run: _cpu(run, "idle_interrupts"), ",.1f"),
    ("  service, user", lambda run: _cpu(run, "service_user"), ",.1f"),
    ("  service, system", lambda run: _cpu(run, "service_system"), ",.1f"),
    ("  executor", lambda run: _cpu(run, "executor"), ",.1f"),
    ("  load generator", lambda run: _cpu(run, "client"), ",.1f"),
    *(
        (f"machine at ticks: {kind}", lambda run, kind=kind: run["machine_at_ticks"][kind], ".1%")
        for kind in KINDS
    ),
    ("loop's user time, µs in all", lambda run: run["loop_user_us"], ",.0f"),
    ("service's system calls", lambda run: run["service_syscalls_after_start"], ",.0f"),
)
# Counts and totals of one thread are no means of an arm's cost.
_NOT_COMPARED = {ROWS[i][0] for i in (0, 1, 2, -2, -1)}


def rows_of(summary: Json) -> list[Row]:
    """Those of which at least one run has a figure."""
    return [row for row in ROWS if any(row[1](run) is not None for run in summary["runs"])]


def _cpu(run: Json, account: str) -> float | None:
    value = run["cpu_us_per_request"].get(account)
    return None if value is None else float(value)


def _stream(run: Json, name: str, percentile: str) -> float | None:
    return float(run["streams"][name][percentile]) if run["streams"] else None


def show(summary: Json, console: Console | None = None) -> None:
    """Prints the table, and what must not be read into it."""
    console = console or Console()
    table = Table(title=f"{summary['condition']['workload']}, Linux {summary['kernel']}")
    table.add_column("")
    for run in summary["runs"]:
        table.add_column(f"{run['arm']}\npair {run['pair']}", justify="right")
    compared = arms(summary) if len(arms(summary)) == 2 else None
    if compared:
        table.add_column("{1} to\n{0}".format(*compared), justify="right", style="bold")
    for name, of, form in rows_of(summary):
        cells = [_cell(of(run), form) for run in summary["runs"]]
        table.add_row(name, *cells, *([_change(summary, name, of, *compared)] if compared else []))
    console.print(table)
    for line in caveats(summary):
        console.print(line)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _change(
    summary: Json, name: str, of: Callable[[Json], float | None], baseline: str, candidate: str
) -> str:
    if name in _NOT_COMPARED:
        return ""
    before = mean(values(summary, baseline, of))
    after = mean(values(summary, candidate, of))
    return f"{(after - before) / before:+.0%}" if before and after is not None else ""


def in_vm(summary: Json) -> bool:
    """Whether the runs took place in a VM that this project started."""
    return bool(summary["plan"]["exact"]) or seen_on_host(summary)


def seen_on_host(summary: Json) -> bool:
    """Whether it is known what the VM cost its host; then that is the account to compare."""
    return any("vm_on_host" in run["cpu_us_per_request"] for run in summary["runs"])


def idle_interrupts(summary: Json) -> str:
    """How far the machine's account has those of idle CPUs."""
    unknown = {run["idle_interrupts_unknown"] for run in summary["runs"]} - {""}
    if unknown:
        return f", which lacks the latter here ({'; '.join(sorted(unknown))})"
    if any("idle_interrupts" in run["cpu_us_per_request"] for run in summary["runs"]):
        return " with these, which were timed in the warm-up"
    return ", which has these too: the kernel accounts interrupts apart"


def caveats(summary: Json) -> list[str]:
    """What to know before quoting a figure, one sentence each."""
    environment: dict[str, Any] = summary["environment"]
    lines = []
    if summary["plan"]["exact"]:
        lines.append("A µs is a thousand instructions of one emulated CPU, which has no caches.")
        if any(
            not of["condition"]["workload"].startswith(DUE) for of in summary["points"].values()
        ):
            lines.append("The executor computes on that CPU too: its instructions count as others.")
    elif environment["accelerator"].startswith("TCG"):
        lines.append(
            "The CPU is emulated: both transports are known to run, which is better is not."
        )
    pairs = summary["plan"]["pairs"]
    if pairs < 5:
        lines.append(f"{pairs} pair{'s'[: pairs != 1]} cannot tell a difference from chance.")
    whole = "the VM on its host" if seen_on_host(summary) else "the whole machine"
    lines.append(
        "On loopback receiving is charged to the sender, and interrupts of an idle CPU to nobody: "
        f"compare the CPU of {whole}{'' if seen_on_host(summary) else idle_interrupts(summary)}."
    )
    lines += summary["unmeasured"]
    if missing := summary["runs_missing"]:
        lines.append(f"Runs that are missing, since the experiment has not ended: {missing}.")
    for run in summary["runs"]:
        for reason in run["invalid_reasons"]:
            lines.append(f"Run {run['number']} ({run['arm']}) is not valid: {reason}.")
    return lines
