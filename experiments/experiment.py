"""An experiment's folder, and running what it has left to run.

`raw/` in it has the plan, the requests, what the experiment ran on, and a folder for each run,
which `measure` describes. Everything else in it is made from `raw/` and can be made again.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path

from experiments import cases, environment, folders, measure, records, remote
from experiments.errors import ExperimentError
from experiments.place import Place
from experiments.plan import PLAN, Plan, Run
from experiments.progress import Bar

RAW, HOST = "raw", "host.json"


def prepare(raw: Path, plan: Plan) -> None:
    """Empties an experiment's folder, if it is one, and puts plan, requests and host there.

    Raises ExperimentError.
    """
    folders.make_empty(raw, PLAN)
    plan.write(raw)
    workloads = {measure.cases_file(raw, plan, one): one.workload for one in plan.points.values()}
    cases.write(workloads, plan.seed)
    measure.write_json(raw / HOST, environment.host())


def begun(raw: Path) -> bool:
    """Whether an experiment was prepared there, to the end."""
    return (raw / HOST).exists()


def read_plan(raw: Path) -> Plan:
    """Of an experiment that was begun. Raises ExperimentError."""
    try:
        return Plan.read(raw)
    except (OSError, ValueError, TypeError) as error:
        raise ExperimentError(
            f"read the experiment in {raw.parent}", f"{type(error).__name__}: {error}",
            "name a folder that `bpf-gpu-server ab run` or the demo wrote",
        ) from None  # fmt: skip


def left(raw: Path, plan: Plan) -> list[Run]:
    """The runs that are not complete."""
    return [run for run in plan.runs() if not measure.complete(raw / run.name)]


def check_the_same(raw: Path, plan: Plan) -> Plan:
    """The plan to go on with: the one in the folder, when it is the same but for the seed, by the
    same revision. Raises ExperimentError."""
    before = read_plan(raw)
    same = replace(plan, seed=before.seed)
    changed = [one.name for one in fields(Plan)
               if getattr(same, one.name) != getattr(before, one.name)]  # fmt: skip
    revision = json.loads((raw / HOST).read_text())["revision"]
    if revision != (now := environment.revision()):
        changed.append(f"the revision of this project ({revision}, now {now})")
    if changed:
        raise ExperimentError(
            f"go on with the experiment in {raw.parent}",
            f"since it began these have changed: {', '.join(changed)}",
            "put them back as they were, or begin again in another folder with --out",
        )  # fmt: skip
    return before


def run(plan: Plan, place: Place, raw: Path) -> None:
    """Runs what is left of the plan with a progress bar. Raises ExperimentError, or
    KeyboardInterrupt."""
    unfinished = left(raw, plan)
    if unfinished:
        command = [*place.prefix, place.python, "-m", "experiments", "measure", str(raw.absolute())]
        count = len(unfinished) + len(list(plan.references()))
        with Bar(place.boot_s + count * measure.run_seconds(plan)) as bar:
            bar.phase("booting the VM" if place.boot_s else "starting", place.boot_s)
            remote.run(command, raw, bar)
    for done in chain(plan.references(), plan.runs()):
        records.keep(raw / done.name)
