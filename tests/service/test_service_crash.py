"""Parts that die: what goes on, what ends, what the next start finds and removes."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loader.executors import RESTARTS
from loader.processes import Identity
from shared_page import constants
from shared_page.wire import pack_request
from tests.service.service import ROOT, Service, instance_name, receive, traces
from tests.service.test_service_life import assert_three_parts, wait_admitted

Start = Callable[..., Service]


def test_next_start_works_after_kill_9(start: Start, transport: str, root: None) -> None:
    first = start("--port", "0", transport=transport).require_ready()
    children = [Identity(**one) for one in first.state["processes"].values()]
    first.process.kill()
    first.process.wait()
    assert traces(first.instance), "nothing was left, so this tests nothing"
    port = str(first.state["port"])
    second = start("--port", port, transport=transport, instance=first.instance).require_ready()
    assert not any(child.runs() for child in children)
    assert second.ask().payload == b"hello"
    assert "removed what a predecessor left: " in second.output()
    assert second.end() == 0, second.output()
    assert not traces(first.instance)


def test_children_die_with_the_supervisor(start: Start, transport: str, root: None) -> None:
    service = start(transport=transport).require_ready()
    children = [Identity(**one) for one in service.state["processes"].values()]
    service.process.kill()
    service.process.wait()
    deadline = time.monotonic() + 10
    while any(child.runs() for child in children):
        assert time.monotonic() < deadline, "a child outlived the supervisor"
        time.sleep(0.02)


def test_kill_9_with_requests_in_flight(start: Start, transport: str, root: None) -> None:
    slow = "echo:delay_us=3000000"
    first = start("--workload", slow, transport=transport).require_ready()
    with first.connect() as client:
        for number in range(20):
            client.sendall(pack_request(constants.KIND_ECHO, number, b"x"))
        wait_admitted(first, 20)
        first.process.kill()
        first.process.wait()
        second = start(transport=transport, instance=first.instance).require_ready()
        assert second.ask().payload == b"hello"
        assert ended(client), "the old connection is still open"


def test_a_stranger_with_a_recorded_pid_lives(start: Start, root: None) -> None:
    """A process that only has the number of a recorded one is not ended."""
    first = start().require_ready()
    state = (first.runtime / "state.json").read_text()
    first.process.kill()
    first.process.wait()
    with_stranger = state.replace(
        f'"pid": {first.state["processes"]["executor"]["pid"]}', f'"pid": {os.getpid()}'
    )
    assert with_stranger != state
    (first.runtime / "state.json").write_text(with_stranger)
    second = start(instance=first.instance).require_ready()
    assert second.ask().payload == b"hello"
    assert f"process {os.getpid()}" not in second.output()


@pytest.mark.parametrize("garbage", ["", "{", "[]", '{"supervisor": 1, "processes": 2}'])
def test_a_broken_state_file_is_swept(start: Start, root: None, garbage: str) -> None:
    first = start().require_ready()
    children = [Identity(**one) for one in first.state["processes"].values()]
    first.process.kill()
    first.process.wait()
    (first.runtime / "state.json").write_text(garbage)
    second = start(instance=first.instance).require_ready()
    assert second.ask().payload == b"hello"
    assert not any(child.runs() for child in children)


def test_executor_is_started_again(start: Start, transport: str, root: None) -> None:
    service = start(transport=transport).require_ready()
    assert service.ask().payload == b"hello"
    old = service.process_of("executor")
    os.kill(old.pid, signal.SIGKILL)
    new = wait_replaced(service, old)
    assert service.ask(b"again").payload == b"again"
    group = service.state["cgroups"]["executor"]
    if group:
        assert Path(group, "cgroup.procs").read_text().split() == [str(new.pid)]
    shown = service.output()
    assert f"executor was ended by SIGKILL; started it again as process {new.pid}" in shown


def test_requests_of_a_dead_executor_are_answered(start: Start, transport: str, root: None) -> None:
    slow = "echo:delay_us=2000000"
    service = start("--workload", slow, transport=transport).require_ready()
    with service.connect() as client:
        client.sendall(pack_request(constants.KIND_ECHO, 5, b"lost"))
        wait_admitted(service, 1)
        time.sleep(0.1)  # for the executor to take it; taken or not, it has to be answered
        old = service.process_of("executor")
        os.kill(old.pid, signal.SIGKILL)
        reply = receive(client)
        assert reply.request_id == 5
        assert reply.status in (constants.STATUS_INTERNAL, constants.STATUS_OK)


def test_an_executor_that_always_dies_ends_the_service(start: Start, root: None) -> None:
    service = start().require_ready()
    for _ in range(RESTARTS):
        old = service.process_of("executor")
        os.kill(old.pid, signal.SIGKILL)
        wait_replaced(service, old)
    os.kill(service.process_of("executor").pid, signal.SIGKILL)
    assert service.process.wait(30) == 1
    assert_three_parts(service.output(), "keep the executor running")
    assert not traces(service.instance)


def test_server_death_is_an_error(start: Start, root: None) -> None:
    service = start().require_ready()
    os.kill(service.process_of("server").pid, signal.SIGKILL)
    assert service.process.wait(30) == 1
    assert_three_parts(service.output(), "go on serving")
    assert "server-epoll was ended by SIGKILL" in service.output()
    assert not traces(service.instance)


def wait_replaced(service: Service, old: Identity) -> Identity:
    """The executor that came after `old`."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        new = service.process_of("executor")
        if new != old:
            return new
        time.sleep(0.01)
    raise TimeoutError("the executor was not started again")


def ended(client: socket.socket) -> bool:
    """Whether the peer closed or reset within some seconds."""
    if not select.select([client], [], [], 10)[0]:
        return False
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_starts_and_ends_of_others_do_not_disturb(root: None) -> None:
    """Instances share a folder, which the last one to leave removes."""
    code = (
        "import sys; from loader.instance import Instance\n"
        "for _ in range(100):\n"
        "    one = Instance(sys.argv[1]); one.lock(); one.sweep(); one.remove_runtime()\n"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code, instance_name()], cwd=ROOT) for _ in range(2)
    ]
    assert [one.wait(60) for one in both] == [0, 0]
