"""`exact`: what a request costs each transport at three rates, in instructions that repeat."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from experiments import cases, environment, exact_runs, programs, remote
from experiments.plan import TRANSPORTS
from experiments.progress import Bar

BASELINE = Path(__file__).with_name("exact_baseline.json")
BASELINE_WITHIN = 0.03
REPEATS_WITHIN = 0.01
HELD = ("service", "client")  # what a baseline is kept of
BOOT_S = 8.0
LIMIT_S = 1200  # on a machine that is busy with other things

Runs = dict[str, dict[str, dict[str, float]]]  # condition, transport, figure

ROWS = (
    ("service, instructions", "service", ",.0f"),
    ("client, instructions", "client", ",.0f"),
    ("both", "sum", ",.0f"),
    ("whole machine", "machine", ",.0f"),
    ("latency P50, µs", "p50_us", ",.0f"),
    ("latency P99, µs", "p99_us", ",.0f"),
    ("loop's steps", "steps_per_request", ".2f"),
    ("wakes by a time-out", "timer_wakes_per_request", ".2f"),
    ("looks of the timer in softirq", "timer_looks_per_request", ".2f"),
)


def run(raw: Path, pairs: int = exact_runs.PAIRS, wake_policy: str = "fixed") -> Runs:
    """Measures in the VM, and leaves raw data in a folder. Raises ExperimentError."""
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    cases.write_due(raw / exact_runs.CASES, exact_runs.CASE_COUNT, exact_runs.SEED)
    vm = programs.command_line("vm", "run", "--icount", "--timeout", str(LIMIT_S), "--")
    command = [*vm, "python3", "-m", "experiments", "exact-runs", str(raw.absolute())]
    command += ["--pairs", str(pairs), "--wake-policy", wake_policy]
    with Bar(BOOT_S + exact_runs.expected_s(pairs)) as bar:
        bar.phase("booting the VM, which counts instructions", BOOT_S)
        remote.run(command, raw, bar)
    runs: Runs = json.loads((raw / exact_runs.RESULT).read_text())
    return runs


def problems(runs: Runs, baseline: Runs | None) -> list[str]:
    """What does not repeat, and what has moved from the baseline if there is one, in words."""
    found = []
    for name, arms in runs.items():
        for transport, of in arms.items():
            if of["service_spread"] >= REPEATS_WITHIN:
                spread = f"{of['service_spread']:.2%}"
                found.append(f"{name}, {transport}: service repeats only within {spread}")
            for figure in HELD if baseline else ():
                assert baseline
                before = baseline[name][transport][figure]
                change = of[figure] / before - 1
                if abs(change) > BASELINE_WITHIN:
                    found.append(
                        f"{name}, {transport}: {figure} was {before:,.0f} instructions a request "
                        f"and is {of[figure]:,.0f} ({change:+.1%})"
                    )
    return found


def record(runs: Runs, file: Path = BASELINE) -> None:
    """Makes these figures the baseline."""
    kept = {
        name: {arm: {figure: of[figure] for figure in HELD} for arm, of in arms.items()}
        for name, arms in runs.items()
    }
    file.write_text(json.dumps(kept, indent=2) + "\n")


def write(runs: Runs, file: Path) -> None:
    """The conditions, and what they ran on."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(runs, indent=2) + "\n")
    host = file.with_suffix(".host.json")
    host.write_text(json.dumps(environment.host(), indent=2) + "\n")


def show(runs: Runs) -> None:
    """Prints a table for each condition, side by side."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Instructions a request, and what they depend on")
    table.add_column("")
    for name in runs:
        for transport in TRANSPORTS:
            rate = exact_runs.RATES[name]
            table.add_column(f"{transport}\n{rate:,}/s", justify="right")
    for title, figure, form in ROWS:
        cells = [
            format(arms[transport][figure], form)
            for arms in runs.values()
            for transport in TRANSPORTS
        ]
        table.add_row(title, *cells)
    console = Console()
    console.print(table)
    console.print(
        "On loopback receiving is charged to the sender, and interrupts of an idle CPU to nobody: "
        "compare the whole machine."
    )
