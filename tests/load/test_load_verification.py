# SPDX-License-Identifier: MIT
"""Each way a reply can be wrong is counted under its own name, and the rest is still verified."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest

from shared_page import constants
from tests.load.generator import Compare, Expected, Run, load, write
from tests.load.stand_in import LAST, Asked, Behaviour, Session, StandIn, echo, pack_reply

REQUESTS = 200


def run(behaviour: Behaviour, cases: Path, folder: Path, *options: str) -> Run:
    """A closed loop of 200 requests, eight at a time on two connections."""
    shape = ("--closed", "--connections", "2", "--depth", "8", "--requests", str(REQUESTS))
    with StandIn(behaviour) as server:
        ended = load(server.port, cases, folder, *shape, "--timeout", "2", *options)
    found = ended.result
    assert found["scheduled"] == REQUESTS == len(ended.records)
    assert found["verified"] + sum(found["failures"].values()) == REQUESTS
    return ended


def test_right_replies_are_verified(cases: Path, tmp_path: Path) -> None:
    ended = run(echo, cases, tmp_path)
    assert ended.clean
    assert ended.result["failures"] == {}
    assert ended.result["connection_counts"] == {"opened": 2, "reopened": 0, "failures": {}}
    assert (ended.records["status"] == 0).all()


async def flip_a_bit(session: Session, request: Asked) -> None:
    session.reply(request, request.payload[:-1] + bytes([request.payload[-1] ^ 1]))


async def shorten(session: Session, request: Asked) -> None:
    session.reply(request, request.payload[:-4])


async def lengthen(session: Session, request: Asked) -> None:
    session.reply(request, request.payload + b"more")


async def rename(session: Session, request: Asked) -> None:
    session.reply(request, request_id=request.id ^ 1 << 40)


async def decline(session: Session, request: Asked) -> None:
    session.reply(request, b"", status=constants.STATUS_BUSY)


async def fail(session: Session, request: Asked) -> None:
    session.reply(request, b"", status=constants.STATUS_INTERNAL)


async def finish(session: Session, request: Asked) -> None:
    session.reply(request, flags=LAST | constants.FINISH_STOP << constants.REPLY_FINISH_SHIFT)


async def overtake(session: Session, request: Asked) -> None:
    following = await session.asked()
    session.reply(following)
    session.reply(request)


@pytest.mark.parametrize(
    ("mistake", "name"),
    [
        (flip_a_bit, "wrong_payload"),
        (shorten, "wrong_length"),
        (lengthen, "wrong_length"),
        (rename, "wrong_id"),
        (decline, "busy"),
        (fail, "error_status:internal"),
        (finish, "bad_finish"),
        (overtake, "wrong_order"),
    ],
)
def test_a_mistake_costs_one_request(
    mistake: Behaviour, name: str, cases: Path, tmp_path: Path
) -> None:
    """The second request of each connection is answered wrongly; everything else is right."""

    async def behaviour(session: Session) -> None:
        async for request in session:
            if request.place == 1:
                await mistake(session, request)  # type: ignore[call-arg]
            else:
                session.reply(request)

    ended = run(behaviour, cases, tmp_path)
    assert ended.result["failures"] == {name: 2}
    assert ended.status == 2
    assert f"2 of {REQUESTS} requests failed: {name} 2" in ended.errors
    outcomes = ended.result["outcomes"]
    wrong = ended.records[ended.records["status"] >> 8 != 0]
    assert [outcomes[word >> 8] for word in wrong["status"]] == [name.split(":")[0]] * 2


@pytest.mark.parametrize(
    "frame",
    [
        pack_reply(1, b"", status=99),
        pack_reply(1, b"", flags=LAST | 1 << 5),
        pack_reply(1, b"", flags=LAST | 200 << constants.REPLY_FINISH_SHIFT),
        pack_reply(1, bytes(constants.RESULT_MAX + 1)),
        pack_reply(1, b"", flags=0),  # not a stream, and not the last frame
        b"\xff" * 64,
    ],
    ids=["status", "flags", "finish", "length", "not-last", "garbage"],
)
def test_an_impossible_header_ends_the_connection(
    frame: bytes, cases: Path, tmp_path: Path
) -> None:
    async def behaviour(session: Session) -> None:
        async for request in session:
            if session.number == 0 and request.place == 20:
                session.writer.write(frame)
            else:
                session.reply(request)

    ended = run(behaviour, cases, tmp_path)
    assert set(ended.result["failures"]) == {"bad_header"}
    assert 1 <= ended.result["failures"]["bad_header"] <= 8, "only what was on that connection"
    counts = ended.result["connection_counts"]
    assert counts == {"opened": 3, "reopened": 1, "failures": {"bad_header": 1}}


def test_a_second_reply_ends_the_connection(cases: Path, tmp_path: Path) -> None:
    """Taken for the reply to the next request it would make all that follow wrong."""

    async def behaviour(session: Session) -> None:
        async for request in session:
            session.reply(request)
            if session.number == 0 and request.place == 10:
                session.reply(request)

    ended = run(behaviour, cases, tmp_path)
    assert set(ended.result["failures"]) <= {"wrong_id"}
    assert sum(ended.result["failures"].values()) <= 8, "only what was on that connection"
    assert ended.result["connection_counts"]["failures"] == {"wrong_id": 1}
    assert ended.status == 2
    assert "connections failed: wrong_id 1" in ended.errors


def test_a_reply_that_nobody_asked_for(cases: Path, tmp_path: Path) -> None:
    async def behaviour(session: Session) -> None:
        if session.number == 0:
            session.writer.write(pack_reply(77, b"hello"))
        await echo(session)

    with StandIn(behaviour) as server:
        ended = load(server.port, cases, tmp_path, "--rate", "20", "--requests", "4")
    assert ended.result["verified"] == 4
    assert ended.result["connection_counts"]["failures"] == {"wrong_id": 1}
    assert ended.status == 2


def test_an_expected_error_is_verified(tmp_path: Path) -> None:
    expected = Expected(b"", status=constants.STATUS_BAD_PAYLOAD)
    cases = write(tmp_path / "cases", [(b"nonsense", expected)])

    async def behaviour(session: Session) -> None:
        async for request in session:
            wrong = request.place == 5
            status = constants.STATUS_OK if wrong else constants.STATUS_BAD_PAYLOAD
            session.reply(request, b"", status=status)

    ended = run(behaviour, cases, tmp_path)
    assert ended.result["failures"] == {"error_status:ok": 2}
    right = ended.records[ended.records["status"] >> 8 == 0]
    assert (right["status"] == constants.STATUS_BAD_PAYLOAD).all()


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ([1.0, -100.0], True),
        ([1.0 + 0.9e-3, -100.0 - 0.9], True),
        ([1.0, -100.0 + 1.2], False),
        ([float("nan"), -100.0], False),
        ([float("inf"), -100.0], False),
    ],
)
def test_floats_have_a_tolerance(answer: list[float], right: bool, tmp_path: Path) -> None:
    expected = Expected(struct.pack("<2f", 1.0, -100.0), Compare.FLOAT32, rtol=0.01, atol=1e-4)
    cases = write(tmp_path / "cases", [(b"", expected)])

    async def behaviour(session: Session) -> None:
        async for request in session:
            session.reply(request, struct.pack("<2f", *answer))

    ended = run(behaviour, cases, tmp_path)
    assert ended.result["failures"] == ({} if right else {"wrong_payload": REQUESTS})


def test_replies_in_single_bytes(cases: Path, tmp_path: Path) -> None:
    async def behaviour(session: Session) -> None:
        async for request in session:
            for byte in pack_reply(request.id, request.payload):
                session.writer.write(bytes([byte]))
                if request.place % 50 == 0:
                    await asyncio.sleep(0)

    assert run(behaviour, cases, tmp_path).clean
