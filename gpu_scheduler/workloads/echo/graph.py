"""echo as a graph: the finishing kernel alone, between the copies in and out of one memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_scheduler.cuda.capture import capture, own_stream
from gpu_scheduler.cuda.control import RESULT_AS_REQUEST
from gpu_scheduler.cuda.served import Instance, Lane
from gpu_scheduler.workloads.spec import Spec
from shared_page import constants


def lane(spec: Spec) -> Lane:
    """Requests and results of any size that fits."""
    most = constants.RESULT_MAX
    return Lane(spec.name, spec.kind, 0, most, spec["batch"], most, most, RESULT_AS_REQUEST)


def weights(spec: Spec) -> Any:
    """Nothing that instances share."""
    return None


def instance(spec: Spec, shared: Any, finish: Callable[[], None]) -> Instance:
    """Captures one. Raises GpuError."""
    import cupy

    memory = cupy.zeros((spec["batch"], constants.RESULT_MAX), cupy.uint8)
    with own_stream():
        return Instance(capture(finish), memory.data.ptr, memory.data.ptr, memory)
