"""Which request is done when: in the order of submission, and no workload waits for another."""

from __future__ import annotations

import time

import pytest

from gpu_scheduler import workloads
from shared_page import constants, wire

from .conftest import Start
from .driver import Transport, wait_until

MANY = 200


@pytest.mark.parametrize("options", ["", "batch=1", "in_flight=1", "batch=3,in_flight=2"])
@pytest.mark.parametrize("delay_us", [0, 2000])
def test_results_in_submission_order(
    transport: Transport, start: Start, options: str, delay_us: int
) -> None:
    start(f"echo:delay_us={delay_us},{options}")
    connections = transport.connect_many(MANY)
    for number, connection in enumerate(connections):
        connection.send(constants.KIND_ECHO, str(number).encode())
    notices = transport.notices_until(MANY)
    assert notices == [connection.index for connection in connections]
    for number, connection in enumerate(connections):
        assert connection.answer().payload == str(number).encode()
    assert transport.settled()


@pytest.mark.parametrize(("options", "most"), [("batch=1", 1), ("batch=16", 16), ("", 16)])
def test_what_waits_is_launched_together(
    transport: Transport, start: Start, options: str, most: int
) -> None:
    """Everything waits while the first launch is in flight."""
    start(f"echo:delay_us=100000,in_flight=1,{options}")
    executor = transport.page.struct.executor
    connections = transport.connect_many(33)
    connections[0].send(constants.KIND_ECHO)
    wait_until(lambda: executor.launches == 1, "the first launch")
    for connection in connections[1:]:
        connection.send(constants.KIND_ECHO)
    transport.notices_until(33)
    assert executor.launches == 1 + 32 // most
    assert executor.batched == 33
    assert executor.completed == 33
    assert executor.steps < 200, "polls while nothing is due are no steps"


def test_results_fall_due_without_waiting_for_each_other(
    transport: Transport, start: Start
) -> None:
    """Thirty at a time, each after 0.2 s, take much less than thirty times 0.2 s."""
    start("echo:delay_us=200000")
    connection = transport.connect()
    began = time.monotonic()
    for number in range(30):
        connection.send(constants.KIND_ECHO, bytes([number]))
        time.sleep(0.001)
    answers = [connection.answer().payload for _ in range(30)]
    took = time.monotonic() - began
    assert answers == [bytes([number]) for number in range(30)]
    assert 0.2 <= took < 3


def test_a_slow_workload_does_not_delay_another(transport: Transport, start: Start) -> None:
    start("gemm;echo:delay_us=1000000;toylm:delay_us=1000000")
    slow, stream, fast = transport.connect_many(3)
    slow.send(constants.KIND_ECHO, b"slow")
    stream.send(constants.KIND_TOYLM, wire.pack_generation([1], 1))
    for payload in workloads.payloads("gemm", 5, seed=6):
        assert fast.ask(constants.KIND_GEMM, payload).status == constants.STATUS_OK
    assert slow.frame() is None
    assert stream.frame() is None
    assert slow.answer().payload == b"slow"
    assert stream.answer().finish == constants.FINISH_LENGTH


def test_streams_beyond_the_batch_wait_in_order(transport: Transport, start: Start) -> None:
    """One runs at a time: the streams end one after another, though later ones are shorter."""
    start("toylm:batch=1")
    connections = transport.connect_many(5)
    for length, connection in zip((40, 30, 20, 10, 1), connections, strict=True):
        connection.send(constants.KIND_TOYLM, wire.pack_generation([7], length))
    wait_until(lambda: transport.page.struct.executor.completed == 5, "the streams")
    seen = transport.notices()
    lasts = [max(i for i, index in enumerate(seen) if index == c.index) for c in connections]
    assert lasts == sorted(lasts)
    assert transport.page.struct.executor.launches == 40 + 30 + 20 + 10 + 1


def test_running_streams_share_their_steps(transport: Transport, start: Start) -> None:
    start("toylm:delay_us=50000")
    connections = transport.connect_many(20)
    for connection in connections:
        connection.send(constants.KIND_TOYLM, wire.pack_generation([7], 4))
    for connection in connections:
        assert len(connection.answer().tokens) == 4
    executor = transport.page.struct.executor
    assert 4 <= executor.launches <= 6  # some may have missed the first step
    assert executor.batched == 80
    assert executor.tokens == 80
