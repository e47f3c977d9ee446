"""The rings when they are full, and when they have gone round."""

from __future__ import annotations

import pytest

from shared_page import constants

from .conftest import Start
from .driver import Connection, Transport, wait_until

SLOTS = 1024


def fill(transport: Transport, kind: int) -> list[Connection]:
    """A request from each of 1024 connections; the payload is its number."""
    connections = transport.connect_many(SLOTS)
    for number, connection in enumerate(connections):
        connection.send(kind, number.to_bytes(4, "little"))
    assert transport.slots_free() == 0
    return connections


def check_filled(connections: list[Connection]) -> None:
    for number, connection in enumerate(connections):
        answer = connection.answer()
        assert answer.status == constants.STATUS_OK
        assert answer.payload == number.to_bytes(4, "little")


def test_all_slots_at_once(transport: Transport, start: Start) -> None:
    connections = fill(transport, constants.KIND_ECHO)
    late = transport.connect()
    late.send(constants.KIND_ECHO, b"late")
    assert late.answer().status == constants.STATUS_BUSY
    start("echo")
    check_filled(connections)
    assert transport.settled()
    assert late.ask(constants.KIND_ECHO, b"again").payload == b"again"


@pytest.mark.parametrize("spec", ["echo:delay_us=100000", "echo:delay_us=100,batch=1,in_flight=1"])
def test_all_slots_in_the_executor(transport: Transport, start: Start, spec: str) -> None:
    start(spec)
    connections = fill(transport, constants.KIND_ECHO)
    wait_until(lambda: transport.page.struct.executor.submit_head == SLOTS, "all to be taken")
    check_filled(connections)
    assert transport.settled()


def test_tickets_go_on_when_the_rings_have_gone_round(transport: Transport, start: Start) -> None:
    start("echo;empty")
    connections = fill(transport, constants.KIND_ECHO)
    check_filled(connections)
    rounds = 6
    for number in range(rounds * SLOTS):
        answer = connections[number % SLOTS].ask(constants.KIND_ECHO, number.to_bytes(4, "little"))
        assert answer.payload == number.to_bytes(4, "little")
    page = transport.page.struct
    assert page.ingress.submit_tail == (rounds + 1) * SLOTS
    assert page.executor.submit_head == page.executor.completed == page.egress.finals
    assert page.executor.completion_tail > 3 * constants.COMPLETION_DEPTH


def test_results_that_nobody_takes_do_not_stop_the_executor(
    transport: Transport, start: Start
) -> None:
    start("echo")
    connections = fill(transport, constants.KIND_ECHO)
    wait_until(lambda: transport.page.struct.executor.completed == SLOTS, "the results")
    assert transport.page.struct.executor.completion_tail == SLOTS
    check_filled(connections)


def test_counters_add_up(transport: Transport, start: Start) -> None:
    start("echo:batch=8")
    check_filled(fill(transport, constants.KIND_ECHO))
    executor = transport.page.struct.executor
    assert executor.completed == executor.batched == SLOTS
    assert SLOTS / 8 <= executor.launches <= SLOTS
    assert executor.steps > 0
    steps = executor.steps
    heartbeat = executor.heartbeat
    wait_until(lambda: executor.heartbeat > heartbeat + 10, "the heart to beat")
    assert executor.steps == steps, "idle polls are no steps"
