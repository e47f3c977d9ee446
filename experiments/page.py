"""The report: one HTML file with everything in it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from experiments.errors import ExperimentError
from experiments.means import Json
from experiments.plan import Timing
from experiments.summary import COUNTERS
from experiments.table import caveats, in_vm, rows_of

TEMPLATE = Path(__file__).with_name("report.html.j2")


def render(summary: Json, raw: Path) -> str:
    """The page's text. Raises ExperimentError where a package for it is missing."""
    try:
        from jinja2 import Environment, StrictUndefined

        from experiments import plots
    except ImportError as error:
        raise ExperimentError(
            "make the report", str(error), "install it with `pip install 'bpf-gpu-server[report]'`"
        ) from None
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True,
                           lstrip_blocks=True).from_string(TEMPLATE.read_text())  # fmt: skip
    return template.render(
        summary=summary,
        runs=summary["runs"],
        condition=summary["plan"]["condition"],
        timing=Timing(**summary["plan"]["timing"]),
        environment=summary["environment"],
        host=summary["host"],
        in_vm=in_vm(summary),
        caveats=caveats(summary),
        rows=[
            (name, [_cell(of(run), form) for run in summary["runs"]])
            for name, of, form in rows_of(summary)
        ],
        counters=_counters(summary),
        calls=_calls(summary),
        latency=plots.latency_curves(summary, raw),
        cpu=plots.cpu_bars(summary),
        facts=_facts,
        shell=shlex.join,
    )


def _cell(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _counters(summary: Json) -> list[tuple[str, list[str]]]:
    counted = [run["counters_per_reply"] for run in summary["runs"]]
    return [(name.replace("_", " "), [f"{one[name]:.3f}" for one in counted]) for name in COUNTERS]


def _calls(summary: Json) -> list[tuple[Json, str]]:
    """For each run, what each thread of the service was counted at."""
    return [
        (run, ", ".join(f"{t['name']} {t['calls']:,}" for t in run["syscall_window"]["threads"]))
        for run in summary["runs"]
    ]


def _facts(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Nested settings as lines of name and value."""
    lines: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            lines += [(f"{name}: {inner}", text) for inner, text in _facts(value)]
        else:
            lines.append((name.replace("_", " "), "–" if value is None else str(value)))
    return lines
