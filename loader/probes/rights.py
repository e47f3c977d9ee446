"""What this process may do here: capabilities, cgroups, the BPF file system."""

from __future__ import annotations

import os
from pathlib import Path

from loader.capabilities import NUMBERS, effective
from loader.cgroups import MOUNT_REMEDY, mount_point
from loader.errors import errno_name
from loader.probes.answer import Answer, no, yes

BPFFS_REMEDY = "mount it: `mount -t bpf bpf /sys/fs/bpf`"


def capability(name: str) -> Answer:
    """Whether a capability is in the effective set."""
    if NUMBERS[name] in effective():
        return yes(f"{name} is in the effective set")
    return no(f"{name} is not in the effective set", f"run as root (sudo), or grant {name}")


def _make_and_remove(folder: Path, what: str, remedy: str) -> Answer:
    try:
        folder.mkdir()
        folder.rmdir()
    except OSError as error:
        return no(f"make {folder}: {errno_name(error.errno)}", remedy)
    return yes(f"{what} at {folder.parent}, and a folder could be made there")


def cgroup2() -> Answer:
    """cgroup v2, with the right to make groups."""
    point = mount_point("cgroup2")
    if point is None:
        return no("no cgroup2 in /proc/self/mountinfo", MOUNT_REMEDY)
    remedy = "run as root; in a container, give it a writable cgroup v2 (--cgroupns=private)"
    return _make_and_remove(point / f"bpf-gpu-server-probe-{os.getpid()}", "cgroup2", remedy)


def bpffs() -> Answer:
    """The file system in which maps and links are pinned."""
    point = mount_point("bpf")
    if point is None:
        return no("no bpf file system in /proc/self/mountinfo", BPFFS_REMEDY)
    folder = point / f"bpf-gpu-server-probe-{os.getpid()}"
    return _make_and_remove(folder, "bpffs", "run as root (sudo)")
