"""Control groups, version 2: where they are mounted, and the ones of an instance."""

from __future__ import annotations

import os
import select
from dataclasses import dataclass
from pathlib import Path

from loader.errors import LoaderError

EMPTY_DEADLINE_S = 5.0
MOUNT_REMEDY = "mount it: `mount -t cgroup2 none /sys/fs/cgroup`"


def mount_point(kind: str, mountinfo: Path = Path("/proc/self/mountinfo")) -> Path | None:
    """Where a file system of type `kind` is mounted first, or None."""
    for line in mountinfo.read_text().splitlines():
        fields, _, source = line.partition(" - ")
        if source.split(" ", 1)[0] == kind:
            return Path(fields.split(" ")[4].encode().decode("unicode_escape"))
    return None


def require_mount() -> Path:
    """The cgroup v2 mount. Raises LoaderError when there is none."""
    point = mount_point("cgroup2")
    if point is None:
        raise LoaderError("find cgroup v2", "no cgroup2 in /proc/self/mountinfo", MOUNT_REMEDY)
    return point


def current(pid: int | str = "self") -> Path | None:
    """The cgroup v2 folder of a process, or None without cgroup v2."""
    point = mount_point("cgroup2")
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        if point is not None and line.startswith("0::"):
            return point / line[3:].lstrip("/")
    return None


def join(group: Path) -> None:
    """Moves the calling process, with all its threads. Raises OSError."""
    (group / "cgroup.procs").write_text("0")


def leave(home: Path | None) -> None:
    """Moves the calling process home, or to the mount's top when home takes no processes any more.

    Raises OSError.
    """
    top = require_mount()
    try:
        join(home or top)
    except OSError:
        if home in (None, top):
            raise
        join(top)


def members(group: Path) -> list[int]:
    """Process ids in the group itself, not in its children."""
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]


def remove(group: Path) -> None:
    """Removes a group and its children. Waits for processes that are about to be gone.

    Raises OSError: EBUSY while somebody is still in it.
    """
    if not group.exists():
        return
    for child in sorted(path for path in group.iterdir() if path.is_dir()):
        remove(child)
    wait_empty(group)
    group.rmdir()


def wait_empty(group: Path, deadline_s: float = EMPTY_DEADLINE_S) -> bool:
    """Waits until no process is left; the kernel reports each change of cgroup.events."""
    events = os.open(group / "cgroup.events", os.O_RDONLY)
    try:
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        while b"populated 0" not in os.pread(events, 256, 0):
            if not poll.poll(deadline_s * 1000):
                return False
    finally:
        os.close(events)
    return True


@dataclass(frozen=True)
class Groups:
    """The groups of an instance; CPU time is read from their cpu.stat."""

    base: Path

    @property
    def service(self) -> Path:
        """The transport, and the supervisor that makes its listening socket."""
        return self.base / "service"

    @property
    def executor(self) -> Path:
        """The executor."""
        return self.base / "executor"

    def create(self) -> None:
        """Makes the groups. Raises OSError."""
        for group in (self.base, self.service, self.executor):
            group.mkdir()
