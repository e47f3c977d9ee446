"""A service with two slots: as many requests at a time, and no more, again and again."""

from __future__ import annotations

import pytest

from shared_page import constants
from tests.support.frames import echo, error, ok, pattern
from tests.support.service import Options, Service

SLOTS = 2
ROUNDS = 5  # the ring of free slots, which has more places than slots, goes round

pytestmark = pytest.mark.service(more=(*Options("").more, "--slots", str(SLOTS)))


def test_no_more_than_so_many_are_held(service: Service) -> None:
    holders = [service.connect() for _ in range(SLOTS)]
    late = service.connect()
    for turn in range(ROUNDS):
        with service.stalled():
            for client in holders:
                client.send(echo(turn, pattern(100)))
            assert service.reaches("depth.slots", SLOTS)
            late.send(echo(turn))
            late.expect(error(turn, constants.STATUS_BUSY))
        for client in holders:
            client.expect(ok(turn, pattern(100)))
        assert service.reaches("depth.slots", 0)  # a reply may come before its slot is given back
        late.send(echo(turn + 1000))
        late.expect(ok(turn + 1000))
    assert service.reaches("depth.slots", 0)


def test_every_slot_is_used_again(service: Service) -> None:
    """More requests, one after the other, than the ring has places."""
    client = service.connect()
    for number in range(constants.SLOT_COUNT + 10):
        client.send(echo(number))
        client.expect(ok(number))
        assert service.reaches("depth.slots", 0)
