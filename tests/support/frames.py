"""Requests as bytes and the replies they must get."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from shared_page import constants
from shared_page.wire import Reply, pack_cancel, pack_generation, pack_request

HEADER = constants.REQUEST_HEADER_SIZE
PIPELINE = constants.PIPELINE_MAX  # of a connection to which nothing is owed yet
DEPTH = constants.PIPELINE_DEPTH  # of one that goes on
# So many connections with so many requests each take every slot, and none gets BUSY: some with as
# many as they may have, then one for each slot that is left.
DEEP_FILLERS = 30
FILLERS = (30,) * DEEP_FILLERS + (1,) * (constants.SLOT_COUNT - 30 * DEEP_FILLERS)

__all__ = ["DEPTH", "HEADER", "PIPELINE", "cancel", "echo", "empty", "error", "ok", "pattern"]
__all__ += ["slow", "slow_ok", "stream", "stream_expected"]

cancel = pack_cancel


@functools.lru_cache(maxsize=4096)
def pattern(size: int, seed: int = 0) -> bytes:
    """Bytes that differ from place to place and from seed to seed."""
    step = 1 + 2 * (seed % 125)  # odd, so that a cycle has 256 values
    cycle = bytes((seed + step * at) % 256 for at in range(256))
    return (cycle[:251] * (size // 251 + 1))[:size]


def echo(request_id: int, payload: bytes = b"") -> bytes:
    """Answered at once by `ok(request_id, payload)`."""
    return pack_request(constants.KIND_ECHO, request_id, payload)


def empty(request_id: int, payload: bytes = b"") -> bytes:
    """Answered at once by `ok(request_id)`."""
    return pack_request(constants.KIND_EMPTY, request_id, payload)


def ok(request_id: int, payload: bytes = b"") -> Reply:
    return Reply(request_id, constants.STATUS_OK, constants.REPLY_LAST, payload)


def error(request_id: int, status: int) -> Reply:
    return Reply(request_id, status, constants.REPLY_LAST, b"")


def slow(request_id: int) -> bytes:
    """Answered after `SLOW_S` by `slow_ok(request_id)`: a transform of two zeros."""
    return pack_request(constants.KIND_FFT, request_id, bytes(16))


def slow_ok(request_id: int) -> Reply:
    return ok(request_id, bytes(8))


def stream(request_id: int, prompt: Sequence[int], max_tokens: int, **sampling: float) -> bytes:
    """A token stream, one token every `TOKEN_S`."""
    payload = pack_generation(list(prompt), max_tokens, **sampling)
    return pack_request(constants.KIND_TOYLM, request_id, payload)


def stream_expected(request: bytes) -> tuple[list[int], int]:
    """Tokens and finish reason of a `stream` request."""
    from gpu_scheduler.workloads.toylm.reference import generate

    return generate(request[HEADER:], vocab=256)
