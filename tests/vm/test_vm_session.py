"""The host's side of the ports, against a guest made of sockets."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from vm.qemu import PORTS
from vm.session import Ended, Session, Streams, TimedOut


@dataclass
class Guest:
    ports: dict[str, socket.socket]
    out: int  # where the session writes the command's output

    def start(self, behaviour: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=behaviour)
        thread.start()
        return thread


@pytest.fixture
def guest_and_session() -> Iterator[tuple[Guest, Session]]:
    ours, theirs = {}, {}
    for name in PORTS:
        ours[name], theirs[name] = socket.socketpair()
    out, writer = os.pipe()
    session = Session(ours, [], Streams(None, writer, writer), time.monotonic() + 30)
    try:
        yield Guest(theirs, out), session
    finally:
        for end in (*ours.values(), *theirs.values()):
            end.close()
        os.close(out)
        os.close(writer)


def test_status_waits_for_the_bytes_before_it(guest_and_session: tuple[Guest, Session]) -> None:
    """Ports are not ordered among each other: the status may overtake the output."""
    guest, session = guest_and_session
    lines: list[bytes] = []

    def behave() -> None:
        control = guest.ports["control"].makefile("rb")
        lines.append(control.readline())
        guest.ports["control"].sendall(b"ready\nstatus 4 6")
        guest.ports["control"].sendall(b" 0\n")
        guest.ports["stdout"].sendall(b"abc")
        time.sleep(0.1)
        guest.ports["stdout"].sendall(b"def")
        lines.append(control.readline())
        control.close()

    thread = guest.start(behave)
    assert session.run({"argv": ["x"]}) == 4
    thread.join()
    assert os.read(guest.out, 100) == b"abcdef"
    assert lines == [b"{'argv': ['x']}\n", b"goodbye\n"]


def test_end_without_status(guest_and_session: tuple[Guest, Session]) -> None:
    guest, session = guest_and_session
    for port in guest.ports.values():
        port.close()
    with pytest.raises(Ended):
        session.run({})


def test_end_between_status_and_output(guest_and_session: tuple[Guest, Session]) -> None:
    guest, session = guest_and_session
    guest.ports["control"].sendall(b"ready\nstatus 0 6 0\n")
    guest.ports["stdout"].sendall(b"abc")
    for port in guest.ports.values():
        port.shutdown(socket.SHUT_WR)
    with pytest.raises(Ended):
        session.run({})


def test_time_limit(guest_and_session: tuple[Guest, Session]) -> None:
    _, session = guest_and_session
    session.deadline = time.monotonic() + 0.05
    with pytest.raises(TimedOut):
        session.run({})
