"""CuPy as it must not be, by packages that stand in for it: no GPU is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpu_scheduler.cuda import GpuError
from gpu_scheduler.cuda.errors import OUT_OF_MEMORY, cupy_errors
from shared_page import SharedPage, constants
from tests.executor.driver import ROOT

# What the executor does on a machine that has a GPU, with `cupy` and `cuda` as the test has them.
EXECUTOR = """
import sys
from gpu_scheduler.cuda import device, serve_graphs

device.gpu_present = lambda: True
sys.exit(serve_graphs())
"""
INSTALL = "pip install 'bpf-gpu-server[gpu]'"
BUILT_FOR = """
class cuda:
    class runtime:
        is_hip = {hip}
        runtimeGetVersion = staticmethod(lambda: {version})
"""
# As CuPy puts it: a frame, and the cause within.
BROKEN = """
try:
    raise ImportError("libnvrtc.so.12: cannot open shared object file: No such file or directory")
except ImportError as error:
    raise ImportError(f'''
================================================================
Failed to import CuPy.

Original error:
  ImportError: {error}
================================================================
''') from error
"""
CASES = {
    "of another CUDA": (
        BUILT_FOR.format(hip=False, version=12090),
        f"CuPy was built for CUDA 12, and 13 is needed. pip uninstall that cupy package, then "
        f"{INSTALL}.",
    ),
    "of ROCm": (
        BUILT_FOR.format(hip=True, version=60443483),
        f"CuPy was built for ROCm, and CUDA 13 is needed. pip uninstall that cupy package, then "
        f"{INSTALL}.",
    ),
    "without its libraries": (
        BROKEN,
        "CuPy cannot be loaded: libnvrtc.so.12: cannot open shared object file: "
        f"No such file or directory. {INSTALL}.",
    ),
    "absent": (None, f"the Python package cupy is not installed. {INSTALL}."),
}


@pytest.mark.parametrize("case", CASES)
def test_a_cupy_that_cannot_serve(case: str, page: SharedPage, tmp_path: Path) -> None:
    source, said = CASES[case]
    (tmp_path / "cuda/bindings").mkdir(parents=True)
    (tmp_path / "cuda/bindings/runtime.py").touch()
    hide = "import sys; sys.modules['cupy'] = None\n" if source is None else ""
    if source is not None:
        (tmp_path / "cupy.py").write_text(source)
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n{hide}{EXECUTOR}"
    done = subprocess.run(
        [sys.executable, "-c", code, "--page-fd", str(page.fd), "--workloads", "empty"],
        pass_fds=[page.fd],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == f"executor-cuda: looking for a GPU: {said}\n"
    assert done.returncode == 1
    assert page.executor_state == constants.EXECUTOR_ABSENT


class CupyError(RuntimeError):
    """As CuPy's errors of CUDA and its libraries are."""

    __module__ = "cupy_backends.cuda.api.runtime"

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


@pytest.mark.parametrize(
    ("error", "code", "do"),
    [
        (MemoryError("Out of memory allocating 4,194,304 bytes."), OUT_OF_MEMORY, "smaller batch"),
        (CupyError(2, "cudaErrorMemoryAllocation: out of memory"), OUT_OF_MEMORY, "smaller batch"),
        (CupyError(3, "CUBLAS_STATUS_ALLOC_FAILED"), OUT_OF_MEMORY, "smaller batch"),
        (CupyError(999, "cudaErrorUnknown: unknown error"), 999, "docs/gpu.md"),
    ],
)
def test_what_cupy_raises_is_said_in_one_line(error: Exception, code: int, do: str) -> None:
    with pytest.raises(GpuError) as caught, cupy_errors("trying"):
        raise error
    assert caught.value.code == code
    assert do in caught.value.do
    assert str(caught.value).startswith("trying: ")
    assert "\n" not in str(caught.value)


def test_other_errors_are_not_touched() -> None:
    with pytest.raises(RuntimeError, match="of the project"), cupy_errors("trying"):
        raise RuntimeError("of the project")
    with pytest.raises(GpuError, match="as it was"), cupy_errors("trying"):
        raise GpuError("so", "as it was", "nothing")
