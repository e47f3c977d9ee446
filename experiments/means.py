"""What a table or a plot shows of several runs of one arm."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any

Json = dict[str, Any]


def arms(summary: Json) -> list[str]:
    """In the order of the plan, those that ran."""
    ran = {run["arm"] for run in summary["runs"]}
    return [name for name in summary["arms"] if name in ran]


def values(summary: Json, arm: str, of: Callable[[Json], float | None]) -> list[float]:
    """One a run, in order of time; runs that have none are left out."""
    found = (of(run) for run in summary["runs"] if run["arm"] == arm)
    return [value for value in found if value is not None]


def mean(numbers: Iterable[float]) -> float | None:
    """None of nothing."""
    numbers = list(numbers)
    return fmean(numbers) if numbers else None
