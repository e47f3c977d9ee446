"""The load generator's records: one a measured request. native/load/request_log.hpp defines them;
a test compares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

RECORD = np.dtype(
    [
        ("intended_ns", "<u8"),  # CLOCK_MONOTONIC
        ("sent_ns", "<u8"),
        ("first_ns", "<u8"),
        ("done_ns", "<u8"),
        ("connection", "<u4"),
        ("status", "<u2"),  # below 256: verified
        ("case_index", "<u2"),
    ]
)

Records = npt.NDArray[np.void]


def read_verified(path: Path) -> Records:
    """Those whose reply was right. Raises OSError, and ValueError for a torn file."""
    records = np.frombuffer(path.read_bytes(), RECORD)
    right: Records = records[records["status"] >> 8 == 0]
    return right


def latency_us(records: Records) -> npt.NDArray[np.float64]:
    """From the intended send time to the whole reply, sorted, in µs."""
    elapsed: npt.NDArray[np.float64] = (records["done_ns"] - records["intended_ns"]) / 1e3
    return np.sort(elapsed)


def answered_between(records: Records, start_us: float, end_us: float) -> int:
    """How many replies came in a span of CLOCK_MONOTONIC."""
    done = records["done_ns"] / 1e3
    return int(np.count_nonzero((done > start_us) & (done <= end_us)))
