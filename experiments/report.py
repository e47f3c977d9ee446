"""The report of an experiment from its raw data alone: `summary.json`, pages, histograms."""

from __future__ import annotations

import json
from pathlib import Path

from experiments.experiment import RAW
from experiments.means import Json
from experiments.summary import of_point, summarise

SUMMARY, PAGE, POINTS = "summary.json", "report.html", "points"
CONFIRM = "confirm"  # a folder in an experiment's folder, which is an experiment itself


def of_one(out: Path) -> Json:
    """Of an experiment with one point: the page is about that. Raises ExperimentError."""
    from experiments import histograms, page, table

    summary = summarise(out / RAW)
    (out / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n")
    (point,) = summary["points"]
    only = of_point(summary, point)
    (out / PAGE).write_text(page.render(only, out / RAW))
    table.show(only)
    print(f"report: {out / PAGE}\nsummary: {out / SUMMARY}")
    print("histograms: " + ", ".join(map(str, histograms.write(summary, out))))
    return summary


def of_points(out: Path) -> Json:
    """Of any experiment: verdicts, and a page for each point. Raises ExperimentError."""
    from experiments import overview, page

    summary = with_verdicts(out)
    (out / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n")
    confirmed = with_verdicts(out / CONFIRM) if (out / CONFIRM / RAW).exists() else None
    (out / PAGE).write_text(overview.render(summary, confirmed))
    (out / POINTS).mkdir(exist_ok=True)
    for point in {run["point"]: None for run in summary["runs"]}:
        text = page.render(of_point(summary, point), out / RAW)
        (out / POINTS / f"{point}.html").write_text(text)
    overview.show(summary)
    print(f"report: {out / PAGE}\nsummary: {out / SUMMARY}")
    return summary


def with_verdicts(out: Path) -> Json:
    """The summary of an experiment, with `verdicts` and what was `injected`. Raises
    ExperimentError."""
    from experiments.verdicts import as_json, injected

    summary = summarise(out / RAW)
    return {**summary, "verdicts": as_json(summary), "injected": injected(summary)}
