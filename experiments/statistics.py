"""From paired observations to verdicts: paired differences, intervals, and a rule written before.

A point's effect on a figure is the candidate's to the baseline's less 1, over pairs: the mean of
the pairs' log-ratios, back from logarithms (a geometric mean of ratios).

Its interval is a bootstrap-t of these log-ratios: the distribution of t in resamples, instead of
Student's (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 12.5). A plain
bootstrap of five pairs is too narrow: its 95 % intervals (BCa) held the truth in 81 to 87 % of
trials. In bootstrap-t some resamples of few pairs have no spread, and t no bound; so resamples are
drawn from the smoothed distribution, which cures both (Polansky and Schucany, Kernel smoothing to
improve bootstrap confidence intervals, JRSS B 59, 1997), with Silverman's bandwidth for a normal
density. tests/experiments/test_experiments_statistics.py counts how often they hold the truth.

Bonferroni corrects for the number of points: intervals of m points hold together at LEVEL, each at
1 - (1 - LEVEL) / m. Both ways to an advantage have room in that, for each looks at one end of an
interval only; that all conditions of a way must hold takes no correction (it is an intersection).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FIGURES = {
    "throughput_rps": "throughput",
    "p50_us": "P50",
    "p99_us": "P99",
    "service_cpu_us": "service CPU",
    "machine_cpu_us": "machine CPU",
    "executor_cpu_us": "executor CPU",
}
LEVEL = 0.95  # of all points' intervals together
TAIL = 20  # resamples beyond each end of an interval: what its place is known from
RESAMPLES = 10_000  # at least
# The rule. An advantage is one of the ways: every figure's upper end is at most its limit.
WAYS: tuple[Mapping[str, float], ...] = (
    {"machine_cpu_us": -0.10, "p99_us": 0.05},
    {"p99_us": -0.10, "machine_cpu_us": 0.05},
)
THROUGHPUT_LOSS = 0.02  # and the lower end of the throughput is above less that much
UNKNOWN = 9.0  # an interval that reaches to ten times the baseline is not worth its digits
NEAREST_MISSES = 2  # points that a confirmation runs beside those with an advantage


@dataclass(frozen=True)
class Observation:
    """One arm of one pair at a point of the experiment. CPU in µs a request; `machine_cpu_us` is
    the whole machine's."""

    point: str
    pair: int
    transport: str
    figures: dict[str, float]


