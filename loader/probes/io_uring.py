"""Is io_uring there, allowed, and does it know the flags that the loop's ring is set up with?"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from loader import syscalls
from loader.errors import errno_name
from loader.probes.answer import Answer, no, unknown, yes
from loader.probes.kernel import NEWER_KERNEL

SYSCTL = Path("/proc/sys/kernel/io_uring_disabled")
ENABLE = "`sysctl kernel.io_uring_disabled=0` as root"
RING_FLAGS = (
    syscalls.IORING_SINGLE_ISSUER | syscalls.IORING_DEFER_TASKRUN | syscalls.IORING_NO_SQARRAY
)


def sysctl_value() -> str:
    """What the sysctl says: "0", "1", "2", or "absent" on kernels before 6.6."""
    try:
        return SYSCTL.read_text().strip()
    except OSError:
        return "absent"


def _set_up(flags: int) -> None:
    os.close(syscalls.io_uring_setup(8, flags))


def setup() -> Answer:
    """A ring without special flags."""
    try:
        _set_up(0)
    except OSError as error:
        why = f"io_uring_setup: {errno_name(error.errno)}; io_uring_disabled is {sysctl_value()}"
        if error.errno == errno.ENOSYS:
            return no(why, "use a kernel with CONFIG_IO_URING=y")
        if sysctl_value() in ("1", "2"):
            return no(why, ENABLE)
        return no(why, "allow io_uring_setup in the seccomp profile of the container or service")
    return yes("io_uring_setup: done")


def sysctl() -> Answer:
    """Whether the administrator allows io_uring, and to whom."""
    value = sysctl_value()
    if value in ("0", "absent"):
        return yes(f"kernel.io_uring_disabled is {value}")
    if value == "1":
        try:
            _set_up(0)
        except OSError:
            return no("kernel.io_uring_disabled is 1: only CAP_SYS_ADMIN or io_uring_group", ENABLE)
        return yes("kernel.io_uring_disabled is 1, and this process may use io_uring all the same")
    return no(f"kernel.io_uring_disabled is {value}: nobody may use io_uring", ENABLE)


def flags() -> Answer:
    """The ring of the loop: one issuer, deferred task work, SQEs without an index array."""
    what = "SINGLE_ISSUER, DEFER_TASKRUN and NO_SQARRAY"
    try:
        _set_up(RING_FLAGS)
    except OSError as error:
        why = f"io_uring_setup with {what}: {errno_name(error.errno)}"
        if error.errno == errno.EINVAL:
            return no(why, NEWER_KERNEL)
        return unknown(why, "see the answer to io_uring")
    return yes(f"io_uring_setup with {what}: done")
