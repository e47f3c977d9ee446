"""How far an experiment is: events as lines of JSON from whoever runs it, a bar for who watches.

An event names the phase that begins and says how long it should take:
`{"phase": "run 1 of 4, epoll: measuring", "seconds": 4.0}`. Or it marks a moment at which the
watching side is to read what only it can see: `{"mark": "01-pair1-epoll"}`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

Report = Callable[[str, float], None]  # (phase, its expected seconds)
Mark = Callable[[str], None]  # (name of the run)


def print_event(phase: str, seconds: float) -> None:
    """The running side: a line on standard output."""
    print(json.dumps({"phase": phase, "seconds": seconds}), flush=True)


def print_mark(run: str) -> None:
    """The running side: a reading of the accounts has just been made."""
    print(json.dumps({"mark": run}), flush=True)


class Bar:
    """The watching side: a bar with the time left on a terminal, a line a phase elsewhere."""

    def __init__(self, total_s: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._total_s, self._ended_s = total_s, 0.0
        self._phase_s, self._began = 0.0, time.monotonic()
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:<36}"), BarColumn(), TextColumn("{task.fields[left]}"),
            console=self._console, transient=True, disable=not self._console.is_terminal,
        )  # fmt: skip
        self._task = self._progress.add_task("starting", total=total_s, left="")

    def phase(self, name: str, seconds: float) -> None:
        """The phase before it has ended, however long it took; this one begins."""
        self._ended_s += self._phase_s
        self._phase_s, self._began = seconds, time.monotonic()
        self._progress.update(self._task, description=name)
        self.tick()
        if not self._console.is_terminal:
            print(f"{name} ({self._left()})", file=sys.stderr, flush=True)

    def tick(self) -> None:
        """Moves the bar on; a phase that takes longer than expected waits at its end."""
        self._progress.update(self._task, completed=self._done_s(), left=self._left())

    def note(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, highlight=False, markup=False)

    def _done_s(self) -> float:
        return self._ended_s + min(time.monotonic() - self._began, self._phase_s)

    def _left(self) -> str:
        return f"about {max(self._total_s - self._done_s(), 0):.0f} s left"

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()


def follow(line: bytes, report: Report, mark: Mark) -> None:
    """Passes an event on; a line that is something else is dropped."""
    try:
        event: Any = json.loads(line)
        if "mark" in event:
            mark(str(event["mark"]))
        else:
            report(str(event["phase"]), float(event["seconds"]))
    except (ValueError, KeyError, TypeError):
        return
