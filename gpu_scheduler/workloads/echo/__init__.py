"""The reply's payload is the request's. With delay_us it stands in for slow work."""

from __future__ import annotations

from gpu_scheduler.workloads.spec import Workload
from shared_page import constants

WORKLOAD = Workload(name="echo", kind=constants.KIND_ECHO)
