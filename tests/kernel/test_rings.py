# SPDX-License-Identifier: MIT
"""Rings that are far too small: nothing is lost, and the loop sleeps when all is done."""

from __future__ import annotations

import time

import pytest

from tests.kernel.conftest import Start
from tests.support.frames import echo, ok, pattern
from tests.support.trace import traced

CROWD = 100
SQES, CQES = 8, 16


def with_rings(sqes: int, cqes: int) -> tuple[str, ...]:
    """`serve` as it is, but for the sizes of its ring."""
    sizes = f"kernel_path.SQ_ENTRIES, kernel_path.CQ_ENTRIES = {sqes}, {cqes}"
    return ("-c", f"from loader import cli, kernel_path; {sizes}; cli.main()")


@pytest.mark.timeout(120)
def test_more_at_once_than_the_rings_hold(start: Start) -> None:
    """Each accept is a completion, and the loop answers it with a submission: the SQ ring is full
    many times over within a step, and completions overflow."""
    service = start(program=with_rings(SQES, CQES))
    with traced("io_uring/io_uring_cqe_overflow") as overflows:
        for turn in range(2):
            with service.paused():
                clients = [service.connect() for _ in range(CROWD)]
                for client in clients:
                    client.send(echo(turn, pattern(900)), echo(turn + 1))
            for client in clients:
                client.expect(ok(turn, pattern(900)), ok(turn + 1))
            for client in clients[::2]:
                client.half_close()
                client.expect_end()
            for client in clients:
                client.close()
            assert service.reaches("depth.connections", 0)
        assert overflows.count(), "nothing overflowed, so this tests nothing"
    time.sleep(0.5)
    before = service.counter("egress.steps")
    time.sleep(0.5)
    assert service.counter("egress.steps") == before, "the loop does not sleep"
