"""The programs under experiment, as anybody else would call them: the command line, and `load`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.errors import ExperimentError

SOURCE_ROOT = Path(__file__).resolve().parent.parent


def project_folder() -> Path:
    """What `vm run` shares with a VM: the checkout, or the working directory when installed."""
    return SOURCE_ROOT if (SOURCE_ROOT / "pyproject.toml").exists() else Path.cwd()


def command_line(*arguments: str) -> list[str]:
    """`bpf-gpu-server ARGUMENTS`, by this Python: installed or from a checkout."""
    return [sys.executable, "-m", "loader", *arguments]


def native_program(name: str) -> Path:
    """A program that `make` builds. Raises ExperimentError when it did not."""
    chosen = os.environ.get("BPF_GPU_SERVER_BUILD")
    folders = [Path(chosen)] if chosen else [
        SOURCE_ROOT / "build", Path(sys.prefix) / "lib" / "bpf-gpu-server",
    ]  # fmt: skip
    for folder in folders:
        if (folder / "bin" / name).is_file():
            return folder / "bin" / name
    looked = " or ".join(str(folder / "bin") for folder in folders)
    raise ExperimentError(f"find the program {name}", f"ENOENT in {looked}", "run `make`")


def output_of(
    arguments: Sequence[str | Path], tried: str, timeout_s: float = 60, stdin: str = ""
) -> str:
    """Standard output of a command. Raises ExperimentError with its last words when it fails."""
    try:
        done = subprocess.run(
            arguments, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
    except OSError as error:
        raise ExperimentError(tried, str(error), "run `make`, which installs and builds") from None
    except subprocess.TimeoutExpired:
        raise ExperimentError(
            tried, f"`{_words(arguments)}` had not ended after {timeout_s:g} s",
            "see whether the machine is overloaded, and try again",
        ) from None  # fmt: skip
    if done.returncode:
        raise failed(tried, arguments, done.returncode, done.stderr or done.stdout)
    return done.stdout


def json_of(arguments: Sequence[str | Path], tried: str) -> Any:
    """The same, for a command that prints JSON."""
    return json.loads(output_of(arguments, tried))


def failed(
    tried: str, arguments: Sequence[str | Path], status: int, output: str
) -> ExperimentError:
    """The error for a command that ended as it should not have."""
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"left with {status}"
    said = f"`{_words(arguments)}` {how}"
    if words := output.strip()[-2000:]:
        said += f":\n{words}"
    return ExperimentError(tried, said, "remove the cause it names, and try again")


def end(process: subprocess.Popen[Any], grace_s: float, sign: int = signal.SIGTERM) -> int:
    """Ends a process, by force after `grace_s`; its exit status."""
    if process.poll() is None:
        process.send_signal(sign)
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def _words(arguments: Sequence[str | Path]) -> str:
    return " ".join(map(str, arguments))
