# SPDX-License-Identifier: MIT
"""First inputs of the fuzz targets, and every input that once found a fault.

An input is the list of choices that a target reads; see step() of admission.cpp and
hostile_executor.cpp for what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ALL = 6  # deliver everything that was written
TAKE, STEP, NOTICES, SEND, CLOSE = 7, 8, 10, 11, 12


def step(choice: int, *rest: int, client: int = 0) -> bytes:
    return bytes([choice, client, *rest])


def frame(kind: int, request_id: int, size: int, spoil: int = 0, client: int = 0) -> bytes:
    """`size` is a length below 128, or 128 + the place in a table of interesting ones."""
    return step(1, spoil, size, kind, request_id, client=client)


def serve(status: int = 0) -> bytes:
    """Takes one request, answers it with 256 bytes, and sends the reply."""
    return bytes([TAKE, 0, STEP, 0, 0, 0, 1, status]) + step(NOTICES) + step(SEND)


def admission() -> Iterator[bytes]:
    opened = bytes([0, 0])  # counters from 0; one connection
    for kind in (1, 2, 6):
        yield opened + frame(kind, 1, 64) + step(ALL) + serve()
    yield opened + b"".join(frame(6, at, 5) for at in range(33)) + step(ALL) + serve()
    for size in range(8):
        yield opened + frame(6, 2, 128 + size) + step(ALL) + serve()
    for spoil in (1, 2):
        yield opened + frame(6, 3, 9, spoil) + step(ALL) + step(SEND) + step(CLOSE)
    cut = b"".join(step(4, piece) for piece in range(24))
    yield opened + frame(6, 4, 100) + cut + step(ALL) + serve()
    yield opened + frame(6, 5, 8) + frame(0, 5, 0) + step(ALL) + serve(7) + step(CLOSE)
    tokens = b"".join(bytes([STEP, 0, 0, 1, at % 2]) for at in range(20)) + step(NOTICES)
    yield opened + frame(4, 6, 48) + step(ALL) + bytes([TAKE, 0]) + tokens + step(SEND) * 3
    # A stream's token that comes when the stream is overdue already.
    yield bytes.fromhex("ffffff010000300406060007008e8e8e8e8e0b8e8e8e00080000018e8e00cb010b")
    yield opened + step(13, 0) + frame(6, 7, 30) + step(ALL) + step(SEND) + step(13, 1)
    late = bytes([1, 0, 0]) + frame(6, 7, 8) + step(ALL) + bytes([TAKE, 0]) + step(CLOSE)
    yield late + bytes([0, STEP, 0, 0, 0, 0, 0]) + step(NOTICES)
    crowd = b"".join(frame(6, at % 8, 0, client=at % 2) for at in range(44))
    yield bytes([0, 0, 0, 0]) + crowd + step(ALL) + step(ALL, client=1) + serve()
    yield opened + step(3, 31) + b"BGR1\1\0\6\0" + bytes(8) + step(ALL)


def hostile_executor() -> Iterator[bytes]:
    ask = bytes([0, 0]) * 3
    reply = bytes([7, 0, 8, 0, 10, 0])
    yield ask + bytes([2, 0, 64]) * 3 + reply
    longer = bytes([3, 0, 39, 3, 5, 255, 255, 255, 255, 255, 255, 255, 255])
    yield ask + longer + reply
    yield ask + bytes([2, 0, 64]) + longer.replace(b"\x27", b"\0") + reply
    for value in range(6):
        yield ask + bytes([4, 0, 39, 2, value, 0]) + reply + bytes([11, 0]) + reply
    stream = bytes([3, 0, 39, 2, 1, 3, 0, 39, 1, 4, 200])
    yield ask + stream + bytes([3, 0, 39, 5, 2, 0]) + reply * 4
    yield ask + bytes([11, 0]) + ask + bytes([4, 0, 39, 2, 3, 0]) * 2 + reply
    # A final notice of a slot that never held a result freed it a second time.
    yield bytes.fromhex("a0960b750b5b0b")


TARGETS = {"admission": admission, "hostile_executor": hostile_executor}


def write(target: str, folder: Path) -> None:
    """Writes a target's inputs into a folder, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[target]()):
        (folder / f"seed-{number:02}").write_bytes(seed)
