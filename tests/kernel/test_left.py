# SPDX-License-Identifier: MIT
"""The checks that follow each test do fail: a leak of each kind is planted, seen, and removed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyroute2 import netns

from loader import cgroups, syscalls
from tests.kernel.left import NETNS, RUNTIME, held, left
from tests.support.kernel_log import KernelLog

BPF_OBJ_PIN, BPF_LINK_CREATE = 6, 28
NAME = f"planted-{os.getpid()}"


def bpf(command: int, attributes: bytes) -> int:
    attributes = attributes.ljust(syscalls.ATTRIBUTE_SIZE, b"\0")
    return syscalls.syscall(
        syscalls.SYS_BPF, ctypes.c_int(command), attributes, ctypes.c_uint(len(attributes))
    )


@contextlib.contextmanager
def folder(path: Path) -> Iterator[None]:
    path.mkdir(parents=True)
    yield
    path.rmdir()


@contextlib.contextmanager
def descriptor(fd: int) -> Iterator[int]:
    yield fd
    os.close(fd)


def mount(kind: str) -> Path:
    point = cgroups.mount_point(kind)
    assert point is not None
    return point


@contextlib.contextmanager
def pin() -> Iterator[None]:
    path = mount("bpf") / NAME
    name = ctypes.create_string_buffer(os.fsencode(path))
    with descriptor(syscalls.bpf_map_create(syscalls.MAP_ARRAY, 4, 8, 1)) as fd:
        bpf(BPF_OBJ_PIN, struct.pack("=QII", ctypes.addressof(name), fd, 0))
    yield
    path.unlink()


def sock_ops() -> int:
    code = syscalls.bpf_return(1)
    return syscalls.bpf_prog_load(syscalls.PROG_SOCK_OPS, code, syscalls.ATTACH_SOCK_OPS)


@contextlib.contextmanager
def program() -> Iterator[None]:
    with descriptor(sock_ops()):
        yield


@contextlib.contextmanager
def link() -> Iterator[None]:
    group = mount("cgroup2") / NAME
    with folder(group), descriptor(os.open(group, os.O_RDONLY)) as target:
        with descriptor(sock_ops()) as code:
            words = struct.pack("=IIII", code, target, syscalls.ATTACH_SOCK_OPS, 0)
            made = bpf(BPF_LINK_CREATE, words)
        with descriptor(made):
            yield


@contextlib.contextmanager
def namespace() -> Iterator[None]:
    netns.create(NAME)
    yield
    netns.remove(NAME)


@contextlib.contextmanager
def process() -> Iterator[None]:
    with subprocess.Popen(["sleep", "100"]) as sleeper:
        yield
        sleeper.kill()


LEAKS: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "pin": pin,
    "program": program,
    "map": lambda: descriptor(syscalls.bpf_map_create(syscalls.MAP_ARRAY, 4, 8, 1)),
    "link": link,
    "cgroup": lambda: folder(mount("cgroup2") / NAME),
    "namespace": namespace,
    "process": process,
    "descriptor": lambda: descriptor(os.open("/dev/null", os.O_RDONLY)),
    "file": lambda: folder(RUNTIME / NAME),
}


def test_every_kind_is_planted() -> None:
    assert set(LEAKS) == set(held())


@pytest.mark.parametrize("kind", LEAKS)
def test_a_leak_is_seen(kind: str) -> None:
    NETNS.mkdir(exist_ok=True)
    before = held()
    with LEAKS[kind]():
        found = left(before, deadline_s=0.3)
        assert len(found.get(kind, ())) == 1, found


def test_a_fault_in_the_kernel_log_is_seen(nothing_left: KernelLog) -> None:
    assert not nothing_left.faults()
    Path("/dev/kmsg").write_text("<4>WARNING: planted by a test\n")
    assert len(nothing_left.faults()) == 1
