"""Two control groups of an experiment's own, whose CPU time is read from their cpu.stat."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.errors import ExperimentError

EMPTY_S = 30.0  # that ended processes may take to be gone: a GPU's memory is given back first
LOOK_S = 0.02


@contextmanager
def groups(name: str) -> Iterator[tuple[Path, Path]]:
    """For a service and its executor. At the end whatever is in them is killed, and they are
    removed. Raises ExperimentError."""
    folder = mount()
    for left in folder.glob(f"{name}-*-*"):
        if not Path(f"/proc/{left.name.split('-')[-2]}").exists():
            remove(left)  # of one that was killed
    made = [folder / f"{name}-{os.getpid()}-{part}" for part in ("service", "executor")]
    try:
        for group in made:
            group.mkdir()
        yield made[0], made[1]
    finally:
        for group in made:
            if group.exists():
                remove(group)


def mount() -> Path:
    """Where cgroup v2 is. Raises ExperimentError without it."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    folder = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    if folder is None:
        do = "mount -t cgroup2 none /sys/fs/cgroup"
        raise ExperimentError("make cgroups", "no cgroup2 in /proc/self/mounts", do)
    return folder


def remove(group: Path) -> None:
    """With all that is in it. Raises ExperimentError when that does not go."""
    with contextlib.suppress(FileNotFoundError):  # before Linux 5.14
        (group / "cgroup.kill").write_text("1")
    for _ in range(int(EMPTY_S / LOOK_S)):
        try:
            group.rmdir()
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        time.sleep(LOOK_S)
    pids = (group / "cgroup.procs").read_text().split()
    raise ExperimentError(
        f"remove {group}", f"process {', '.join(pids)} is in it after {EMPTY_S:g} s",
        "end it, and remove the folder with rmdir",
    )  # fmt: skip
