"""Streams of tokens: which, how many, and why they end."""

from __future__ import annotations

import pytest

from gpu_scheduler import workloads
from gpu_scheduler.workloads.toylm.reference import generate
from shared_page import constants, wire

from .conftest import Start
from .driver import Answer, Transport, wait_until

SPEC = "toylm:vocab=50"
PROMPT = (3, 1, 4)


def tokens_without_stop(count: int) -> list[int]:
    tokens, _ = generate(wire.pack_generation(PROMPT, count), 50)
    return tokens


def stream(transport: Transport, max_tokens: int, **sampling: float) -> Answer:
    payload = wire.pack_generation(PROMPT, max_tokens, **sampling)
    answer = transport.connect().ask(constants.KIND_TOYLM, payload)
    assert answer.status == constants.STATUS_OK
    assert answer.payload == workloads.reference(SPEC, payload)
    return answer


@pytest.mark.parametrize("max_tokens", [1, 2, 12, 13, 24, 25, 1023, 1024])
def test_the_token_limit(transport: Transport, start: Start, max_tokens: int) -> None:
    start(SPEC)
    answer = stream(transport, max_tokens)
    assert answer.finish == constants.FINISH_LENGTH
    assert answer.tokens == tokens_without_stop(max_tokens)
    assert transport.page.struct.executor.tokens == max_tokens


def test_the_stop_token_is_delivered_and_ends_the_stream(
    transport: Transport, start: Start
) -> None:
    start(SPEC)
    stop = tokens_without_stop(10)[-1]
    answer = stream(transport, 500, stop_token=stop)
    assert answer.finish == constants.FINISH_STOP
    assert answer.tokens[-1] == stop
    assert stop not in answer.tokens[:-1]


def test_a_stop_token_as_the_first_and_as_the_last(transport: Transport, start: Start) -> None:
    start(SPEC)
    first, *_, last = tokens_without_stop(6)
    assert stream(transport, 6, stop_token=first).tokens == [first]
    # At the limit both reasons hold: the stop token wins, as in vLLM.
    assert stream(transport, 6, stop_token=last, min_tokens=6).finish == constants.FINISH_STOP


@pytest.mark.parametrize("min_tokens", [1, 2, 5, 30])
def test_min_tokens_puts_the_stop_off(transport: Transport, start: Start, min_tokens: int) -> None:
    start(SPEC)
    free = tokens_without_stop(400)
    stop = free[0]
    expected = next(n for n in range(min_tokens, 400) if free[n - 1] == stop)
    answer = stream(transport, 400, stop_token=stop, min_tokens=min_tokens)
    assert answer.finish == constants.FINISH_STOP
    assert answer.tokens == free[:expected]


def test_a_stop_token_outside_the_vocabulary(transport: Transport, start: Start) -> None:
    start(SPEC)
    assert stream(transport, 100, stop_token=50).finish == constants.FINISH_LENGTH


def test_tokens_arrive_before_the_stream_ends(transport: Transport, start: Start) -> None:
    """A frame a step, each with the token of its step, when nobody is late."""
    start("toylm:delay_us=50000")
    connection = transport.connect()
    connection.send(constants.KIND_TOYLM, wire.pack_generation(PROMPT, 5))
    frames = connection.frames()
    assert len(frames) >= 3
    assert all(len(frame.tokens) >= 1 for frame in frames[:-1])


def test_streams_with_different_ends_do_not_mix(transport: Transport, start: Start) -> None:
    """300 streams through 40 places; each one's tokens are those it would get alone."""
    start("toylm:vocab=50,batch=40")
    payloads = workloads.payloads(SPEC, 300, seed=8)
    connections = transport.connect_many(len(payloads))
    for connection, payload in zip(connections, payloads, strict=True):
        connection.send(constants.KIND_TOYLM, payload)
    for connection, payload in zip(connections, payloads, strict=True):
        answer = connection.answer()
        expected = workloads.expect(SPEC, payload)
        assert answer.payload == expected.result
        assert answer.finish == expected.finish
    assert transport.settled()


def test_notices_of_progress_leave_room_for_the_final_ones(
    transport: Transport, start: Start
) -> None:
    """1024 streams of 40 tokens run to their ends though nobody takes a notice."""
    start("toylm:vocab=50,batch=1024")
    connections = transport.connect_many(1024)
    for number, connection in enumerate(connections):
        connection.send(constants.KIND_TOYLM, wire.pack_generation([number], 40))
    page = transport.page.struct
    wait_until(lambda: page.executor.completed == 1024, "the streams")
    notices = page.executor.completion_tail
    assert 1024 + constants.SLOT_COUNT // 2 < notices <= constants.COMPLETION_DEPTH
    assert page.egress.completion_head == 0
    assert len(transport.notices()) == notices
    for number, connection in enumerate(connections):
        tokens, _ = generate(wire.pack_generation([number], 40), 50)
        assert connection.answer().tokens == tokens
    assert transport.settled()
