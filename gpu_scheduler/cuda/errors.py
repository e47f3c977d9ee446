"""Errors of CUDA for people: what was tried, what CUDA said, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

OUT_OF_MEMORY = 2  # of cudaError_t and of CUresult
_NO_MEMORY = "Give --workload a smaller batch or in_flight, or end what else uses the GPU"


class GpuError(RuntimeError):
    """Something of CUDA failed. `code` is its cudaError_t, or 0."""

    def __init__(self, tried: str, said: str, do: str, code: int = 0) -> None:
        super().__init__(f"{tried}: {said}. {do}.")
        self.tried, self.said, self.do, self.code = tried, said, do, code


def checked(answer: Any, tried: str, do: str = "See docs/gpu.md") -> Any:
    """What a call of cuda.bindings.runtime returned, without its error.

    Raises GpuError when there is one.
    """
    error, *values = answer
    if int(error):
        raise from_code(int(error), tried, do)
    return values[0] if len(values) == 1 else tuple(values) or None


def from_code(code: int, tried: str, do: str = "See docs/gpu.md") -> GpuError:
    """The error for a cudaError_t."""
    from cuda.bindings import runtime

    _, name = runtime.cudaGetErrorName(runtime.cudaError_t(code))
    _, text = runtime.cudaGetErrorString(runtime.cudaError_t(code))
    if code == OUT_OF_MEMORY:
        do = _NO_MEMORY
    return GpuError(tried, f"{name.decode()} ({text.decode()})", do, code)


@contextmanager
def cupy_errors(tried: str, do: str = "See docs/gpu.md") -> Iterator[None]:
    """Turns what CuPy raises for itself, cuBLAS and cuFFT into a GpuError."""
    try:
        yield
    except MemoryError as error:  # CuPy's own is one, with or without a limit of its pool
        said = str(error).splitlines()[0].rstrip(".")
        raise GpuError(tried, said, _NO_MEMORY, OUT_OF_MEMORY) from error
    except RuntimeError as error:
        if not type(error).__module__.startswith("cupy"):
            raise
        said = str(error).splitlines()[0].rstrip(".")
        code = getattr(error, "status", 0)
        if "ALLOC_FAILED" in said or "NOT_INITIALIZED" in said:
            code = OUT_OF_MEMORY  # which is how cuBLAS and cuFFT say it
        raise GpuError(tried, said, _NO_MEMORY if code == OUT_OF_MEMORY else do, code) from error
