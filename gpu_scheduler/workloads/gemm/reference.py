"""gemm in float64, with the executor's weights (exact float32 values).

Tolerance: |result - reference| <= 4 · √((work + 1) · k) · 2⁻²⁴ · max |reference|. Each product
rounds k times at random, and orthogonal matrices carry the errors on without growth.
"""

from __future__ import annotations

import functools
import math
import random

import numpy as np
from numpy.typing import NDArray

from gpu_scheduler.workloads.case import Compare, Expected
from gpu_scheduler.workloads.mix import mix, mix_range
from gpu_scheduler.workloads.spec import Spec


def payload(spec: Spec, numbers: random.Random) -> bytes:
    """x: m·k values in [-1, 1)."""
    values = [numbers.uniform(-1, 1) for _ in range(spec["m"] * spec["k"])]
    return np.array(values, dtype=np.float32).tobytes()


def expect(spec: Spec, payload: bytes) -> Expected:
    """m×n float32, rounded from float64."""
    m, k, work = spec["m"], spec["k"], spec["work"]
    x = np.frombuffer(payload, dtype=np.float32).reshape(m, k).astype(np.float64)
    for layer in range(work):
        x = x @ reflection(spec["seed"], layer, k)
    result = x @ output_weights(spec["seed"], work, k, spec["n"])
    atol = 4 * math.sqrt((work + 1) * k) * 2.0**-24 * float(np.abs(result).max())
    return Expected(result.astype(np.float32).tobytes(), Compare.FLOAT32, atol=atol)


@functools.lru_cache(maxsize=256)
def reflection(seed: int, layer: int, k: int) -> NDArray[np.float32]:
    """The layer's k×k matrix, a Householder reflection 1 - 2vvᵀ/vᵀv; see gemm.cpp."""
    start = mix(seed ^ layer << 32)
    v = 2.0 * (mix_range(start, k) >> np.uint64(52)).astype(np.float64) - 4095.0
    return (np.eye(k) - 2.0 * v[:, None] * v[None, :] / np.sum(v * v)).astype(np.float32)


@functools.lru_cache(maxsize=16)
def output_weights(seed: int, layer: int, k: int, n: int) -> NDArray[np.float32]:
    """The k×n matrix at the end: uniform in [-1, 1), times √(3/k)."""
    bits = (mix_range(mix(seed ^ layer << 32), k * n) >> np.uint64(40)).astype(np.int64) - 2**23
    unit = bits.astype(np.float32) / np.float32(2**23)
    return (unit * np.float32(math.sqrt(3.0 / k))).reshape(k, n)
