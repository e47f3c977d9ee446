"""What is looked at after each test would be seen: planted leaks make the checks fail."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.support import sockets
from tests.support.client import Client
from tests.support.frames import HEADER, echo
from tests.support.kernel_log import KernelLog
from tests.support.service import Service, eventually


def test_an_open_connection_is_seen(service: Service) -> None:
    with service.connect().socket:
        assert eventually(lambda: service.imbalance() == {"connections": 1})


def test_a_held_slot_is_seen(service: Service) -> None:
    service.connect().send(echo(1, b"half")[: HEADER + 1])
    assert eventually(lambda: service.imbalance() == {"slots": 1, "connections": 1})


def test_requests_in_flight_are_seen(service: Service) -> None:
    with service.stalled():
        service.connect().send(echo(1), echo(2))
        wanted = {"queued": 2, "in_flight": 2, "slots": 2, "connections": 1}
        assert eventually(lambda: service.imbalance() == wanted)


def test_a_socket_in_close_wait_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        client = Client(address)
        with listener.accept()[0]:
            client.close()
            wanted = {"LISTEN": 1, "CLOSE_WAIT": 1}
            assert eventually(lambda: dict(sockets.states(address[1])) == wanted)
        assert eventually(lambda: dict(sockets.states(address[1])) == {"LISTEN": 1})


def test_a_fault_in_the_kernel_s_log_is_seen(tmp_path: Path) -> None:
    """The device itself is left alone: what runs the VM looks at its log, too."""
    device = tmp_path / "kmsg"
    device.write_text("4,1,1,-;WARNING: before it began\n")
    with KernelLog(device) as log, device.open("a") as writer:
        assert log.faults() == []
        writer.write("6,2,2,-;all is well\n SUBSYSTEM=net\n")
        writer.flush()
        assert log.faults() == []
        writer.write("4,3,3,-;WARNING: kernel/sched/core.c:3396 at set_task_cpu\n")
        writer.flush()
        assert log.faults() == ["WARNING: kernel/sched/core.c:3396 at set_task_cpu"]


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="/dev/kmsg cannot be read")
def test_the_kernel_s_log_is_followed() -> None:
    with KernelLog() as log:
        assert log.faults() == []
        assert log._fd >= 0
