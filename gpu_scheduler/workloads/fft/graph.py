"""fft as a graph: a batch is one batched plan of cuFFT, followed by the scaling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_scheduler.cuda.capture import capture, own_stream
from gpu_scheduler.cuda.served import Instance, Lane
from gpu_scheduler.workloads.spec import Spec


def lane(spec: Spec) -> Lane:
    """Requests are `points` complex64; results the first `bins` of as many."""
    request, result = spec["points"] * 8, spec["bins"] * 8
    return Lane(spec.name, spec.kind, request, request, spec["batch"], request, request, result)


def weights(spec: Spec) -> Any:
    """Nothing that instances share."""
    return None


def instance(spec: Spec, shared: Any, finish: Callable[[], None]) -> Instance:
    """Captures one, with memory and a plan of its own. Raises GpuError."""
    import cupy
    from cupy.cuda import cufft

    points, batch = spec["points"], spec["batch"]
    x, out = (cupy.zeros((batch, points), cupy.complex64) for _ in range(2))
    scale = np.float32(1 / math.sqrt(points))
    with own_stream() as stream:
        plan = cufft.Plan1d(points, cufft.CUFFT_C2C, batch)

        def work() -> None:
            source = x
            for _ in range(spec["work"]):
                plan.fft(source, out, cufft.CUFFT_FORWARD)
                cupy.multiply(out, scale, out=out)
                source = out

        work()
        stream.synchronize()
        graph = capture(work, finish)
    return Instance(graph, x.data.ptr, out.data.ptr, (x, out, plan))
