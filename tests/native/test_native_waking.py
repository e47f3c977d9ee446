# SPDX-License-Identifier: MIT
"""When the server wakes: by the timer only while requests are in flight."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.native.rig import Rig

Start = Callable[..., Rig]


def wakes(rig: Rig, seconds: float) -> tuple[int, int, float]:
    """Turns, turns by the timer, and the seconds it really was."""
    began, before = time.monotonic(), rig.page.counters()["egress"]
    time.sleep(seconds)
    after = rig.page.counters()["egress"]
    steps, timer = (after[name] - before[name] for name in ("steps", "timer_wakes"))
    return steps, timer, time.monotonic() - began


def test_idle_server_sleeps(rig: Rig) -> None:
    clients = [rig.connect() for _ in range(10)]
    for client in clients:
        client.request(1, b"x")
        client.replies(1)
    assert rig.counter("depth", "in_flight") == 0
    steps, timer, _ = wakes(rig, 0.5)
    assert (steps, timer) == (0, 0)


@pytest.mark.parametrize("wake_us", [200, 5000])
def test_timer_runs_while_a_request_is_in_flight(start: Start, wake_us: int) -> None:
    rig = start("--wake-us", str(wake_us))
    client = rig.connect()
    client.request(1, b"x")  # and nobody computes it
    rig.wait_submitted(1)
    steps, timer, seconds = wakes(rig, 0.5)
    most = seconds * 1e6 / wake_us
    assert steps == timer
    assert 0.2 * most < timer <= most + 2
    rig.start_executor()
    assert client.replies(1)[0].payload == b"x"
    assert wakes(rig, 0.3)[:2] == (0, 0)


def test_timer_is_not_late_by_the_timer_slack(rig: Rig) -> None:
    """The kernel lets a thread's timers be 50 us late unless it asks for less."""
    rig.connect()
    rig.wait_accepted(1)
    slack = Path(f"/proc/{rig.server.pid}/timerslack_ns").read_text()
    assert slack.strip() == "1"
