"""echo: the payload comes back."""

from __future__ import annotations

import random

from gpu_scheduler.workloads.case import Expected
from gpu_scheduler.workloads.spec import Spec


def payload(spec: Spec, numbers: random.Random) -> bytes:
    """0 to 512 bytes."""
    return numbers.randbytes(numbers.randint(0, 512))


def expect(spec: Spec, payload: bytes) -> Expected:
    """The payload."""
    return Expected(payload)
