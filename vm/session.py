"""The host's side of one VM: the job out, the command's streams in and out, its status in."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

CHUNK = 65536
INTERRUPT_GRACE_S = 10.0
DIAGNOSIS_S = 1.5
RESIZE_INTERVAL_S = 0.5


class Ended(Exception):
    """The VM ended before the status came."""


class TimedOut(Ended):
    """It did not end, and was given up."""


@dataclass(frozen=True)
class Streams:
    """Descriptors of ours for the command's streams. stdin None is /dev/null; with `terminal` the
    command gets a terminal of the size of ours."""

    stdin: int | None = 0
    stdout: int = 1
    stderr: int = 2
    terminal: bool = False

    def terminal_size(self) -> tuple[int, int]:
        """Rows, columns."""
        try:
            size = os.get_terminal_size(self.stdout)
        except OSError:
            return 24, 80  # ours is none
        return size.lines, size.columns


class Session:
    """Serves one VM's ports until the status and every byte before it have arrived.

    `helpers` are pidfds of processes without which the guest hangs.
    """

    def __init__(
        self,
        ports: Mapping[str, socket.socket],
        helpers: Sequence[int],
        streams: Streams,
        deadline: float,
    ) -> None:
        self.ports, self.streams, self.deadline = ports, streams, deadline
        self.sinks = {"stdout": streams.stdout, "stderr": streams.stderr}
        self.received = dict.fromkeys(self.sinks, 0)
        self.expected: dict[str, int] = {}  # bytes of each output, known once the status is
        self.status: int | None = None
        self.ready = False
        self.control_text = b""
        self.to_guest = b""  # input that the guest had no room for yet
        self.size = streams.terminal_size()
        self.poll = select.poll()
        self.handlers: dict[int, Callable[[], None]] = {}
        self._watch(ports["control"].fileno(), select.POLLIN, self._read_control)
        for name in self.sinks:
            self._watch(ports[name].fileno(), select.POLLIN, partial(self._relay, name))
        for helper in helpers:
            self._watch(helper, select.POLLIN, self._helper_ended)
        ports["stdin"].setblocking(False)

    def run(self, job: Mapping[str, object]) -> int:
        """Send the job, serve it to its end, release the guest; returns the command's status.

        The first KeyboardInterrupt is passed to the command as SIGINT, with ten seconds to end; it
        is raised here when the command died of it, or with the second. Raises Ended, TimedOut.
        """
        self._send(repr(job))
        interrupted = False
        while self.status is None or self.received != self.expected:
            try:
                self._step()
            except KeyboardInterrupt:
                if interrupted or not self.ready:
                    raise
                interrupted = True
                self.deadline = min(self.deadline, time.monotonic() + INTERRUPT_GRACE_S)
                self._send(f"signal {signal.SIGINT:d}")
        self._send("goodbye")
        if interrupted and self.status == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        return self.status

    def ask_for_diagnosis(self) -> None:
        """Have a guest that hangs write its blocked tasks and busy CPUs to its kernel log."""
        with contextlib.suppress(Ended):
            self._send("diagnose")
            time.sleep(DIAGNOSIS_S)

    def _send(self, line: str) -> None:
        try:
            self.ports["control"].sendall(line.encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            raise Ended("the VM closed its control port") from None

    def _watch(self, descriptor: int, events: int, handler: Callable[[], None]) -> None:
        self.poll.register(descriptor, events)
        self.handlers[descriptor] = handler

    def _unwatch(self, descriptor: int) -> None:
        del self.handlers[descriptor]
        self.poll.unregister(descriptor)

    def _step(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimedOut("the time limit passed")
        if self.streams.terminal:
            left = min(left, RESIZE_INTERVAL_S)
            self._follow_size()
        for descriptor, _ in self.poll.poll(left * 1000):
            if handler := self.handlers.get(descriptor):
                handler()

    def _follow_size(self) -> None:
        if self.ready and (size := self.streams.terminal_size()) != self.size:
            self.size = size
            self._send(f"resize {size[0]} {size[1]}")

    def _helper_ended(self) -> None:
        raise Ended("QEMU or virtiofsd ended")

    def _read_control(self) -> None:
        data = receive(self.ports["control"])
        if not data:
            raise Ended("the VM ended")
        *lines, self.control_text = (self.control_text + data).split(b"\n")
        for line in lines:
            word, *numbers = line.decode().split()
            if word == "ready":
                self.ready = True
                if self.streams.stdin is not None:
                    self._watch(self.streams.stdin, select.POLLIN, self._read_stdin)
            elif word == "status":
                self.status, *counts = map(int, numbers)
                self.expected = dict(zip(self.sinks, counts, strict=True))

    def _relay(self, name: str) -> None:
        data = receive(self.ports[name])
        if not data:
            self._unwatch(self.ports[name].fileno())  # QEMU is gone; the control port says more
            return
        self.received[name] += len(data)
        while data:
            data = data[os.write(self.sinks[name], data) :]

    def _read_stdin(self) -> None:
        """Take a chunk of our input; no more of it is read until the guest has taken that one."""
        assert self.streams.stdin is not None
        self._unwatch(self.streams.stdin)
        try:
            self.to_guest = os.read(self.streams.stdin, CHUNK)
        except OSError:
            self.to_guest = b""  # a terminal that hung up
        if self.to_guest:
            self._watch(self.ports["stdin"].fileno(), select.POLLOUT, self._write_stdin)
        else:
            # End of file for the guest. Not close(): QEMU answers a full hang-up by dropping what
            # it has not read yet.
            self.ports["stdin"].shutdown(socket.SHUT_WR)

    def _write_stdin(self) -> None:
        assert self.streams.stdin is not None
        try:
            self.to_guest = self.to_guest[self.ports["stdin"].send(self.to_guest) :]
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            self.to_guest = b""
        if not self.to_guest:
            self._unwatch(self.ports["stdin"].fileno())
            self._watch(self.streams.stdin, select.POLLIN, self._read_stdin)


def receive(port: socket.socket) -> bytes:
    """What is there; nothing once the other side is gone."""
    try:
        return port.recv(CHUNK)
    except ConnectionResetError:
        return b""
