"""What a table or a plot shows of several runs of one transport."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any

Json = dict[str, Any]


def transports(summary: Json) -> list[str]:
    """In the order of the plan, those that ran."""
    ran = {run["transport"] for run in summary["runs"]}
    return [name for name in summary["plan"]["transports"] if name in ran]


def values(summary: Json, transport: str, of: Callable[[Json], float | None]) -> list[float]:
    """One a run, in order of time; runs that have none are left out."""
    found = (of(run) for run in summary["runs"] if run["transport"] == transport)
    return [value for value in found if value is not None]


def mean(numbers: Iterable[float]) -> float | None:
    """None of nothing."""
    numbers = list(numbers)
    return fmean(numbers) if numbers else None
