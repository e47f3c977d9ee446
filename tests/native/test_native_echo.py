# SPDX-License-Identifier: MIT
"""The bare echo server: reply frames of a fixed size that name their requests."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

import pytest

from loader import paths
from shared_page import constants
from shared_page.wire import pack_request
from tests.native.rig import Client

PAYLOAD = bytes(256)
REPLY_PAYLOAD = 240


@pytest.fixture
def port() -> Iterator[int]:
    """The port of an echo server with the default sizes, which has to end well."""
    with subprocess.Popen(
        [paths.program("echo-epoll"), "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        yield int(server.stdout.readline().split()[-1])
        assert server.poll() is None
        server.terminate()
        assert server.wait(5) == 0


def frames(count: int) -> bytes:
    requests = (pack_request(constants.KIND_GEMM, 1000 + i, PAYLOAD) for i in range(count))
    return b"".join(requests)


def check(client: Client, count: int) -> None:
    replies = client.replies(count)
    assert [reply.request_id for reply in replies] == [1000 + i for i in range(count)]
    assert all(reply.last and reply.payload == bytes(REPLY_PAYLOAD) for reply in replies)


@pytest.mark.parametrize("count", [1, 31, 2000])
def test_many_frames_at_once(port: int, count: int) -> None:
    with Client(port) as client:
        client.sendall(frames(count))
        check(client, count)


def test_split_anywhere(port: int) -> None:
    data = frames(2)
    with Client(port) as client:
        for at in range(1, len(data), 13):
            client.sendall(data[:at])
            client.sendall(data[at:])
            check(client, 2)


def test_slow_reader(port: int) -> None:
    """Unread replies stay with the server, which then reads no more of that peer."""
    with Client(port, receive_buffer=4096) as client, Client(port) as other:
        client.settimeout(0.5)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 1 << 27:
                sent += client.send(frames(1000)[sent % 280_000 :])
        assert sent < 1 << 27, "the server goes on reading"
        other.sendall(frames(1))
        check(other, 1)
        client.settimeout(10)
        received = 0
        while received < sent // 280 * 256:
            received += len(client.recv(1 << 20))


def test_peers_that_vanish(port: int) -> None:
    for _ in range(20):
        client = Client(port)
        client.sendall(frames(50))
        client.reset()
    with Client(port) as client:
        client.sendall(frames(1))
        check(client, 1)
