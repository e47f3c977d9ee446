# SPDX-License-Identifier: MIT
"""A native server on a page of its own, with or without an executor, and a client of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from loader import paths
from shared_page import SharedPage, constants
from shared_page.wire import Reply, pack_request, split_replies

PATIENCE_S = 10.0


class Client(socket.socket):
    """A blocking connection that speaks the protocol."""

    def __init__(self, port: int, receive_buffer: int = 0) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self._frames: list[Reply] = []
        self._left = b""
        if receive_buffer:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.settimeout(PATIENCE_S)
        try:
            self.connect(("127.0.0.1", port))
        except OSError:
            self.close()
            raise

    def request(self, request_id: int, payload: bytes = b"", kind: int | None = None) -> None:
        """Sends one request, by default an echo."""
        kind = constants.KIND_ECHO if kind is None else kind
        self.sendall(pack_request(kind, request_id, payload))

    def replies(self, frames: int) -> list[Reply]:
        """The next frames; fewer when the server closes before."""
        while len(self._frames) < frames and (data := self.recv(1 << 16)):
            found, self._left = split_replies(self._left + data)
            self._frames += found
        taken, self._frames = self._frames[:frames], self._frames[frames:]
        return taken

    def remaining(self) -> list[Reply]:
        """All frames up to the server's FIN. Raises ConnectionResetError for a reset."""
        frames = self.replies(1 << 30)
        assert not self._left, "the last frame is not whole"
        return frames

    def reset(self) -> None:
        """Closes with a RST instead of a FIN."""
        self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


# No test meets a time limit, or its ticks, that it does not set.
NO_LIMITS = ("--request-timeout-ms", "3600000", "--frame-timeout-ms", "3600000")


class Rig:
    """server-epoll as a child. All sockets and processes end with close()."""

    def __init__(
        self,
        *options: str,
        max_connections: int = 64,
        send_buffer: int = 0,
        page: SharedPage | None = None,
    ) -> None:
        self.page = page or SharedPage.create_memfd(max_connections)
        self.processes: list[subprocess.Popen[str]] = []
        self.clients: list[Client] = []
        with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
            if send_buffer:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
            self.port: int = listener.getsockname()[1]
            self.server = self._start(
                *("server-epoll", "--listen-fd", str(listener.fileno()), *NO_LIMITS, *options),
                fds=(listener.fileno(),),
            )

    def _start(
        self, program: str, *options: str, fds: tuple[int, ...] = ()
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [paths.program(program), "--page-fd", str(self.page.fd), *options],
            pass_fds=(self.page.fd, *fds),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def start_executor(self, workloads: str = "echo;empty;toylm") -> subprocess.Popen[str]:
        """Returns once it serves."""
        executor = self._start("executor-cpu", "--workloads", workloads)
        self.wait_until(lambda: self.page.executor_state == constants.EXECUTOR_READY)
        return executor

    def connect(self, receive_buffer: int = 0) -> Client:
        client = Client(self.port, receive_buffer)
        self.clients.append(client)
        return client

    def counter(self, writer: str, name: str) -> int:
        return self.page.counters()[writer][name]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Raises AssertionError after PATIENCE_S."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"did not happen; {self.page.counters()}"
            time.sleep(0.002)

    def wait_accepted(self, connections: int) -> None:
        self.wait_until(
            lambda: self.counter("egress", "connections_accepted") == connections,
        )

    def wait_submitted(self, requests: int) -> None:
        self.wait_until(lambda: self.counter("ingress", "submit_tail") == requests)

    def wait_answered(self, requests: int) -> None:
        """The executor is through with that many, and the server knows."""
        self.wait_until(lambda: self.counter("egress", "finals") == requests)

    def wait_nothing_left(self) -> None:
        """Every slot and every connection entry is free again, and no request is in flight."""
        self.wait_until(lambda: not any(self.page.counters()["depth"].values()))

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """The server is stopped meanwhile, and finds everything at once afterwards."""
        self.server.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.server.pid, os.WSTOPPED | os.WNOWAIT)
        yield
        self.server.send_signal(signal.SIGCONT)

    def status_file(self) -> dict[str, str]:
        """/proc/PID/status of the server."""
        lines = Path(f"/proc/{self.server.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def end(self, signal_number: int = signal.SIGTERM) -> tuple[int, str]:
        """Asks the server to leave. Returns its exit status and what it wrote to stderr."""
        self.server.send_signal(signal_number)
        _, said = self.server.communicate(timeout=PATIENCE_S)
        return self.server.returncode, said

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.page.request_stop()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.page.close()
