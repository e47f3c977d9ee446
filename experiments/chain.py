"""`chain`: Linux 7.3's request loop in a VM, and an executor outside of it, on a GPU.

A machine with a GPU may have another kernel. There Linux runs in the VM with its memory in a file;
the service in it says which frames of that memory its page has, and the executor maps them.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from experiments import cases, chain_guest, folders, programs
from experiments.errors import ExperimentError

WORKLOADS = ("gemm:m=4,k=16,n=15,work=1", "fft:points=32,bins=30,work=1")
SEED = 1
MEMORY_MIB = 1024  # below 3 GiB, where the file's offsets are the guest's physical addresses
BOOT_S, LEAVE_S = 120.0, 30.0
LOOK_S = 0.05


@dataclass(frozen=True)
class Chain:
    """What is run: `rate` in requests a second, `requests` of each workload."""

    executor: str = "cpu"
    workloads: tuple[str, ...] = WORKLOADS
    rate: float = 500.0
    requests: int = 2000
    pack: Path | None = None

    @property
    def limit_s(self) -> float:
        """For everything inside the VM."""
        return BOOT_S + 3 * len(self.workloads) * self.requests / self.rate


def run(chain: Chain, folder: Path) -> dict[str, Any]:
    """Runs it; returns the report, which is in the folder's report.json too.

    Raises ExperimentError.
    """
    folder = folder.absolute()
    folders.check_seen(folder, programs.project_folder())
    folders.make_empty(folder, chain_guest.cases_file(0))
    numbered = enumerate(chain.workloads)
    cases.write({folder / chain_guest.cases_file(number): of for number, of in numbered}, SEED)
    if chain.pack:
        unpack(chain.pack, folder / "pack")
    started = time.monotonic()
    with (
        os.fdopen(os.memfd_create("guest-memory"), "r+b") as memory,
        guest(chain, folder, memory.fileno()) as machine,
    ):
        machine.wait_for(folder / chain_guest.FRAMES)
        with executor(chain, folder, memory.fileno()) as served:
            finish((machine, served), chain.limit_s + LEAVE_S)
    seconds = time.monotonic() - started
    found = report(chain, json.loads((folder / chain_guest.RESULT).read_text()), seconds)
    (folder / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


def unpack(archive: Path, into: Path) -> None:
    """Raises ExperimentError."""
    try:
        with tarfile.open(archive) as tar:
            # Python has filters from 3.11.4 on, and then asks for the choice of one.
            tar.extraction_filter = getattr(tarfile, "tar_filter", None)
            tar.extractall(into)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise ExperimentError(
            f"unpack {archive}", str(error), "make it with `make chain-pack`"
        ) from error


class Part:
    """A process of the chain, which ends with the `with` block at the latest."""

    def __init__(
        self, what: str, command: Sequence[str], log: Path, inherited: Sequence[int] = ()
    ) -> None:
        self._what, self._command, self._log = what, command, log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=programs.project_folder(), pass_fds=inherited,
            )  # fmt: skip

    def wait_for(self, file: Path) -> None:
        """Until the file is there. Raises ExperimentError when the process ends first."""
        end = time.monotonic() + BOOT_S
        while not file.exists() and not self.ended():
            if time.monotonic() > end:
                raise self.late(BOOT_S)
            time.sleep(LOOK_S)

    def ended(self) -> bool:
        """Whether it has left, and well. Raises ExperimentError when it failed."""
        if status := self._process.poll():
            said = self._log.read_text(errors="replace")
            raise programs.failed(self._what, self._command, status, said)
        return status == 0

    def late(self, limit_s: float) -> ExperimentError:
        """The error for one that takes too long."""
        return ExperimentError(self._what, f"not done after {limit_s:g} s", f"see {self._log}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        programs.end(self._process, LEAVE_S)


def finish(parts: Sequence[Part], limit_s: float) -> None:
    """Waits until all have left. Raises ExperimentError for the first that failed: the others would
    wait for it.
    """
    end = time.monotonic() + limit_s
    while waiting := [part for part in parts if not part.ended()]:
        if time.monotonic() > end:
            raise waiting[0].late(limit_s)
        time.sleep(LOOK_S)


def guest(chain: Chain, folder: Path, memory: int) -> Part:
    """The VM with the service and the load in it."""
    command = [
        sys.executable, "-m", "vm", "run", "--accelerator", "tcg", "--memory", str(MEMORY_MIB),
        "--ram-file", f"/proc/{os.getpid()}/fd/{memory}", "--timeout", f"{chain.limit_s:g}",
        "--env", "PYTHONDONTWRITEBYTECODE=1",
    ]  # fmt: skip
    if chain.pack:
        command += ["--root", str(folder / "pack/root")]
        command += ["--env", f"BPF_GPU_SERVER_BUILD={folder / 'pack'}"]
    command += ["--", "python3", "-m", "experiments", "chain-guest", str(folder)]
    command += ["--rate", f"{chain.rate:g}", "--requests", str(chain.requests), *chain.workloads]
    return Part("run the service in the VM", command, folder / "vm.log")


def executor(chain: Chain, folder: Path, memory: int) -> Part:
    """The executor, on frames of the VM's memory."""
    program = [sys.executable, "-m", "gpu_scheduler.cuda"]
    if chain.executor != "cuda":
        program = [str(native_program(f"executor-{chain.executor}", folder))]
    command = [
        *program, "--page-fd", str(memory), "--page-frames", str(folder / chain_guest.FRAMES),
        "--workloads", ";".join(chain.workloads),
    ]  # fmt: skip
    return Part("run the executor", command, folder / "executor.log", (memory,))


def native_program(name: str, folder: Path) -> Path:
    """From the archive, where there is one. Raises ExperimentError."""
    packed = folder / "pack/bin" / name
    return packed if packed.exists() else programs.native_program(name)


def report(chain: Chain, found: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Which kernel, which processor computed, how many requests, how many right."""
    loads = found["loads"]
    return {
        "kernel": found["kernel"],
        "host_kernel": platform.release(),
        "transport": "bpf",
        "executor": chain.executor,
        "gpu": gpu() if chain.executor == "cuda" else None,
        "requests": sum(load["sent"] for load in loads.values()),
        "verified": sum(load["verified"] for load in loads.values()),
        "seconds": round(seconds, 1),
        "workloads": {
            workload: {
                key: load[key]
                for key in ("sent", "verified", "failures", "throughput_rps", "latency_us")
            }
            for workload, load in loads.items()
        },
        "counters": found["counters"],
    }


def gpu() -> str:
    """Name and driver, as nvidia-smi says. Raises ExperimentError."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return programs.output_of(query, "ask which GPU there is").strip()
