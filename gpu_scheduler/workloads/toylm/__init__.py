"""A language model without weights: each token is a hash of those before it; streams tokens."""

from __future__ import annotations

from gpu_scheduler.workloads.spec import Parameter, Workload
from shared_page import constants

WORKLOAD = Workload(
    name="toylm",
    kind=constants.KIND_TOYLM,
    parameters={"vocab": Parameter(256, 2, 1 << 24)},
    streams=True,
)
