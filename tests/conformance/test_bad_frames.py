"""Frames that cannot be: what came before is answered, an error reply says why, then an end."""

from __future__ import annotations

import time

import pytest

from shared_page import constants
from shared_page.wire import pack_request, pack_request_header
from tests.support.frames import HEADER, cancel, echo, error, ok, pattern, slow, slow_ok
from tests.support.service import Service

ECHO = constants.KIND_ECHO
MAGIC = constants.PROTOCOL_MAGIC
BAD_FRAME, TOO_LARGE = constants.STATUS_BAD_FRAME, constants.STATUS_TOO_LARGE


def header(length: int, kind: int = ECHO, **other: int) -> bytes:
    """A header whose length says anything."""
    return pack_request_header(kind, 77, length, **other)


GARBAGE = {
    "zeros": bytes(HEADER),
    "ones": b"\xff" * HEADER,
    "long": pattern(1000),
    "100 KB": pattern(100_000),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + pattern(200),
    "big endian": MAGIC.to_bytes(4, "big") + bytes(HEADER - 4),
    "late": b"x" + echo(1),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage(service: Service, name: str) -> None:
    """No id is in it that could be believed."""
    client = service.connect()
    with service.counting(ingress_frames_bad=1):
        client.send(GARBAGE[name])
        client.expect_end(error(0, BAD_FRAME))


@pytest.mark.parametrize("count", [1, 4, HEADER - 1])
def test_garbage_shorter_than_a_header_is_only_waited_for(service: Service, count: int) -> None:
    client = service.connect()
    client.send(b"?" * count)
    client.expect_silence(0.1)
    client.half_close()
    client.expect_end()


@pytest.mark.parametrize("bit", [0, 7, 8, 23, 31])
def test_magic_with_a_wrong_bit(service: Service, bit: int) -> None:
    client = service.connect()
    client.send(pack_request(ECHO, 77, b"payload", magic=MAGIC ^ 1 << bit))
    client.expect_end(error(0, BAD_FRAME))


@pytest.mark.parametrize("version", [0, 2, 0x0100, 0xFFFF])
def test_wrong_version(service: Service, version: int) -> None:
    client = service.connect()
    client.send(pack_request(ECHO, 77, b"payload", version=version))
    client.expect_end(error(77, BAD_FRAME))


LENGTHS = [4097, 4098, 8192, 0x10000, 0x00FFFFFF, 0x01000000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


@pytest.mark.parametrize("length", LENGTHS)
def test_length_over_the_maximum(service: Service, length: int) -> None:
    client = service.connect()
    with service.counting(ingress_frames_bad=1):
        client.send(header(length))
        client.expect_end(error(77, TOO_LARGE))


def test_payload_over_the_maximum_is_not_read_as_frames(service: Service) -> None:
    client = service.connect()
    client.send(header(len(echo(1)) * 200), echo(1) * 200)
    client.expect_end(error(77, TOO_LARGE))


PRECEDENCE = {
    "magic before version": (header(8, magic=MAGIC + 1, version=9), error(0, BAD_FRAME)),
    "magic before length": (header(5000, magic=MAGIC + 1), error(0, BAD_FRAME)),
    "version before length": (header(5000, version=9), error(77, BAD_FRAME)),
    "length before kind": (header(5000, kind=999), error(77, TOO_LARGE)),
    "length of a CANCEL": (header(5000, kind=constants.KIND_CANCEL), error(77, TOO_LARGE)),
}


@pytest.mark.parametrize("name", PRECEDENCE)
def test_first_thing_wrong_is_named(service: Service, name: str) -> None:
    frame, reply = PRECEDENCE[name]
    client = service.connect()
    client.send(frame)
    client.expect_end(reply)


def test_bad_header_cut_at_every_byte(service: Service) -> None:
    frame = header(5000)
    for cut in range(1, HEADER):
        client = service.connect()
        client.send_pieces(frame, cut)
        client.expect_end(error(77, TOO_LARGE))
        client.close()


@pytest.mark.parametrize("before", [1, 7, 30])
def test_what_came_before_is_answered_first(service: Service, before: int) -> None:
    client = service.connect()
    client.send(*(echo(i, pattern(50, i)) for i in range(before)), b"garbage" * 10)
    client.expect_end(*(ok(i, pattern(50, i)) for i in range(before)), error(0, BAD_FRAME))


def test_slow_requests_before_it_are_answered_first(service: Service) -> None:
    client = service.connect()
    client.send(slow(1), echo(2, b"fast"), header(5000))
    client.expect_end(slow_ok(1), ok(2, b"fast"), error(77, TOO_LARGE))


def test_nothing_behind_it_is_answered(service: Service) -> None:
    client = service.connect()
    with service.counting(ingress_frames_bad=1, executor_completed=1):
        client.send(echo(1), header(5000), echo(2), cancel(1), header(6000))
        client.expect_end(ok(1), error(77, TOO_LARGE))


def test_error_reply_is_readable_though_the_client_goes_on_sending(service: Service) -> None:
    """A close with bytes unread would reset the connection, and the reply would be lost."""
    client = service.connect()
    client.send(header(5000))
    for _ in range(20):
        client.send(pattern(5000))
    client.expect_end(error(77, TOO_LARGE))
    client.send(b"more, after the end")


def test_a_peer_that_does_not_close_is_not_waited_for(service: Service) -> None:
    """The entry is free again within seconds, whatever the peer does."""
    client = service.connect()
    client.send(header(5000))
    client.expect_end(error(77, TOO_LARGE))
    assert service.reaches("depth.connections", 0, 6)
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        for _ in range(100):
            client.send(echo(1))
            time.sleep(0.01)


def test_others_are_untouched(service: Service) -> None:
    good = [service.connect() for _ in range(8)]
    for client in good:
        client.send(slow(1), echo(2, b"good")[:-1])
    for length in LENGTHS:
        bad = service.connect()
        bad.send(header(length))
        bad.expect_end(error(77, TOO_LARGE))
    for client in good:
        client.send(b"d")
        client.expect(slow_ok(1), ok(2, b"good"))
