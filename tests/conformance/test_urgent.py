"""Out-of-band data: an urgent byte is a byte of the stream like any other."""

from __future__ import annotations

import socket

from tests.support.frames import echo, error, ok
from tests.support.service import Service


def test_urgent_byte_inside_a_frame(service: Service) -> None:
    client, other = service.connect(), service.connect()
    frame = echo(1, b"abcdef")
    client.send(frame[:-3])
    client.socket.send(frame[-3:-2], socket.MSG_OOB)
    client.send(frame[-2:], echo(2))
    client.expect(ok(1, b"abcdef"), ok(2))
    other.send(echo(3))
    other.expect(ok(3))


def test_urgent_request(service: Service) -> None:
    client = service.connect()
    client.socket.send(echo(1, b"now!"), socket.MSG_OOB)
    client.send(echo(2))
    client.expect(ok(1, b"now!"), ok(2))


def test_urgent_byte_between_frames_is_garbage(service: Service) -> None:
    client = service.connect()
    client.send(echo(1))
    client.expect(ok(1))
    client.socket.send(b"!", socket.MSG_OOB)
    client.send(echo(2))
    client.expect_end(error(0, 2))
