"""Plots of a summary as SVG text, to be put into a page."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from experiments.means import Json, arms, mean, values
from experiments.records import latency_us, read_verified
from experiments.summary import run_folder

COLOURS = {"epoll": "#0072b2", "bpf": "#d55e00"}  # told apart by everybody
OTHER = "#009e73"
_TICKS = {"0": 1, "50 %": 2, "90 %": 10, "99 %": 100, "99.9 %": 1e3, "99.99 %": 1e4}
_BARS = {
    "vm_on_host": "VM, on its host",
    "machine": "whole machine",
    "service_user": "service, user",
    "service_system": "service, system",
    "executor": "executor",
    "client": "load generator",
}


def latency_curves(summary: Json, raw: Path) -> str:
    """Latency from the intended send time over the percentile, a line a run: every request."""
    figure, axes = _figure(7.5, 4.2)
    for run in summary["runs"]:
        latency = latency_us(read_verified(raw / run_folder(run)))
        ranks = np.arange(1, len(latency) + 1) / (len(latency) + 1)
        kept = _spread(len(latency))
        axes.plot(
            1 / (1 - ranks[kept]), latency[kept], color=colour(run["arm"]), lw=1.4,
            ls="-" if run["pair"] % 2 else "--", label=f"{run['arm']}, pair {run['pair']}",
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="percentile", ylabel="µs from the intended send")
    axes.xaxis.set_major_locator(FixedLocator(list(_TICKS.values())))
    axes.xaxis.set_major_formatter(FixedFormatter(list(_TICKS)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.legend(frameon=False, fontsize=8)
    return _svg(figure)


def _spread(count: int, points: int = 400) -> Any:
    """Indices evenly spread on the percentile axis: a line of all requests would be megabytes."""
    tails = np.geomspace(1, count, min(points, count))
    return np.unique(count - np.round(tails).astype(int))


def cpu_bars(summary: Json) -> str:
    """CPU a request by account: a bar for the mean of an arm's runs, a dot for each run."""
    figure, axes = _figure(7.5, 3.4)
    ran = arms(summary)
    bars = {name: label for name, label in _BARS.items() if name in _accounts(summary)}
    height = 0.8 / len(ran)
    for i, arm in enumerate(ran):
        for row, account in enumerate(bars):
            found = values(summary, arm, account_of(account))
            at = row + (i - (len(ran) - 1) / 2) * height
            label = arm if row == 0 else None
            axes.barh(at, mean(found) or 0.0, height * 0.9, color=colour(arm), label=label)
            axes.plot(found, [at] * len(found), "o", ms=3, color="black", mec="white", mew=0.5)
    axes.set_yticks(range(len(bars)), list(bars.values()))
    axes.invert_yaxis()
    axes.set_xlabel("CPU µs a verified request; accounts overlap and are not to be added")
    axes.legend(frameon=False, fontsize=8)
    return _svg(figure)


def forest(summary: Json, figure_: str) -> str:
    """How a figure changes from the baseline at each point: estimate and interval, in per cent."""
    verdicts = summary["verdicts"]
    figure, axes = _figure(7.5, 1.0 + 0.3 * max(len(verdicts), 1))
    for row, verdict in enumerate(verdicts):
        effect = verdict["effects"][figure_]
        low, middle, high = (100 * effect[name] for name in ("low", "estimate", "high"))
        axes.plot([low, high], [row, row], color=colour(verdict["arm"]), lw=2)
        axes.plot(middle, row, "o", ms=4, color=colour(verdict["arm"]))
    axes.axvline(0, color="black", lw=0.8)
    names = [f"{one['point']}  {summary['points'][one['point']]['label']}" for one in verdicts]
    axes.set_yticks(range(len(verdicts)), names, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("change, %")
    return _svg(figure)


def _accounts(summary: Json) -> set[str]:
    return {name for run in summary["runs"] for name in run["cpu_us_per_request"]}


def account_of(name: str) -> Callable[[Json], float | None]:
    """Reads an account of a run."""
    return lambda run: run["cpu_us_per_request"].get(name)


def colour(arm: str) -> str:
    """Of an arm's lines and bars."""
    return COLOURS.get(arm, OTHER)


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.grid(True, lw=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Figure) -> str:
    """The <svg> element alone; the same data give the same text."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "experiments"}):
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
