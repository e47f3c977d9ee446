"""A killed executor: its successor answers what was lost, and nothing is announced twice."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from gpu_scheduler import workloads
from shared_page import constants, wire
from shared_page.wire import Reply

from .conftest import Start
from .driver import Answer, Connection, Transport, wait_until
from .executors import Program
from .test_results import check

FINAL = constants.COMPLETION_FINAL
SHIFT = constants.TICKET_SHIFT


def test_what_it_took_is_answered_what_it_did_not_take_is_served(
    transport: Transport, start: Start
) -> None:
    executor = start("echo:delay_us=10000000;toylm:batch=1,delay_us=5000")
    launched, running, waiting, untaken = transport.connect_many(4)
    launched.send(constants.KIND_ECHO, b"x")
    payload = wire.pack_generation([1], 1000)
    running.send(constants.KIND_TOYLM, payload)
    waiting.send(constants.KIND_TOYLM, payload)
    page = transport.page.struct
    wait_until(lambda: page.executor.submit_head == 3 and page.executor.tokens >= 3, "tokens")
    executor.kill()
    untaken.send(constants.KIND_ECHO, b"served")
    tokens = page.executor.tokens
    successor = start("echo;toylm")
    assert launched.answer().status == constants.STATUS_INTERNAL
    assert waiting.answer().status == constants.STATUS_INTERNAL
    lost = running.answer()
    assert (lost.status, lost.finish) == (constants.STATUS_INTERNAL, constants.FINISH_ABORT)
    assert len(lost.tokens) == tokens
    assert workloads.reference("toylm", payload).startswith(lost.payload)
    assert untaken.answer().payload == b"served"
    assert transport.settled()
    assert page.executor.completed == page.executor.submit_head == 4
    assert successor.terminate() == 0
    assert successor.errors().endswith(": answered 3 lost requests of a predecessor\n")


def test_lost_requests_of_closed_connections(transport: Transport, start: Start) -> None:
    executor = start("echo:delay_us=10000000")
    connection = transport.connect()
    connection.send(constants.KIND_ECHO, b"x")
    wait_until(lambda: transport.page.struct.executor.launches == 1, "the launch")
    connection.close()
    executor.kill()
    start("echo")
    wait_until(transport.settled, "the slot to be free")
    assert transport.page.struct.egress.stale_results == 1


def submitted(transport: Transport) -> tuple[Connection, Any, int]:
    """A request as an executor has it that has answered two before; also its slot's index."""
    connection = transport.connect()
    for number in range(3):
        connection.send(constants.KIND_ECHO, b"request %d" % number)
    page = transport.page.struct
    for position in range(2):
        index = page.submit[position] & constants.SLOT_MASK
        page.slot[index].executor.done = position + 1
        page.completion[position] = position + 1 << SHIFT | FINAL | index
    page.executor.completion_tail = page.executor.completed = 2
    page.executor.submit_head = 2
    assert connection.answer().status == connection.answer().status == constants.STATUS_OK
    return connection, page, page.submit[2] & constants.SLOT_MASK


def recovered(transport: Transport, connection: Connection, start: Start) -> Answer:
    """The third request's answer, after a start and one more request."""
    start("echo")
    answer = connection.answer()
    assert connection.ask(constants.KIND_ECHO, b"next").payload == b"next"
    page = transport.page.struct
    assert transport.settled()
    assert page.executor.completed == page.egress.finals == 4
    assert page.executor.completion_tail == page.egress.completion_head == 4
    return answer


def stands(page: Any, index: int) -> None:
    """The result is declared."""
    page.slot[index].result[0:4] = list(b"mine")
    page.slot[index].executor.length = 4
    page.slot[index].executor.done = 3


def test_killed_before_it_took_the_request(transport: Transport, start: Start) -> None:
    connection, _, _ = submitted(transport)
    assert recovered(transport, connection, start).payload == b"request 2"


def test_killed_when_it_had_taken_the_request(transport: Transport, start: Start) -> None:
    connection, page, _ = submitted(transport)
    page.executor.submit_head = 3
    assert recovered(transport, connection, start).status == constants.STATUS_INTERNAL


def test_killed_when_it_was_about_to_declare_the_result(transport: Transport, start: Start) -> None:
    connection, page, index = submitted(transport)
    page.executor.submit_head = 3
    page.completion[2] = FINAL | index
    assert recovered(transport, connection, start).status == constants.STATUS_INTERNAL


