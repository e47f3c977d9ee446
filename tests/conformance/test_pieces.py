"""Frames in every kind of pieces: cut anywhere, glued together, lent by the page cache."""

from __future__ import annotations

import os
import random
import socket
import tempfile
import time

import pytest

from tests.support.client import Client
from tests.support.frames import DEPTH, HEADER, echo, empty, ok, pattern
from tests.support.service import Service

SO_ZEROCOPY, MSG_ZEROCOPY = 60, 0x4000000
TCP_CORK = 3


def test_one_frame_cut_at_every_byte(service: Service) -> None:
    client = service.connect()
    payload = pattern(20)
    frame = echo(3, payload)
    for cut in range(1, len(frame)):
        client.send_pieces(frame, cut)
        client.expect(ok(3, payload))


@pytest.mark.parametrize("cut", range(1, HEADER + 1))
def test_header_cut_on_a_new_connection(service: Service, cut: int) -> None:
    client = service.connect()
    client.send(echo(9, b"after the cut")[:cut])
    time.sleep(0.01)  # in a segment of its own, and seen alone
    client.send(echo(9, b"after the cut")[cut:])
    client.expect(ok(9, b"after the cut"))


def test_two_frames_cut_at_every_byte(service: Service) -> None:
    client = service.connect()
    frames = echo(1, b"first") + echo(2, b"second")
    for cut in range(1, len(frames)):
        client.send_pieces(frames, cut)
        client.expect(ok(1, b"first"), ok(2, b"second"))


def test_two_cuts_around_a_boundary(service: Service) -> None:
    client = service.connect()
    frames = echo(1, b"abc") + empty(2) + echo(3, b"xyz")
    boundary = HEADER + 3
    for before in range(3):
        for after in range(3):
            client.send_pieces(frames, boundary - before, boundary + HEADER + after)
            client.expect(ok(1, b"abc"), ok(2), ok(3, b"xyz"))


def test_sizes_40_4000_and_7_in_one_send(service: Service) -> None:
    """Case 1 of a public report: a long message hid the ones behind it."""
    client = service.connect()
    payloads = [pattern(size, size) for size in (40, 4000, 7)]
    client.send(*(echo(i, payload) for i, payload in enumerate(payloads)))
    client.expect(*(ok(i, payload) for i, payload in enumerate(payloads)))


def test_byte_by_byte(service: Service) -> None:
    client = service.connect()
    payload = pattern(300)
    frames = echo(1, payload) + empty(2) + echo(3, b"!")
    client.send_pieces(frames, *range(1, len(frames)))
    client.expect(ok(1, payload), ok(2), ok(3, b"!"))


@pytest.mark.parametrize("seed", range(4))
def test_random_frames_in_random_pieces(service: Service, seed: int) -> None:
    """What is sent has nothing to do with where frames end."""
    numbers = random.Random(seed)
    client = service.connect()
    for _ in range(6):
        sizes = [numbers.choice([0, 5, 100, 1500, 4096]) for _ in range(DEPTH)]
        frames = b"".join(echo(i, pattern(size, i)) for i, size in enumerate(sizes))
        ends = sorted(numbers.randrange(len(frames)) for _ in range(numbers.choice([3, 40])))
        client.send_pieces(frames, *ends)
        client.expect(*(ok(i, pattern(size, i)) for i, size in enumerate(sizes)))


@pytest.mark.parametrize("have", [0, 1, HEADER - 1, HEADER, HEADER + 100])
def test_pause_inside_a_frame(service: Service, have: int) -> None:
    """Others are served meanwhile, and the frame is taken up where it was left."""
    client, other = service.connect(), service.connect()
    frame = echo(1, pattern(200))
    client.send(frame[:have])
    client.expect_silence(0.3)
    other.send(echo(2, b"meanwhile"))
    other.expect(ok(2, b"meanwhile"))
    client.send(frame[have:])
    client.expect(ok(1, pattern(200)))


def burst(size: int) -> tuple[bytes, list[bytes]]:
    payloads = [pattern(size, i) for i in range(DEPTH)]
    return b"".join(echo(i, payload) for i, payload in enumerate(payloads)), payloads


def expect_burst(client: Client, payloads: list[bytes]) -> None:
    client.expect(*(ok(i, payload) for i, payload in enumerate(payloads)))


@pytest.mark.parametrize("size", [256, 4096])
def test_sendfile(service: Service, size: int) -> None:
    """Segments made of page cache pages, with an empty linear part."""
    client = service.connect()
    frames, payloads = burst(size)
    with tempfile.TemporaryFile() as file:
        file.write(frames)
        file.flush()
        sent = 0
        while sent < len(frames):
            sent += os.sendfile(client.socket.fileno(), file.fileno(), sent, len(frames) - sent)
    expect_burst(client, payloads)


@pytest.mark.parametrize("size", [256, 4096])
def test_zero_copy_send(service: Service, size: int) -> None:
    client = service.connect()
    client.socket.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
    frames, payloads = burst(size)
    at = 0
    while at < len(frames):
        at += client.socket.send(frames[at:], MSG_ZEROCOPY)
    expect_burst(client, payloads)


def test_spliced_from_a_pipe(service: Service) -> None:
    client = service.connect()
    frames, payloads = burst(100)
    reader, writer = os.pipe()
    try:
        os.write(writer, frames)
        left = len(frames)
        while left:
            left -= os.splice(reader, client.socket.fileno(), left)
    finally:
        os.close(reader)
        os.close(writer)
    expect_burst(client, payloads)


def test_corked(service: Service) -> None:
    """Many small writes leave as few segments, whose ends are not those of frames."""
    client = service.connect()
    frames, payloads = burst(333)
    client.socket.setsockopt(socket.IPPROTO_TCP, TCP_CORK, 1)
    client.send_pieces(frames, *range(7, len(frames), 97))
    client.socket.setsockopt(socket.IPPROTO_TCP, TCP_CORK, 0)
    expect_burst(client, payloads)


def test_bursts_one_after_the_other(service: Service) -> None:
    """Ten pipelines of 98 KB, each as soon as the replies to the one before are there."""
    client = service.connect()
    frames, payloads = burst(4096)
    for _ in range(10):
        client.send(frames)
        expect_burst(client, payloads)
