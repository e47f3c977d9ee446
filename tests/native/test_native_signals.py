# SPDX-License-Identifier: MIT
"""SIGTERM and SIGINT finish what was admitted; other ends of the process leave the port free."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from loader import paths
from shared_page import SharedPage, constants
from tests.native.rig import Client, Rig

Start = Callable[..., Rig]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_connections_see_the_end(rig: Rig, number: int) -> None:
    client = rig.connect()
    client.request(1, b"x")
    client.replies(1)
    rig.server.send_signal(number)
    assert client.remaining() == []
    client.close()
    assert rig.server.wait(5) == 0
    rig.wait_nothing_left()


def test_what_was_admitted_is_answered_and_nothing_more(start: Start) -> None:
    rig = start()
    clients = [rig.connect() for _ in range(5)]
    for client in clients:
        for i in range(10):
            client.request(i, b"y" * 50)
    rig.wait_submitted(50)
    rig.server.send_signal(signal.SIGTERM)
    rig.wait_until(lambda: rig.counter("egress", "draining") == 1)
    with pytest.raises(ConnectionRefusedError):
        rig.connect()
    for client in clients:
        client.request(99, b"too late")
    rig.start_executor()
    for client in clients:
        replies = client.remaining()
        assert [reply.request_id for reply in replies] == [*range(10), 99]
        assert replies[-1].status == constants.STATUS_SHUTTING_DOWN
        client.close()
    assert rig.server.wait(5) == 0
    assert rig.counter("ingress", "submit_tail") == 50
    rig.wait_nothing_left()


def test_deadline_with_an_executor_that_never_answers(start: Start) -> None:
    rig = start("--drain-ms", "200")
    client = rig.connect()
    client.request(1, b"x")
    rig.wait_submitted(1)
    began = time.monotonic()
    status, said = rig.end()
    assert 0.2 <= time.monotonic() - began < 3
    assert status == 1
    assert said == (
        "server-epoll: answering what was admitted before leaving: 1 requests were still with the "
        "executor. See why it was slow or gone, or give a larger --drain-ms.\n"
    )
    assert client.remaining() == []


def test_second_signal_ends_the_drain(start: Start) -> None:
    rig = start("--drain-ms", "600000")
    rig.connect().request(1, b"x")
    rig.wait_submitted(1)
    rig.server.send_signal(signal.SIGTERM)
    rig.wait_until(lambda: rig.counter("egress", "draining") == 1)
    assert rig.end()[0] == 1


def test_a_peer_that_never_reads_does_not_hold_the_exit(start: Start) -> None:
    rig = start("--drain-ms", "300", send_buffer=4096)
    rig.start_executor()
    client = rig.connect(4096)
    for i in range(constants.PIPELINE_MAX):
        client.request(i, bytes(constants.REQUEST_MAX))
    rig.wait_until(lambda: rig.counter("executor", "completed") == constants.PIPELINE_MAX)
    assert rig.end() == (0, "")
    rig.wait_nothing_left()


def test_stop_and_continue_lose_nothing(rig: Rig) -> None:
    client = rig.connect()
    for i in range(100):
        client.request(i, b"x")
        with rig.frozen():
            pass
        assert client.replies(1)[0].request_id == i


def test_successor_on_the_same_page(start: Start) -> None:
    first = start()
    first.start_executor()
    client = first.connect()
    client.request(1, b"x")
    client.replies(1)
    client.close()
    assert first.end() == (0, "")
    second = Rig(page=first.page)
    try:
        heir = second.connect()
        heir.request(2, b"y")
        assert heir.replies(1)[0].payload == b"y"
        heir.close()
        assert second.end() == (0, "")
    finally:
        second.processes[0].communicate()


def test_page_of_a_killed_server_is_refused(start: Start) -> None:
    first = start()
    first.connect()
    first.wait_accepted(1)
    first.server.kill()
    first.server.wait()
    second = Rig(page=first.page)
    assert second.server.wait(5) == 1
    assert second.server.communicate()[1] == (
        "server-epoll: taking over the page: 1 connections of another server stand in it. "
        "Let that server finish, or make a new page if it was killed.\n"
    )


SUPERVISOR = """
import subprocess, sys, time
print(subprocess.Popen(sys.argv[1:], close_fds=False, stdout=subprocess.DEVNULL).pid, flush=True)
time.sleep(60)
"""


def test_it_leaves_with_its_supervisor() -> None:
    """Otherwise an orphan would keep the port after `kill -9` of the supervisor."""
    with SharedPage.create_memfd(4) as page, socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        fds = (page.fd, listener.fileno())
        command = f"{paths.program('server-epoll')} --page-fd {fds[0]} --listen-fd {fds[1]}"
        supervisor = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, *command.split()],
            pass_fds=fds, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert supervisor.stdout
    server = os.pidfd_open(int(supervisor.stdout.readline()))
    try:
        with Client(address[1]) as client:
            client.sendall(bytes(constants.REQUEST_HEADER_SIZE))
            client.replies(1)  # it has started
        supervisor.kill()
        supervisor.communicate()
        assert select.select([server], [], [], 5)[0], "it stays without its supervisor"
        socket.create_server(address).close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(server, signal.SIGKILL)
        os.close(server)
