"""`bpf-gpu-server ab`: experiments from TOML files, their reports, and their confirmation."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments import experiment, experiment_file, measure, place
from experiments.errors import ExperimentError
from experiments.experiment import RAW
from experiments.means import Json
from experiments.plan import SSH, Plan, labels
from experiments.report import CONFIRM, of_points, with_verdicts
from experiments.summary import of_point, summarise
from experiments.verdicts import to_confirm

FOLDER = Path("build") / "ab"  # experiments without --out are in here
FILES = Path(__file__).parent  # with those that come with the project


def run(
    file: Path, out: Path | None, resume: bool, exact: bool, inject: Sequence[str] = ()
) -> None:
    """Runs an experiment and reports. Raises ExperimentError, or KeyboardInterrupt."""
    file = find_file(file)
    plan = experiment_file.read(file, exact, inject)
    run_plan(plan, out or FOLDER / file.stem, resume, str(file))


def run_plan(plan: Plan, out: Path, resume: bool, of: str) -> None:
    """Begins it, or goes on with it, and reports. Raises ExperimentError, or KeyboardInterrupt."""
    raw = out / RAW
    begun = experiment.begun(raw)
    if begun and not resume:
        done = sum(1 for _ in raw.glob(f"*/{measure.RUN}"))
        raise ExperimentError(
            f"begin {of} in {out}", f"an experiment is there already, with {done} complete runs",
            "go on with it with --resume, or choose another folder with --out",
        )  # fmt: skip
    if begun:
        plan = experiment.check_the_same(raw, plan)
    expected_s = measure.run_seconds(plan) * plan.run_count()
    where = place.find(plan.transports, expected_s, plan.exact)
    check_place(plan, where, of)
    where.check_sees(raw)
    if not begun:
        experiment.prepare(raw, plan)
    print(f"{describe(plan)}, seed {plan.seed}, {where.why}")
    try:
        experiment.run(plan, where, raw)
    except (ExperimentError, KeyboardInterrupt):
        runs = plan.run_count()
        complete = f"{runs - len(experiment.left(raw, plan))} of {runs} runs are complete"
        print(f"{complete}: the same command with --resume goes on", file=sys.stderr)
        raise
    of_points(out)


def check_place(plan: Plan, where: place.Place, of: str) -> None:
    """Raises ExperimentError when a condition wants more CPUs than there are, or another machine
    where none can be reached."""
    for one in plan.points.values():
        if one.topology.startswith(SSH) and where.shared:
            raise ExperimentError(
                f"use the experiment {of}",
                f"condition.topology = {one.topology!r}, but it runs {where.why}: no network there",
                "run it on a machine that can run the transports itself, without --exact",
            )
        if one.service_cpus >= where.cpus:
            raise ExperimentError(
                f"use the experiment {of}",
                f"condition.service_cpus = {one.service_cpus}, of {where.cpus} CPUs {where.why}",
                "leave one for the load, or take 0 to share all",
            )  # fmt: skip


def report(out: Path) -> None:
    """Everything again from raw data. Raises ExperimentError."""
    experiment.read_plan(out / RAW)
    of_points(out)


def confirm(out: Path, resume: bool) -> None:
    """Runs the points that the rule picks with new seeds, and reports on both. Raises
    ExperimentError, or KeyboardInterrupt."""
    raw = out / RAW
    plan = experiment.read_plan(raw)
    if missing := experiment.left(raw, plan):
        raise ExperimentError(
            f"confirm what {out} found", f"{len(missing)} of its runs are missing",
            "go on with it first, with `bpf-gpu-server ab run --resume`",
        )  # fmt: skip
    points = to_confirm(summarise(raw))
    if not points:
        raise ExperimentError(
            f"confirm what {out} found", "no point has a verdict",
            "see `bpf-gpu-server ab show` for the reasons; it takes more pairs, or lower rates",
        )  # fmt: skip
    print(f"points to confirm: {', '.join(points)}")
    again = replace(
        plan,
        seed=random.SystemRandom().getrandbits(31),
        points={point: plan.points[point] for point in points},
    )
    run_plan(again, out / CONFIRM, resume, f"the confirmation of {out}")
    of_points(out)


def describe(plan: Plan) -> str:
    """How much it runs."""
    points = len(plan.points)
    handicap = " and ".join(f"{name} {share:+.0%}" for name, share in plan.inject.items())
    given = f", {plan.handicapped} with {handicap}" if handicap else ""
    return (
        f"{points} point{'s'[: points != 1]} × {plan.pairs} pair{'s'[: plan.pairs != 1]} × "
        f"{' and '.join(plan.arms)}{given}: {duration(plan)}"
    )


def duration(plan: Plan) -> str:
    """What it should take, in words."""
    minutes = plan.run_count() * measure.run_seconds(plan) / 60
    return f"about {minutes:.0f} min" if minutes >= 1 else "less than a minute"


def find_file(file: Path) -> Path:
    """The file, or the one of the project that has this name, with or without .toml."""
    if not file.exists() and file.name == str(file):
        ours = FILES / f"{file.stem}.toml"
        return ours if ours.exists() else file
    return file


def list_files() -> list[tuple[str, str, str]]:
    """Name, question and size of the experiments that come with the project."""
    plans = {file.stem: experiment_file.read(file) for file in sorted(FILES.glob("*.toml"))}
    return [(name, plan.asks, describe(plan)) for name, plan in plans.items()]


def list_points(out: Path) -> list[tuple[str, str, str]]:
    """Name, condition and complete runs of the points of an experiment. Raises ExperimentError."""
    raw = out / RAW
    plan = experiment.read_plan(raw)
    left = [run.point for run in experiment.left(raw, plan)]
    runs = plan.pairs * len(plan.transports)
    return [
        (point, label, f"{runs - left.count(point)} of {runs} runs")
        for point, label in labels(plan.points).items()
    ]


def show(out: Path, point: str | None) -> None:
    """Prints what was found, of all points or of one in detail. Raises ExperimentError."""
    from experiments import overview, table

    plan = experiment.read_plan(out / RAW)
    summary: Json = with_verdicts(out)
    if point is None:
        overview.show(summary)
        return
    if point not in plan.points:
        raise ExperimentError(
            f"show the point {point}", f"{out} has {', '.join(plan.points)}", "name one of these"
        )
    table.show(of_point(summary, point))
