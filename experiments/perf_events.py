"""perf_event_open(2), which Python's library lacks."""

from __future__ import annotations

import ctypes
import errno
import os
import platform

from experiments.errors import ExperimentError

_NUMBERS = {"x86_64": 298, "aarch64": 241}
_CLOSE_ON_EXEC = 8
REMEDY = "run as root (sudo); in a container, with CAP_PERFMON"


def open_event(attributes: bytes, pid: int, cpu: int, what: str) -> int:
    """A descriptor for a struct perf_event_attr; pid or cpu may be -1, for all.

    Raises ExperimentError: could not `what`.
    """
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise ExperimentError(what, f"this is {platform.machine()}",
                              f"take a machine of {', '.join(_NUMBERS)}")  # fmt: skip
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.syscall(number, attributes, pid, cpu, -1, _CLOSE_ON_EXEC))
    if fd < 0:
        raise refused(what, f"perf_event_open for thread {pid} on CPU {cpu}", ctypes.get_errno())
    return fd


def refused(what: str, call: str, number: int) -> ExperimentError:
    """The error for a call that failed."""
    name = errno.errorcode.get(number, str(number))
    return ExperimentError(what, f"{call}: {name} ({os.strerror(number)})", REMEDY)
