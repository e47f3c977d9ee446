"""The root that the tests boot, and a way to run a command in it and look at all it printed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from vm.kernels import installed, newest
from vm.machine import run
from vm.root import DEFAULT_KERNEL, Root, default_build_folder, ensure_root, recipe_hash
from vm.session import Streams


@dataclass(frozen=True)
class Outcome:
    status: int
    out: bytes
    err: bytes


@pytest.fixture(scope="session")
def root() -> Root:
    if os.geteuid():
        pytest.skip("needs uid 0: run as root or through sudo")
    built = installed(default_build_folder() / f"root-{recipe_hash()}")
    if newest(built, DEFAULT_KERNEL) is None and not shutil.which("mmdebstrap"):
        pytest.skip("needs mmdebstrap: make setup")
    return ensure_root()


@pytest.fixture(scope="session")
def run_in_vm(root: Root) -> Callable[..., Outcome]:
    def call(command: list[str] | str, stdin: bytes | None = None, **settings: Any) -> Outcome:
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin or b"")
            given.seek(0)
            source = None if stdin is None else given.fileno()
            streams = Streams(source, out.fileno(), err.fileno())
            status = run(command, root=root, streams=streams, **settings)
            out.seek(0)
            err.seek(0)
            return Outcome(status, out.read(), err.read())

    return call
