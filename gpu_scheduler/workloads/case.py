"""What a reply is compared with, and the file from which the load generator reads it."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Protocol

from gpu_scheduler.workloads.spec import Spec

MAGIC = b"BGC1"


class Compare(IntEnum):
    """How the expected bytes are compared with those of the reply."""

    BYTES = 0
    FLOAT32 = 1  # |reply - expected| <= atol + rtol * |expected|
    TOKENS = 2  # the tokens of all frames of a stream, in order
    TOKEN_COUNT = 3  # of a stream, of which only this is known


@dataclass(frozen=True)
class Expected:
    """The right answer to a payload.

    `result` has the bytes of a single reply, or the tokens (uint32) of a stream; float32 results
    may differ by `atol + rtol * |result|`. `status` and `finish` are numbers of the protocol.
    """

    result: bytes
    compare: Compare = Compare.BYTES
    rtol: float = 0.0
    atol: float = 0.0
    status: int = 0
    finish: int = 0


class Reference(Protocol):
    """What reference.py of each workload has."""

    def payload(self, spec: Spec, numbers: random.Random) -> bytes:
        """A valid payload, drawn from `numbers`."""

    def expect(self, spec: Spec, payload: bytes) -> Expected:
        """The answer to a valid payload, computed in float64 where it has real numbers."""


def write(path: Path, kind: int, cases: Iterable[tuple[bytes, Expected]]) -> None:
    """Raises OSError. The format is little endian; see the fields below."""
    records = [_record(kind, payload, expected) for payload, expected in cases]
    path.write_bytes(MAGIC + struct.pack("<I", len(records)) + b"".join(records))


def _record(kind: int, payload: bytes, expected: Expected) -> bytes:
    header = struct.pack(
        "<4I2f2I",
        kind,
        len(payload),
        len(expected.result),
        expected.compare,
        expected.rtol,
        expected.atol,
        expected.status,
        expected.finish,
    )
    return header + payload + expected.result
