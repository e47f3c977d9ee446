"""Parts of the policy's step, which a host may call by themselves: their outcome is a step's."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from shared_page import SharedPage, constants
from shared_page.reading import ffi

from .driver import Transport, built

PAYLOADS = (b"a", b"bc", b"defghijk")


@functools.cache
def library() -> Any:
    """The functions of single_steps.cpp."""
    ffi.cdef(
        """
        void single_begin(void);
        int single_step(struct shared_page *page);
        int single_collect(struct shared_page *page);
        int single_launch_next(struct shared_page *page);
        int single_answer_next(struct shared_page *page);
        uint32_t single_launches(void);
        uint32_t single_owned(void);
        """
    )
    return built("libsingle_steps.so")


@pytest.fixture
def policy() -> Any:
    """Those functions, and a scheduler that has seen nothing."""
    library().single_begin()
    return library()


def outcome(page: SharedPage) -> dict[str, int]:
    """What the page says of the executor."""
    executor = page.struct.executor
    names = ("submit_head", "completion_tail", "completed", "launches", "batched", "steps")
    return {name: int(getattr(executor, name)) for name in names}


def serve_one(policy: Any, page: SharedPage, way: str) -> None:
    if way == "step":
        assert policy.single_step(page.struct)
    elif way == "launch, collect":
        assert policy.single_launch_next(page.struct)
        assert policy.single_owned() == 1
        assert policy.single_collect(page.struct)
    else:
        assert policy.single_answer_next(page.struct)


@pytest.mark.parametrize("way", ["step", "launch, collect", "answer"])
def test_one_request_at_a_time(
    policy: Any, page: SharedPage, transport: Transport, way: str
) -> None:
    connection = transport.connect()
    for number, payload in enumerate(PAYLOADS, 1):
        connection.send(constants.KIND_ECHO, payload)
        serve_one(policy, page, way)
        answer = connection.answer()
        assert (answer.status, answer.payload) == (constants.STATUS_OK, payload)
        assert outcome(page) == dict.fromkeys(outcome(page), number)
        assert policy.single_owned() == 0
    assert not policy.single_step(page.struct)
    assert transport.settled()


def test_the_ways_mix(policy: Any, page: SharedPage, transport: Transport) -> None:
    """None leaves anything in the scheduler that a later call would stumble on."""
    connection = transport.connect()
    for number in range(600):  # more than there are slots
        payload = b"%d" % number
        connection.send(constants.KIND_ECHO, payload)
        serve_one(policy, page, ("step", "launch, collect", "answer")[number % 3])
        assert connection.answer().payload == payload
    assert transport.settled()


def test_only_the_next_is_launched(policy: Any, page: SharedPage, transport: Transport) -> None:
    connections = transport.connect_many(3)
    for connection, payload in zip(connections, PAYLOADS, strict=True):
        connection.send(constants.KIND_ECHO, payload)
    assert policy.single_launch_next(page.struct)
    assert page.struct.executor.submit_head == 1
    assert policy.single_launches() == 1
    assert connections[0].frame() is None, "it was launched, and not collected"
    assert policy.single_step(page.struct)
    assert outcome(page)["submit_head"] == 3
    assert (outcome(page)["launches"], outcome(page)["batched"]) == (2, 3)
    while policy.single_step(page.struct):
        pass
    assert [connection.answer().payload for connection in connections] == list(PAYLOADS)
    assert transport.settled()


@pytest.mark.parametrize(
    ("kind", "payload", "status"),
    [
        (constants.KIND_ECHO, b"", constants.STATUS_BAD_PAYLOAD),
        (constants.KIND_ECHO, b"123456789", constants.STATUS_BAD_PAYLOAD),
        (constants.KIND_GEMM, b"1", constants.STATUS_UNKNOWN_KIND),
    ],
)
def test_what_is_refused_is_not_launched(
    policy: Any, page: SharedPage, transport: Transport, kind: int, payload: bytes, status: int
) -> None:
    connection = transport.connect()
    connection.send(kind, payload)
    assert policy.single_launch_next(page.struct)
    assert connection.answer().status == status
    assert policy.single_launches() == 0
    assert policy.single_owned() == 0


def test_cancels_are_a_step_s(policy: Any, page: SharedPage, transport: Transport) -> None:
    first, second = transport.connect_many(2)
    first.send(constants.KIND_ECHO, b"x")
    assert policy.single_launch_next(page.struct)
    second.send(constants.KIND_ECHO, b"y")
    second.cancel(0)
    assert policy.single_step(page.struct)
    assert first.answer().payload == b"x"
    assert second.answer().status == constants.STATUS_CANCELLED
    assert policy.single_launches() == 1


def test_without_a_request(policy: Any, page: SharedPage) -> None:
    assert not policy.single_launch_next(page.struct)
    assert not policy.single_collect(page.struct)
    assert not policy.single_answer_next(page.struct)
    assert outcome(page) == dict.fromkeys(outcome(page), 0)
