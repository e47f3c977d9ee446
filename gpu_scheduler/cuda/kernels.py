"""The scheduler's kernels, compiled by NVRTC through CuPy: no nvcc and no library of our own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from gpu_scheduler.cuda.errors import GpuError

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parent / "scheduler.cu"
THREADS = 256


def headers() -> Iterator[Path]:
    """Whatever scheduler.cu may include."""
    for folder in (
        "shared_page",
        "gpu_scheduler/policy",
        "gpu_scheduler/workloads",
        "gpu_scheduler",
    ):
        yield from (ROOT / folder).glob("*.h")
        yield from (ROOT / folder).glob("*.hpp")
        yield from (ROOT / folder).glob("*/*.h*")
    yield from SOURCE.parent.glob("*.cuh")


def options(extra: tuple[str, ...] = ()) -> tuple[str, ...]:
    """For the compiler. CuPy keeps what it compiled by source and options: hence the headers'
    hash among them.
    """
    digest = hashlib.sha256()
    for header in sorted(set(headers())):
        digest.update(header.read_bytes())
    return ("-std=c++17", "-dc", f"-I{ROOT}", f"-DHEADERS=0x{digest.hexdigest()[:16]}", *extra)


class Kernels:
    """The compiled module, on the current device. Raises GpuError when it does not compile."""

    def __init__(self, extra_options: tuple[str, ...] = ()) -> None:
        import cupy

        tried = "compiling the scheduler for this GPU"
        self._module = cupy.RawModule(code=SOURCE.read_text(), options=options(extra_options))
        try:
            self.scheduler_run = self._module.get_function("scheduler_run")
        except cupy.cuda.compiler.CompileException as error:
            said = str(error).splitlines()[0]
            raise GpuError(tried, said, "Install cupy-cuda13x 13.6 or later") from error
        except (cupy.cuda.driver.CUDADriverError, RuntimeError) as error:
            said = str(error).splitlines()[0]
            do = "Install libcudadevrt.a with CuPy: pip install 'cupy-cuda13x[ctk]'"
            raise GpuError(tried, said, do) from error
        self.graph_finish = self._module.get_function("graph_finish")
        self.mirror_fill = self._module.get_function("mirror_fill")
        self.scheduler_begin = self._module.get_function("scheduler_begin")

    def shared_bytes(self) -> int:
        """Shared memory of scheduler_run's block."""
        import cupy

        size = cupy.zeros(1, dtype=cupy.uint32)
        self._module.get_function("scheduler_size")((1,), (1,), (size,))
        return int(size[0])
