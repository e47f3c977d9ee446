"""What is refused, with which status; the connection goes on in any case."""

from __future__ import annotations

import struct

import pytest

from gpu_scheduler import workloads
from shared_page import constants, wire

from .conftest import Start
from .driver import Transport

PROMPT = [1, 2, 3]


def generation(**changed: float) -> bytes:
    """Three prompt tokens, with some fields of struct generation_request set to something else."""
    fields = {"max_tokens": 4} | changed
    return wire.pack_generation(PROMPT, int(fields.pop("max_tokens")), **fields)


@pytest.mark.parametrize("kind", ["LLM", "FFT", "ECHO", "COUNT"])
def test_a_kind_that_nobody_serves(transport: Transport, start: Start, kind: str) -> None:
    start("gemm;empty")
    connection = transport.connect()
    answer = connection.ask(getattr(constants, f"KIND_{kind}"), b"1234")
    assert answer.status == constants.STATUS_UNKNOWN_KIND
    assert answer.payload == b""
    assert answer.finish == constants.FINISH_NONE
    assert connection.ask(constants.KIND_EMPTY).status == constants.STATUS_OK


@pytest.mark.parametrize("kind", [7, 15, 17, 255, 65535])
def test_a_kind_without_a_name(transport: Transport, start: Start, kind: int) -> None:
    start("empty")
    assert transport.connect().ask(kind).status == constants.STATUS_UNKNOWN_KIND


@pytest.mark.parametrize("spec", ["gemm", "fft"])
@pytest.mark.parametrize("length", [0, 1, 252, 255, 257, 260, 512, 4096])
def test_a_payload_of_another_size(
    transport: Transport, start: Start, spec: str, length: int
) -> None:
    start(spec)
    kind = workloads.parse_spec(spec).kind
    connection = transport.connect()
    answer = connection.ask(kind, bytes(length))
    assert answer.status == constants.STATUS_BAD_PAYLOAD
    assert answer.payload == b""
    assert connection.ask(kind, bytes(256)).status == constants.STATUS_OK


@pytest.mark.parametrize("length", [0, 1, 4096])
@pytest.mark.parametrize("kind", ["EMPTY", "ECHO"])
def test_kinds_that_take_any_size(
    transport: Transport, start: Start, kind: str, length: int
) -> None:
    start("empty;echo")
    answer = transport.connect().ask(getattr(constants, f"KIND_{kind}"), bytes(length))
    assert answer.status == constants.STATUS_OK
    assert len(answer.payload) == (length if kind == "ECHO" else 0)


BAD_GENERATIONS = {
    "empty": b"",
    "header only": generation()[:40],
    "short header": generation()[:39],
    "prompt cut": generation()[:-4],
    "prompt cut within a token": generation()[:-1],
    "prompt too long": generation() + bytes(4),
    "bytes behind the prompt": generation() + bytes(1),
    "no prompt": struct.pack("<I", 0) + generation()[4:40],
    "count that wraps": struct.pack("<I", 2**30 + 3) + generation()[4:],
    "max_tokens 0": generation(max_tokens=0),
    "max_tokens 1025": generation(max_tokens=1025),
    "min_tokens over max_tokens": generation(min_tokens=5),
    "temperature below 0": generation(temperature=-0.5),
    "temperature not a number": generation(temperature=float("nan")),
    "top_p below 0": generation(top_p=-0.1),
    "top_p over 1": generation(top_p=1.5),
    "top_p not a number": generation(top_p=float("nan")),
}


@pytest.mark.parametrize("name", BAD_GENERATIONS)
def test_a_bad_generation_request(transport: Transport, start: Start, name: str) -> None:
    start("toylm")
    connection = transport.connect()
    answer = connection.ask(constants.KIND_TOYLM, BAD_GENERATIONS[name])
    assert answer.status == constants.STATUS_BAD_PAYLOAD
    assert answer.payload == b""
    assert answer.finish == constants.FINISH_NONE
    assert connection.ask(constants.KIND_TOYLM, generation()).finish == constants.FINISH_LENGTH


def test_the_longest_prompt(transport: Transport, start: Start) -> None:
    start("toylm")
    payload = wire.pack_generation(list(range(1014)), 3)
    assert len(payload) == constants.REQUEST_MAX
    answer = transport.connect().ask(constants.KIND_TOYLM, payload)
    assert answer.payload == workloads.reference("toylm", payload)


def test_refused_requests_are_answered_but_not_launched(transport: Transport, start: Start) -> None:
    start("gemm")
    connection = transport.connect()
    for kind in (constants.KIND_FFT, constants.KIND_GEMM):
        connection.ask(kind, b"")
    executor = transport.page.struct.executor
    assert (executor.completed, executor.launches, executor.dropped) == (2, 0, 0)
    assert transport.settled()
