"""The load generator on another machine, through ssh: what it needs is copied there, its results
are copied back, and nothing stays.

Its times are those of the other machine's CLOCK_MONOTONIC. Just before its schedule begins it
prints what time it is there. So the difference of the clocks is known but for the way of that line,
by which `clock_ahead_ns` is too large: it only says which requests fall between two readings of the
accounts, seconds apart.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from experiments.errors import ExperimentError
from experiments.generator import CONNECT_S, Generator, Server
from experiments.plan import Condition, Timing
from experiments.programs import native_program

COPY_S = 120.0
RESULTS = ("load.json", "records.bin")
# A program without a terminal hears nothing of its ssh's end but the end of its input.
WATCHED = "exec 3<&0; {} </dev/null & p=$!; (cat <&3; kill $p) >/dev/null 2>&1 & wait $p"


class FarHost:
    """A folder on another machine, with the load generator in it, from the start of the block to
    its end. `prefix`: of words that make a shell there run a line. Raises ExperimentError."""

    def __init__(self, prefix: Sequence[str]) -> None:
        self._prefix = list(prefix)
        self.folder = Path()

    def __enter__(self) -> Self:
        self.folder = Path(self._run("mktemp -d", "make a folder").strip())
        try:
            self.put(native_program("load"), "load")
            self._run(f"chmod +x {self.folder}/load; {self.folder}/load --help", "start the load")
        except BaseException:
            self._remove()
            raise
        return self

    def put(self, file: Path, name: str) -> None:
        """Copies a file into the folder. Raises ExperimentError."""
        with file.open("rb") as content:
            self._run(f"cat > {self.folder}/{name}", f"copy {file.name}", content)

    def get(self, name: str, file: Path) -> None:
        """Copies a file out of the folder. Raises ExperimentError."""
        with file.open("wb") as content:
            self._run(f"cat {self.folder}/{name}", f"copy {name}", None, content)

    def start(self, command: Sequence[str], **streams: Any) -> subprocess.Popen[str]:
        """A program there, which is ended when its input ends."""
        line = WATCHED.format(shlex.join(command))
        return subprocess.Popen([*self._prefix, line], text=True, **streams)

    def _run(self, line: str, what: str, give: Any = None, take: Any = None) -> str:
        tried = f"{what} on {self._prefix[-1]}"
        try:
            done = subprocess.run(
                [*self._prefix, line], stdin=give or subprocess.DEVNULL,
                stdout=take or subprocess.PIPE, stderr=subprocess.PIPE, timeout=COPY_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            said = f"it took more than {COPY_S:g} s"
            raise ExperimentError(tried, said, "see whether the other machine answers") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace") or f"status {done.returncode}"
            raise ExperimentError(tried, said, "see that it runs programs built here, and has room")
        return (done.stdout or b"").decode()

    def _remove(self) -> None:
        self._run(f"rm -rf {self.folder}", "remove a folder")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._remove()
        except ExperimentError as failure:
            if error is None:
                raise
            error.add_note(failure.render())


class FarGenerator(Generator):
    """As the other, on a far host that is there for as long."""

    def __init__(
        self, condition: Condition, timing: Timing, seed: int, server: Server, cases: Path,
        late_us: int, host: FarHost,
    ) -> None:  # fmt: skip
        there = host.folder / "cases.bin"
        host.put(cases, there.name)
        super().__init__(
            condition, timing, seed, server, there, late_us=late_us, program=host.folder / "load"
        )
        self.command.append("--announce")
        self._host = host

    def write_to(self, folder: Path) -> Self:
        """Adds where the results go, which finish() copies."""
        self._results = folder
        return super().write_to(self._host.folder)

    @property
    def client(self) -> int | None:
        """It has no process here."""
        return None

    def __enter__(self) -> Self:
        theirs, self._input = os.pipe()
        try:
            self._process = self._host.start(
                self.command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except BaseException:
            os.close(self._input)
            raise
        finally:
            os.close(theirs)
        self.pid = self._process.pid
        return self

    def wait_until_sending(self) -> float:
        """As the other; compares the clocks too."""
        output = self._process.stdout
        assert output
        readable, _, _ = select.select([output], [], [], CONNECT_S)
        words = output.readline().split() if readable else []
        received_ns = time.monotonic_ns()
        if len(words) != 2:
            if readable:
                self.finish()
            raise self.not_begun()
        now_ns, start_ns = map(int, words)
        self.clock_ahead_ns = received_ns - now_ns
        return (start_ns + self.clock_ahead_ns) / 1e9

    def finish(self) -> None:
        """As the other, and copies the results."""
        super().finish()
        for name in RESULTS:
            self._host.get(name, self._results / name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._input)  # which ends what still runs there
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        super().__exit__(kind, error, trace)
        assert self._process.stdout
        self._process.stdout.close()
