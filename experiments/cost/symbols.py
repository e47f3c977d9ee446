"""Names of kernel addresses, those of BPF programs among them."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from pathlib import Path

from experiments.errors import ExperimentError

KALLSYMS = Path("/proc/kallsyms")
_CODE = "tTwW"


class Symbols:
    """The functions that the kernel lists at this moment: to be made while programs are loaded.

    Raises ExperimentError when it hides their addresses.
    """

    def __init__(self, lines: Iterable[str] | None = None) -> None:
        if lines is None:
            lines = KALLSYMS.read_text().splitlines()
        fields = (line.split() for line in lines)
        found = sorted((int(one[0], 16), one[2]) for one in fields if one[1] in _CODE)
        if not found or not found[-1][0]:
            said = f"{KALLSYMS} has no addresses (kernel.kptr_restrict)"
            raise ExperimentError("name kernel functions", said, "run as root (sudo)")
        self._addresses = [address for address, _ in found]
        self._names = [name for _, name in found]

    def name(self, address: int) -> str:
        """Of the function that an address lies in; the number itself below all of them."""
        at = bisect.bisect_right(self._addresses, address) - 1
        return self._names[at] if at >= 0 else f"{address:#x}"
