"""Matrix products: x (m×k) times `work` matrices (k×k) times an output matrix (k×n), float32."""

from __future__ import annotations

from gpu_scheduler.workloads.spec import Parameter, Spec, Workload
from shared_page import constants

_WEIGHTS_MAX = 64 << 20  # bytes


def _check(spec: Spec) -> None:
    m, k, n, work = (spec[key] for key in ("m", "k", "n", "work"))
    spec.limit("a request", "m*k*4", m * k * 4, constants.REQUEST_MAX, "Make m or k smaller")
    spec.limit("a result", "m*n*4", m * n * 4, constants.RESULT_MAX, "Make m or n smaller")
    size = work * k * k * 4
    spec.limit("the model", "work*k*k*4", size, _WEIGHTS_MAX, "Make work or k smaller")


WORKLOAD = Workload(
    name="gemm",
    kind=constants.KIND_GEMM,
    parameters={
        "m": Parameter(4, 1, 1024),
        "k": Parameter(16, 1, 1024),
        "n": Parameter(15, 1, 1024),
        "work": Parameter(1, 1, 65536),
        "seed": Parameter(1, 0, 2**31 - 1),
    },
    check=_check,
)
