"""The built wheel, installed into an environment of its own, starts from there."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loader.cli import COMMANDS
from tests.service.service import ROOT, cli


def run(*command: str | Path, **settings: Any) -> str:
    words = [str(part) for part in command]
    done: subprocess.CompletedProcess[str] = subprocess.run(
        words, capture_output=True, text=True, check=False, **settings
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.timeout(300)
def test_wheel(tmp_path: Path) -> None:
    if not all(importlib.util.find_spec(name) for name in ("pip", "setuptools")):
        pytest.skip("no pip or setuptools: run `make setup`")
    source = tmp_path / "source"
    wanted = shutil.ignore_patterns("build", ".git", "*.egg-info", "__pycache__", "tests")
    shutil.copytree(ROOT, source, ignore=wanted, symlinks=True)
    for folder in ("bin", "bpf"):
        if (ROOT / "build" / folder).is_dir():
            shutil.copytree(ROOT / "build" / folder, source / "build" / folder)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    place = tmp_path / "place"
    run(sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", place)
    run(*pip, "--python", place, "install", "--no-deps", "--no-index", "--ignore-installed", wheel)
    # The packages it depends on are those of the environment that runs the tests.
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(packages)}
    program = place / "bin" / "bpf-gpu-server"
    outside = {"cwd": tmp_path, "env": environment}
    result = json.loads(run(program, "doctor", "--json", **outside))
    programs = {one["name"]: one["why"] for one in result["capabilities"]}
    assert programs["server-epoll"] == str(place / "lib/bpf-gpu-server/bin/server-epoll")
    assert "small_requests: Do small GPU requests" in run(program, "ab", "list", **outside)


def test_help_of_every_command() -> None:
    listed = cli("--help")
    assert listed.returncode == 0
    for name in COMMANDS:
        assert f"  {name}" in listed.stdout
        shown = cli(name, "-h")
        assert shown.returncode == 0
        assert shown.stdout.startswith(f"Usage: bpf-gpu-server {name}")
    for name in ("run", "shell"):
        assert cli("vm", name, "-h").returncode == 0
