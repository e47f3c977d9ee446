# SPDX-License-Identifier: MIT
"""How connections end: half-close, errors, resets; and that nothing of them stays."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

import pytest

from shared_page import constants
from shared_page.wire import pack_request, pack_request_header
from tests.native.rig import Rig

Start = Callable[..., Rig]


def test_half_close_after_the_last_request(start: Start) -> None:
    rig = start()
    rig.start_executor("echo:delay_us=20000")
    client = rig.connect()
    for i in range(5):
        client.request(i, b"x")
    client.shutdown(socket.SHUT_WR)
    assert [reply.request_id for reply in client.remaining()] == list(range(5))
    rig.wait_nothing_left()


def test_waiting_for_replies_after_half_close_costs_only_the_timer(start: Start) -> None:
    """The peer's FIN stays readable for ever: epoll must not be asked about it again."""
    rig = start("--wake-us", "50000")
    client = rig.connect()
    client.request(1)
    client.shutdown(socket.SHUT_WR)
    time.sleep(0.1)
    before = rig.counter("egress", "steps")
    time.sleep(0.5)
    assert rig.counter("egress", "steps") - before <= 12
    rig.start_executor()
    assert len(client.remaining()) == 1


BAD_HEADERS = {
    "magic": (pack_request_header(1, 7, 0, magic=0x47455420), constants.STATUS_BAD_FRAME),
    "version": (pack_request_header(1, 7, 0, version=2), constants.STATUS_BAD_FRAME),
    "length": (pack_request_header(1, 7, 0xFFFFFFFF), constants.STATUS_TOO_LARGE),
}


@pytest.mark.parametrize("what", BAD_HEADERS)
def test_error_reply_survives_what_the_peer_sends_after_it(start: Start, what: str) -> None:
    """Closing with unread bytes would send a reset, and destroy the reply at the peer."""
    rig = start()
    rig.start_executor("echo:delay_us=5000")
    header, status = BAD_HEADERS[what]
    client = rig.connect()
    client.request(1, b"before")
    client.sendall(header + os.urandom(1 << 18))
    for _ in range(20):
        client.sendall(os.urandom(1 << 12))
        time.sleep(0.002)
    first, error = client.remaining()
    assert (first.request_id, first.payload) == (1, b"before")
    assert error.status == status
    client.close()
    rig.wait_nothing_left()


def test_a_peer_that_ignores_our_fin_is_closed_in_time(rig: Rig) -> None:
    client = rig.connect()
    client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    (error,) = client.remaining()
    assert error.status == constants.STATUS_BAD_FRAME
    began = time.monotonic()
    rig.wait_nothing_left()
    assert time.monotonic() - began < 3.0


def test_reset_with_requests_in_flight(start: Start) -> None:
    rig = start()
    rig.start_executor("echo:delay_us=20000")
    bystander = rig.connect()
    for _ in range(10):
        client = rig.connect()
        for i in range(8):
            client.request(i, b"x" * 100)
        rig.wait_until(lambda: rig.counter("depth", "in_flight") > 0)
        client.reset()
    bystander.request(5, b"unharmed")
    assert bystander.replies(1)[0].payload == b"unharmed"
    bystander.close()
    rig.wait_nothing_left()
    assert rig.counter("egress", "stale_results") > 0


def test_a_newer_connection_never_gets_an_older_one_s_reply(start: Start) -> None:
    """With one entry in the page, each connection takes the place of the one before."""
    rig = start(max_connections=1)
    rig.start_executor("echo:delay_us=20000")
    for turn in range(12):
        gone = rig.connect()
        gone.request(1000 + turn, b"for nobody")
        rig.wait_submitted(2 * turn + 1)
        gone.reset()
        rig.wait_until(lambda: rig.counter("depth", "connections") == 0)
        heir = rig.connect()
        heir.settimeout(0.03)
        with pytest.raises(TimeoutError):
            heir.recv(1)
        heir.settimeout(5)
        heir.request(turn, b"mine")
        (reply,) = heir.replies(1)
        assert (reply.request_id, reply.payload) == (turn, b"mine")
        heir.close()
        rig.wait_nothing_left()
    assert rig.counter("egress", "stale_results") > 0, "every reply had left before its reset"


@pytest.mark.parametrize("how", ["close", "reset"])
def test_gone_before_it_was_accepted(rig: Rig, how: str) -> None:
    with rig.frozen():
        for _ in range(50):
            client = rig.connect()
            client.request(1, b"x")
            getattr(client, how)()
    good = rig.connect()
    good.request(2, b"y")
    assert good.replies(1)[0].payload == b"y"
    good.close()
    rig.wait_nothing_left()


def test_fin_inside_a_request_gives_its_slot_back(rig: Rig) -> None:
    for length in range(1, 60, 7):
        client = rig.connect()
        client.sendall(pack_request(constants.KIND_ECHO, 1, bytes(40))[:length])
        client.shutdown(socket.SHUT_WR)
        assert client.remaining() == []
    rig.wait_nothing_left()
