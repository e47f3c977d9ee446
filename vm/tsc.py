"""The host's TSC frequency, which an emulated guest sees as its own.

A guest on a busy host measures it wrongly (seen: 165 MHz for 2,596 MHz, and the guest's clock ran
fifteen times too fast), since its vCPU stands still in the middle; so it is told.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import time
from collections.abc import Callable

# rdtsc; shl rdx, 32; or rax, rdx; ret
RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")
INTERVAL_S = 0.02
ATTEMPTS = 20


def host_tsc_khz() -> int | None:
    """Measured over 20 ms, to some 20 ppm; None on a host without a TSC."""
    if platform.machine() != "x86_64":
        return None
    protection = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    with mmap.mmap(-1, mmap.PAGESIZE, prot=protection) as code:
        code.write(RDTSC)
        entry = ctypes.c_char.from_buffer(code)
        read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(entry))
        start = closest_pair(read)
        time.sleep(INTERVAL_S)
        end = closest_pair(read)
        del entry  # a mapping that is pointed to cannot be closed
    return round((end[1] - start[1]) * 1_000_000 / (end[0] - start[0]))


def closest_pair(read: Callable[[], int]) -> tuple[int, int]:
    """A time in ns and the TSC at that time, from the attempt that was interrupted least."""
    pairs = []
    for _ in range(ATTEMPTS):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        ticks = read()
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        pairs.append((after - before, (before + after) // 2, ticks))
    _, moment, ticks = min(pairs)
    return moment, ticks
