# SPDX-License-Identifier: MIT
"""The schedule is a function of the seed, whatever the server, the threads and the time do."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.load.generator import Run, echo_cases, load
from tests.load.stand_in import Session, StandIn, echo

CASES = 16
MASK = (1 << 64) - 1
ARRIVALS, DEALING, CHOICE = 1, 2, 3  # enum Stream of native/load/random.hpp


def mix(value: int) -> int:
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31


def draw(seed: int, stream: int, index: int) -> int:
    golden = 0x9E3779B97F4A7C15
    key = mix((seed + golden * stream) & MASK)
    return mix((key + golden * (index + 1)) & MASK)


def run(folder: Path, *options: str, connections: int = 5) -> Run:
    cases = echo_cases(folder / "cases", CASES)
    with StandIn(echo) as server:
        return load(server.port, cases, folder, "--connections", str(connections), *options)


def offsets(ended: Run) -> npt.NDArray[np.int64]:
    """When each request was intended, in ns from the start, in this order."""
    intended: npt.NDArray[np.int64] = np.sort(ended.records["intended_ns"].astype(np.int64))
    return intended - int(ended.result["start_monotonic_ns"])


def dealt(ended: Run) -> list[tuple[int, int, int]]:
    """(offset, connection, case) of each request."""
    start = ended.result["start_monotonic_ns"]
    columns = (ended.records[name].tolist() for name in ("intended_ns", "connection", "case"))
    return sorted(
        (ns - start, connection, case) for ns, connection, case in zip(*columns, strict=True)
    )


@pytest.mark.parametrize("arrivals", ["poisson", "constant"])
@pytest.mark.parametrize("deal", ["round-robin", "random"])
def test_the_schedule_is_what_the_seed_says(arrivals: str, deal: str, tmp_path: Path) -> None:
    seed, rate, requests = 42, 2000, 500
    shape = ("--rate", str(rate), "--arrivals", arrivals, "--deal", deal)
    ended = run(tmp_path, *shape, "--requests", str(requests), "--seed", str(seed))
    assert ended.result["verified"] == requests
    at_ns = 0.0
    for index, (offset, connection, case) in enumerate(dealt(ended)):
        if arrivals == "constant":
            at_ns = index * 1e9 / rate
        else:
            uniform = ((draw(seed, ARRIVALS, index) >> 11) + 1) / 2**53
            at_ns -= math.log(uniform) * 1e9 / rate
        assert offset == pytest.approx(at_ns, abs=1)
        assert connection == (draw(seed, DEALING, index) if deal == "random" else index) % 5
        assert case == draw(seed, CHOICE, index) % CASES


def test_a_seed_gives_the_same_run_again(tmp_path: Path) -> None:
    shape = ("--rate", "3000", "--duration", "0.3", "--warmup", "0.1", "--deal", "random")
    first = run(tmp_path, *shape, "--seed", "1")
    again = run(tmp_path, *shape, "--seed", "1")
    other = run(tmp_path, *shape, "--seed", "2")
    threads = run(tmp_path, *shape, "--seed", "1", "--threads", "2")
    assert first.result["failures"] == again.result["failures"] == {}
    assert dealt(first) == dealt(again) == dealt(threads)
    assert first.result["digest"] == again.result["digest"] == threads.result["digest"]
    assert dealt(first) != dealt(other)
    assert first.result["digest"] != other.result["digest"]


def test_poisson_gaps_are_exponential(tmp_path: Path) -> None:
    ended = run(tmp_path, "--rate", "5000", "--requests", "4000", "--seed", "3")
    gaps = np.diff(offsets(ended)) / 1e9 * 5000
    assert gaps.mean() == pytest.approx(1, abs=0.05)
    assert gaps.std() == pytest.approx(1, abs=0.08)
    # Kolmogorov and Smirnov's distance from the exponential law, at about 1 %.
    law = 1 - np.exp(-np.sort(gaps))
    distance = np.abs(law - np.arange(len(gaps)) / len(gaps)).max()
    assert distance < 1.63 / math.sqrt(len(gaps))


def test_the_warm_up_is_left_out(tmp_path: Path) -> None:
    shape = ("--rate", "1000", "--arrivals", "constant", "--warmup", "0.2")
    ended = run(tmp_path, *shape, "--requests", "100")
    assert len(ended.records) == ended.result["verified"] == 100
    assert ended.result["warmup"] == {"scheduled": 200, "verified": 200, "failures": {}}
    assert offsets(ended)[0] == 200_000_000
    assert ended.result["measured_from_monotonic_ns"] == (
        ended.result["start_monotonic_ns"] + 200_000_000
    )


def test_the_number_of_requests_of_a_duration(tmp_path: Path) -> None:
    shape = ("--rate", "1000", "--arrivals", "constant")
    ended = run(tmp_path, *shape, "--duration", "0.5")
    assert ended.result["sent"] == 500
    assert offsets(ended)[-1] == 499_000_000
    assert ended.result["throughput_rps"] == pytest.approx(1000, rel=0.5)


def test_throughput_of_a_closed_loop_with_a_long_queue(tmp_path: Path) -> None:
    """A reply takes longer than the measured time, since 23 others wait before it."""
    replied: list[int] = []

    async def slow(session: Session) -> None:
        async for request in session:
            await asyncio.sleep(0.02)
            session.reply(request)
            replied.append(time.monotonic_ns())

    cases = echo_cases(tmp_path / "cases", CASES)
    shape = ("--closed", "--connections", "1", "--depth", "24", "--warmup", "0.2")
    with StandIn(slow) as server:
        ended = load(server.port, cases, tmp_path, *shape, "--duration", "0.4")
    begin = ended.result["measured_from_monotonic_ns"]
    expected = sum(begin <= at < begin + 400_000_000 for at in replied) / 0.4
    assert ended.result["latency_us"]["p50"] > 400_000
    assert ended.result["throughput_rps"] == pytest.approx(expected, abs=8)


def test_a_closed_loop_sends_each_its_share(tmp_path: Path) -> None:
    first = run(tmp_path, "--closed", "--depth", "3", "--requests", "103", "--seed", "9")
    again = run(tmp_path, "--closed", "--depth", "24", "--requests", "103", "--seed", "9")
    connections = first.records["connection"].tolist()
    assert [connections.count(number) for number in range(5)] == [21, 21, 21, 20, 20]
    expected = sorted(draw(9, CHOICE, index) % CASES for index in range(103))
    assert sorted(first.records["case"].tolist()) == expected
    assert first.result["digest"] == again.result["digest"]
    assert first.result["mode"] == "closed"
    assert first.result["rate"]["asked_rps"] is None
