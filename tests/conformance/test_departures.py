"""Clients that leave without a word: what was theirs is given back, and never reaches another."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.client import Client
from tests.support.frames import HEADER, PIPELINE, echo, ok, pattern, slow, slow_ok, stream
from tests.support.service import Service

Leave = Callable[[Client], None]


@pytest.fixture(params=[Client.close, Client.reset], ids=["close", "reset"])
def leave(request: pytest.FixtureRequest) -> Leave:
    """By FIN, or by RST."""
    way: Leave = request.param
    return way


def test_connect_and_leave(service: Service, leave: Leave) -> None:
    for _ in range(20):
        leave(service.connect())


def test_request_and_leave(service: Service, leave: Leave) -> None:
    for i in range(20):
        client = service.connect()
        client.send(echo(i, pattern(1000)))
        leave(client)


@pytest.mark.parametrize("have", [1, HEADER - 1, HEADER, HEADER + 50, HEADER + 4095])
def test_leave_inside_a_frame(service: Service, leave: Leave, have: int) -> None:
    """A slot may be held already by a payload that is coming."""
    client = service.connect()
    client.send(echo(1, pattern(4096))[:have])
    time.sleep(0.02)
    leave(client)


def test_leave_while_requests_are_in_flight(service: Service, leave: Leave) -> None:
    """Their results come, find nobody, and free their slots."""
    with service.counting(executor_completed=PIPELINE), service.stalled():
        client = service.connect()
        client.send(*(echo(i) for i in range(PIPELINE)))
        assert service.reaches("depth.in_flight", PIPELINE)
        leave(client)


def test_a_reset_ends_the_connection_at_once(service: Service) -> None:
    """Not when its requests are done with. (After FIN, the client might still be reading.)"""
    changes = service.counting(executor_completed=PIPELINE, egress_stale_results=PIPELINE)
    with changes, service.stalled():
        client = service.connect()
        client.send(*(echo(i) for i in range(PIPELINE)))
        assert service.reaches("depth.in_flight", PIPELINE)
        client.reset()
        assert service.reaches("depth.connections", 0)
        assert service.counter("depth.slots") == PIPELINE


def test_leave_with_replies_unread(service: Service, leave: Leave) -> None:
    client = service.connect()
    client.send(*(echo(i, pattern(4096)) for i in range(PIPELINE)))
    client.expect(ok(0, pattern(4096)))
    leave(client)


def test_leave_during_a_stream(service: Service, leave: Leave) -> None:
    """Nobody computes 1,000 tokens for nobody."""
    client = service.connect()
    client.send(stream(1, [1], 1000))
    client.read()
    tokens = service.counter("executor.tokens")
    leave(client)
    assert service.reaches("depth.in_flight", 0)
    assert service.counter("executor.tokens") - tokens < 900


def test_leave_after_an_error(service: Service, leave: Leave) -> None:
    client = service.connect()
    client.send(bytes(HEADER))
    client.read()
    leave(client)


def test_leave_with_a_slow_and_a_half_frame(service: Service, leave: Leave) -> None:
    client = service.connect()
    client.send(slow(1), echo(2), echo(3, pattern(100))[:-1])
    time.sleep(0.02)
    leave(client)


def test_reset_behind_a_half_close(service: Service) -> None:
    client = service.connect()
    client.send(*(slow(i) for i in range(5)))
    client.half_close()
    time.sleep(0.05)
    client.reset()


def test_three_hundred_leave_at_once(service: Service, leave: Leave) -> None:
    """Those who stay are served meanwhile and after."""
    stays = service.connect()
    stays.send(slow(1))
    leaving = [service.connect() for _ in range(300)]
    for client in leaving:
        client.send(slow(1), echo(2))
    for client in leaving:
        leave(client)
    stays.send(echo(2, b"still here"))
    stays.expect(slow_ok(1), ok(2, b"still here"))
