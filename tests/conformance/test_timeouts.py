"""Peers that keep others waiting are given up in time, and nobody else notices."""

from __future__ import annotations

import itertools

import pytest

from tests.support.client import Client
from tests.support.frames import PIPELINE, echo, ok, pattern
from tests.support.service import Service

SEND_S = 0.6

pytestmark = pytest.mark.service(more=("--send-timeout-ms", str(round(SEND_S * 1000))))


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
