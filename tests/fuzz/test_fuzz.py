# SPDX-License-Identifier: MIT
"""Each fuzz target for a short time; and that the targets notice when a check is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fuzz import seeds
from tests.fuzz.run import FUZZ, fuzz

ROOT = Path(__file__).resolve().parents[2]
SECONDS = int(os.environ.get("FUZZ_SECONDS", "60"))


def make(folder: Path, build: Path, target: str) -> Path:
    """Compiles a target from the sources in a folder."""
    program = build / "fuzz" / target
    command = ["make", "-s", "-f", "tests/fuzz/build.mk", f"BUILD={build}", str(program)]
    subprocess.run(command, cwd=folder, check=True)
    return program


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize("target", sorted(seeds.TARGETS))
def test_nothing_is_found(target: str, tmp_path: Path) -> None:
    make(ROOT, FUZZ.parent, target)
    outcome = fuzz(target, SECONDS, tmp_path)
    assert not outcome.broken, outcome
    assert outcome.inputs > len(list(seeds.TARGETS[target]())), "nothing was tried"


# Something that is taken away from a header of shared_page/: target, header, text.
PLANTED = [
    ("hostile_executor", "egress.h", "!ticket || "),
    ("hostile_executor", "egress.h", "\t\tlength = RESULT_MAX;\n"),
    ("admission", "ingress.h", "\t\tin->discard = length;\n"),
]


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("target", "header", "text"), PLANTED)
def test_a_planted_fault_is_found(target: str, header: str, text: str, tmp_path: Path) -> None:
    """The checks of the targets can fail: each fault is found within seconds."""
    for folder in ("shared_page", "tests/fuzz"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    source = tmp_path / "shared_page" / header
    assert text in source.read_text(), "the header has changed: choose another fault"
    replacement = ";\n" if text.startswith("\t") else ""
    source.write_text(source.read_text().replace(text, replacement))
    program = make(tmp_path, tmp_path / "build", target)
    seeds.write(target, tmp_path / "seeds")
    command = [str(program), str(tmp_path / "seeds"), "-max_total_time=60", "-max_len=1024"]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False
    )
    assert "broken: " in run.stderr, run.stderr[-2000:]
