"""fft in complex128.

Tolerance: |result - reference| <= 4 · work · log₂(2 · points) · 2⁻²⁴ · max |reference|, for real
and imaginary parts: a transform scales and makes log₂(points) passes, all with the same rounded
factors, so that errors of repeated transforms add up.
"""

from __future__ import annotations

import math
import random

import numpy as np

from gpu_scheduler.workloads.case import Compare, Expected
from gpu_scheduler.workloads.spec import Spec


def payload(spec: Spec, numbers: random.Random) -> bytes:
    """`points` complex64 with both parts in [-1, 1)."""
    values = [numbers.uniform(-1, 1) for _ in range(2 * spec["points"])]
    return np.array(values, dtype=np.float32).tobytes()


def expect(spec: Spec, payload: bytes) -> Expected:
    """`bins` complex64, rounded from complex128."""
    points, work = spec["points"], spec["work"]
    x = np.frombuffer(payload, dtype=np.complex64).astype(np.complex128)
    for _ in range(work):
        x = np.fft.fft(x, norm="ortho")
    result = x[: spec["bins"]].astype(np.complex64)
    atol = 4 * work * math.log2(2 * points) * 2.0**-24 * float(np.abs(x).max())
    return Expected(result.tobytes(), Compare.FLOAT32, atol=atol)
