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
    """A cuBLAS handle. Without a workspace of its own cuBLAS would allocate within a capture."""

    def __init__(self, stream: Any) -> None:
        import cupy
        from cupy_backends.cuda.libs import cublas

        self._cublas = cublas
        self.handle = cublas.create()
        self.workspace = cupy.empty(_WORKSPACE_BYTES, cupy.uint8)
        self._one, self._zero = np.ones(1, np.float32), np.zeros(1, np.float32)
        cublas.setStream(self.handle, stream.ptr)
        library = ctypes.CDLL(f"libcublas.so.{cublas.getVersion(self.handle) // 10000}")
        failed = library.cublasSetWorkspace_v2(
            ctypes.c_void_p(self.handle),
            ctypes.c_void_p(self.workspace.data.ptr),
            ctypes.c_size_t(_WORKSPACE_BYTES),
        )
        if failed:
            raise GpuError("giving cuBLAS its workspace", f"cublasStatus_t {failed}", "See its log")

    def multiply(self, x: Any, w: Any, out: Any) -> None:
        """out = x · w, row by row: for cuBLAS, whose matrices stand by column, outᵀ = wᵀ · xᵀ."""
        rows, k = x.shape
        n = w.shape[1]
        one, zero = self._one.ctypes.data, self._zero.ctypes.data
        self._cublas.sgemm(
            self.handle, 0, 0, n, rows, k, one, w.data.ptr, n, x.data.ptr, k, zero, out.data.ptr, n
        )
