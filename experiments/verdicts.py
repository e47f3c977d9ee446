"""From a summary to a verdict for each point, and which points are to be confirmed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from math import expm1, log1p
from statistics import fmean

from experiments.errors import ExperimentError
from experiments.handicap import FIGURES as FIGURES_OF_HANDICAPS
from experiments.means import Json
from experiments.statistics import (
    FIGURES,
    THROUGHPUT_LOSS,
    WAYS,
    Observation,
    Verdict,
    choose_points,
    judge,
)

SHOWN = {"machine_cpu_us": ",.1f", "p99_us": ",.0f", "throughput_rps": ",.0f"}  # the rule's
LEAST_PAIRS = 2  # of one nothing is known but itself


def rule() -> str:
    """What an advantage is, in words."""
    ways = (
        " with ".join(f"{FIGURES[name]} {limit:+.0%} or less" for name, limit in way.items())
        for way in WAYS
    )
    lost = f"less than {THROUGHPUT_LOSS:.0%} of the throughput lost"
    return f"{', or '.join(ways)}; in either case {lost}"


def figures(run: Json) -> dict[str, float]:
    """Of a run, as the statistics want them. The whole machine is the VM, on its host, where the
    run was in one: that has the interrupts of idle CPUs too. Else these come to what tasks used,
    where they were timed."""
    cpu = run["cpu_us_per_request"]
    tasks_and_idle = cpu["machine"] + cpu.get("idle_interrupts", 0.0)
    return {
        "throughput_rps": run["throughput_rps"],
        "p50_us": run["latency_us"]["p50"],
        "p99_us": run["latency_us"]["p99"],
        "service_cpu_us": cpu["service_user"] + cpu["service_system"],
        "machine_cpu_us": cpu.get("vm_on_host", tasks_and_idle),
        "executor_cpu_us": cpu["executor"],
    }


def observations(summary: Json) -> Iterator[Observation]:
    """The runs of all pairs that are whole: every arm ran, and was a valid measurement.
    In the order of the points."""
    runs = [run for runs in whole_pairs(summary) for run in runs]
    for run in sorted(runs, key=lambda run: list(summary["points"]).index(run["point"])):
        yield Observation(run["point"], run["pair"], run["arm"], figures(run))


def whole_pairs(summary: Json) -> list[list[Json]]:
    """Their runs."""
    pairs: dict[tuple[str, int], list[Json]] = {}
    for run in summary["runs"]:
        if run["valid"]:
            pairs.setdefault((run["point"], run["pair"]), []).append(run)
    return [runs for runs in pairs.values() if len(runs) == len(summary["arms"])]


def judged(summary: Json) -> dict[str, list[Verdict]]:
    """Verdicts of the points by arm, of all arms but the first, which is the baseline. Points with
    too few whole pairs have none. Raises ExperimentError for figures that cannot be compared."""
    seen = list(observations(summary))
    pairs: dict[str, set[int]] = {}
    for one in seen:
        pairs.setdefault(one.point, set()).add(one.pair)
    enough = [one for one in seen if len(pairs[one.point]) >= LEAST_PAIRS]
    baseline, *candidates = summary["arms"]
    seed = summary["plan"]["seed"]
    try:
        return {arm: judge(enough, baseline, arm, seed) for arm in candidates}
    except ValueError as error:
        raise ExperimentError(
            "compare the arms", str(error), "see load.json of that point's runs: was it answered?"
        ) from None


def as_json(summary: Json) -> list[Json]:
    """The verdicts of `judged` in a row: each with its `arm`, and the point's means by arm and
    figure."""
    seen = list(observations(summary))
    return [
        {"arm": arm, **asdict(verdict), "means": means(seen, verdict.point)}
        for arm, verdicts in judged(summary).items()
        for verdict in verdicts
    ]


def injected(summary: Json) -> dict[str, dict[str, float]]:
    """By point and figure, what the arm with a handicap had in addition, as a share of the
    baseline's and as statistics.Effect has it; nothing where there was no handicap."""
    baseline, arm = summary["arms"][0], summary["arms"][-1]
    logarithms: dict[tuple[str, str], list[float]] = {}
    for runs in whole_pairs(summary) if summary["plan"].get("inject") else ():
        of = {run["arm"]: run for run in runs}
        without = figures(of[baseline])
        for name, us in of[arm]["injected_us"].items():
            figure = FIGURES_OF_HANDICAPS[name]
            share = log1p(us / without[figure])
            logarithms.setdefault((of[arm]["point"], figure), []).append(share)
    found: dict[str, dict[str, float]] = {}
    for (point, figure), shares in logarithms.items():
        found.setdefault(point, {})[figure] = expm1(fmean(shares))
    return found


def means(seen: list[Observation], point: str) -> dict[str, dict[str, float]]:
    """Of a point's pairs, by arm and figure."""
    of: dict[str, list[dict[str, float]]] = {}
    for one in seen:
        if one.point == point:
            of.setdefault(one.transport, []).append(one.figures)
    return {
        arm: {name: sum(one[name] for one in all_) / len(all_) for name in FIGURES}
        for arm, all_ in of.items()
    }


def to_confirm(summary: Json) -> list[str]:
    """The points to run again, in their order; choose_points() has the rule."""
    chosen = {point for verdicts in judged(summary).values() for point in choose_points(verdicts)}
    return [point for point in summary["points"] if point in chosen]
