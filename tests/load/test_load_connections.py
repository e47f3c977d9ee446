# SPDX-License-Identifier: MIT
"""Connections that break, never answer, or cannot be opened; each is told apart."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.load.generator import PATIENCE_S, command, echo_cases, load, refuse
from tests.load.stand_in import Session, StandIn, echo

CLOSED = ("--closed", "--connections", "2", "--depth", "8", "--requests", "200")


def test_a_server_that_never_answers(cases: Path, tmp_path: Path) -> None:
    async def behaviour(session: Session) -> None:
        async for request in session:
            if session.number == 0:
                session.reply(request)

    with StandIn(behaviour) as server:
        shape = ("--rate", "400", "--arrivals", "constant", "--requests", "100")
        ended = load(server.port, cases, tmp_path, *shape, "--connections", "2", "--timeout", "0.6")
    found = ended.result
    assert found["failures"] == {"timeout": 50}
    assert found["verified"] == 50
    # One connection took 24 of its 50 requests; the others could never be sent.
    assert found["sent"] == 50 + 24
    assert found["unanswered"] == 24
    assert found["held_back"] == 26
    # The oldest was due at 2.5 ms; the last at 247.5 ms, and 0.6 s passed after it.
    assert 0.84 < found["oldest_unanswered_s"] < 3
    assert (ended.records["done_ns"] == 0).sum() == 50


def test_a_closed_loop_ends_when_nothing_comes(cases: Path, tmp_path: Path) -> None:
    async def behaviour(session: Session) -> None:
        async for _ in session:
            pass

    with StandIn(behaviour) as server:
        ended = load(server.port, cases, tmp_path, *CLOSED, "--timeout", "0.5")
    assert ended.result["failures"] == {"timeout": 16}
    assert ended.result["verified"] == 0


@pytest.mark.parametrize(("end", "name"), [("close", "closed_early"), ("reset", "reset")])
def test_a_connection_that_breaks_is_reopened(
    end: str, name: str, cases: Path, tmp_path: Path
) -> None:
    async def behaviour(session: Session) -> None:
        async for request in session:
            if session.number == 0 and request.place == 40:
                await asyncio.sleep(0.1)  # the earlier replies arrive before the reset
                getattr(session, end)()
                return
            session.reply(request)

    with StandIn(behaviour) as server:
        ended = load(server.port, cases, tmp_path, *CLOSED)
    found = ended.result
    assert set(found["failures"]) == {name}
    assert 1 <= found["failures"][name] <= 8
    assert found["verified"] == 200 - found["failures"][name]
    assert found["connection_counts"] == {"opened": 3, "reopened": 1, "failures": {name: 1}}
    assert ended.status == 2


def test_half_a_reply_and_a_close(cases: Path, tmp_path: Path) -> None:
    async def behaviour(session: Session) -> None:
        async for request in session:
            if session.number == 0 and request.place == 40:
                session.writer.write(b"\0" * 9)
                await asyncio.sleep(0.1)  # all requests are read, so that the close is no reset
                return
            session.reply(request)

    with StandIn(behaviour) as server:
        ended = load(server.port, cases, tmp_path, *CLOSED)
    assert set(ended.result["failures"]) == {"closed_early"}


def test_a_server_that_goes_away(cases: Path, tmp_path: Path) -> None:
    """Nobody listens any more: what is due from there on is refused, and the run ends in time."""

    async def behaviour(session: Session) -> None:
        async for request in session:
            if request.ordinal == 50:
                session.server.stop_listening()
                session.close()
                return
            session.reply(request)

    with StandIn(behaviour) as server:
        shape = ("--rate", "500", "--arrivals", "constant", "--requests", "200")
        ended = load(server.port, cases, tmp_path, *shape, "--timeout", "0.3")
    found = ended.result
    assert set(found["failures"]) == {"closed_early", "refused"}
    assert found["verified"] == 50
    assert found["failures"]["refused"] > 100
    # One attempt each 0.1 s, not a storm.
    assert 1 <= found["connection_counts"]["failures"]["refused"] <= 20


def test_a_server_that_closes_at_once_is_not_stormed(cases: Path, tmp_path: Path) -> None:
    async def behaviour(session: Session) -> None:
        session.close()

    with StandIn(behaviour) as server:
        shape = ("--rate", "100", "--duration", "0.5", "--timeout", "0.2")
        ended = load(server.port, cases, tmp_path, *shape)
    assert ended.result["verified"] == 0
    assert set(ended.result["failures"]) <= {"closed_early", "reset", "timeout"}
    assert 2 <= server.accepted <= 12


def test_churn(cases: Path, tmp_path: Path) -> None:
    async def behaviour(session: Session) -> None:
        assert session.number < 40
        with pytest.raises(asyncio.IncompleteReadError):
            await echo(session)
        assert session.places == 10, "closed after ten requests, not before"

    with StandIn(behaviour) as server:
        shape = ("--closed", "--connections", "4", "--depth", "3", "--requests", "400")
        ended = load(server.port, cases, tmp_path, *shape, "--churn", "10")
    assert ended.clean
    assert ended.result["verified"] == 400
    assert 36 <= ended.result["connection_counts"]["reopened"] <= 40


def test_requests_larger_than_the_socket_takes(tmp_path: Path) -> None:
    """24 of 4 KiB at once into a small window: sends are cut at any byte, and still arrive.

    The kernel sizes the send buffer by the peer's segments; with the loopback's of 64 KiB it
    would take all.
    """
    cases = echo_cases(tmp_path / "cases", count=5, size=4096)

    async def behaviour(session: Session) -> None:
        await asyncio.sleep(0.2)
        await echo(session)

    server = StandIn(behaviour)
    server.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    server.listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    with server:
        shape = ("--closed", "--connections", "3", "--requests", "300")
        ended = load(server.port, cases, tmp_path, *shape)
    assert ended.clean
    assert ended.result["verified"] == 300


@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_addresses(host: str, cases: Path, tmp_path: Path) -> None:
    try:
        server = StandIn(echo, "::1" if host == "::1" else "127.0.0.1")
    except OSError:
        pytest.skip("IPv6 has no loopback address here: set net.ipv6.conf.lo.disable_ipv6=0")
    with server:
        ended = load(server.port, cases, tmp_path, *CLOSED, "--host", host)
    assert ended.clean


def test_a_signal_ends_the_run_with_a_result(cases: Path, tmp_path: Path) -> None:
    with StandIn(echo) as server:
        options = ("--rate", "200", "--duration", "600", "--json", str(tmp_path / "result"))
        process = subprocess.Popen(command(server.port, cases, *options), stderr=subprocess.PIPE)
        deadline = time.monotonic() + PATIENCE_S
        while server.asked < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert b"interrupted by a signal" in errors
    found = json.loads((tmp_path / "result").read_text())
    assert found["verified"] == found["scheduled"] >= 20
    assert not found["valid"]
    assert "interrupted by a signal" in found["invalid_reasons"]


def test_a_refused_connection(cases: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        said = refuse(*command(port, cases, "--rate", "1", "--requests", "1")[1:])
    assert f"connecting to 127.0.0.1:{port} (0 of 1 connections are open)" in said
    assert "ECONNREFUSED" in said
    assert "Start the server" in said


def test_connecting_has_a_time_limit(cases: Path) -> None:
    """A full backlog drops what comes next."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        options = ("--closed", "--requests", "1", "--connections", "20", "--connect-timeout", "0.3")
        began = time.monotonic()
        said = refuse(*command(listener.getsockname()[1], cases, *options)[1:])
    assert time.monotonic() - began < 20
    assert "of 20 connections are open" in said
    assert "ETIMEDOUT" in said
    assert "--connect-timeout" in said
