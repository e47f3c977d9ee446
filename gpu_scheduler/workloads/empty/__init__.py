"""No computing: any payload gets an empty reply."""

from __future__ import annotations

from gpu_scheduler.workloads.spec import Workload
from shared_page import constants

WORKLOAD = Workload(name="empty", kind=constants.KIND_EMPTY)
