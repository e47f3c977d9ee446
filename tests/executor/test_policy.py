"""The policy is fit for the GPU: plain C++ without a library, which CUDA compiles as it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .driver import ROOT

POLICY = sorted((ROOT / "gpu_scheduler/policy").glob("*.hpp"))


@pytest.mark.parametrize("header", POLICY, ids=lambda header: header.name)
def test_it_includes_only_the_page_and_itself(header: Path) -> None:
    text = header.read_text()
    included = re.findall(r'#include [<"](.*)[>"]', text)
    allowed = r"shared_page/executor\.h|gpu_scheduler/policy/\w+\.hpp"
    if header.name == "function.hpp":
        allowed += "|atomic"  # for g++ only
    assert [name for name in included if not re.fullmatch(allowed, name)] == []
    assert not re.search(r"\b(new|delete|throw|try|malloc|std::)\b", re.sub(r"//.*", "", text))


def test_nvcc_compiles_it_for_the_device(tmp_path: Path) -> None:
    if not shutil.which("nvcc"):
        pytest.skip("nvcc is not installed: the policy is compiled for the host alone")
    source = ROOT / "tests/executor/policy.cu"
    target = tmp_path / "policy.ptx"
    command = ["nvcc", "-std=c++20", "-arch=sm_90", "-Werror=all-warnings", f"-I{ROOT}", "-ptx"]
    subprocess.run([*command, "-o", target, source], check=True)
    assert ".entry scheduler_run" in target.read_text()