@dataclass(frozen=True)
class Effect:
    """Candidate to baseline, less 1 (0.1: a tenth more), with the ends of its interval."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        ends = f"{self.low:+.1%} to {self.high:+.1%}" if self.high < UNKNOWN else "unknown"
        return f"{self.estimate:+.1%} ({ends})"

    def inverted(self) -> Effect:
        """Of the baseline to the candidate."""
        low = -1.0 if np.isinf(self.high) else 1 / (1 + self.high) - 1
        high = np.inf if self.low <= -1 else 1 / (1 + self.low) - 1
        return Effect(1 / (1 + self.estimate) - 1, low, float(high))


@dataclass(frozen=True)
class Verdict:
    """What is known at a point. `advantage`: the candidate's, by the rule; `disadvantage`: the
    baseline's. `miss`: how far the worst condition of the candidate's nearer way is from being met,
    0 where it is."""

    point: str
    effects: dict[str, Effect]
    words: str
    advantage: bool
    disadvantage: bool
    miss: float


def judge(
    observations: Iterable[Observation], baseline: str, candidate: str, seed: int
) -> list[Verdict]:
    """A verdict for each point, in the order in which points come. Only pairs of which both arms
    are there count. Intervals are drawn with the seed: same input, same verdicts.

    Raises ValueError for a point without a whole pair, or without a figure that the rule needs.
    """
    points: dict[str, dict[int, dict[str, Mapping[str, float]]]] = {}
    for one in observations:
        points.setdefault(one.point, {}).setdefault(one.pair, {})[one.transport] = one.figures
    randomness = np.random.default_rng(seed)
    alpha = (1 - LEVEL) / max(len(points), 1)
    verdicts = []
    for point, pairs in points.items():
        arms = [
            (pair[baseline], pair[candidate])
            for _, pair in sorted(pairs.items())
            if baseline in pair and candidate in pair
        ]
        if not arms:
            raise ValueError(f"{point}: no pair of {baseline} and {candidate}")
        verdicts.append(_verdict(point, _effects(arms, alpha, randomness), baseline, candidate))
    return verdicts


def choose_points(verdicts: Iterable[Verdict], misses: int = NEAREST_MISSES) -> list[str]:
    """Points to run again with new seeds: all with an advantage, in their order, then so many that
    came nearest to one (Verdict.miss), the nearest first."""
    verdicts = list(verdicts)
    near = sorted((v for v in verdicts if not v.advantage), key=lambda verdict: verdict.miss)
    return [v.point for v in verdicts if v.advantage] + [v.point for v in near[:misses]]


def interval(
    values: Sequence[float], alpha: float, randomness: np.random.Generator
) -> tuple[float, float]:
    """Ends of the mean's interval at level 1 - alpha: smoothed bootstrap-t, see above. Without
    bounds where one value is all there is."""
    data = np.asarray(values, float)
    n, mean = len(data), float(np.mean(data))
    if n < 2:
        return -np.inf, np.inf
    spread = float(np.std(data, ddof=1))
    if spread == 0:
        return mean, mean
    bandwidth = (4 / (3 * n)) ** 0.2 * spread  # Silverman, Density Estimation, 1986, (3.28)
    count = max(RESAMPLES, int(2 * TAIL / alpha))
    drawn = randomness.choice(data - mean, (count, n))
    drawn += bandwidth * randomness.standard_normal((count, n))
    t = drawn.mean(axis=1) / drawn.std(axis=1, ddof=1)  # both by √n, which falls out
    lower, upper = np.quantile(t, [alpha / 2, 1 - alpha / 2])
    return mean - float(upper) * spread, mean - float(lower) * spread


Arms = Sequence[tuple[Mapping[str, float], Mapping[str, float]]]


def _effects(arms: Arms, alpha: float, randomness: np.random.Generator) -> dict[str, Effect]:
    """Of the figures that are above 0 in every arm; others have no ratio."""
    effects = {}
    for name in FIGURES:
        figures = np.array([[arm.get(name, 0.0) for arm in pair] for pair in arms])
        if (figures > 0).all():
            ratios: npt.NDArray[np.float64] = np.log(figures[:, 1] / figures[:, 0])
            ends = (float(np.mean(ratios)), *interval(ratios.tolist(), alpha, randomness))
            effects[name] = Effect(*(float(np.expm1(end)) for end in ends))
    return effects


def excess(effects: Mapping[str, Effect], way: Mapping[str, float]) -> dict[str, float]:
    """How far the end of each interval is beyond what a way to an advantage allows: the condition
    is met where that is not above 0. Raises ValueError where a figure is missing."""
    if missing := ({*way, "throughput_rps"} - effects.keys()):
        raise ValueError(f"no {' and no '.join(sorted(missing))} above 0 in every arm")
    beyond = {name: effects[name].high - limit for name, limit in way.items()}
    beyond["throughput_rps"] = -THROUGHPUT_LOSS - effects["throughput_rps"].low
    return beyond


def _miss(effects: Mapping[str, Effect]) -> float:
    return max(0.0, min(max(excess(effects, way).values()) for way in WAYS))


def _verdict(point: str, effects: dict[str, Effect], baseline: str, candidate: str) -> Verdict:
    try:
        miss = _miss(effects)
    except ValueError as error:
        raise ValueError(f"{point}: {error}") from None
    against = _miss({name: effect.inverted() for name, effect in effects.items()})
    if miss == 0:
        words = f"{candidate} has the advantage over {baseline}"
    elif against == 0:
        words = f"{baseline} has the advantage over {candidate}"
    else:
        words = f"no advantage is shown of {candidate} over {baseline}, nor of the other"
    shown = ("machine_cpu_us", "p99_us", "throughput_rps")
    figures = ", ".join(f"{FIGURES[name]} {effects[name]}" for name in shown)
    return Verdict(point, effects, f"At {point} {words}: {figures}.", miss == 0, against == 0, miss)
