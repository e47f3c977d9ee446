# SPDX-License-Identifier: MIT
"""Records become percentiles and histograms without losing a value."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from loader import load_results
from loader.errors import LoaderError
from loader.load_results import RECORD, Histogram, histogram, percentiles, write_log
from tests.load.generator import load
from tests.load.stand_in import StandIn, echo

pytest.importorskip("hdrh", reason="hdrhistogram is not installed: pip install hdrhistogram")

SECOND = 10**9


def records(latencies_ns: list[int], status: int = 0) -> np.ndarray:
    made = np.zeros(len(latencies_ns), RECORD)
    made["intended_ns"] = 5 * SECOND + np.arange(len(latencies_ns)) * 1000
    made["sent_ns"] = made["intended_ns"]
    made["done_ns"] = made["intended_ns"] + np.array(latencies_ns, np.uint64)
    made["status"] = status
    return made


def test_one_reply_above_the_range_and_one_at_zero(tmp_path: Path) -> None:
    """HdrHistogram_c #57: both are counted, and the maximum is the true one."""
    values = load_results.latency_ns(records([90 * SECOND, 0, 1000, 60 * SECOND]))
    made = histogram(values, highest_ns=60 * SECOND)
    assert made.count == 4
    assert made.above == 1
    assert made.max_ns == 90 * SECOND
    assert made.hdr.get_total_count() == 3
    assert made.hdr.get_count_at_value(0) == 1
    write_log(tmp_path / "log", {"corrected": made}, 1.0)
    assert "#[corrected: 4 values, 1 above the range, maximum 90000000000]" in (
        (tmp_path / "log").read_text()
    )
    assert percentiles(values)["max"] == 90e6


@pytest.mark.parametrize("digits", [2, 3])
def test_a_histogram_is_as_if_each_value_were_recorded(digits: int) -> None:
    from hdrh.histogram import HdrHistogram

    values = (10 ** np.random.default_rng(1).uniform(0, 10.7, 5000)).astype(np.uint64)
    values[:40] = [edge + step for edge in (2**11, 2**12, 2**20, 2**30) for step in range(-5, 5)]
    single = HdrHistogram(1, 60 * SECOND, digits)
    for value in values.tolist():
        assert single.record_value(value)
    assert histogram(values, digits=digits).hdr.encode() == single.encode()


def test_merging_keeps_every_value() -> None:
    first, second = np.array([5, 70 * SECOND], np.uint64), np.array([7, 8], np.uint64)
    merged: Histogram = histogram(second)
    merged.add(histogram(first))
    assert (merged.count, merged.above, merged.max_ns) == (4, 1, 70 * SECOND)
    assert merged.hdr.get_total_count() == 3


def test_percentiles_are_by_nearest_rank() -> None:
    values = np.arange(1, 1001, dtype=np.uint64)[::-1] * 1000
    found = percentiles(values)
    assert found == {
        "count": 1000, "mean": 500.5, "p50": 500, "p90": 900, "p99": 990, "p999": 999, "max": 1000
    }  # fmt: skip
    assert percentiles(np.array([7000], np.uint64))["p50"] == 7
    assert set(percentiles(np.array([], np.uint64)).values()) == {0}


def test_failed_requests_have_no_latency() -> None:
    timeout, busy = 5 << 8 | 0xFF, 6 << 8 | 1
    mixed = np.concatenate([records([10]), records([20], timeout), records([30], busy)])
    assert load_results.latency_ns(mixed).tolist() == [10]


def test_the_log_of_a_run(cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Read by the package's own reader, it has what the generator measured."""
    from hdrh.histogram import HdrHistogram
    from hdrh.log import HistogramLogReader

    with StandIn(echo) as server:
        ended = load(server.port, cases, tmp_path, "--rate", "1000", "--requests", "300")
    log = tmp_path / "latency.hlog"
    assert load_results.main([str(tmp_path / "records"), "--hdr", str(log)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["requests"] == 300
    assert printed["corrected"] == pytest.approx(ended.result["latency_us"])
    assert printed["uncorrected"] == pytest.approx(ended.result["uncorrected_latency_us"])
    reader = HistogramLogReader(str(log), HdrHistogram(1, 60 * SECOND, 3))
    for tag, series in (("corrected", "latency_us"), ("uncorrected", "uncorrected_latency_us")):
        read = reader.get_next_interval_histogram()
        assert read.get_tag() == tag
        assert read.get_total_count() == 300
        p99_us = read.get_value_at_percentile(99) / 1e3
        assert p99_us == pytest.approx(ended.result[series]["p99"], rel=2e-3)
    reader.input_file.close()


def test_records_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "short").write_bytes(bytes(41))
    with pytest.raises(LoaderError, match="41 bytes are no whole number of 40-byte records"):
        load_results.read_records(tmp_path / "short")
    assert load_results.main([str(tmp_path / "none")]) == 1
    assert "ENOENT" in capsys.readouterr().err
