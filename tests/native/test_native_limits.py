# SPDX-License-Identifier: MIT
"""Full tables, too few descriptors, and how much memory it takes."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

import pytest

from shared_page import constants
from shared_page.wire import pack_request
from tests.native.rig import Client, Rig
from tests.support.frames import FILLERS

Start = Callable[..., Rig]
MANY = 1000


@pytest.fixture
def many_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < MANY + 100:
        pytest.skip(f"needs {MANY} open files, and the hard limit is {hard}: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, MANY + 100), hard))


def test_full_table_refuses_at_once_and_recovers(start: Start) -> None:
    rig = start(max_connections=8)
    rig.start_executor()
    served = [rig.connect() for _ in range(8)]
    rig.wait_accepted(8)
    for refused in [rig.connect() for _ in range(4)]:
        assert refused.recv(1) == b""
    assert rig.counter("ingress", "connections_refused") == 4
    for client in served:
        client.request(1, b"x")
        assert client.replies(1)[0].payload == b"x"
        client.close()
    rig.wait_nothing_left()
    again = rig.connect()
    again.request(1, b"y")
    assert again.replies(1)[0].payload == b"y"


def test_out_of_descriptors_the_listener_rests(start: Start) -> None:
    rig = start()
    resource.prlimit(rig.server.pid, resource.RLIMIT_NOFILE, (20, 20))
    rig.start_executor()
    clients = [rig.connect() for _ in range(30)]
    for client in clients:
        client.request(1, b"x")
    rig.wait_until(lambda: rig.counter("egress", "connections_accepted") >= 5)
    time.sleep(0.2)
    accepted = rig.counter("egress", "connections_accepted")
    assert accepted < 20
    before = rig.counter("egress", "steps")
    time.sleep(0.5)
    assert rig.counter("egress", "steps") - before <= 12, "it spins on the waiting connections"
    for client in clients:
        assert client.replies(1)[0].payload == b"x"
        client.close()
    rig.wait_nothing_left()
    assert rig.counter("egress", "connections_accepted") == 30
    assert rig.counter("egress", "accept_failures") > 0


def test_full_queue_answers_busy_at_once_and_the_rest_later(start: Start) -> None:
    rig = start(max_connections=len(FILLERS) + 1)
    clients = [rig.connect() for _ in FILLERS]
    submitted = 0
    for client, size in zip(clients, FILLERS, strict=True):
        client.sendall(b"".join(pack_request(constants.KIND_ECHO, i, b"z") for i in range(size)))
        submitted += size
        rig.wait_submitted(submitted)
    late = rig.connect()
    late.request(77, b"too late")
    (busy,) = late.replies(1)
    assert (busy.request_id, busy.status) == (77, constants.STATUS_BUSY)
    assert rig.counter("ingress", "frames_busy") == 1
    rig.start_executor()
    for client, size in zip(clients, FILLERS, strict=True):
        assert [reply.status for reply in client.replies(size)] == [constants.STATUS_OK] * size
    late.request(78, b"in time")
    assert late.replies(1)[0].payload == b"in time"


def use(client: Client, number: int) -> None:
    payload = number.to_bytes(4, "little") * 1000
    client.request(number, payload)
    (reply,) = client.replies(1)
    assert (reply.request_id, reply.payload) == (number, payload)


def open_files(rig: Rig) -> int:
    return len(os.listdir(f"/proc/{rig.server.pid}/fd"))


@pytest.mark.usefixtures("many_files")
def test_a_thousand_connections_again_and_again(start: Start) -> None:
    rig = start(max_connections=MANY)
    rig.start_executor()
    rig.connect().close()
    rig.wait_until(lambda: rig.counter("egress", "connections_closed") == 1)
    files = open_files(rig)
    for turn in range(5):
        clients = [Client(rig.port) for _ in range(MANY)]
        for number, client in enumerate(clients):
            use(client, number)
        for number, client in enumerate(clients):
            if (number + turn) % 3:
                client.close()
            else:
                client.reset()
        rig.wait_nothing_left()
        assert open_files(rig) == files


def resident_kib(rig: Rig, what: str = "VmRSS") -> int:
    return int(rig.status_file()[what].split()[0])


@pytest.mark.usefixtures("many_files")
def test_resident_memory(start: Start) -> None:
    """Under 16 MiB with every slot used, of which the page is the most; 1 KiB a connection."""
    rig = start(max_connections=constants.CONNECTION_COUNT)
    rig.start_executor()
    first = rig.connect()
    for number in range(constants.SLOT_COUNT + 10):
        use(first, number)
    before = resident_kib(rig)
    for number in range(MANY):
        use(rig.connect(), number)
    assert resident_kib(rig) - before < MANY, "KiB for a thousand connections"
    assert resident_kib(rig) < 16 * 1024
    assert resident_kib(rig, "RssAnon") < 2 * 1024, "memory outside the page"
