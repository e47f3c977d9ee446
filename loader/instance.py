"""A running service by name: where its files, pins and cgroups are; its lock; what a crash left."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from loader import cgroups
from loader.cgroups import Groups
from loader.errors import LoaderError, trying
from loader.probes.rights import BPFFS_REMEDY
from loader.processes import Identity, boot_id, kill_leftover

PROJECT = "bpf-gpu-server"
STATE = "state.json"
# bpffs does not allow dots, and the name is part of paths.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,47}")


def runtime_base() -> Path:
    """Folder of the runtime folders: /run for root, the user's own otherwise."""
    if os.geteuid() == 0:
        return Path("/run") / PROJECT
    folder = os.environ.get("XDG_RUNTIME_DIR")
    if folder and os.path.isdir(folder):
        return Path(folder) / PROJECT
    return Path("/tmp") / f"{PROJECT}-{os.geteuid()}"


def check_name(name: str) -> str:
    """The name itself. Raises LoaderError when it cannot be one."""
    if not NAME.fullmatch(name):
        raise LoaderError(
            f"use the instance name {name!r}",
            "it is not letters, digits, - and _, 48 at most, beginning with a letter or digit",
            "choose another --instance",
        )
    return name


def read_state(name: str) -> dict[str, Any]:
    """What the running instance wrote: process ids, port, page, cgroups.

    Looks among the user's own instances first, then among root's. Raises LoaderError.
    """
    check_name(name)
    for base in dict.fromkeys((runtime_base(), Path("/run") / PROJECT)):
        state = _load(base / name / STATE)
        if state and Identity(**state["supervisor"]).runs():
            return state
    raise LoaderError(
        f"find the running instance {name}",
        f"no {STATE} of a living supervisor in {runtime_base() / name}",
        "start it with `bpf-gpu-server serve`, or name another one with --instance",
    )


def _load(path: Path) -> dict[str, Any] | None:
    """A state file, or None when there is none or it is not one."""
    try:
        state: dict[str, Any] = json.loads(path.read_text())
        for process in (state["supervisor"], *state["processes"].values()):
            Identity(**process)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return state


