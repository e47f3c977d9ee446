"""The policy, killed at each point where another process could see a difference, and recovered."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest

from shared_page import SharedPage, constants, wire
from shared_page.reading import ffi

from .driver import Answer, Transport, built

OK, INTERNAL = constants.STATUS_OK, constants.STATUS_INTERNAL


@functools.cache
def policy() -> Any:
    """The function of crash_points.cpp."""
    ffi.cdef("int crash_run(struct shared_page *page, int point);")
    return built("libcrash_points.so")


class Scenario:
    """Echoes, streams, refusals and a cancelled request on a page of their own."""

    def __init__(self, page: SharedPage) -> None:
        self.page = page
        self.transport = Transport(page)
        self.connections = self.transport.connect_many(8)
        requests = [(constants.KIND_ECHO, b"%04d" % number) for number in range(4)]
        requests += [(constants.KIND_TOYLM, wire.pack_generation([1], 3)) for _ in range(2)]
        requests += [(constants.KIND_LLM, b""), (constants.KIND_ECHO, b"")]
        for connection, request in zip(self.connections, requests, strict=True):
            connection.send(*request)
        self.connections[3].cancel(0)

    def run(self, point: int) -> bool:
        return bool(policy().crash_run(self.page.struct, point))

    def check(self) -> list[int]:
        """Everything was answered once and rightly, or is lost. Returns the statuses."""
        answers = [connection.answer() for connection in self.connections]
        assert self.transport.settled()
        page = self.page.struct
        finals = (page.executor.submit_head, page.executor.completed, page.egress.finals)
        assert finals == (8, 8, 8)
        assert page.executor.completion_tail == page.egress.completion_head
        for number, answer in enumerate(answers):
            self._check(number, answer)
        return [answer.status for answer in answers]

    @staticmethod
    def _check(number: int, answer: Answer) -> None:
        right = [OK] * 3 + [constants.STATUS_CANCELLED, OK, OK]
        right += [constants.STATUS_UNKNOWN_KIND, constants.STATUS_BAD_PAYLOAD]
        assert answer.status in (right[number], INTERNAL)
        if answer.status == OK and number < 4:
            assert answer.payload == b"%04d" % number
        elif answer.status == OK:
            assert answer.tokens == [0, 1, 2]
        elif number in (4, 5):
            assert answer.tokens == [0, 1, 2][: len(answer.tokens)]


def run(*points: int, notices: bool = False) -> tuple[list[bool], list[int]]:
    """Executors one after another, each killed at its point, and one that lives.

    `notices`: egress takes what is announced in between. Returns which were killed, and statuses.
    """
    with SharedPage.create_memfd(8) as page:
        scenario = Scenario(page)
        killed = []
        for point in points:
            killed.append(scenario.run(point))
            if notices:
                scenario.transport.notices()
        assert not scenario.run(0)
        return killed, scenario.check()


def test_nothing_is_lost_without_a_crash() -> None:
    _, statuses = run()
    assert INTERNAL not in statuses


@pytest.mark.parametrize("notices", [False, True])
def test_killed_once_at_every_point(notices: bool) -> None:
    lost = set()
    for point in itertools.count(1):
        (killed,), statuses = run(point, notices=notices)
        if not killed:
            break
        lost.add(statuses.count(INTERNAL))
    assert point > 80, "the points are those of the whole run"
    assert {0, 1} < lost


def test_killed_again_while_it_recovers() -> None:
    for first, second in itertools.product(range(1, 90, 5), range(1, 14, 2)):
        run(first, second)
        run(first, second, 2, 1, notices=True)
