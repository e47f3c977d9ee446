"""empty as a graph: the finishing kernel alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_scheduler.cuda.capture import capture, own_stream
from gpu_scheduler.cuda.served import Instance, Lane
from gpu_scheduler.workloads.spec import Spec
from shared_page import constants


def lane(spec: Spec) -> Lane:
    """Any request; empty results."""
    return Lane(spec.name, spec.kind, 0, constants.REQUEST_MAX, spec["batch"])


def weights(spec: Spec) -> Any:
    """Nothing that instances share."""
    return None


def instance(spec: Spec, shared: Any, finish: Callable[[], None]) -> Instance:
    """Captures one. Raises GpuError."""
    with own_stream():
        return Instance(capture(finish), 0, 0)
