"""What only the transport bpf has: programs in the kernel, objects that may not load."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loader import syscalls
from loader.instance import PROJECT
from tests.service.service import ROOT, Service, cli, instance_name, traces

Start = Callable[..., Service]
BPF_PROG_GET_NEXT_ID = 11


@pytest.fixture
def bpf(bpf_runs: bool, root: None) -> None:
    if not bpf_runs:
        pytest.skip("transport bpf cannot run here: see `bpf-gpu-server doctor --transport bpf`")


def program_ids() -> set[int]:
    """Of all BPF programs that the kernel holds."""
    found: set[int] = set()
    attributes = ctypes.create_string_buffer(syscalls.ATTRIBUTE_SIZE)
    last = 0
    while True:
        struct.pack_into("=II", attributes, 0, last, 0)
        try:
            syscalls.syscall(
                syscalls.SYS_BPF, ctypes.c_int(BPF_PROG_GET_NEXT_ID), attributes,
                ctypes.c_uint(len(attributes)),
            )  # fmt: skip
        except FileNotFoundError:
            return found
        last = struct.unpack_from("=II", attributes)[1]
        found.add(last)


def wait_for_programs(expected: set[int]) -> None:
    """The kernel frees programs some time after their last user has gone."""
    deadline = time.monotonic() + 20
    while program_ids() - expected:
        assert time.monotonic() < deadline, f"left: {program_ids() - expected}"
        time.sleep(0.05)


def test_no_program_stays(start: Start, bpf: None) -> None:
    before = program_ids()
    service = start(transport="bpf").require_ready()
    assert program_ids() - before, "no program was loaded, so this tests nothing"
    assert service.ask().payload == b"hello"
    assert service.end() == 0, service.output()
    wait_for_programs(before)


def test_no_program_stays_after_kill_9(start: Start, bpf: None) -> None:
    before = program_ids()
    service = start(transport="bpf").require_ready()
    service.process.kill()
    service.process.wait()
    successor = start(transport="bpf", instance=service.instance).require_ready()
    assert successor.end() == 0, successor.output()
    wait_for_programs(before)


@pytest.mark.parametrize("broken", ["ingress", "loop"])
def test_an_object_that_does_not_load(bpf: None, tmp_path: Path, broken: str) -> None:
    before = program_ids()
    shutil.copytree(ROOT / "build" / "bin", tmp_path / "bin")
    shutil.copytree(ROOT / "build" / "bpf", tmp_path / "bpf")
    (tmp_path / "bpf" / f"{broken}.bpf.o").write_bytes(b"this is no object")
    instance = instance_name()
    environment = {**os.environ, "BPF_GPU_SERVER_BUILD": str(tmp_path)}
    run = cli("serve", "--transport", "bpf", "--port", "0", "--instance", instance, env=environment)
    assert run.returncode == 1
    lines = run.stderr.splitlines()
    assert re.match(rf"error: could not .*{broken}", lines[0]), run.stderr
    assert lines[1].startswith("  said: LIBBPF_ERRNO__FORMAT"), run.stderr
    assert any(line.startswith("  do:   ") for line in lines)
    assert not traces(instance)
    wait_for_programs(before)


def test_a_kernel_without_the_feature(bpf_runs: bool, root: None) -> None:
    if bpf_runs:
        pytest.skip("transport bpf can run here: nothing is missing")
    instance = instance_name()
    run = cli("serve", "--transport", "bpf", "--port", "0", "--instance", instance)
    assert run.returncode == 1
    first, second, third = run.stderr.splitlines()
    assert first.startswith("error: could not start transport bpf, which needs ")
    assert second.startswith("  said: ")
    assert third.endswith("`bpf-gpu-server doctor --transport bpf` shows all there is")
    assert not traces(instance)
    assert not (Path("/run") / PROJECT / instance).exists()
