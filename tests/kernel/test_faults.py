# SPDX-License-Identifier: MIT
"""Parts that die, stall or are interrupted under load: every admitted request is answered."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import socket
import time
from pathlib import Path

import pytest

from loader import syscalls
from loader.instance import read_state
from shared_page import constants
from shared_page.wire import pack_request
from tests.kernel.conftest import Start
from tests.kernel.generator import Load
from tests.service.service import Service as Instance
from tests.support.frames import echo, error, ok, pattern, slow, slow_ok
from tests.support.service import Service, eventually

INTERNAL = constants.STATUS_INTERNAL
SYS_TGKILL = {"x86_64": 234}.get(platform.machine(), 131)
GUEST_INIT = Path("/vm/init.py")  # where it is, the machine is this project's VM


def executor_pid(service: Service) -> int:
    return int(read_state(service.state["instance"])["processes"]["executor"]["pid"])


def kill_executor(service: Service) -> None:
    """SIGKILL, and waits for the one that follows."""
    pid = executor_pid(service)
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: executor_pid(service) != pid), "no executor followed"


def test_executor_killed_with_requests_in_flight(start: Start) -> None:
    """What it had is answered with INTERNAL or rightly, in order; what comes then is served."""
    service = start()
    clients = [service.connect() for _ in range(20)]
    lost = 0
    for _ in range(2):
        for client in clients:
            client.send(slow(0), *(echo(at, pattern(at)) for at in range(1, 9)))
        assert eventually(lambda: service.counter("depth.queued") == 0)
        kill_executor(service)
        for client in clients:
            right = [slow_ok(0), *(ok(at, pattern(at)) for at in range(1, 9))]
            for at, reply in enumerate(right):
                got = client.read()
                assert got in (reply, error(at, INTERNAL))
                lost += got == error(at, INTERNAL)
        for client in clients:
            client.send(echo(9, b"goes on"))
        for client in clients:
            client.expect(ok(9, b"goes on"))
    assert lost >= 2, "nothing was in flight, so this tests nothing"


def test_executor_killed_under_load(start: Start) -> None:
    service = start()
    running = Load(service, "--rate", "300", "--connections", "16", "--duration", "6")
    before = service.counter("egress.finals")
    assert eventually(lambda: service.counter("egress.finals") > before + 200)
    kill_executor(service)
    report = running.result()
    failures = {kind: count for kind, count in report["failures"].items() if count}
    assert set(failures) <= {"error_status:internal"}, failures
    assert report["verified"] + sum(failures.values()) == report["sent"], report


def test_executor_stalled(service: Service) -> None:
    """Its requests wait; clients that leave meanwhile are reclaimed when it goes on."""
    stays, leaves = service.connect(), service.connect()
    with service.stalled():
        stays.send(*(echo(at, b"waits") for at in range(5)))
        leaves.send(*(echo(at) for at in range(5)))
        stays.expect_silence(0.5)
        leaves.reset()
        assert eventually(lambda: service.counter("depth.connections") == 1)
        newcomer = service.connect()
        newcomer.send(bytes(24))
        newcomer.expect_end(error(0, constants.STATUS_BAD_FRAME))
    stays.expect(*(ok(at, b"waits") for at in range(5)))


def test_supervisor_killed_under_load() -> None:
    """Case K18. The kernel cleans up by itself; the port is free, and the next start serves."""
    wait = "echo:delay_us=3000000"
    first = Instance("--workload", wait, transport="bpf").require_ready()
    try:
        clients = [first.connect() for _ in range(50)]
        for client in clients:
            client.sendall(
                b"".join(pack_request(constants.KIND_ECHO, at, b"x") for at in range(10))
            )
        first.process.kill()
        first.process.wait()
        for client in clients:
            assert ended(client)
        port = str(first.state["port"])
        assert eventually(lambda: is_free(int(port))), "the port is still in use"
        second = Instance("--port", port, transport="bpf", instance=first.instance)
        try:
            assert second.require_ready().ask().payload == b"hello"
            assert second.end() == 0, second.output()
        finally:
            second.close()
    finally:
        first.close()


def ended(client: socket.socket) -> bool:
    """The kernel ended the connection, without a reply."""
    with client:
        try:
            return client.recv(1) == b""
        except ConnectionResetError:
            return True


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError:
            return False
    return True


def test_a_thousand_signals(service: Service) -> None:
    """Case K27. Stops and continuations end the loop's call each time; it enters again."""
    supervisor, loop = service.state["supervisor"]["pid"], service.state["loop_tid"]
    running = Load(service, "--rate", "400", "--connections", "8", "--duration", "8")
    before = service.counter("egress.finals")
    assert eventually(lambda: service.counter("egress.finals") > before)
    for number in range(250):
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(supervisor, signal.SIGCONT)
        for blocked in (signal.SIGUSR1, signal.SIGURG):
            tgkill(supervisor, loop, blocked)
        if number % 25 == 0:
            time.sleep(0.02)
    report = running.result()
    assert not any(report["failures"].values()), report["failures"]
    assert report["verified"] == report["sent"] > 0


def tgkill(process: int, thread: int, number: int) -> None:
    """Signals one thread."""
    syscalls.syscall(SYS_TGKILL, *map(ctypes.c_int, (process, thread, number)))


def test_clock_jumps(service: Service) -> None:
    """No deadline follows the wall clock."""
    if not GUEST_INIT.exists():
        pytest.skip("not in the project's VM: the clock is the machine's own")
    client = service.connect()
    for hours in (1, -1, -24, 24):
        client.send(slow(1), echo(2))
        time.clock_settime(time.CLOCK_REALTIME, time.time() + 3600 * hours)
        client.expect(slow_ok(1), ok(2))
        bad = service.connect()
        bad.send(bytes(24))
        bad.expect_end(error(0, constants.STATUS_BAD_FRAME))
