"""A client that has said all it wanted to say: FIN behind, before and inside of requests."""

from __future__ import annotations

import socket
import time

import pytest

from shared_page import constants
from shared_page.wire import pack_request
from tests.support.frames import HEADER, PIPELINE, cancel, echo, error, ok, pattern, slow, slow_ok
from tests.support.service import Service

TCP_CORK = 3


def test_behind_a_request(service: Service) -> None:
    """The reply still arrives, then FIN."""
    client = service.connect()
    client.send(echo(1, b"last words"))
    client.half_close()
    client.expect_end(ok(1, b"last words"))


def test_in_the_request_s_own_segment(service: Service) -> None:
    client = service.connect()
    client.socket.setsockopt(socket.IPPROTO_TCP, TCP_CORK, 1)
    client.send(echo(1, pattern(1000)))
    client.half_close()  # sends what was held back, with FIN on it
    client.expect_end(ok(1, pattern(1000)))


def test_in_the_segment_of_a_full_pipeline(service: Service) -> None:
    client = service.connect()
    client.socket.setsockopt(socket.IPPROTO_TCP, TCP_CORK, 1)
    client.send(*(echo(i, bytes([i])) for i in range(PIPELINE)))
    client.half_close()
    client.expect_end(*(ok(i, bytes([i])) for i in range(PIPELINE)))


@pytest.mark.parametrize("count", [1, 2, PIPELINE])
def test_while_slow_requests_are_in_flight(service: Service, count: int) -> None:
    client = service.connect()
    client.send(*(slow(i) for i in range(count)))
    time.sleep(0.05)
    client.half_close()
    client.expect_end(*(slow_ok(i) for i in range(count)))


def test_long_after_the_reply(service: Service) -> None:
    client = service.connect()
    client.send(echo(1))
    client.expect(ok(1))
    time.sleep(0.1)
    client.half_close()
    client.expect_end()


def test_at_once(service: Service) -> None:
    client = service.connect()
    client.half_close()
    client.expect_end()


def test_after_a_while_without_a_request(service: Service) -> None:
    client = service.connect()
    client.expect_silence(0.1)
    client.half_close()
    client.expect_end()


@pytest.mark.parametrize("have", [1, 4, HEADER - 1, HEADER, HEADER + 1, HEADER + 99])
def test_inside_a_frame(service: Service, have: int) -> None:
    """It will never be complete: nobody answers it, and what it held is free again."""
    client = service.connect()
    client.send(echo(1, pattern(100))[:have])
    time.sleep(0.02)
    client.half_close()
    client.expect_end()


def test_inside_a_frame_behind_good_ones(service: Service) -> None:
    client = service.connect()
    client.send(slow(1), echo(2), echo(3, pattern(100))[:-1])
    client.half_close()
    client.expect_end(slow_ok(1), ok(2))


def test_behind_a_cancel(service: Service) -> None:
    client = service.connect()
    client.send(echo(1), cancel(2))
    client.half_close()
    client.expect_end(ok(1))


def test_behind_a_request_that_fails(service: Service) -> None:
    client = service.connect()
    client.send(pack_request(99, 1))
    client.half_close()
    client.expect_end(error(1, constants.STATUS_UNKNOWN_KIND))


def test_behind_a_bad_frame(service: Service) -> None:
    client = service.connect()
    client.send(echo(1), bytes(HEADER))
    client.half_close()
    client.expect_end(ok(1), error(0, constants.STATUS_BAD_FRAME))


def test_many_large_replies_behind_it(service: Service) -> None:
    """127 KB that leave after the client's FIN."""
    client = service.connect()
    client.send(slow(0), *(echo(i, pattern(4096, i)) for i in range(1, PIPELINE)))
    client.half_close()
    client.expect_end(slow_ok(0), *(ok(i, pattern(4096, i)) for i in range(1, PIPELINE)))


def test_two_hundred_connections(service: Service) -> None:
    clients = [service.connect() for _ in range(200)]
    for number, client in enumerate(clients):
        client.send(echo(number, pattern(number)))
        client.half_close()
    for number, client in enumerate(clients):
        client.expect_end(ok(number, pattern(number)))