@pytest.mark.parametrize("counted", [0, 1])
def test_killed_between_the_result_and_its_notice(
    transport: Transport, start: Start, counted: int
) -> None:
    connection, page, index = submitted(transport)
    page.executor.submit_head = 3
    page.completion[2] = FINAL | index
    stands(page, index)
    page.executor.completed += counted
    answer = recovered(transport, connection, start)
    assert (answer.status, answer.payload) == (constants.STATUS_OK, b"mine")


@pytest.mark.parametrize("seen", [False, True])
def test_killed_between_the_notice_and_its_count(
    transport: Transport, start: Start, seen: bool
) -> None:
    """Whether or not egress has taken the notice by then."""
    connection, page, index = submitted(transport)
    page.executor.submit_head = 3
    page.completion[2] = 3 << SHIFT | FINAL | index
    stands(page, index)
    page.executor.completed += 1
    if seen:
        assert transport.notices() == [connection.index]
    answer = recovered(transport, connection, start)
    assert (answer.status, answer.payload) == (constants.STATUS_OK, b"mine")


def test_killed_between_a_notice_of_progress_and_its_count(
    transport: Transport, start: Start
) -> None:
    connection = transport.connect()
    connection.send(constants.KIND_TOYLM, wire.pack_generation([1], 9))
    page = transport.page.struct
    index = page.submit[0] & constants.SLOT_MASK
    page.executor.submit_head = 1
    page.slot[index].executor.tokens_ticket = page.slot[index].executor.tokens = 1
    page.completion[0] = 1 << SHIFT | index
    start("toylm")
    answer = connection.answer()
    assert (answer.status, answer.tokens) == (constants.STATUS_INTERNAL, [0])
    assert transport.settled()
    assert page.executor.completion_tail == 2


class Owed:
    """What a connection has asked for, oldest first, and what came of it."""

    def __init__(self, connection: Connection, numbers: random.Random) -> None:
        self.connection = connection
        self.numbers = numbers
        self.requests: list[tuple[str, bytes]] = []
        self.frames: list[Reply] = []
        self.served = self.lost = 0

    def ask(self) -> None:
        name, payload = self.numbers.choice(REQUESTS)
        self.connection.send(workloads.parse_spec(name).kind, payload)
        self.requests.append((name, payload))

    def looked_last(self) -> bool:
        """Looks; whether nothing is owed any more."""
        self.connection.transport.notices()
        self.look()
        return not self.requests

    def look(self) -> None:
        """Takes a frame if there is one; a whole answer is right or says that it is lost."""
        frame = self.connection.frame()
        if frame:
            self.frames.append(frame)
        if not frame or not frame.last:
            return
        answer, self.frames = Answer(self.frames), []
        expected = workloads.expect(*self.requests.pop(0))
        if answer.status == constants.STATUS_INTERNAL:
            assert expected.result.startswith(answer.payload)
            self.lost += 1
        else:
            check(answer, expected)
            self.served += 1


REQUESTS = [
    (name, payload)
    for name in ("echo", "empty", "gemm", "toylm")
    for payload in workloads.payloads(name, 8, seed=10)
]


def test_killed_at_random_under_load(transport: Transport, program: Program, start: Start) -> None:
    """Twenty-five times: each request has one answer, right or INTERNAL, and all slots are free."""
    numbers = random.Random(9)
    specs = "echo:delay_us=300,in_flight=4;empty;gemm;toylm:batch=8"
    all_owed = [Owed(connection, numbers) for connection in transport.connect_many(40)]
    for _ in range(25):
        executor = start(specs)
        end = time.monotonic() + numbers.uniform(0.005, 0.06)
        while time.monotonic() < end:
            transport.notices()
            for owed in all_owed:
                owed.look()
                if len(owed.requests) < 20:
                    owed.ask()
        executor.kill()
    start(specs)
    for owed in all_owed:
        wait_until(owed.looked_last, "the answers of what is left")
    assert transport.settled()
    served, lost = sum(owed.served for owed in all_owed), sum(owed.lost for owed in all_owed)
    assert served + lost == transport.page.struct.executor.completed
    assert served + lost == transport.page.struct.ingress.submit_tail
    assert served > 100
    # A killed process's kernel runs on until the driver has ended it, and may finish everything.
    assert lost > 0 or "gpu_scheduler.cuda" in program.command
