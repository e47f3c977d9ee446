"""Cancelled requests: by their client, and because their connection is gone."""

from __future__ import annotations

import time

import pytest

from gpu_scheduler import workloads
from shared_page import constants, wire

from .conftest import Start
from .driver import Transport, wait_until

LONG = wire.pack_generation([5], 1024)


def test_before_it_was_started(transport: Transport, start: Start) -> None:
    """The second of three waits for the first; it is dropped at once, the third is served."""
    start("echo:delay_us=1000000,in_flight=1,batch=1")
    executor = transport.page.struct.executor
    first, second, third = transport.connect_many(3)
    for connection in (first, second, third):
        connection.send(constants.KIND_ECHO, b"x")
    wait_until(lambda: executor.submit_head == 3, "the requests to be taken")
    second.cancel(0)
    answer = second.answer()
    assert answer.status == constants.STATUS_CANCELLED
    assert answer.payload == b""
    assert executor.dropped == 1
    assert first.frame() is None, "dropped without waiting for the one before it"
    assert first.answer().status == third.answer().status == constants.STATUS_OK
    assert (executor.launches, executor.batched) == (2, 2)
    assert transport.settled()


def test_before_the_executor_took_it(transport: Transport, start: Start) -> None:
    """More requests than one step takes: the cancelled one is found when its turn comes."""
    connections = transport.connect_many(300)
    for connection in connections:
        connection.send(constants.KIND_EMPTY)
    for number in (0, 70, 299):
        connections[number].cancel(0)
    start("empty")
    statuses = [connection.answer().status for connection in connections]
    cancelled = [n for n, status in enumerate(statuses) if status == constants.STATUS_CANCELLED]
    assert cancelled == [0, 70, 299]
    assert statuses.count(constants.STATUS_OK) == 297
    assert transport.page.struct.executor.dropped == 3


def test_after_it_was_launched_it_is_answered_in_full(transport: Transport, start: Start) -> None:
    start("echo:delay_us=200000")
    connection = transport.connect()
    connection.send(constants.KIND_ECHO, b"done")
    wait_until(lambda: transport.page.struct.executor.launches == 1, "the launch")
    connection.cancel(0)
    answer = connection.answer()
    assert (answer.status, answer.payload) == (constants.STATUS_OK, b"done")
    assert transport.page.struct.executor.dropped == 0


def test_a_running_stream(transport: Transport, start: Start) -> None:
    """It ends with what it has, though its step takes long; the other one goes on."""
    start("toylm:delay_us=300000")
    executor = transport.page.struct.executor
    cancelled, other = transport.connect_many(2)
    cancelled.send(constants.KIND_TOYLM, LONG)
    other.send(constants.KIND_TOYLM, wire.pack_generation([5], 3))
    wait_until(lambda: executor.tokens >= 2, "the first tokens")
    cancelled.cancel(0)
    began = time.monotonic()
    answer = cancelled.answer()
    assert time.monotonic() - began < 0.25, "it waited for the step"
    assert answer.status == constants.STATUS_CANCELLED
    assert answer.finish == constants.FINISH_ABORT
    assert 1 <= len(answer.tokens) <= 2
    assert workloads.reference("toylm", LONG).startswith(answer.payload)
    assert executor.dropped == 0
    assert len(other.answer().tokens) == 3
    assert transport.settled()


def test_a_waiting_stream(transport: Transport, start: Start) -> None:
    start("toylm:batch=1,delay_us=20000")
    running, waiting, last = transport.connect_many(3)
    running.send(constants.KIND_TOYLM, wire.pack_generation([5], 30))
    waiting.send(constants.KIND_TOYLM, LONG)
    last.send(constants.KIND_TOYLM, wire.pack_generation([5], 2))
    wait_until(lambda: transport.page.struct.executor.submit_head == 3, "them to be taken")
    waiting.cancel(0)
    answer = waiting.answer()
    assert answer.status == constants.STATUS_CANCELLED
    assert answer.finish == constants.FINISH_ABORT
    assert answer.tokens == []
    assert transport.page.struct.executor.dropped == 1
    assert len(running.answer().tokens) == 30
    assert len(last.answer().tokens) == 2


def test_all_running_streams_and_then_a_new_one(transport: Transport, start: Start) -> None:
    start("toylm:batch=4,delay_us=20000")
    connections = transport.connect_many(4)
    for connection in connections:
        connection.send(constants.KIND_TOYLM, LONG)
    wait_until(lambda: transport.page.struct.executor.tokens >= 4, "the first tokens")
    for connection in connections:
        connection.cancel(0)
    for connection in connections:
        assert connection.answer().status == constants.STATUS_CANCELLED
    payload = wire.pack_generation([9], 20)
    assert connections[0].ask(constants.KIND_TOYLM, payload).payload == workloads.reference(
        "toylm", payload
    )


def test_an_id_that_is_not_outstanding(transport: Transport, start: Start) -> None:
    start("echo")
    connection = transport.connect()
    connection.cancel(77)
    assert connection.ask(constants.KIND_ECHO, b"a").status == constants.STATUS_OK
    connection.cancel(0)
    assert connection.ask(constants.KIND_ECHO, b"b").status == constants.STATUS_OK
    assert transport.page.struct.executor.dropped == 0


def test_a_closed_connection_frees_its_slots(transport: Transport, start: Start) -> None:
    """Running, waiting and untaken requests alike; streams do not run on for nobody."""
    start("toylm:batch=2,delay_us=10000")
    connection = transport.connect()
    for _ in range(5):
        connection.send(constants.KIND_TOYLM, LONG)
    wait_until(lambda: transport.page.struct.executor.tokens >= 2, "the first tokens")
    connection.close()
    wait_until(transport.settled, "the slots to be free", patience_s=5)
    page = transport.page.struct
    assert page.egress.stale_results == 5
    assert page.executor.dropped == 3
    assert page.executor.tokens < 1000


def test_a_closed_connection_whose_request_is_in_flight(transport: Transport, start: Start) -> None:
    start("echo:delay_us=100000")
    connection = transport.connect()
    connection.send(constants.KIND_ECHO, b"x")
    wait_until(lambda: transport.page.struct.executor.launches == 1, "the launch")
    connection.close()
    wait_until(transport.settled, "the slot to be free")
    assert transport.page.struct.egress.stale_results == 1


@pytest.mark.parametrize("page", [1], indirect=True)
def test_a_stale_result_never_reaches_a_newer_connection(
    transport: Transport, start: Start
) -> None:
    """One connection entry, used again while the old one's results are still to come."""
    start("echo:delay_us=100000,in_flight=2,batch=1")
    old = transport.connect()
    for number in range(8):
        old.send(constants.KIND_ECHO, b"old %d" % number)
    wait_until(lambda: transport.page.struct.executor.launches >= 1, "a launch")
    old.close()
    new = transport.connect()
    assert new.index == old.index
    for number in range(8):
        new.send(constants.KIND_ECHO, b"new %d" % number)
    assert [new.answer().payload for _ in range(8)] == [b"new %d" % n for n in range(8)]
    wait_until(transport.settled, "the old slots to be free")
    assert transport.page.struct.egress.stale_results == 8
