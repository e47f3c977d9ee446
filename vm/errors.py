"""What can go wrong around a command in a VM, apart from the command itself."""

from __future__ import annotations

from pathlib import Path


class VmError(Exception):
    """A VM could not be prepared or was lost: what was tried, what the system said, what to do."""

    def __init__(self, tried: str, said: str, do: str) -> None:
        super().__init__(f"{tried}: {said}\n  {do}")
        self.tried, self.said, self.do = tried, said, do


class SetupError(VmError):
    """The host lacks something, or the root folder could not be built."""


class VmLost(VmError):
    """The VM ended (panic, time limit, QEMU's failure) before the command's status arrived.

    `console_log` is the guest's kernel log up to then, `faults` the fault lines found in it.
    """

    def __init__(self, tried: str, said: str, console_log: Path, faults: list[str]) -> None:
        shown = "".join(f"\n    {line}" for line in faults[:5])
        super().__init__(tried, said + shown, f"The guest's kernel log is in {console_log}.")
        self.console_log = console_log
        self.faults = faults
