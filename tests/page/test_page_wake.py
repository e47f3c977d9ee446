# SPDX-License-Identifier: MIT
"""When results are looked for: the adaptive policy, and when nobody has to look any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from shared_page import SharedPage, wire
from shared_page import constants as c
from shared_page.reading import ffi
from tests.page.programs import driver

INTERVAL_US = 60
FRAME = wire.pack_request(c.KIND_ECHO, 1)
LONG_PAST = 0


@dataclass
class Looks:
    """What one request took: looks, and how long its result stood before the one that found it."""

    number: int
    late_ns: int


class Clock:
    """A page whose time is what the test says, from each admission on."""

    def __init__(self, page: SharedPage) -> None:
        self.lib, self.page, self._index = driver(), page.struct, ffi.new("uint32_t *")
        self._reply: Any = ffi.new("struct drive_reply *")
        self.lib.drive_connection_open(self.page, self._index)

    def admit(self) -> int:
        """A request, a long time after the last look. Returns when it was admitted."""
        self.page.wake.looked_ns = LONG_PAST
        self.lib.drive_frames_admit(self.page, 0, FRAME, len(FRAME))
        newest = (self.page.ingress.submit_tail - 1) % c.SLOT_COUNT
        slot = self.page.submit[newest] & c.SLOT_MASK
        return int(self.page.slot[slot].ingress.admitted_ns)

    def execute(self) -> None:
        assert self.lib.drive_request_take(self.page, self._index)
        self.lib.drive_result_publish(self.page, self._index[0], 0, c.STATUS_OK, 0)

    def answer(self) -> None:
        """What the loop does when it was woken, or awake."""
        while self.lib.drive_completion_take(self.page, self._index):
            assert self.lib.drive_reply_ready(self.page, 0, 0, self._reply)
            reply = self._reply
            self.lib.drive_reply_sent(self.page, 0, reply.slot, reply.tokens, reply.last)

    def serve_one(self, service_ns: int) -> Looks:
        """One request alone, looked for as planned until nothing is to come."""
        stands = self.admit() + service_ns
        now, looks = int(self.page.wake.next_ns), 0
        while looks < 1000:
            looks += 1
            if now >= stands and self.page.executor.submit_head < self.page.ingress.submit_tail:
                self.execute()
            self.lib.drive_wake_learn(self.page, now)
            if not self.lib.drive_results_to_come(self.page, now):
                self.page.wake.next_ns = 0
                self.answer()
                return Looks(looks, now - stands)
            now = int(self.lib.drive_wake_plan(self.page, now))
        raise AssertionError("the result was never found")


@pytest.fixture
def clock() -> Iterator[Clock]:
    with SharedPage.create_memfd(1) as page:
        page.adapt_wakes(INTERVAL_US)
        yield Clock(page)


@pytest.mark.parametrize("service_us", [5, 20, 60, 500, 20_000])
def test_finds_a_steady_result_soon_and_seldom_twice(clock: Clock, service_us: int) -> None:
    for _ in range(400):
        clock.serve_one(service_us * 1000)
    early = clock.page.ingress.early_looks
    looks = [clock.serve_one(service_us * 1000) for _ in range(400)]
    assert sum(one.number for one in looks) / 400 < 1.35
    # Half an eighth on average, and the least step.
    assert sum(one.late_ns for one in looks) / 400 < service_us * 1000 / 8 + c.EXPECTED_LEAST_NS
    assert clock.page.ingress.early_looks - early == sum(one.number - 1 for one in looks)


def test_one_stall_is_soon_forgotten(clock: Clock) -> None:
    for _ in range(400):
        clock.serve_one(20_000)
    before = clock.page.wake.expected_ns[c.KIND_ECHO]
    looks = clock.serve_one(1_000_000_000).number
    assert clock.page.wake.expected_ns[c.KIND_ECHO] <= before * 1.125 + c.EXPECTED_LEAST_NS
    assert looks < 120  # an eighth later each time, up to 50 ms; every interval: 16,667


def test_never_later_than_the_interval_while_several_are_in_flight(clock: Clock) -> None:
    for _ in range(100):
        clock.serve_one(5_000_000)
    assert clock.page.wake.expected_ns[c.KIND_ECHO] > 2_000_000
    clock.admit()
    alone = clock.page.wake.next_ns
    second = clock.admit()
    assert clock.page.wake.next_ns < alone
    assert clock.page.wake.next_ns - second <= INTERVAL_US * 1000


def test_nothing_is_to_come_once_all_results_stand(clock: Clock) -> None:
    lib, page = clock.lib, clock.page
    assert not lib.drive_results_to_come(page, 0)
    for _ in range(c.OLDEST_STEPS):
        clock.admit()
        assert lib.drive_results_to_come(page, 0)
    for _ in range(c.OLDEST_STEPS - 1):
        clock.execute()
        assert lib.drive_results_to_come(page, 0)
    clock.execute()
    assert not lib.drive_results_to_come(page, 0)
    clock.answer()
    assert not lib.drive_results_to_come(page, 0)


def test_many_that_stand_are_not_counted(clock: Clock) -> None:
    """The walk is bounded, so the timer looks once more."""
    for _ in range(c.OLDEST_STEPS + 1):
        clock.admit()
        clock.execute()
    assert clock.lib.drive_results_to_come(clock.page, 0)
    clock.answer()
    assert not clock.lib.drive_results_to_come(clock.page, 0)


def test_results_that_fall_due(clock: Clock) -> None:
    lib, page = clock.lib, clock.page
    page.due.service_ns = 20_000
    clock.admit()
    last = clock.admit()
    assert lib.drive_results_to_come(page, last + 19_999)
    assert not lib.drive_results_to_come(page, last + 20_000)


def test_a_stream_is_found_when_it_begins(clock: Clock) -> None:
    lib, page, index = clock.lib, clock.page, ffi.new("uint32_t *")
    admitted = clock.admit()
    lib.drive_request_take(page, index)
    lib.drive_stream_begin(page, index[0])
    now = admitted + INTERVAL_US * 1000
    lib.drive_wake_learn(page, now)
    assert not page.wake.awaited
    assert lib.drive_results_to_come(page, now)  # its tokens are
    assert lib.drive_wake_plan(page, now) == now + INTERVAL_US * 1000
