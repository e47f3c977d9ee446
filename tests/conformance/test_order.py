"""Replies leave in the order of their requests; connections do not wait for each other."""

from __future__ import annotations

import pytest

from shared_page import constants
from tests.support.frames import (
    DEPTH,
    PIPELINE,
    cancel,
    echo,
    error,
    ok,
    pattern,
    slow,
    slow_ok,
    stream,
)
from tests.support.service import Service

TOO_MANY = constants.STATUS_TOO_MANY
WAVE = 29
LONG = 1000  # tokens of a stream that takes seconds


def test_fast_ones_wait_for_the_slow_one_before_them(service: Service) -> None:
    client = service.connect()
    client.send(slow(1), *(echo(i, pattern(i)) for i in range(2, 31)))
    client.expect(slow_ok(1), *(ok(i, pattern(i)) for i in range(2, 31)))


def test_slow_one_in_the_middle(service: Service) -> None:
    """What is ready before it does not wait for it: it is not over yet when that is read."""
    client = service.connect()
    client.send(echo(1), echo(2), stream(3, [1], LONG), echo(4))
    client.expect(ok(1), ok(2))
    client.send(cancel(3))
    assert client.read_stream()[1].status == constants.STATUS_CANCELLED
    client.expect(ok(4))


def test_fast_and_slow_in_turns(service: Service) -> None:
    client = service.connect()
    ids = range(PIPELINE)
    client.send(*(slow(i) if i % 2 else echo(i) for i in ids))
    client.expect(*(slow_ok(i) if i % 2 else ok(i) for i in ids))


def test_thirty_fast_after_a_slow_one_on_200_connections(service: Service) -> None:
    """In waves of as many as may have 31 requests each: see slot_claim() in ingress.h."""
    clients = [service.connect() for _ in range(200)]
    for wave in range(0, 200, WAVE):
        for number, client in enumerate(clients[wave : wave + WAVE]):
            client.send(slow(1), *(echo(i, pattern(60, number)) for i in range(2, 32)))
        for number, client in enumerate(clients[wave : wave + WAVE]):
            client.expect(slow_ok(1), *(ok(i, pattern(60, number)) for i in range(2, 32)))


def test_connections_do_not_wait_for_each_other(service: Service) -> None:
    waiting = [service.connect() for _ in range(10)]
    for client in waiting:
        client.send(stream(1, [1], LONG))
    fast = service.connect()
    fast.send(echo(1, b"overtakes"))
    fast.expect(ok(1, b"overtakes"))
    for client in waiting:
        client.send(cancel(1))
    for client in waiting:
        assert client.read_stream()[1].status == constants.STATUS_CANCELLED


def test_a_reply_makes_room_for_a_request(service: Service) -> None:
    """A client that keeps the pipeline full for long is never one too many."""
    client = service.connect()
    client.send(*(echo(i) for i in range(DEPTH)))
    for i in range(200):
        client.expect(ok(i))
        client.send(echo(i + DEPTH))
    client.expect(*(ok(i) for i in range(200, 200 + DEPTH)))


@pytest.mark.parametrize("more", [1, 2, 40])
def test_one_request_too_many(service: Service, more: int) -> None:
    """The first one over the limit gets the error and ends it; those before are answered."""
    client = service.connect()
    with service.counting(ingress_frames_bad=1, executor_completed=PIPELINE):
        client.send(slow(0), *(echo(i, pattern(9, i)) for i in range(1, PIPELINE + more)))
        client.expect(slow_ok(0), *(ok(i, pattern(9, i)) for i in range(1, PIPELINE)))
        client.expect_end(error(PIPELINE, TOO_MANY))


def test_cancel_needs_no_room(service: Service) -> None:
    client = service.connect()
    client.send(slow(0), *(echo(i) for i in range(1, PIPELINE)), *(cancel(1000),) * 40)
    client.expect(slow_ok(0), *(ok(i) for i in range(1, PIPELINE)))
    client.send(echo(5))
    client.expect(ok(5))


def test_fairness(service: Service) -> None:
    """Eight clients that keep their pipelines full do not keep a modest one waiting."""
    greedy = [service.connect() for _ in range(8)]
    modest = service.connect()
    for client in greedy:
        client.send(*(echo(i, pattern(2000)) for i in range(DEPTH)))
    for turn in range(20):
        modest.send(echo(turn, b"modest"))
        modest.expect(ok(turn, b"modest"))
        for client in greedy:
            client.expect(ok(turn, pattern(2000)))
            client.send(echo(turn + DEPTH, pattern(2000)))
    for client in greedy:
        client.expect(*(ok(i, pattern(2000)) for i in range(20, 20 + DEPTH)))
