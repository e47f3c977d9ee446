"""The load generator's records: one a measured request. native/load/request_log.hpp defines them;
a test compares. They are kept as Parquet, which other programs read too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.errors import ExperimentError

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
WRITTEN, KEPT = "records.bin", "requests.parquet"  # in a run's folder

Records = npt.NDArray[np.void]


def keep(folder: Path) -> None:
    """Makes the generator's file of a run a Parquet file, a column for each field of RECORD; does
    nothing where that was done. Raises ExperimentError, OSError, and ValueError for a torn file."""
    if not (folder / WRITTEN).exists():
        return
    pa, parquet = _pyarrow()
    columns = np.frombuffer((folder / WRITTEN).read_bytes(), RECORD)
    names = RECORD.names or ()
    table = pa.table({name: np.ascontiguousarray(columns[name]) for name in names})
    unfinished = folder / f"{KEPT}.unfinished"
    # Times grow from one request to the next, and dictionaries of them would only be larger.
    parquet.write_table(
        table, unfinished, compression="zstd", use_dictionary=False,
        column_encoding=dict.fromkeys(names[:4], "DELTA_BINARY_PACKED"),
    )  # fmt: skip
    os.replace(unfinished, folder / KEPT)
    (folder / WRITTEN).unlink()


def read(folder: Path) -> Records:
    """All records of a run. Raises OSError, ValueError for a damaged file, ExperimentError."""
    if (folder / WRITTEN).exists():
        return np.frombuffer((folder / WRITTEN).read_bytes(), RECORD)
    _, parquet = _pyarrow()
    table = parquet.read_table(folder / KEPT)
    records = np.zeros(table.num_rows, RECORD)
    for name in RECORD.names or ():
        records[name] = table[name].to_numpy()
    return records


def read_verified(folder: Path) -> Records:
    """Those whose reply was right. Raises as read() does."""
    records = read(folder)
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


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ExperimentError(
            "keep the requests as Parquet", str(error),
            "install it with `pip install 'bpf-gpu-server[report]'`",
        ) from None  # fmt: skip
    return pyarrow, parquet
