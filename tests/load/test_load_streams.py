# SPDX-License-Identifier: MIT
"""Token streams: several frames a reply, all of them checked, times to the token measured."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from shared_page import constants
from tests.load.generator import Compare, Expected, Run, load, write
from tests.load.stand_in import LAST, Asked, Session, StandIn

TOKENS = tuple(range(1000, 1030))
LENGTH = constants.FINISH_LENGTH << constants.REPLY_FINISH_SHIFT


def pack(tokens: Sequence[int]) -> bytes:
    return b"".join(token.to_bytes(4, "little") for token in tokens)


def stream(session: Session, request: Asked, cuts: Sequence[int], end: int = LAST | LENGTH) -> None:
    """All tokens, cut into frames before the given places; the last frame has the flags `end`."""
    starts = [0, *cuts]
    for first, after in zip(starts, cuts, strict=False):
        session.reply(request, pack(TOKENS[first:after]), flags=0)
    session.reply(request, pack(TOKENS[starts[-1] :]), flags=end)


class Streams:
    """Forty streams over two connections, one at a time on each unless the depth is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        expected = Expected(pack(TOKENS), Compare.TOKENS, finish=constants.FINISH_LENGTH)
        self.cases = write(folder / "cases", [(b"prompt", expected)], kind=constants.KIND_TOYLM)

    def run(self, server: StandIn, depth: int = 1) -> Run:
        shape = ("--closed", "--connections", "2", "--depth", str(depth), "--requests", "40")
        return load(server.port, self.cases, self.folder, *shape, "--timeout", "2")


@pytest.fixture
def streams(tmp_path: Path) -> Streams:
    return Streams(tmp_path)


def test_frames_of_any_size(streams: Streams) -> None:
    async def behaviour(session: Session) -> None:
        async for request in session:
            cuts = ([], [1, 2, 3], [12, 24], [29], [0, 5, 5], [30])[request.place % 6]
            stream(session, request, cuts)

    with StandIn(behaviour) as server:
        ended = streams.run(server, depth=4)
    assert ended.clean
    assert ended.result["verified"] == 40
    assert ended.result["streams"]["count"] == 40
    assert ended.result["streams"]["tokens"] == 40 * len(TOKENS)


def test_times_to_the_tokens(streams: Streams) -> None:
    """10 ms to the first token, 20 ms to the second frame, which has the other 29."""

    async def behaviour(session: Session) -> None:
        async for request in session:
            await asyncio.sleep(0.010)
            session.reply(request, pack(TOKENS[:1]), flags=0)
            await asyncio.sleep(0.020)
            session.reply(request, pack(TOKENS[1:]), flags=LAST | LENGTH)

    with StandIn(behaviour) as server:
        ended = streams.run(server)
    assert ended.clean
    measured = ended.result["streams"]
    assert measured["first_token_us"]["count"] == measured["inter_token_us"]["count"] == 40
    assert 10_000 < measured["first_token_us"]["p50"] < 1_000_000
    assert 19_000 < measured["inter_token_us"]["p50"] < 1_000_000
    ratio = measured["inter_token_us"]["p50"] / measured["per_output_token_us"]["p50"]
    assert ratio == pytest.approx(29, rel=0.01)
    first = ended.records["first_ns"] - ended.records["intended_ns"]
    assert (first < ended.records["done_ns"] - ended.records["intended_ns"]).all()


async def wrong_token(session: Session, request: Asked) -> None:
    session.reply(request, pack(TOKENS[:10]), flags=0)
    session.reply(request, pack((7, *TOKENS[11:])), flags=LAST | LENGTH)


async def too_few(session: Session, request: Asked) -> None:
    session.reply(request, pack(TOKENS[:10]), flags=LAST | LENGTH)


async def too_many(session: Session, request: Asked) -> None:
    session.reply(request, pack(TOKENS), flags=0)
    session.reply(request, pack([5]), flags=LAST | LENGTH)


async def half_a_token(session: Session, request: Asked) -> None:
    session.reply(request, pack(TOKENS)[:6], flags=0)
    session.reply(request, pack(TOKENS)[6:], flags=LAST | LENGTH)


async def no_reason(session: Session, request: Asked) -> None:
    stream(session, request, [4], end=LAST)


async def early_reason(session: Session, request: Asked) -> None:
    session.reply(request, pack(TOKENS[:4]), flags=LENGTH)
    session.reply(request, pack(TOKENS[4:]), flags=LAST | LENGTH)


async def failing_late(session: Session, request: Asked) -> None:
    session.reply(request, pack(TOKENS[:4]), flags=0)
    session.reply(request, b"", status=constants.STATUS_INTERNAL, flags=LAST)


@pytest.mark.parametrize(
    ("mistake", "name"),
    [
        (wrong_token, "wrong_payload"),
        (too_few, "wrong_length"),
        (too_many, "wrong_length"),
        (half_a_token, "wrong_length"),
        (no_reason, "bad_finish"),
        (early_reason, "bad_finish"),
        (failing_late, "error_status:internal"),
    ],
)
def test_a_wrong_stream(mistake: object, name: str, streams: Streams) -> None:
    async def behaviour(session: Session) -> None:
        async for request in session:
            if request.place == 3:
                await mistake(session, request)  # type: ignore[operator]
            else:
                stream(session, request, [6, 18])

    with StandIn(behaviour) as server:
        ended = streams.run(server, depth=2)
    assert ended.result["failures"] == {name: 2}
    assert ended.result["verified"] == 38


def test_frames_of_two_streams_may_not_mix(streams: Streams) -> None:
    async def behaviour(session: Session) -> None:
        async for request in session:
            following = await session.asked()
            if request.place == 2:
                session.reply(request, pack(TOKENS[:5]), flags=0)
                session.reply(following, pack(TOKENS[:9]), flags=0)
                session.reply(request, pack(TOKENS[5:]), flags=LAST | LENGTH)
                session.reply(following, pack(TOKENS[9:]), flags=LAST | LENGTH)
            else:
                stream(session, request, [])
                stream(session, following, [3])

    with StandIn(behaviour) as server:
        ended = streams.run(server, depth=2)
    assert ended.result["failures"] == {"wrong_order": 2}
