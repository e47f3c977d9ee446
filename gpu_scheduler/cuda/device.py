"""Whether this machine has what executor-cuda needs, said in words."""

from __future__ import annotations

from importlib import util
from pathlib import Path

from gpu_scheduler.cuda.errors import GpuError, from_code

NO_GPU = "no NVIDIA GPU: /dev/nvidia0 is absent"
_INSTALL = "pip install 'bpf-gpu-server[gpu]'"


def gpu_present() -> bool:
    """Whether the driver has made a device; imports nothing."""
    return Path("/dev/nvidia0").exists()


def require_gpu() -> None:
    """Imports CuPy and makes the CUDA context. Raises GpuError where something is missing."""
    tried = "looking for a GPU"
    if not gpu_present():
        raise GpuError(tried, NO_GPU, "Serve with --executor cpu on this machine")
    for module in ("cupy", "cuda"):
        if util.find_spec(module) is None:
            raise GpuError(tried, f"the Python package {module} is not installed", _INSTALL)
    try:
        import cupy
        from cuda.bindings import runtime
    except ImportError as error:
        said = str(error.__cause__ or error).strip().splitlines()[0]  # CuPy draws a frame around it
        raise GpuError(tried, f"CuPy cannot be loaded: {said}", _INSTALL) from error
    if cupy.cuda.runtime.is_hip:
        said = "CuPy was built for ROCm, and CUDA 13 is needed"
        raise GpuError(tried, said, "pip uninstall that cupy package, then " + _INSTALL)
    built = cupy.cuda.runtime.runtimeGetVersion()
    if built < 13000:
        said = f"CuPy was built for CUDA {built // 1000}, and 13 is needed"
        raise GpuError(tried, said, "pip uninstall that cupy package, then " + _INSTALL)
    (error_code,) = runtime.cudaFree(0)
    if int(error_code):
        raise from_code(int(error_code), tried, "See what nvidia-smi says of GPU and driver")
