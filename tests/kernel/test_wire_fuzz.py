# SPDX-License-Identifier: MIT
"""Random conversations with both transports at once: they answer byte for byte alike.

WIRE_FUZZ_ROUNDS sets how many; a failure names its seed, and the same seed makes the same bytes.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
from collections.abc import Iterator

import pytest

from loader.options import TRANSPORTS
from shared_page import constants
from shared_page.wire import Reply
from tests.support.client import Client
from tests.support.frames import cancel, echo, empty, pattern, stream
from tests.support.kernel_log import KernelLog
from tests.support.service import Options, Service

ROUNDS = int(os.environ.get("WIRE_FUZZ_ROUNDS", "150"))
HEADER = struct.Struct("<IHHQII")  # struct request_header

pytestmark = pytest.mark.timeout(120 + ROUNDS)


@pytest.fixture(scope="module")
def both(kernel: None) -> Iterator[list[Service]]:
    services = [Service(Options(transport)) for transport in TRANSPORTS]
    yield services
    for service in services:
        service.stop()


@pytest.fixture(autouse=True)
def before(both: list[Service], nothing_left: KernelLog) -> None:
    """The services are there before a test begins to count."""


def frame(numbers: random.Random) -> bytes:
    """A frame, most of them right. None whose reply depends on how fast the server is."""
    at = numbers.randrange(1 << 20)
    size = numbers.choice((0, 1, 23, 24, 255, 256, 1000, 4095, 4096))
    header = [
        constants.PROTOCOL_MAGIC, constants.PROTOCOL_VERSION, constants.KIND_ECHO, at,
        numbers.randrange(1 << 32), size,
    ]  # fmt: skip
    match numbers.randrange(12):
        case 0:
            return empty(at, pattern(size))
        case 1:
            return stream(at, [numbers.randrange(256)], numbers.randrange(1, 40))
        case 2:
            return cancel(at)  # of nothing
        case 3:  # a kind that nobody serves, or a payload that its kind refuses
            header[2] = numbers.randrange(2, 40)
            header[5] = size = numbers.randrange(40)
        case 4 if numbers.randrange(4) == 0:  # closes
            place = numbers.choice((0, 1, 5))
            header[place] ^= 1 << numbers.randrange(12, 16)
            return HEADER.pack(*header) + numbers.randbytes(numbers.randrange(100))
        case 5 if numbers.randrange(4) == 0:
            return numbers.randbytes(numbers.randrange(1, 200))
        case _:
            return echo(at, pattern(size, at))
    return HEADER.pack(*header) + pattern(size)


def conversation(numbers: random.Random) -> list[bytes]:
    """Segments of one connection: at most as many frames as may always be unanswered."""
    data = b"".join(frame(numbers) for _ in range(numbers.randrange(1, 12)))
    if numbers.randrange(3) == 0:
        data = data[: numbers.randrange(len(data) + 1)]
    ends = sorted(numbers.randrange(len(data) + 1) for _ in range(numbers.randrange(6)))
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


def talk(client: Client, segments: list[bytes]) -> list[Reply]:
    """All that the server answers until it ends the connection; streams' frames are put together,
    since how many tokens stand in one is a matter of time."""
    for segment in segments:
        try:
            client.send(segment)
        except (BrokenPipeError, ConnectionResetError):
            break  # it closed after an error; what it said before is still to be read
    with contextlib.suppress(OSError):
        client.half_close()
    replies: list[Reply] = []
    tokens: list[bytes] = []
    while True:
        try:
            reply = client.read()
        except (EOFError, ConnectionResetError):
            return replies
        if reply.last:
            replies.append(reply._replace(payload=b"".join((*tokens, reply.payload))))
            tokens = []
        else:
            tokens.append(reply.payload)


def test_both_answer_alike(both: list[Service]) -> None:
    answered = 0
    for seed in range(ROUNDS):
        segments = conversation(random.Random(seed))
        one, other = (talk(service.connect(), segments) for service in both)
        assert one == other, f"seed {seed}"
        answered += len(one)
        if seed % 25 == 24:
            for service in both:
                service.settle()
    for service in both:
        service.settle()
    assert answered > ROUNDS, "few replies: the frames are too bad to test much"
