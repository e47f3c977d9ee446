# SPDX-License-Identifier: MIT
"""Crowds, full rings, little memory: bounded, and nothing is lost that was admitted.

KERNEL_CROWD and KERNEL_STORM set how many, since an emulated CPU takes long: 4000 connections and
20000 opens are the full form.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loader import cgroups
from tests.kernel.conftest import Start
from tests.kernel.generator import load
from tests.support.client import Client
from tests.support.frames import PIPELINE, echo, ok, pattern, slow, stream
from tests.support.service import Service, eventually

CROWD = int(os.environ.get("KERNEL_CROWD", "1500"))
STORM = int(os.environ.get("KERNEL_STORM", "2000"))
# More than what peers that do not read can hold: PIPELINE_MAX replies each.
MEMORY_ROOM = 40 << 20

pytestmark = pytest.mark.timeout(120 + CROWD // 20 + STORM // 20)


def source(number: int) -> str:
    """An address to connect from, so that ports in TIME_WAIT do not run out."""
    return f"127.0.1.{number % 200 + 1}"


def workers(service: Service) -> set[str]:
    """Threads that io_uring made in the service's process."""
    tasks = Path(f"/proc/{service.state['supervisor']['pid']}/task")
    names = set()
    for comm in tasks.glob("*/comm"):
        with contextlib.suppress(OSError):
            names.add(comm.read_text().strip())
    return {name for name in names if name.startswith("iou-")}


@contextlib.contextmanager
def watched(service: Service) -> Iterator[set[str]]:
    """Collects io_uring's threads meanwhile. One that is idle lives for five seconds
    (WORKER_IDLE_TIMEOUT in io_uring/io-wq.c), so that none is missed."""
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            seen.update(workers(service))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()
        seen.update(workers(service))


def test_no_worker_thread_under_load(service: Service) -> None:
    """A worker that is forked inside the loop's program keeps its disabled migration (see
    connection_end() in bpf/include/close.h): whatever clients do, none may be needed."""
    with watched(service) as seen:
        load(service, "--closed", "--connections", "32", "--depth", "4", "--requests", "3000",
             "--churn", "20")  # fmt: skip
        for number in range(60):
            client = service.connect()
            client.send(echo(1), stream(2, [1], 40), slow(3))
            (Client.reset, Client.close, Client.half_close)[number % 3](client)
        blocked = service.connect(receive_buffer=4096)
        blocked.send(*(echo(at, pattern(4096)) for at in range(PIPELINE)))
        time.sleep(1)  # its replies fill the socket, and the next send waits
        blocked.reset()
    assert not seen


def test_storm_of_opens_and_resets(service: Service) -> None:
    """Most before they are accepted, some with a request, or half of one."""
    sent = (b"", b"", echo(1), echo(1, pattern(500))[:300], bytes(24), slow(1))
    for number in range(STORM):
        client = service.connect(source=source(number))
        client.send(sent[number % len(sent)])
        client.reset()
        service.clients.clear()
    good = [service.connect() for _ in range(100)]
    for client in good:
        client.send(echo(1, b"good"))
    for client in good:
        client.expect(ok(1, b"good"))


def test_everybody_at_once(start: Start) -> None:
    """Case K10. The loop finds all connections, and all their requests, at the same moment."""
    service = start(max_connections=CROWD)
    with service.paused():
        clients = [service.connect(source=source(number)) for number in range(CROWD)]
        for number, client in enumerate(clients):
            client.send(echo(number))
    busy = 0
    for number, client in enumerate(clients):
        reply = client.read()
        busy += reply.status != 0
        assert reply.request_id == number
    assert busy == service.counter("ingress.frames_busy")
    for _ in range(3):
        for client in clients[:1000]:
            client.send(echo(1, b"again"))
        for client in clients[:1000]:
            client.expect(ok(1, b"again"))
    assert service.counter("egress.connections_accepted") == CROWD
    time.sleep(0.5)
    before = service.counter("egress.steps")
    time.sleep(1)
    assert service.counter("egress.steps") == before, "the loop does not sleep"


@contextlib.contextmanager
def little_memory(service: Service) -> Iterator[Path]:
    """The service and its sockets get MEMORY_ROOM bytes more than they have."""
    mount = cgroups.require_mount()
    group = Path(service.state["cgroups"]["service"]).parent
    control = mount / "cgroup.subtree_control"
    enabled = "memory" in control.read_text().split()
    if "memory" not in (mount / "cgroup.controllers").read_text().split():
        pytest.skip("no memory controller in cgroup v2: boot with cgroup_enable=memory")
    control.write_text("+memory")
    try:
        used = int((group / "memory.current").read_text())
        (group / "memory.max").write_text(str(used + MEMORY_ROOM))
        yield group
        (group / "memory.max").write_text("max")
    finally:
        if not enabled:
            control.write_text("-memory")


def test_little_memory(start: Start) -> None:
    """Peers that do not read hold PIPELINE_MAX replies each, and no more: with room for these the
    service goes on. (With less the kernel kills it while it sends: docs/security.md.)"""
    service = start()
    with little_memory(service) as group:
        good = service.connect()
        greedy = [service.connect(receive_buffer=4096) for _ in range(100)]
        for client in greedy:
            client.socket.setblocking(False)
            with contextlib.suppress(OSError):
                client.send(*(echo(at, pattern(4096)) for at in range(PIPELINE)))
        for turn in range(20):
            good.send(echo(turn, b"served"))
            good.expect(ok(turn, b"served"))
        events = dict(line.split() for line in (group / "memory.events").read_text().splitlines())
        assert events["oom_kill"] == "0", events
        for client in greedy:
            client.reset()
        assert eventually(lambda: service.counter("depth.connections") == 1)
        good.send(echo(1, b"after"))
        good.expect(ok(1, b"after"))
