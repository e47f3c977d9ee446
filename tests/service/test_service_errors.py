"""Failures, each injected for real, and the three parts that a person then reads."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loader import cgroups
from loader.instance import PROJECT
from tests.service.failures import CASES, Case
from tests.service.service import NOBODY, ROOT, Service, cli, instance_name, traces

Start = Callable[..., Service]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_failure(case: Case, tmp_path: Path, request: pytest.FixtureRequest, root: None) -> None:
    if case.nobody:
        request.getfixturevalue("nobody")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(case_folder(case))
        names = {"folder": str(folder), "instance": instance_name()}
        run = cli(*case.arguments.format(**names).split(), **run_settings(case, folder))
        expected = [
            ("error: could not ", case.tried), ("  said: ", case.said), ("  do:   ", case.do),
        ]  # fmt: skip
        lines = [line for line in run.stderr.splitlines() if not line.startswith("bpf-gpu-server:")]
        assert len(lines) == len(expected), run.stderr
        for line, (label, text) in zip(lines, expected, strict=True):
            pattern = re.escape(label + text.format(**names)).replace(r"\*", ".*")
            assert re.fullmatch(pattern, line), f"{line!r} is not {label + text!r}"
        assert run.returncode == 1
        assert run.stdout == ""
        assert not traces(names["instance"])


@contextlib.contextmanager
def case_folder(case: Case) -> Iterator[Path]:
    """A folder that user nobody may enter (pytest's own are for their maker alone)."""
    with tempfile.TemporaryDirectory(prefix="bpf-gpu-server-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        if case.nobody:
            os.chown(folder, NOBODY, NOBODY)
        if case.settings.get("foreign"):
            (folder / PROJECT).mkdir()
        for file, text in case.files.items():
            (folder / file).write_text(text)
        for file, text in case.programs.items():
            program = folder / "build" / "bin" / file
            program.parent.mkdir(parents=True, exist_ok=True)
            if text == "built":
                program.symlink_to(ROOT / "build" / "bin" / file)
            else:
                program.write_text(text)
                program.chmod(0o755)
        yield folder


def run_settings(case: Case, folder: Path) -> dict[str, Any]:
    environment = dict(os.environ)
    settings: dict[str, Any] = {"env": environment}
    if case.programs:
        environment["BPF_GPU_SERVER_BUILD"] = str(folder / "build")
    if case.nobody:
        environment["XDG_RUNTIME_DIR"] = str(folder)
        settings |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    if limit := case.settings.get("limit"):
        settings["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    return settings


def test_enough_failures_are_injected() -> None:
    assert len(CASES) >= 15
    assert len({case.name for case in CASES}) == len(CASES)


def test_taken_port(root: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port, instance = other.getsockname()[1], instance_name()
        run = cli("serve", "--port", str(port), "--instance", instance)
    assert run.returncode == 1
    assert run.stderr.splitlines() == [
        f"error: could not bind to 127.0.0.1 port {port}",
        "  said: EADDRINUSE (Address already in use)",
        f"  do:   choose another --port, or see who has it with `ss -ltnp 'sport = :{port}'`",
    ]
    assert not traces(instance)


def test_instance_in_use(start: Start, root: None) -> None:
    first = start().require_ready()
    run = cli("serve", "--port", "0", "--instance", first.instance)
    assert run.returncode == 1
    assert run.stderr.splitlines() == [
        f"error: could not lock the instance {first.instance}",
        f"  said: EWOULDBLOCK: process {first.process.pid} holds {first.runtime}",
        "  do:   stop that one first, or choose another name with --instance",
    ]
    assert first.ask().payload == b"hello", "the first one was disturbed"


def test_a_stranger_in_a_leftover_cgroup_is_not_ended(cgroup2: None) -> None:
    instance = instance_name()
    group = cgroups.require_mount() / f"{PROJECT}.{instance}" / "service"
    group.mkdir(parents=True)
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        (group / "cgroup.procs").write_text(str(stranger.pid))
        run = cli("serve", "--port", "0", "--instance", instance)
        assert run.returncode == 1
        assert run.stderr.splitlines() == [
            f"error: could not remove {group.parent}, left by a crashed predecessor",
            f"  said: EBUSY (Device or resource busy): {group}",
            "  do:   see who is still in it (cgroup.procs), end that process, and start again",
        ]
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
        cgroups.remove(group.parent)


def test_an_unknown_option_is_not_understood() -> None:
    run = cli("serve", "--prot", "1")
    assert run.returncode == 2
    assert "No such option" in run.stderr
    assert "--port" in run.stderr
