# SPDX-License-Identifier: MIT
"""How replies leave: together, in order, and in pieces when the peer reads slowly."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from shared_page import constants
from shared_page.wire import pack_generation, pack_request
from tests.native.rig import Client, Rig

Start = Callable[..., Rig]
DEPTH = constants.PIPELINE_MAX
# Both are doubled by the kernel; far less than the replies to a full pipeline.
SMALL_BUFFER = 4096


def payloads(seed: int) -> list[bytes]:
    chosen = random.Random(seed)
    sizes = chosen.choices([1, 300, 3000, constants.REQUEST_MAX], k=DEPTH)
    return [chosen.randbytes(size) for size in sizes]


def send_all(client: Client, contents: list[bytes]) -> None:
    frames = [pack_request(constants.KIND_ECHO, i, one) for i, one in enumerate(contents)]
    client.sendall(b"".join(frames))


def test_ready_replies_leave_in_one_send(start: Start) -> None:
    rig = start()
    client = rig.connect()
    send_all(client, [b"x"] * DEPTH)
    rig.wait_submitted(DEPTH)
    with rig.frozen():
        rig.start_executor()
        rig.wait_until(lambda: rig.counter("executor", "completed") == DEPTH)
    assert [reply.request_id for reply in client.replies(DEPTH)] == list(range(DEPTH))
    rig.wait_until(lambda: rig.counter("egress", "replies") == DEPTH)
    assert rig.counter("egress", "sends") == 1


def test_a_slow_reader_gets_every_byte_in_order(start: Start) -> None:
    rig = start(send_buffer=SMALL_BUFFER)
    rig.start_executor()
    slow, quick = rig.connect(SMALL_BUFFER), rig.connect()
    for turn in range(5):
        contents = payloads(turn)
        send_all(slow, contents)
        rig.wait_answered(DEPTH + turn * (DEPTH + 1))
        assert rig.counter("depth", "slots") > 0, "the buffers took all: nothing was blocked"
        quick.request(99, b"not behind the slow one")
        assert quick.replies(1)[0].payload == b"not behind the slow one"
        assert [reply.payload for reply in slow.replies(DEPTH)] == contents
    rig.wait_until(lambda: rig.counter("depth", "slots") == 0)


def turns(rig: Rig) -> int:
    time.sleep(0.1)
    before = rig.counter("egress", "steps")
    time.sleep(0.3)
    return rig.counter("egress", "steps") - before


def test_a_blocked_peer_costs_no_turns(start: Start) -> None:
    """Nor does one that was blocked: epoll is asked for EPOLLOUT only while a send is short."""
    rig = start(send_buffer=SMALL_BUFFER)
    rig.start_executor()
    client = rig.connect(SMALL_BUFFER)
    send_all(client, [bytes(constants.REQUEST_MAX)] * DEPTH)
    rig.wait_answered(DEPTH)
    assert turns(rig) == 0
    assert rig.counter("depth", "slots") > 0
    assert len(client.replies(DEPTH)) == DEPTH
    assert turns(rig) == 0


def test_streams_to_a_slow_reader_are_whole(start: Start) -> None:
    """A frame that has begun to leave stays as it is, though more tokens come meanwhile."""
    rig = start(send_buffer=SMALL_BUFFER)
    rig.start_executor()
    requests = [
        pack_request(constants.KIND_TOYLM, i, pack_generation([i, 7], constants.STREAM_TOKENS_MAX))
        for i in range(DEPTH)
    ]

    def tokens(client: Client, pause_s: float) -> list[list[int]]:
        client.sendall(b"".join(requests))
        streams: list[list[int]] = [[] for _ in requests]
        finished = 0
        while finished < len(requests):
            time.sleep(pause_s)
            for frame in client.replies(1):
                streams[frame.request_id] += frame.tokens
                finished += frame.last
        return streams

    slow = tokens(rig.connect(SMALL_BUFFER), 0.0005)
    assert slow == tokens(rig.connect(), 0)
    assert all(slow)


def test_a_peer_that_never_reads_is_closed(start: Start) -> None:
    rig = start("--send-timeout-ms", "200", send_buffer=SMALL_BUFFER)
    rig.start_executor()
    client, other = rig.connect(SMALL_BUFFER), rig.connect()
    send_all(client, [bytes(constants.REQUEST_MAX)] * DEPTH)
    rig.wait_until(lambda: rig.counter("egress", "connections_closed") == 1)
    assert rig.counter("depth", "slots") == 0
    other.request(1, b"still here")
    assert other.replies(1)[0].payload == b"still here"


def test_reading_anything_restarts_the_send_timeout(start: Start) -> None:
    rig = start("--send-timeout-ms", "400", send_buffer=SMALL_BUFFER)
    rig.start_executor()
    client = rig.connect(SMALL_BUFFER)
    send_all(client, [bytes(constants.REQUEST_MAX)] * DEPTH)
    began = time.monotonic()
    received = 0
    while piece := client.recv(3000):
        received += len(piece)
        if received == DEPTH * (constants.REPLY_HEADER_SIZE + constants.REQUEST_MAX):
            break
        time.sleep(0.02)
    assert time.monotonic() - began > 0.6, "too quick to show anything"
    assert rig.counter("egress", "connections_closed") == 0
