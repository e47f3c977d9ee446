"""toylm needs no graph: the scheduler's own thread computes the tokens, as on the CPU."""

from __future__ import annotations

from gpu_scheduler.cuda.served import Lane
from gpu_scheduler.workloads.spec import Spec
from shared_page import constants
from shared_page.reading import ffi


def lane(spec: Spec) -> Lane:
    """Streams."""
    least = ffi.sizeof("struct generation_request") + constants.TOKEN_SIZE
    return Lane(
        spec.name,
        spec.kind,
        least,
        constants.REQUEST_MAX,
        spec["batch"],
        in_flight=1,
        streams=True,
        vocab=spec["vocab"],
    )
