# SPDX-License-Identifier: MIT
"""Two servers that answer with the same bits have the same digest; one bit makes it differ."""

from __future__ import annotations

import asyncio
import random
import struct
from pathlib import Path

from tests.load.generator import Compare, Expected, load, write
from tests.load.stand_in import Behaviour, Session, StandIn

ONE = struct.pack("<2f", 1.0, 2.0)
NEAR = struct.pack("<2f", 1.0, 2.0000002)


def digest(behaviour: Behaviour, folder: Path, *options: str) -> str:
    expected = Expected(ONE, Compare.FLOAT32, rtol=1e-5)
    cases = write(folder / "cases", [(bytes([number]), expected) for number in range(4)])
    with StandIn(behaviour) as server:
        ended = load(server.port, cases, folder, *(options or ("--closed",)), "--requests", "60")
    assert ended.clean
    found = ended.result["digest"]
    assert isinstance(found, str)
    return found


async def at_once(session: Session) -> None:
    async for request in session:
        session.reply(request, ONE)


async def after_a_while(session: Session) -> None:
    async for request in session:
        await asyncio.sleep(random.Random(request.ordinal).random() / 500)
        session.reply(request, ONE)


async def once_another_bit(session: Session) -> None:
    async for request in session:
        session.reply(request, NEAR if request.place == 30 else ONE)


def test_order_and_time_do_not_matter(tmp_path: Path) -> None:
    right = digest(at_once, tmp_path)
    assert right == digest(after_a_while, tmp_path)
    assert right == digest(at_once, tmp_path, "--closed", "--connections", "3", "--depth", "2")
    assert right == digest(at_once, tmp_path, "--rate", "2000", "--connections", "4")
    assert right != "0" * 16


def test_one_bit_within_the_tolerance_matters(tmp_path: Path) -> None:
    assert NEAR != ONE
    assert digest(once_another_bit, tmp_path) != digest(at_once, tmp_path)
