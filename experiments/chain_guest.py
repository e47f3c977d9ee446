"""The inside of `chain`: the service with transport bpf, its executor elsewhere, and the load."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

from experiments import programs
from experiments.plan import Condition
from experiments.service import Service

FRAMES = "frames"
RESULT = "guest.json"


def serve(folder: Path, workloads: list[str], rate: float, requests: int) -> None:
    """Leaves what the loads and the page's counters say in the folder. Raises ExperimentError."""
    service = Service("bpf", Condition(workload=workloads[0]), folder / "service.log")
    for workload in workloads[1:]:
        service.command += ["--workload", workload]
    service.command += ["--executor", "external", "--page-frames", str(folder / FRAMES)]
    with service:
        port = service.state()["port"]
        loads = {
            workload: load(folder, number, port, rate, requests)
            for number, workload in enumerate(workloads)
        }
        counters = json.loads(service.counters())["counters"]
    found = {"kernel": platform.release(), "loads": loads, "counters": counters}
    (folder / RESULT).write_text(json.dumps(found, indent=1) + "\n")


def load(folder: Path, number: int, port: int, rate: float, requests: int) -> dict[str, Any]:
    """What the generator says. Raises ExperimentError when it could not run."""
    result = folder / f"load-{number}.json"
    command = [
        str(programs.native_program("load")), "--port", str(port),
        "--cases", str(folder / cases_file(number)), "--connections", "8", "--rate", f"{rate:g}",
        "--requests", str(requests), "--json", str(result),
    ]  # fmt: skip
    # Status 2: a reply was not the expected one, or the generator could not keep up.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 2):
        raise programs.failed("load the service", command, done.returncode, done.stderr)
    return dict(json.loads(result.read_text()))


def cases_file(number: int) -> str:
    """The file with the requests of a workload, and the replies that numpy expects."""
    return f"cases-{number}"
