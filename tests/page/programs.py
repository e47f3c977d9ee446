# SPDX-License-Identifier: MIT
"""Builds and loads what tests/page/build.mk describes."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from shared_page.reading import declarations, ffi

ROOT = Path(__file__).parents[2]


@cache
def built(target: str) -> Path:
    """The path of build/tests/TARGET, made if it is older than its sources."""
    path = f"build/tests/{target}"
    make = ["make", "--no-print-directory", "-f", "tests/page/build.mk", path]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(make)}:\n{done.stdout}{done.stderr}"
    return ROOT / path


@cache
def driver() -> Any:
    """The functions of driver.h."""
    ffi.cdef(declarations(Path(__file__).parent / "driver.h"))
    return ffi.dlopen(str(built("libpage_driver.so")))
