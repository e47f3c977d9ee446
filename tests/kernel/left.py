# SPDX-License-Identifier: MIT
"""What a service can leave behind: everything of ours that the kernel holds at a moment."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from loader import cgroups
from tests.kernel import bpf_objects

ROOT = Path(__file__).resolve().parents[2]
NETNS = Path("/run/netns")
RUNTIME = Path("/run/bpf-gpu-server")
# The kernel frees programs, rings and sockets some time after their last user has gone.
RELEASE_S = 20.0

KTHREADD = "2"

Held = dict[str, set[str]]
_kernel_threads: set[str] = set()  # most processes; looked at once


def held() -> Held:
    """By kind, the names of all that a test could leave."""
    return {
        "pin": set(pins()),
        "program": {str(one) for one in bpf_objects.ids(bpf_objects.PROGRAM)},
        "map": {str(one) for one in bpf_objects.ids(bpf_objects.MAP)},
        "link": {str(one) for one in bpf_objects.ids(bpf_objects.LINK)},
        "cgroup": set(_cgroups()),
        "namespace": {path.name for path in NETNS.glob("*")},
        "process": set(_processes()),
        "descriptor": set(_descriptors()),
        "file": {str(path) for path in RUNTIME.glob("*") if path.name != "verifier.logs"},
    }


def left(before: Held, deadline_s: float = RELEASE_S) -> Held:
    """What is there now that was not there before, by kind; waits for what is being released."""
    end = time.monotonic() + deadline_s
    while True:
        now = held()
        more = {kind: now[kind] - before[kind] for kind in now if now[kind] - before[kind]}
        if not more or time.monotonic() > end:
            return more
        time.sleep(0.05)


def pins() -> Iterator[str]:
    """Paths of everything in bpffs."""
    if mount := cgroups.mount_point("bpf"):
        yield from (str(path) for path in mount.rglob("*"))


def _cgroups() -> Iterator[str]:
    if mount := cgroups.mount_point("cgroup2"):
        yield from (folder for folder, _, _ in os.walk(mount))


def _processes() -> Iterator[str]:
    """Descendants of this process, and every process of the project."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        if path.name in _kernel_threads:
            continue
        try:
            state, parents[path.name] = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            words = (path / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue  # it has just ended
        if parents[path.name] == KTHREADD:
            _kernel_threads.add(path.name)
            continue
        ours = words[0].startswith(os.fsencode(ROOT / "build")) or b"loader" in words[1:3]
        if (ours or _descends(path.name, parents)) and state != "X":
            yield f"{path.name} {words[0].decode(errors='replace')}"


def _descends(pid: str, parents: dict[str, str]) -> bool:
    while pid := parents.get(pid, ""):
        if pid == str(os.getpid()):
            return True
    return False


def _descriptors() -> Iterator[str]:
    """Of this process; the one that lists them is gone when it is asked for."""
    for path in Path("/proc/self/fd").iterdir():
        try:
            yield f"{path.name} {path.readlink()}"
        except OSError:
            continue
