"""`demo`: epoll and bpf in turn on the same load, in the VM where this host cannot run bpf."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import environment, measure, programs, remote
from experiments.errors import ExperimentError
from experiments.plan import PLAN, Plan
from experiments.progress import Bar

BOOT_S = 6.0  # of the VM until it runs a command, on an idle machine
CASE_COUNT = 64


@dataclass(frozen=True)
class Place:
    """Where the runs take place: what comes before the command, and why there.

    `boot_s` is 0 on this host. A VM sees only the folder `shared`.
    """

    prefix: tuple[str, ...]
    python: str
    boot_s: float
    why: str
    shared: Path | None = None

    def check_sees(self, folder: Path) -> None:
        """Raises ExperimentError for a folder that would not be there."""
        if self.shared and not folder.absolute().is_relative_to(self.shared):
            raise ExperimentError(
                f"use the folder {folder}", f"the VM sees only {self.shared}",
                "choose a folder below that with --out",
            )  # fmt: skip


def find_place(transports: Sequence[str]) -> Place:
    """This host if it can run what is asked for, else the VM. Raises ExperimentError."""
    if "bpf" not in transports:
        return Place((), sys.executable, 0.0, "on this host: it needs nothing special")
    doctor = programs.command_line("doctor", "--transport", "bpf", "--json")
    said = subprocess.run(
        doctor, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if said.returncode == 0:
        return Place((), sys.executable, 0.0, "on this host: it can run transport bpf itself")
    try:
        capabilities = json.loads(said.stdout)["capabilities"]
    except (ValueError, KeyError):
        raise programs.failed(
            "ask doctor about this host", doctor, said.returncode, said.stderr
        ) from None
    missing = [c["name"] for c in capabilities if c["needed"] and c["answer"] != "yes"]
    why = f"in the VM: this host lacks {', '.join(missing)} for transport bpf"
    prefix = programs.command_line("vm", "run", "--")
    return Place(tuple(prefix), "python3", BOOT_S, why, programs.project_folder())


def prepare(raw: Path, plan: Plan) -> None:
    """Empties an experiment's folder, if it is one, and puts plan, requests and host there.

    Raises ExperimentError.
    """
    if raw.exists():
        if any(raw.iterdir()) and not (raw / PLAN).exists():
            raise ExperimentError(
                f"use the folder {raw}", f"it has other files in it, and no {PLAN}",
                "choose another folder with --out",
            )  # fmt: skip
        shutil.rmtree(raw)
    raw.mkdir(parents=True)
    plan.write(raw)
    write_cases(plan, raw / measure.CASES)
    (raw / "host.json").write_text(json.dumps(environment.host(), indent=2) + "\n")


def write_cases(plan: Plan, file: Path) -> None:
    """Requests with the replies that numpy expects, as `load` would make them for each run: made
    once, and here, since importing numpy takes seconds on an emulated CPU. Raises ExperimentError.
    """
    program = "import sys; from gpu_scheduler.workloads import write_cases as write; "
    program += "write(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))"
    arguments = [str(file), plan.condition.workload, str(CASE_COUNT), str(plan.seed)]
    programs.output_of([sys.executable, "-c", program, *arguments], "make the requests")


def run(plan: Plan, place: Place, raw: Path) -> None:
    """Runs the plan with a progress bar. Raises ExperimentError, or KeyboardInterrupt."""
    command = [*place.prefix, place.python, "-m", "experiments", "measure", str(raw.absolute())]
    runs = len(list(plan.runs()))
    with Bar(place.boot_s + runs * measure.run_seconds(plan.timing)) as bar:
        bar.phase("booting the VM" if place.boot_s else "starting", place.boot_s)
        remote.run(command, raw, bar)
