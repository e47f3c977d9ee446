"""Capabilities of the supervisor: what it has, what it keeps once it serves, and why."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from loader import syscalls

NUMBERS = {
    "CAP_DAC_OVERRIDE": 1,
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_ADMIN": 21,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}

# Kept by a supervisor that serves; everything else is dropped once set-up is over, whatever the
# transport: taking the kernel path down is closing descriptors and removing pins, which need none.
KEPT = {
    # The top folder of cgroup v2 has mode 555: removing a group from it takes more than being its
    # owner. Also, an executor to be restarted may lie in a folder that only its owner may enter.
    "CAP_DAC_OVERRIDE",
}

_VERSION_3 = 0x20080522  # two words of 32 capabilities


def effective(pid: int | str = "self") -> set[int]:
    """Numbers of the capabilities in a process's effective set."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            mask = int(line.split()[1], 16)
            return {bit for bit in range(64) if mask >> bit & 1}
    return set()


def bound_children() -> None:
    """Programs started from now on get no capabilities, even when they run as root.

    Without CAP_SETPCAP nothing happens, and there is nothing that could be passed on.
    """
    with contextlib.suppress(OSError):
        for number in range(64):
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, number)  # EINVAL past the last one


def keep_only(names: Iterable[str]) -> None:
    """Drops all other capabilities of the calling thread, for good. Raises OSError."""
    mask = sum(1 << NUMBERS[name] for name in names)
    mask &= sum(1 << number for number in effective())
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = struct.pack("=Ii", _VERSION_3, 0)
    data = struct.pack("=6I", low, low, 0, high, high, 0)
    if syscalls.libc.capset(header, data) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
