"""Errors for people, in three parts, and set-up that can be undone."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

# enum libbpf_errno of libbpf.h: errors of its own, past those of the kernel.
LIBBPF_FIRST = 4000
LIBBPF_ERRORS = (
    *("LIBELF", "FORMAT", "KVERSION", "ENDIAN", "INTERNAL", "RELOC", "LOAD", "VERIFY"),
    *("PROG2BIG", "KVER", "PROGTYPE", "WRNGPID", "INVSEQ", "NLPARSE"),
)


def errno_name(number: int | None) -> str:
    """`EADDRINUSE (Address already in use)` for 98; the sign does not matter."""
    if number is None:
        return "no errno"
    number = abs(number)
    if 0 <= number - LIBBPF_FIRST < len(LIBBPF_ERRORS):
        return f"LIBBPF_ERRNO__{LIBBPF_ERRORS[number - LIBBPF_FIRST]}"
    return f"{errno.errorcode.get(number, f'errno {number}')} ({os.strerror(number)})"


class LoaderError(Exception):
    """What was tried, what the system said, and what to do about it.

    `log` is a file with everything that was said, where `said` quotes only a part of it.
    """

    def __init__(self, tried: str, said: str, do: str, log: Path | None = None) -> None:
        super().__init__(f"{tried}: {said}")
        self.tried, self.said, self.do, self.log = tried, said, do, log

    @classmethod
    def from_os_error(cls, tried: str, error: OSError, do: str) -> LoaderError:
        """For an error of a system call: `said` is its errno's name, and the file concerned."""
        said = errno_name(error.errno) if error.errno else str(error)
        if error.filename is not None:
            name = os.fsdecode(error.filename) if isinstance(error.filename, bytes | str) else ""
            said += f": {name}" if name and name not in tried else ""
        return cls(tried, said, do)

    def render(self) -> str:
        """The message as it is printed, one part a line, without a final newline."""
        lines = [f"error: could not {self.tried}"]
        lines += _part("said:", self.said)
        if self.log is not None:
            lines += _part("log:", str(self.log))
        lines += _part("do:", self.do)
        for note in getattr(self, "__notes__", ()):
            lines += _part("also:", note)
        return "\n".join(lines)


def _part(label: str, text: str) -> list[str]:
    first, *rest = text.strip().splitlines() or [""]
    return [f"  {label:5} {first}"] + [f"        {line}" for line in rest]


def summary(error: BaseException) -> str:
    """One line for any exception, for notes and logs."""
    if isinstance(error, LoaderError):
        return f"could not {error.tried}: {error.said}"
    if isinstance(error, OSError) and error.errno:
        return errno_name(error.errno) + (f": {error.filename}" if error.filename else "")
    return f"{type(error).__name__}: {error}"


@contextmanager
def trying(what: str, do: str) -> Iterator[None]:
    """Turns an OSError of the block into a LoaderError: could not `what`; errno; `do`."""
    try:
        yield
    except OSError as error:
        raise LoaderError.from_os_error(what, error, do) from error


class Transaction:
    """Undo steps, run in reverse order when the `with` block is left, however it is left.

    All steps run even when some fail. The first error wins: an exception that left the block keeps
    its place and failing steps become notes on it; without one, the first failing step is raised.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[str, Callable[[], object]]] = []

    def undo(self, what: str, step: Callable[[], object]) -> None:
        """Registers `step`; `what` completes the sentence "could not ..." when it fails."""
        self._steps.append((what, step))

    def close(self, error: BaseException | None = None) -> None:
        """Runs the steps now. Failures are added to `error`, or raised when there is none."""
        first = error
        while self._steps:
            what, step = self._steps.pop()
            try:
                step()
            except BaseException as failure:  # one failing step must not leave the others undone
                if first is None:
                    first = LoaderError(what, summary(failure), "remove by hand what is left of it")
                    first.__cause__ = failure
                else:
                    first.add_note(f"could not {what} either: {summary(failure)}")
        if error is None and first is not None:
            raise first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(error)
