# SPDX-License-Identifier: MIT
"""What a slow or frozen server does to the figures: nothing is left out, nothing smoothed."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from loader import paths
from loader.load_results import latency_ns, percentiles, uncorrected_ns
from tests.load.generator import load
from tests.load.stand_in import Session, StandIn, echo


def test_a_frozen_server_shows_in_every_request_it_delayed(cases: Path, tmp_path: Path) -> None:
    """1,000 requests a second; from 1 s on the server stands still for 3 s (scylla-bench #46)."""
    frozen_s, rate, thawed = 3.0, 1000, []

    async def behaviour(session: Session) -> None:
        async for request in session:
            if request.ordinal == rate:
                time.sleep(frozen_s)  # the whole server, not this connection
                thawed.append(time.monotonic_ns())
            session.reply(request)

    with StandIn(behaviour) as server:
        shape = ("--rate", str(rate), "--arrivals", "constant", "--duration", "5")
        ended = load(server.port, cases, tmp_path, *shape, "--connections", "8")
    found = ended.result
    assert ended.clean, ended.errors
    assert found["scheduled"] == found["verified"] == found["latency_us"]["count"] == 5000

    intended = ended.records["intended_ns"].astype(np.int64)
    before_thaw_ns = thawed[0] - intended
    delayed = (before_thaw_ns > 0) & (before_thaw_ns < frozen_s * 1e9)
    assert delayed.sum() == pytest.approx(frozen_s * rate, abs=2)
    # Due 1 ms apart, they waited for anything between 3 s and nothing, and this is what is said.
    latency = latency_ns(ended.records).astype(np.int64)
    late_ns = latency[delayed] - before_thaw_ns[delayed]
    assert (late_ns[1:] > 0).all()
    assert np.median(late_ns) < 0.5e9
    assert found["latency_us"]["max"] >= 2.9e6

    # 8 connections hold 24 each; the others are held back, and that is not the generator's lag.
    assert found["held_back"] > 2000
    assert found["lag_us"]["max"] > 2.5e6 > found["own_lag_us"]["max"]
    # From the actual send on, most of the freeze would have gone unseen.
    assert (uncorrected_ns(ended.records) > 0.25e9).sum() < 1000
    assert found["uncorrected_latency_us"]["p90"] < found["latency_us"]["p90"] / 2


def test_a_handicap_is_in_the_latency_and_no_lag(cases: Path, tmp_path: Path) -> None:
    with StandIn(echo) as server:
        shape = ("--rate", "200", "--requests", "100", "--connections", "4")
        ended = load(server.port, cases, tmp_path, *shape, "--late-us", "200000")
    assert ended.clean, ended.errors
    late = ended.records["sent_ns"].astype(np.int64) - ended.records["intended_ns"]
    assert late.min() >= 200e6
    assert ended.result["latency_us"]["p50"] == pytest.approx(200e3, rel=0.25)
    assert ended.result["own_lag_us"]["p50"] < 50e3


def test_the_longest_latency_is_the_true_one(cases: Path, tmp_path: Path) -> None:
    async def behaviour(session: Session) -> None:
        async for request in session:
            if request.ordinal == 100:
                await asyncio.sleep(1.5)
            session.reply(request)

    with StandIn(behaviour) as server:
        shape = ("--rate", "1000", "--requests", "300", "--connections", "50")
        ended = load(server.port, cases, tmp_path, *shape)
    assert ended.result["verified"] == 300
    longest_ns = int(latency_ns(ended.records).max())
    assert longest_ns > 1_500_000_000
    assert ended.result["latency_us"]["max"] == longest_ns / 1e3


def test_the_percentiles_are_those_of_the_records(cases: Path, tmp_path: Path) -> None:
    async def behaviour(session: Session) -> None:
        async for request in session:
            if request.ordinal % 10 == 0:
                await asyncio.sleep(0.002)
            session.reply(request)

    with StandIn(behaviour) as server:
        shape = ("--rate", "2000", "--requests", "1000", "--connections", "7")
        ended = load(server.port, cases, tmp_path, *shape)
    corrected = percentiles(latency_ns(ended.records))
    uncorrected = percentiles(uncorrected_ns(ended.records))
    assert ended.result["latency_us"] == pytest.approx(corrected)
    assert ended.result["uncorrected_latency_us"] == pytest.approx(uncorrected)
    assert corrected["p50"] >= uncorrected["p50"]


def test_the_depth_is_kept_and_the_rest_held_back(cases: Path, tmp_path: Path) -> None:
    """The server waits for silence before it answers: more than four never come at once."""
    batches: list[int] = []

    async def behaviour(session: Session) -> None:
        while True:
            batch = [await session.asked()]
            while True:
                try:
                    batch.append(await asyncio.wait_for(session.asked(), 0.05))
                except TimeoutError:
                    break
            batches.append(len(batch))
            for request in batch:
                session.reply(request)

    with StandIn(behaviour) as server:
        shape = ("--rate", "400", "--arrivals", "constant", "--requests", "40")
        ended = load(server.port, cases, tmp_path, *shape, "--depth", "4")
    assert ended.result["verified"] == 40
    assert max(batches) == 4
    # Due every 2.5 ms and answered four each 50 ms: all but the first ones had to wait.
    assert 30 <= ended.result["held_back"] <= 36
    assert ended.result["lag_us"]["max"] > 100_000


def test_a_burst_beyond_the_depth_is_held_back(cases: Path, tmp_path: Path) -> None:
    """Twenty requests within 2 µs: four leave, and the others were due on a full connection."""

    async def behaviour(session: Session) -> None:
        async for request in session:
            await asyncio.sleep(0.2 if request.place == 0 else 0)
            session.reply(request)

    with StandIn(behaviour) as server:
        shape = ("--rate", "1e7", "--arrivals", "constant", "--requests", "20", "--depth", "4")
        ended = load(server.port, cases, tmp_path, *shape)
    assert ended.result["verified"] == 20
    assert ended.result["held_back"] == 16


def test_a_slow_rate_sleeps(cases: Path, tmp_path: Path) -> None:
    with StandIn(echo) as server:
        ended = load(server.port, cases, tmp_path, "--rate", "20", "--duration", "2")
    assert ended.clean
    assert ended.result["cpu"]["total_s"] < 0.1, "it polled instead of sleeping"
    assert ended.result["rate"]["asked_rps"] == 20
    assert ended.result["rate"]["sent_of_scheduled"] == 1


def test_a_generator_that_cannot_keep_up_says_so(tmp_path: Path) -> None:
    """Thirty million a second are more than any core can send."""
    server = subprocess.Popen(
        [paths.program("echo-epoll"), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    with server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().split()[-1])
            shape = ("--rate", "3e7", "--requests", "300000", "--connections", "4")
            ended = load(port, None, tmp_path, *shape, "--timeout", "30")
        finally:
            server.terminate()
    assert ended.status == 2
    assert ended.result["verified"] == 300_000
    assert not ended.result["valid"]
    [reason] = ended.result["invalid_reasons"]
    assert "own lag" in reason
    assert f"the run is not valid: {reason}" in ended.errors
