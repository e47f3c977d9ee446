"""What can go wrong in an experiment, for people."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable


class ExperimentError(Exception):
    """What was tried, what was said about it, and what to do."""

    def __init__(self, tried: str, said: str, do: str) -> None:
        super().__init__(f"{tried}: {said}")
        self.tried, self.said, self.do = tried, said, do

    def render(self) -> str:
        """The message as it is printed, without a final newline."""
        parts = {"said:": self.said, "do:": self.do}
        lines = [f"error: could not {self.tried}"]
        for label, text in parts.items():
            first, *rest = text.strip().splitlines() or [""]
            lines += [f"  {label:5} {first}", *(f"        {line}" for line in rest)]
        return "\n".join(lines)


def status_of(work: Callable[[], int]) -> int:
    """Exit status of some work, which SIGTERM interrupts as Ctrl-C does: its own; 1 where it could
    not run, and the error is printed; 130 when it was interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave through the clean-up
    try:
        return work()
    except ExperimentError as error:
        print(error.render(), file=sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(note, file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        remedy = "use build/venv/bin/python, which `make setup` makes"
        print(ExperimentError("run the experiment", str(error), remedy).render(), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; what ran was stopped", file=sys.stderr)
        return 130
