# SPDX-License-Identifier: MIT
"""What the load generator's records say: exact percentiles, and HdrHistogram logs.

The generator writes one record a request (``load --records``; ``native/load/request_log.hpp`` is
the definition). Histograms of several runs are merged; percentiles are never averaged.

    python -m loader.load_results RECORDS --hdr OUT.hlog
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loader.errors import LoaderError

RECORD = np.dtype(
    [
        ("intended_ns", "<u8"),  # CLOCK_MONOTONIC; 0: never happened
        ("sent_ns", "<u8"),
        ("first_ns", "<u8"),
        ("done_ns", "<u8"),
        ("connection", "<u4"),
        ("status", "<u2"),  # outcome << 8 | status of the reply; outcome 0 is verified
        ("case", "<u2"),
    ]
)
HIGHEST_NS = 60 * 10**9
DIGITS = 3
PER_MILLE = {"p50": 500, "p90": 900, "p99": 990, "p999": 999}

Records = npt.NDArray[np.void]
Nanoseconds = npt.NDArray[np.uint64]


def read_records(path: Path | str) -> Records:
    """All records of a file, as an array of `RECORD`.

    Raises LoaderError when the file cannot be read or ends within a record.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise LoaderError.from_os_error(
            f"read the records {path}", error, "Give the file that load --records wrote."
        ) from error
    if len(data) % RECORD.itemsize:
        raise LoaderError(
            f"read the records {path}",
            f"{len(data)} bytes are no whole number of {RECORD.itemsize}-byte records",
            "Run the load again; the generator was stopped while it wrote.",
        )
    return np.frombuffer(data, RECORD)


def verified(records: Records) -> Records:
    """Those whose reply was right."""
    right: Records = records[records["status"] >> 8 == 0]
    return right


def latency_ns(records: Records) -> Nanoseconds:
    """From the intended send time to the last byte, of verified requests."""
    return _elapsed_ns(verified(records), "intended_ns")


def uncorrected_ns(records: Records) -> Nanoseconds:
    """From the actual send: what a generator that waits for a slow server would report."""
    return _elapsed_ns(verified(records), "sent_ns")


def _elapsed_ns(records: Records, since: str) -> Nanoseconds:
    elapsed: Nanoseconds = records["done_ns"] - records[since]
    return elapsed


def percentiles(values: Nanoseconds) -> dict[str, float]:
    """Count, and mean, P50, P90, P99, P99.9 and maximum in µs: exact, by nearest rank."""
    if not len(values):
        return dict.fromkeys(("count", "mean", *PER_MILLE, "max"), 0.0)
    ordered = np.sort(values)
    # In whole numbers: 0.999 × 1000 is not 999 in floating point.
    ranks = {name: -(-len(ordered) * part // 1000) - 1 for name, part in PER_MILLE.items()}
    found = {name: int(ordered[rank]) / 1e3 for name, rank in ranks.items()}
    mean = float(ordered.mean()) / 1e3
    return {"count": len(ordered), "mean": mean, **found, "max": int(ordered[-1]) / 1e3}


@dataclass
class Histogram:
    """An HdrHistogram of nanoseconds, and what does not fit into one.

    `above` counts the values over the histogram's range; `max_ns` is the exact maximum of all.
    """

    hdr: Any
    above: int = 0
    max_ns: int = 0

    @property
    def count(self) -> int:
        """Values in and above the range."""
        return int(self.hdr.get_total_count()) + self.above

    def add(self, other: Histogram) -> None:
        """Merges another of the same range and precision."""
        self.hdr.add(other.hdr)
        self.above += other.above
        self.max_ns = max(self.max_ns, other.max_ns)


def histogram(values: Nanoseconds, highest_ns: int = HIGHEST_NS, digits: int = DIGITS) -> Histogram:
    """Counts every value; `digits` significant ones. Raises LoaderError without hdrhistogram."""
    result = Histogram(_empty_hdr(highest_ns, digits))
    if len(values):
        within = values[values <= highest_ns]
        result.above = len(values) - len(within)
        result.max_ns = int(values.max())
        lowest, counts = np.unique(_lowest(within, digits), return_counts=True)
        for value, count in zip(lowest.tolist(), counts.tolist(), strict=True):
            result.hdr.record_value(value, count)
    return result


def _empty_hdr(highest_ns: int, digits: int) -> Any:
    try:
        from hdrh.histogram import HdrHistogram  # only reports need it
    except ImportError as error:
        raise LoaderError(
            "make an HdrHistogram",
            str(error),
            "Install the package hdrhistogram from PyPI (pip install 'bpf-gpu-server[report]').",
        ) from error
    return HdrHistogram(1, highest_ns, digits)


def _lowest(values: Nanoseconds, digits: int) -> Nanoseconds:
    """The lowest value of each one's bucket.

    Millions of values become some thousand, which the histogram then takes with their counts.
    """
    bits_kept = int(np.ceil(np.log2(2 * 10**digits)))
    bits = np.frexp(values.astype(np.float64))[1]
    shift = np.maximum(bits - bits_kept, 0).astype(np.uint64)
    lowest: Nanoseconds = (values >> shift) << shift
    return lowest


def write_log(path: Path | str, histograms: Mapping[str, Histogram], length_s: float) -> None:
    """An HdrHistogram log (format 1.2, V2 encoding), one interval a histogram, tagged by its key.

    Values are nanoseconds. Raises OSError.
    """
    lines = ["#[Histogram log format version 1.2]", "#[Values are nanoseconds]"]
    lines += [
        f"#[{tag}: {one.count} values, {one.above} above the range, maximum {one.max_ns}]"
        for tag, one in histograms.items()
    ]
    lines.append(
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
    )
    lines += [
        f"Tag={tag},0.000,{length_s:.3f},{one.max_ns / 1e6:.6f},{one.hdr.encode().decode()}"
        for tag, one in histograms.items()
    ]
    Path(path).write_text("\n".join(lines) + "\n", encoding="ascii")


def span_s(records: Records) -> float:
    """Seconds from the first intended send to the last reply."""
    if not len(records):
        return 0.0
    first = int(records["intended_ns"].min())
    return max(int(records["done_ns"].max()) - first, 0) / 1e9


def merge(paths: Iterable[Path | str]) -> Records:
    """The records of several runs as one array. Raises LoaderError."""
    return np.concatenate([read_records(path) for path in paths])


def main(arguments: list[str] | None = None) -> int:
    """Prints the percentiles as JSON, and writes the histograms if asked."""
    parser = argparse.ArgumentParser(prog="load_results", description=__doc__.splitlines()[0])
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--hdr", type=Path, help="HdrHistogram log to write")
    parser.add_argument("--highest-s", type=float, default=HIGHEST_NS / 1e9, help="range of it")
    options = parser.parse_args(arguments)
    try:
        records = merge(options.records)
        series = {"corrected": latency_ns(records), "uncorrected": uncorrected_ns(records)}
        result: dict[str, Any] = {tag: percentiles(values) for tag, values in series.items()}
        if options.hdr:
            highest_ns = int(options.highest_s * 1e9)
            histograms = {tag: histogram(values, highest_ns) for tag, values in series.items()}
            write_log(options.hdr, histograms, span_s(records))
            result["above_range"] = {tag: one.above for tag, one in histograms.items()}
    except LoaderError as error:
        print(error.render(), file=sys.stderr)
        return 1
    print(json.dumps({"requests": len(records), **result}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
