"""Where the built programs and BPF objects are: a checkout's build/, or an install prefix."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from loader.errors import LoaderError

SOURCE_ROOT = Path(__file__).resolve().parent.parent
BUILD_VARIABLE = "BPF_GPU_SERVER_BUILD"  # names another folder with bin/ and bpf/ in it


def build_folders() -> list[Path]:
    """Folders that may hold bin/ and bpf/, the first one first."""
    chosen = os.environ.get(BUILD_VARIABLE)
    if chosen:
        return [Path(chosen)]
    return [SOURCE_ROOT / "build", Path(sys.prefix) / "lib" / "bpf-gpu-server"]


def _find(relative: Path) -> Path:
    for folder in build_folders():
        if (folder / relative).is_file():
            return folder / relative
    raise LoaderError(
        f"find {relative}",
        "ENOENT (No such file or directory) in " + " or ".join(map(str, build_folders())),
        f"run `make` in the source folder, or set {BUILD_VARIABLE} to a folder with bin/ and bpf/",
    )


def program(name: str) -> Path:
    """A native program, such as `server-epoll`. Raises LoaderError when it is not built."""
    return _find(Path("bin") / name)


def executor(name: str) -> list[str | Path]:
    """The start of an executor's command line: `cpu`, `cuda`, or a Python program of the user's
    own that calls gpu_scheduler.cuda.serve_graphs(). Raises LoaderError.
    """
    if name == "cuda":
        return [sys.executable, "-m", "gpu_scheduler.cuda"]
    if not name.endswith(".py"):
        return [program(f"executor-{name}")]
    if not Path(name).is_file():
        raise LoaderError(f"start {name}", "ENOENT (No such file or directory)", "correct its path")
    return [sys.executable, name]


def bpf_object(name: str) -> Path:
    """A BPF object, such as `ingress.bpf.o`. Raises LoaderError when it is not built."""
    return _find(Path("bpf") / name)
