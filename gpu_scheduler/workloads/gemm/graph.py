"""gemm as a graph: a batch is one matrix of batch·m rows, and each factor one call of cuBLAS."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_scheduler.cuda.capture import capture, own_stream
from gpu_scheduler.cuda.errors import GpuError
from gpu_scheduler.cuda.served import Instance, Lane
from gpu_scheduler.workloads.gemm.reference import output_weights, reflection
from gpu_scheduler.workloads.spec import Spec

_WORKSPACE_BYTES = 4 << 20


def lane(spec: Spec) -> Lane:
    """Requests are m×k float32, results m×n."""
    request, result = spec["m"] * spec["k"] * 4, spec["m"] * spec["n"] * 4
    return Lane(spec.name, spec.kind, request, request, spec["batch"], request, result, result)


def weights(spec: Spec) -> Any:
    """All factors on the GPU: shape (work, k, k), and (k, n)."""
    import cupy

    k, work, seed = spec["k"], spec["work"], spec["seed"]
    layers = np.stack([reflection(seed, layer, k) for layer in range(work)])
    return cupy.asarray(layers), cupy.asarray(output_weights(seed, work, k, spec["n"]))


def instance(spec: Spec, shared: Any, finish: Callable[[], None]) -> Instance:
    """Captures one, with memory, a cuBLAS handle and a workspace of its own. Raises GpuError."""
    import cupy

    layers, output = shared
    rows = spec["batch"] * spec["m"]
    x, even, odd = (cupy.zeros((rows, spec["k"]), cupy.float32) for _ in range(3))
    out = cupy.zeros((rows, spec["n"]), cupy.float32)
    with own_stream() as stream:
        blas = _Blas(stream)

        def work() -> None:
            source = x
            for number, layer in enumerate(layers):
                target = odd if number % 2 else even
                blas.multiply(source, layer, target)
                source = target
            blas.multiply(source, output, out)

        work()
        stream.synchronize()
        graph = capture(work, finish)
    return Instance(graph, x.data.ptr, out.data.ptr, (x, even, odd, out, shared, blas))


class _Blas:
    """A cuBLAS handle with a workspace of its own, without which it allocates within a capture.

    CuPy's own calls refuse to work within one.
    """

    def __init__(self, stream: Any) -> None:
        import cupy
        from cupy_backends.cuda.libs import cublas

        self.workspace = cupy.empty(_WORKSPACE_BYTES, cupy.uint8)
        self._handle = ctypes.c_void_p(cublas.create())
        version = cublas.getVersion(self._handle.value)
        self._library = ctypes.CDLL(f"libcublas.so.{version // 10000}")  # CuPy has loaded it
        self._call("cublasSetStream_v2", _address(stream.ptr))
        size = ctypes.c_size_t(_WORKSPACE_BYTES)
        self._call("cublasSetWorkspace_v2", _address(self.workspace.data.ptr), size)

    def multiply(self, x: Any, w: Any, out: Any) -> None:
        """out = x · w, row by row: for cuBLAS, whose matrices stand by column, outᵀ = wᵀ · xᵀ."""
        (rows, k), n = x.shape, w.shape[1]
        one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
        factors = (_address(w.data.ptr), n, _address(x.data.ptr), k)
        result = (_address(out.data.ptr), n)
        self._call("cublasSgemm_v2", 0, 0, n, rows, k, one, *factors, zero, *result)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(self._handle, *arguments)
        if status:
            said = f"cublasStatus_t {status}"
            raise GpuError(f"calling {name}", said, "Set CUBLAS_LOGINFO_DBG=1 and see its log")


def _address(value: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(value)
