"""`calibrate`: does an experiment find what is there, and nothing where nothing is?

Every try is a small experiment of its own, judged as any other: twice the same service (A/A), and a
service against one with a handicap of known size. In the VM under --icount, so that a handicap's
size is exact; see experiments/calibrate_runs.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from math import expm1, log1p
from pathlib import Path
from statistics import fmean, median
from typing import Any

from experiments import cases, environment, exact_runs, folders, remote
from experiments.calibrate_runs import BASELINE, PLAN, RUNS, SIZES, TWIN, Calibration
from experiments.errors import ExperimentError
from experiments.handicap import FIGURES
from experiments.place import find as find_place
from experiments.progress import Bar
from experiments.statistics import LEVEL, Observation, Verdict, judge

FALSE_ADVANTAGES = 0.05  # of A/A tries, at most
FOUND = 0.90  # of the tries with a handicap, at least

Json = dict[str, Any]


def run(folder: Path, plan: Calibration) -> Json:
    """Measures in the VM, leaves raw data in a folder, and gives what came out.

    Raises ExperimentError.
    """
    place = find_place((plan.transport,), plan.expected_s, exact=True)
    place.check_sees(folder)
    folders.make_empty(folder, PLAN)
    (folder / PLAN).write_text(json.dumps(asdict(plan), indent=2) + "\n")
    cases.write_due(folder / exact_runs.CASES, exact_runs.CASE_COUNT, plan.seed)
    command = [*place.prefix, place.python, "-m", "experiments", "calibrate-runs"]
    with Bar(place.boot_s + plan.expected_s) as bar:
        bar.phase("booting the VM, which counts instructions", place.boot_s)
        remote.run([*command, str(folder.absolute())], folder, bar)
    return evaluate(folder)


def evaluate(folder: Path) -> Json:
    """From raw data to what came out of each experiment. Raises ExperimentError when damaged."""
    try:
        plan = Calibration(**json.loads((folder / PLAN).read_text()))
        sizes = json.loads((folder / SIZES).read_text())
        runs = [json.loads(line) for line in (folder / RUNS).read_text().splitlines()]
    except (OSError, ValueError, TypeError) as error:
        raise ExperimentError(
            f"read the raw data in {folder}", str(error), "calibrate again, to the end"
        ) from error
    result: Json = {"plan": asdict(plan), **sizes, "host": environment.host()}
    result["a/a"] = of_equals(verdicts(runs, plan, TWIN))
    for name in plan.handicaps:
        truths = truths_of(runs, name)
        result[name] = of_handicap(verdicts(runs, plan, name), FIGURES[name], truths)
    return result


def truths_of(runs: Iterable[Json], arm: str) -> list[float]:
    """The handicap's size in each try, as statistics.Effect has it: by what was injected into each
    window, and what the figure was without."""
    found: dict[tuple[int, int], dict[str, Json]] = {}
    for one in runs:
        found.setdefault((one["try"], one["pair"]), {})[one["arm"]] = one["figures"]
    logarithms: dict[int, list[float]] = {}
    for (number, _), arms in sorted(found.items()):
        part = arms[arm]["injected_us"] / arms[BASELINE][FIGURES[arm]]
        logarithms.setdefault(number, []).append(log1p(part))
    return [expm1(fmean(parts)) for parts in logarithms.values()]


def verdicts(runs: Iterable[Json], plan: Calibration, arm: str) -> list[Verdict]:
    """One for each try: an experiment of one point."""
    tries: dict[int, list[Observation]] = {}
    for one in runs:
        if one["arm"] in (BASELINE, arm):
            observation = Observation(f"try {one['try']}", one["pair"], one["arm"], one["figures"])
            tries.setdefault(one["try"], []).append(observation)
    return [judge(tries[number], BASELINE, arm, plan.seed + number)[0] for number in sorted(tries)]


def of_equals(found: list[Verdict]) -> Json:
    """How many tries reported an advantage of either, and a difference in a figure: an interval
    without 0."""
    told_apart = {
        figure: sum(not v.effects[figure].low <= 0 <= v.effects[figure].high for v in found)
        for figure in found[0].effects
    }
    advantages = sum(v.advantage or v.disadvantage for v in found)
    return {"tries": len(found), "advantages": advantages, "told_apart": told_apart}


def of_handicap(found: list[Verdict], figure: str, truths: list[float]) -> Json:
    """How many tries had the handicap's size in its interval, and how many could tell it from
    none."""
    effects = [verdict.effects[figure] for verdict in found]
    return {
        "tries": len(found),
        "figure": figure,
        "truths": truths,
        "held": sum(
            effect.low <= truth <= effect.high
            for effect, truth in zip(effects, truths, strict=True)
        ),
        "told_apart": sum(effect.low > 0 for effect in effects),
        "estimates": [effect.estimate for effect in effects],
        "half_widths": [(effect.high - effect.low) / 2 for effect in effects],
        "advantages": sum(verdict.advantage for verdict in found),
    }


def problems(result: Json) -> list[str]:
    """What a calibrated experiment may not do, in words."""
    found, equals = [], result["a/a"]
    if equals["advantages"] > FALSE_ADVANTAGES * equals["tries"]:
        found.append(f"A/A: {equals['advantages']} of {equals['tries']} tries have an advantage")
    for name in result["plan"]["handicaps"]:
        of = result[name]
        if of["held"] < FOUND * of["tries"]:
            found.append(f"{name}: its size is in the interval of only {of['held']} tries")
    return found


def show(result: Json) -> None:
    """Prints a line for each experiment."""
    equals = result["a/a"]
    tries = equals["tries"]
    print(f"A/A: an advantage in {equals['advantages']} of {tries} tries")
    apart = ", ".join(f"{figure} {count}" for figure, count in equals["told_apart"].items())
    print(f"  an interval at {LEVEL:.0%} without 0: {apart}")
    for name in result["plan"]["handicaps"]:
        of = result[name]
        truth, estimate, half = (median(of[key]) for key in ("truths", "estimates", "half_widths"))
        print(
            f"{name} {truth:+.2%}: in its interval in {of['held']} of {tries} tries, told "
            f"from none in {of['told_apart']}; median estimate {estimate:+.2%} ± {half:.2%}"
        )
