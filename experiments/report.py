"""The report of an experiment from its raw data alone: `summary.json`, pages, histograms."""

from __future__ import annotations

import json
from pathlib import Path

from experiments.experiment import RAW
from experiments.means import Json
from experiments.summary import of_point, summarise

SUMMARY, PAGE = "summary.json", "report.html"


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
