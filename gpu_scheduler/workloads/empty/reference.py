"""empty: the payload is read by nobody."""

from __future__ import annotations

import random

from gpu_scheduler.workloads.case import Expected
from gpu_scheduler.workloads.spec import Spec


def payload(spec: Spec, numbers: random.Random) -> bytes:
    """256 bytes: requests as long as those of the small gemm and fft."""
    return numbers.randbytes(256)


def expect(spec: Spec, payload: bytes) -> Expected:
    """Nothing."""
    return Expected(b"")
