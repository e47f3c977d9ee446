# SPDX-License-Identifier: MIT
"""`load --openai`: the same schedule, checks and results against an OpenAI API that streams."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from shared_page import constants, wire
from tests.load import stand_in
from tests.load.generator import Compare, Expected, Run, load, refuse, write
from tests.support.vllm_stand_in import SLOW_S, StandIn, tokens_of

TOKENS = 12
CLOSED = ("--closed", "--connections", "2", "--requests", "40", "--depth", "1", "--timeout", "2")


def case(
    number: int, compare: Compare = Compare.TOKENS, **sampling: float
) -> tuple[bytes, Expected]:
    """A prompt of its own, and the tokens that the stand-in has for it."""
    prompt = [number, 7, 11]
    asked = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, **sampling}
    tokens = tokens_of(asked)
    if compare is Compare.TOKEN_COUNT:
        tokens = [0] * TOKENS
    result = struct.pack(f"<{TOKENS}I", *tokens)
    payload = wire.pack_generation(prompt, TOKENS, **sampling)
    return payload, Expected(result, compare, finish=constants.FINISH_LENGTH)


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    return write(tmp_path / "cases", [case(n) for n in range(8)], kind=constants.KIND_LLM)


def run(server: StandIn, cases: Path, *options: str) -> Run:
    return load(server.port, cases, cases.parent, "--openai", server.model, *(options or CLOSED))


@pytest.mark.parametrize("mode", ["", "together", "torn", "slow", "closing"])
def test_right_streams(mode: str, cases: Path) -> None:
    with StandIn(mode=mode) as server:
        ended = run(server, cases)
    assert ended.clean
    assert ended.result["verified"] == ended.result["streams"]["count"] == 40
    assert ended.result["streams"]["tokens"] == 40 * TOKENS
    gaps = 2 if mode == "together" else TOKENS - 1
    assert ended.result["streams"]["inter_token_us"]["count"] == 40 * gaps
    first = ended.result["streams"]["first_token_us"]["p50"]
    assert (first > SLOW_S * 1e6) == (mode == "slow")
    assert (ended.result["connection_counts"]["opened"] >= 40) == (mode == "closing")


def test_what_is_asked(tmp_path: Path) -> None:
    sampled = case(2, Compare.TOKEN_COUNT, temperature=0.5, seed=9)
    cases = write(tmp_path / "cases", [sampled], kind=constants.KIND_LLM)
    with StandIn(model="a/b") as server:
        assert run(server, cases).clean
    fields = {"model": "a/b", "prompt": [2, 7, 11], "max_tokens": TOKENS, "temperature": 0.5}
    fields |= {"seed": 9, "top_p": 1, "top_k": 0, "ignore_eos": True}
    assert server.asked[0] == {**fields, "stream": True, "return_token_ids": True}


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("wrong", "wrong_payload"),
        ("short", "wrong_length"),
        ("failing", "error_status:internal"),
        ("busy", "busy"),
        ("erring", "error_status:internal"),
        ("truncated", "closed_early"),
        ("garbled", "bad_header"),
        ("endless", "bad_finish"),
    ],
)
def test_broken_streams(mode: str, name: str, cases: Path) -> None:
    with StandIn(mode=mode) as server:
        ended = run(server, cases)
    assert ended.result["failures"] == {name: 10}
    assert ended.result["verified"] == 30


def test_a_count_is_not_compared_by_token(tmp_path: Path) -> None:
    counted = [case(n, Compare.TOKEN_COUNT) for n in range(4)]
    cases = write(tmp_path / "cases", counted, kind=constants.KIND_LLM)
    with StandIn(mode="wrong") as server:
        assert run(server, cases).clean
    with StandIn(mode="short") as server:
        assert run(server, cases).result["failures"] == {"wrong_length": 10}


def test_the_schedule_is_that_of_the_projects_own_protocol(cases: Path) -> None:
    shape = ("--rate", "200", "--connections", "8", "--depth", "1", "--requests", "60")
    with StandIn() as server:
        ended = run(server, cases, *shape, "--seed", "5")
    with stand_in.StandIn(stand_in.echo) as server:
        ours = load(server.port, cases, cases.parent, *shape, "--seed", "5", "--timeout", "0.2")
    assert ended.clean
    assert not ours.result["verified"]
    offsets = [one.records["intended_ns"] - one.records["intended_ns"][0] for one in (ended, ours)]
    assert (offsets[0] == offsets[1]).all()
    for name in ("case", "connection"):
        assert (ended.records[name] == ours.records[name]).all()


def test_an_idle_connection_may_be_closed(cases: Path) -> None:
    shape = ("--rate", "5", "--arrivals", "constant", "--connections", "2", "--depth", "1")
    with StandIn(mode="impatient") as server:
        ended = run(server, cases, *shape, "--requests", "6")
    assert ended.clean
    assert ended.result["verified"] == 6
    assert ended.result["connection_counts"]["reopened"] >= 4


def test_a_model_that_is_not_served(cases: Path) -> None:
    with StandIn(model="another") as server:
        ended = load(server.port, cases, cases.parent, "--openai", "m", *CLOSED)
    assert ended.result["failures"] == {"error_status:bad_payload": 40}


def test_what_it_cannot_do(cases: Path, tmp_path: Path) -> None:
    target = ("--port", "1", "--openai", "m", "--cases", str(cases), "--closed", "--requests", "1")
    assert "one request at a time on a connection" in refuse(*target)
    echoes = write(tmp_path / "echoes", [(b"x" * 40, Expected(b"x"))])
    with StandIn() as server:
        target = (
            "--port",
            str(server.port),
            "--openai",
            "m",
            "--cases",
            str(echoes),
            "--depth",
            "1",
        )
        assert "it does not generate tokens" in refuse(*target, "--closed", "--requests", "1")
