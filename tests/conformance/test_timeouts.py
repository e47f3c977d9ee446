"""Who keeps others waiting, a peer or the executor, is given up in time; nobody else notices."""

from __future__ import annotations

import itertools
import time

import pytest

from shared_page import constants
from tests.support.client import Client
from tests.support.frames import (
    HEADER,
    PIPELINE,
    echo,
    error,
    ok,
    pattern,
    slow,
    slow_ok,
    stream,
    stream_expected,
)
from tests.support.service import Service

LIMIT_S = 0.7
SEND_S = 0.6
TIMEOUT = constants.STATUS_TIMEOUT
LIMITS = {"send": SEND_S, "request": LIMIT_S, "frame": LIMIT_S}

pytestmark = pytest.mark.service(
    more=tuple(
        word
        for name, seconds in LIMITS.items()
        for word in (f"--{name}-timeout-ms", str(round(seconds * 1000)))
    )
)


def deafen(service: Service) -> Client:
    """A client that asks for more than its socket and the server's hold, and reads nothing."""
    client = service.connect(receive_buffer=4096)
    for turn in range(200):
        replies = service.counter("egress.replies")
        client.send(*(echo(turn, pattern(4095)) for _ in range(PIPELINE)))
        if not service.reaches("egress.replies", replies + PIPELINE, SEND_S / 4):
            return client
    raise AssertionError("25 MB of replies were accepted by a peer that reads nothing")


def test_who_never_reads_is_closed(service: Service) -> None:
    """In time; its slots come back, and the others are served meanwhile."""
    other = service.connect()
    other.send(echo(0))
    other.expect(ok(0))
    closed = service.counter("egress.connections_closed")
    deafen(service)
    for turn in itertools.count(1):
        other.send(echo(turn, b"meanwhile"))
        other.expect(ok(turn, b"meanwhile"))
        if service.counter("egress.connections_closed") > closed:
            break
    assert service.counter("egress.connections_closed") == closed + 1
    assert service.reaches("depth.slots", 0)


def test_a_stalled_executor_is_answered_for(service: Service) -> None:
    """Its results come too late and reach nobody; the connections go on."""
    clients = [service.connect() for _ in range(5)]
    with service.counting(egress_timeouts=15, egress_stale_results=15, egress_replies=20):
        with service.stalled():
            for client in clients:
                client.send(echo(1, pattern(4096)), echo(2), stream(3, [5], 10))
            for client in clients:
                client.expect(*(error(i, TIMEOUT) for i in (1, 2, 3)))
                client.send(echo(4, b"still here"))
            assert service.reaches("depth.in_flight", 20)
        for client in clients:
            client.expect(ok(4, b"still here"))
    assert service.reaches("depth.slots", 0)


def test_a_stream_that_stalls_keeps_its_tokens(service: Service) -> None:
    request = stream(1, [5], 1000)
    client = service.connect()
    client.send(request)
    tokens = list(client.read().tokens)
    with service.stalled():
        client.send(echo(2, b"behind"))
        more, last = client.read_stream()
        client.expect(error(2, TIMEOUT))
    tokens += more
    assert tokens == stream_expected(request)[0][: len(tokens)]
    assert (last.status, last.finish) == (TIMEOUT, constants.FINISH_ABORT)


def test_a_stream_may_take_longer_than_a_request(service: Service) -> None:
    """As long as tokens come: 500 of them take a second."""
    request = stream(1, [5], 500)
    client = service.connect()
    client.send(request)
    tokens, last = client.read_stream()
    assert (tokens, last.finish) == stream_expected(request)


def test_who_leaves_is_not_answered_for(service: Service) -> None:
    with service.counting(egress_timeouts=0, egress_stale_results=3), service.stalled():
        client, other = service.connect(), service.connect()
        client.send(*(echo(i) for i in range(3)))
        assert service.reaches("depth.in_flight", 3)
        client.reset()
        assert service.reaches("depth.connections", 1)
        time.sleep(1.5 * LIMIT_S)
        other.expect_silence(0.01)


def test_half_a_frame(service: Service) -> None:
    """It is answered, after what is owed before it, if its header was whole."""
    with service.counting(egress_frames_late=4, egress_replies=4, egress_connections_closed=4):
        clients = {have: service.connect() for have in (1, HEADER - 1, HEADER, HEADER + 4000)}
        for have, client in clients.items():
            client.send(slow(1), echo(2, pattern(4096))[:have])
        for have, client in clients.items():
            client.expect_end(slow_ok(1), *([error(2, TIMEOUT)] if have >= HEADER else []))
    assert service.reaches("depth.slots", 0)


def test_many_half_frames_give_their_slots_back(service: Service) -> None:
    """While they stand, the others are served; when their time is over, all is free."""
    other = service.connect()
    with service.counting(egress_frames_late=60):
        for _ in range(60):
            service.connect().send(echo(1, b"??")[:-1])
            other.send(echo(1))
            other.expect(ok(1))
        assert service.reaches("depth.slots", 0)
    other.send(echo(2))
    other.expect(ok(2))


def test_slow_but_in_time(service: Service) -> None:
    """Always inside a frame, for longer than a frame may take: but each one ends."""
    client = service.connect()
    frames = [echo(i, pattern(100)) for i in range(10)]
    client.send(frames[0][:60])
    for i in range(9):
        time.sleep(LIMIT_S / 4)
        client.send(frames[i][60:], frames[i + 1][:60])
        client.expect(ok(i, pattern(100)))
    client.send(frames[9][60:])
    client.expect(ok(9, pattern(100)))


def test_the_next_owner_of_an_entry_has_its_own_time(service: Service) -> None:
    with service.counting(egress_frames_late=0):
        for _ in range(20):
            client = service.connect()
            client.send(echo(1, b"half")[:-1])
            assert service.reaches("depth.slots", 1)
            client.close()
            assert service.reaches("depth.slots", 0)
        time.sleep(1.5 * LIMIT_S)
        client = service.connect()
        client.send(echo(1))
        client.expect(ok(1))
