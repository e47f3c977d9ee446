"""Where an experiment's runs take place: on this host, or in the VM."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import environment, folders, programs, vllm
from experiments.errors import ExperimentError
from experiments.plan import VLLM

BOOT_S = 6.0  # of the VM until it runs a command, on an idle machine
VM_CPUS = 2
SHORTEST_LIMIT_S = 600.0
PATIENCE = 4  # a VM that takes so many times what its runs should take is given up


@dataclass(frozen=True)
class Place:
    """What comes before a command to run it there, and why there.

    `boot_s` is 0 on this host. A VM sees only the folder `shared`.
    """

    prefix: tuple[str, ...]
    python: str
    boot_s: float
    why: str
    shared: Path | None = None
    cpus: int = 0

    def check_sees(self, folder: Path) -> None:
        """Raises ExperimentError for a folder that would not be there."""
        if self.shared:
            folders.check_seen(folder, self.shared)


def find(transports: Sequence[str], expected_s: float = 0.0, exact: bool = False) -> Place:
    """This host if it can run what is asked for, else the VM; always the VM where instructions are
    to be counted. `expected_s` is how long the runs should take. Raises ExperimentError."""
    if VLLM in transports:
        check_vllm(exact)
    if exact:
        why = "in the VM, on one emulated CPU that counts instructions"
        return in_vm(why, expected_s, "--icount")
    here = Place((), sys.executable, 0.0, "on this host: it needs nothing special",
                 cpus=environment.cpus())  # fmt: skip
    missing = missing_for_bpf() if "bpf" in transports else []
    if missing and VLLM in transports:
        raise ExperimentError(
            "run bpf and vllm in one place",
            f"this host lacks {', '.join(missing)} for transport bpf, and the VM has no GPU",
            "run them on a host that has both, or take bpf out of transports",
        )
    if missing:
        return in_vm(f"in the VM: this host lacks {', '.join(missing)} for transport bpf",
                     expected_s)  # fmt: skip
    return here


def check_vllm(exact: bool) -> None:
    """Raises ExperimentError where vLLM cannot run."""
    vllm.program()
    if exact:
        raise ExperimentError(
            "count vLLM's instructions", "they are counted in the VM, which has no GPU",
            "leave out exact, or take vllm out of transports",
        )  # fmt: skip


def in_vm(why: str, expected_s: float, *options: str) -> Place:
    """The VM, for commands that should take so long."""
    limit_s = max(SHORTEST_LIMIT_S, PATIENCE * expected_s)
    prefix = programs.command_line("vm", "run", *options, "--timeout", f"{limit_s:.0f}", "--")
    cpus = 1 if "--icount" in options else VM_CPUS
    return Place(tuple(prefix), "python3", BOOT_S, why, programs.project_folder(), cpus)


def missing_for_bpf() -> list[str]:
    """What this host lacks for transport bpf. Raises ExperimentError."""
    doctor = programs.command_line("doctor", "--transport", "bpf", "--json")
    said = subprocess.run(
        doctor, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if said.returncode == 0:
        return []
    try:
        capabilities = json.loads(said.stdout)["capabilities"]
    except (ValueError, KeyError):
        raise programs.failed(
            "ask doctor about this host", doctor, said.returncode, said.stderr
        ) from None
    return [c["name"] for c in capabilities if c["needed"] and c["answer"] != "yes"]
