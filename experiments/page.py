"""The report about one point: one HTML file with everything in it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from experiments.errors import ExperimentError
from experiments.means import Json
from experiments.plan import Timing
from experiments.summary import COUNTERS
from experiments.table import caveats, in_vm, rows_of, seen_on_host


def template(name: str) -> Any:
    """A template of this folder. Raises ExperimentError where a package for it is missing."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise missing(error) from None
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    ).get_template(name)  # fmt: skip


def missing(error: ImportError) -> ExperimentError:
    """That a package is."""
    return ExperimentError(
        "make the report", str(error), "install it with `pip install 'bpf-gpu-server[report]'`"
    )


def render(summary: Json, raw: Path) -> str:
    """The page of one point. Raises ExperimentError where a package for it is missing."""
    try:
        from experiments import plots
    except ImportError as error:
        raise missing(error) from None
    text: str = template("report.html.j2").render(
        summary=summary,
        runs=summary["runs"],
        condition=summary["condition"],
        timing=Timing(**summary["plan"]["timing"]),
        environment=summary["environment"],
        host=summary["host"],
        in_vm=in_vm(summary),
        seen_on_host=seen_on_host(summary),
        caveats=caveats(summary),
        rows=[
            (name, [_cell(of(run), form) for run in summary["runs"]])
            for name, of, form in rows_of(summary)
        ],
        counters=_counters(summary),
        calls=_calls(summary),
        latency=plots.latency_curves(summary, raw),
        cpu=plots.cpu_bars(summary),
        facts=facts,
        shell=shlex.join,
    )
    return text


def _cell(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _counters(summary: Json) -> list[tuple[str, list[str]]]:
    counted = [run["counters_per_reply"] for run in summary["runs"]]
    return [
        (name.replace("_", " "), [_cell(one.get(name), ".3f") for one in counted])
        for name in COUNTERS
    ]


def _calls(summary: Json) -> list[tuple[Json, str]]:
    """For each run, what each thread of the service was counted at."""
    return [
        (
            run,
            ", ".join(f"{t['name']} {t['calls']:,}" for t in run["syscall_window"]["threads"])
            or f"not counted: {run['syscall_window']['unknown']}",
        )
        for run in summary["runs"]
    ]


def facts(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Nested settings as lines of name and value."""
    lines: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            lines += [(f"{name}: {inner}", text) for inner, text in facts(value)]
        else:
            lines.append((name.replace("_", " "), "–" if value is None else str(value)))
    return lines
