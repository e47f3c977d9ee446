"""The kernels' sources: what needs no GPU to be known."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpu_scheduler.cuda.control import INSTANCES_MAX, LANES_MAX, LIMITS
from gpu_scheduler.cuda.kernels import ROOT, SOURCE, headers, options
from shared_page.reading import ffi


def included(source: Path) -> set[Path]:
    """The project's files that a source includes, at any depth."""
    found: set[Path] = set()
    for name in re.findall(r'#include "([^"]+)"', source.read_text()):
        path = source.parent / name if (source.parent / name).exists() else ROOT / name
        if path not in found:
            found |= {path} | included(path)
    return found


def test_every_header_is_part_of_the_cache_s_key() -> None:
    assert included(SOURCE) <= set(headers())
    assert any(option.startswith("-DHEADERS=0x") for option in options())


def test_nothing_but_the_project_s_own_headers_is_included() -> None:
    for path in {SOURCE} | included(SOURCE):
        system = re.findall(r"#include <(.*)>", path.read_text())
        assert set(system) <= {"stdint.h", "atomic"}, path  # not for NVRTC


def test_limits_fit_cuda_s() -> None:
    """120 fire-and-forget launches an execution; a bit of a word for each instance."""
    assert LIMITS["LAUNCHES_MAX"] <= 120
    assert INSTANCES_MAX == 32
    assert ffi.sizeof("struct graph_flags") * INSTANCES_MAX <= 512, "four lines are polled"
    assert LIMITS["LAUNCHES_MAX"] > LANES_MAX


@pytest.mark.parametrize("option", [[], ["-DTIMELINE"]])
def test_nvcc_compiles_the_scheduler(tmp_path: Path, option: list[str]) -> None:
    if not shutil.which("nvcc"):
        pytest.skip("nvcc is not installed: the GPU's sources are not compiled")
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-Werror=all-warnings", "-rdc=true", "-cubin"]
    command += [*option, f"-I{ROOT}", "-o", str(tmp_path / "scheduler.cubin"), str(SOURCE)]
    subprocess.run(command, check=True)