class Instance:
    """What belongs to one name. `lock` first, then `sweep`, then create, at the end `remove`."""

    def __init__(self, name: str) -> None:
        self.name = check_name(name)
        self.runtime = runtime_base() / name
        self.groups: Groups | None = None
        self.pins: Path | None = None
        self._lock_fd = -1

    def lock(self) -> None:
        """Makes the runtime folder and holds it. Raises LoaderError when another process does."""
        tried = f"lock the instance {self.name}"
        try:
            with trying(tried, "see what is there, and whose it is"):
                retrying(self._try_lock)
        except LoaderError as error:
            if not isinstance(error.__cause__, BlockingIOError):
                raise
            said = f"EWOULDBLOCK: {self._owner()} holds {self.runtime}"
            remedy = "stop that one first, or choose another name with --instance"
            raise LoaderError(tried, said, remedy) from None

    def _make_base(self) -> None:
        base = self.runtime.parent
        with contextlib.suppress(FileExistsError):
            base.mkdir(mode=0o755 if os.geteuid() == 0 else 0o700)
        found = base.lstat()  # FileNotFoundError when another instance has just removed it
        if not _is_own(found):
            raise LoaderError(
                f"use {base}", f"it is not a folder of user {os.geteuid()}",
                "remove it, or set XDG_RUNTIME_DIR to a folder of yours",
            )  # fmt: skip

    def _try_lock(self) -> None:
        """Raises FileNotFoundError when the folder was removed before it was ours."""
        self._make_base()
        with contextlib.suppress(FileExistsError):
            self.runtime.mkdir(mode=0o755)
        fd = os.open(self.runtime, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(fd), self.runtime.stat()):
                raise FileNotFoundError(errno.ENOENT, "replaced by another one", self.runtime)
        except OSError:
            os.close(fd)
            raise
        self._lock_fd = fd

    def _owner(self) -> str:
        state = _load(self.runtime / STATE)
        return f"process {state['supervisor']['pid']}" if state else "another process"

    def sweep(self) -> list[str]:
        """Removes what a predecessor left that did not end properly; says what that was.

        Only processes that the predecessor recorded are ended. Raises LoaderError.
        """
        swept: list[str] = []
        for process in self._recorded_processes():
            if process.runs():
                kill_leftover(process)
                swept.append(f"process {process.pid}")
        for folder, remove in self._possible_leftovers():
            if _is_own_folder(folder):
                remedy = "see who is still in it (cgroup.procs), end that process, and start again"
                with trying(f"remove {folder}, left by a crashed predecessor", remedy):
                    remove(folder)
                swept.append(str(folder))
        for file in self.runtime.iterdir():
            file.unlink()
        return swept

    def _recorded_processes(self) -> Iterator[Identity]:
        state = _load(self.runtime / STATE) or {}
        if state.get("boot_id") == boot_id():
            yield from (Identity(**process) for process in state["processes"].values())

    def _possible_leftovers(self) -> Iterator[tuple[Path, Callable[[Path], None]]]:
        if bpffs := cgroups.mount_point("bpf"):
            yield bpffs / PROJECT / self.name, _remove_pins
        if mount := cgroups.mount_point("cgroup2"):
            yield mount / f"{PROJECT}.{self.name}", cgroups.remove

    def create_groups(self) -> None:
        """Makes the cgroups of the service and the executor. Raises LoaderError."""
        groups = Groups(cgroups.require_mount() / f"{PROJECT}.{self.name}")
        remedy = "run as root (sudo); in a container, give it a writable cgroup v2"
        try:
            with trying(f"make the cgroup {groups.base}", remedy):
                groups.create()
        except LoaderError:
            cgroups.remove(groups.base)
            raise
        self.groups = groups

    def create_pins(self) -> Path:
        """Makes the instance's folder in bpffs. Raises LoaderError."""
        bpffs = cgroups.mount_point("bpf")
        if bpffs is None:
            said = "no bpf file system in /proc/self/mountinfo"
            raise LoaderError("make a folder for pinned maps", said, BPFFS_REMEDY)
        pins = bpffs / PROJECT / self.name
        with trying(f"make {pins}", "run as root (sudo)"):
            retrying(lambda: pins.mkdir(parents=True))
        self.pins = pins
        return pins

    def write_state(self, state: dict[str, Any]) -> None:
        """Replaces the state file in one step: a reader sees the old or the new one."""
        state = {"instance": self.name, "boot_id": boot_id(), **state}
        new = self.runtime / (STATE + ".new")
        with trying(f"write {self.runtime / STATE}", "see `df` and the folder's owner"):
            new.write_text(json.dumps(state, indent=2) + "\n")
            new.rename(self.runtime / STATE)

    @property
    def log_folder(self) -> Path:
        """Where a verifier's log is kept; it stays after a failure. No instance has this name."""
        folder = self.runtime.parent / "verifier.logs"
        folder.mkdir(exist_ok=True)
        return folder

    def remove_pins(self) -> None:
        """Removes what is pinned, and the project's folder when it was the last instance."""
        if self.pins:
            _remove_pins(self.pins)
            self.pins = None

    def remove_groups(self) -> None:
        """Removes the cgroups; every process must have left them."""
        if self.groups:
            cgroups.remove(self.groups.base)
            self.groups = None

    def remove_runtime(self) -> None:
        """Removes the runtime folder and lets the lock go."""
        shutil.rmtree(self.runtime)
        _remove_if_empty(self.runtime.parent / "verifier.logs")
        os.close(self._lock_fd)
        self._lock_fd = -1
        _remove_if_empty(self.runtime.parent)


def _is_own_folder(path: Path) -> bool:
    """Whether it is there, no link, and of this user: another user's instance may have the name."""
    try:
        return _is_own(path.lstat())
    except OSError:
        return False


def _is_own(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def retrying(make: Callable[[], None], times: int = 100) -> None:
    """Makes something in a folder that another instance, which is leaving, may just remove."""
    for _ in range(times - 1):
        with contextlib.suppress(FileNotFoundError):
            return make()
    return make()


def _remove_pins(folder: Path) -> None:
    """With the project's folder, when this was the last instance in it."""
    shutil.rmtree(folder)
    _remove_if_empty(folder.parent)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # another instance is there, or has just come
