"""All points of an experiment at a glance: a table on a terminal, and a page."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from experiments import plots
from experiments.means import Json
from experiments.page import facts, template
from experiments.statistics import FIGURES, Effect
from experiments.summary import failures_of
from experiments.table import caveats, in_vm, seen_on_host
from experiments.verdicts import LEAST_PAIRS, SHOWN, rule

Row = tuple[str, str, list[str]]  # point, label, cells


def heads(summary: Json) -> list[str]:
    """Of the columns after a point's label: a figure with the baseline, and its change."""
    return [f"{FIGURES[name]}\n{summary['arms'][0]}, change" for name in SHOWN] + ["advantage"]


def rows(summary: Json) -> list[Row]:
    """A line for each point and each arm that is compared with the baseline."""
    baseline = summary["arms"][0]
    found: list[Row] = []
    for verdict in summary["verdicts"]:
        cells = [_cell(verdict, baseline, name) for name in SHOWN]
        label = summary["points"][verdict["point"]]["label"]
        found.append((verdict["point"], label, [*cells, verdict["arm"] * verdict["advantage"]]))
    return found


def sentences(summary: Json) -> list[str]:
    """Every verdict in words, and which points have none."""
    if len(summary["arms"]) == 1:
        return ["There is one arm, so nothing is compared."]
    words = [verdict["words"] for verdict in summary["verdicts"]]
    words += [line for verdict in summary["verdicts"] for line in of_handicap(summary, verdict)]
    judged = {verdict["point"] for verdict in summary["verdicts"]}
    none = [point for point in summary["points"] if point not in judged]
    few = f"fewer than {LEAST_PAIRS} whole pairs of valid runs, so no verdict."
    return words + [f"At {point} there are {few}" for point in none]


def of_handicap(summary: Json, verdict: Json) -> list[str]:
    """What was added to an arm on purpose, and, where the arms are equal but for that, whether the
    interval has it."""
    transports = dict(zip(summary["arms"], summary["plan"]["transports"], strict=True))
    baseline, arm = summary["arms"][0], verdict["arm"]
    lines = []
    for figure, share in summary["injected"].get(verdict["point"], {}).items():
        if arm != summary["arms"][-1]:
            continue
        effect = Effect(**verdict["effects"][figure])
        held = "holds" if effect.low <= share <= effect.high else "does not hold"
        line = f"At {verdict['point']} {arm} had a handicap of {share:+.1%} {FIGURES[figure]}"
        if transports[arm] == transports[baseline]:
            line += f"; the interval, {effect}, {held} it"
        lines.append(line + ".")
    return lines


def _cell(verdict: Json, baseline: str, name: str) -> str:
    effect = Effect(**verdict["effects"][name])
    mean = format(verdict["means"][baseline][name], SHOWN[name])
    return f"{mean}\n" + str(effect).replace(" (", "\n(", 1)


def show(summary: Json, console: Console | None = None) -> None:
    """Prints a line a point, and what must not be read into it."""
    console = console or Console()
    table = Table(title=f"{summary['plan']['asks']} Linux {summary['kernel']}")
    table.add_column("point")
    table.add_column("condition")
    for head in heads(summary):
        table.add_column(head, justify="right")
    for point, label, cells in rows(summary):
        table.add_row(point, label, *cells)
    console.print(table)
    for line in [*sentences(summary), *caveats(summary)]:
        console.print(line, highlight=False)


def render(summary: Json, confirmed: Json | None) -> str:
    """The page's text. Raises ExperimentError where a package for it is missing."""
    text: str = template("overview.html.j2").render(
        summary=summary,
        plan=summary["plan"],
        environment=summary["environment"],
        host=summary["host"],
        in_vm=in_vm(summary),
        seen_on_host=seen_on_host(summary),
        caveats=caveats(summary),
        heads=heads(summary),
        rule=rule(),
        rows=rows(summary),
        sentences=sentences(summary),
        confirmed=confirmed,
        confirmed_rows=rows(confirmed) if confirmed else [],
        confirmed_sentences=sentences(confirmed) if confirmed else [],
        forests=[(FIGURES[name], plots.forest(summary, name)) for name in SHOWN],
        failures=failures(summary),
        facts=facts,
    )
    return text


def failures(summary: Json) -> list[tuple[str, str, dict[str, int]]]:
    """Point, arm, and how many requests failed in its runs, warm-up included, by kind."""
    found = []
    for point in summary["points"]:
        for arm in summary["arms"]:
            runs = [run for run in summary["runs"] if (run["point"], run["arm"]) == (point, arm)]
            if kinds := failures_of(runs):
                found.append((point, arm, kinds))
    return found
