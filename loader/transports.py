"""The transports as the supervisor sees them: a page, a start, an end to watch for, a drain."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any, Protocol

from loader import paths, syscalls
from loader.errors import LoaderError, trying
from loader.instance import Instance
from loader.options import ServeOptions
from loader.processes import Child
from loader.refusals import Refusals
from loader.signals import StopSignal
from shared_page import SharedPage

# Past the drain's own deadline, for leaving; then a transport is ended from outside.
LEAVE_S = 2.0

# Options of `serve` that server-epoll has as well.
# The server reads them from a descriptor.
LEAVE_SIGNALS = (signal.SIGTERM, signal.SIGINT)
PASSED_ON = ("wake_us", "drain_ms", "send_timeout_ms", "request_timeout_ms", "frame_timeout_ms")


class Transport(Protocol):
    """TCP in, TCP out. `page` is the supervisor's view of the page that all parts share."""

    page: SharedPage
    page_location: str
    refusals: Refusals

    def start(self, listener: socket.socket) -> None:
        """Serves what connects to a listening socket. Raises LoaderError."""

    @property
    def end_fd(self) -> int:
        """Becomes readable when the transport has ended."""

    def failure(self) -> LoaderError:
        """Why it ended without being asked to."""

    def state(self) -> dict[str, Any]:
        """What belongs into the state file: `processes` and `loop_tid`."""

    def drain(self, stop: StopSignal) -> None:
        """Answers what was admitted and leaves; another signal hurries. Raises LoaderError."""

    def close(self) -> None:
        """Ends what still runs and releases everything."""


class EpollTransport:
    """The native server as a child; the page is a memfd."""

    def __init__(self, options: ServeOptions, instance: Instance) -> None:
        self._options, self._log = options, instance.runtime / "server.log"
        self._program = paths.program("server-epoll")
        self._child: Child | None = None
        self.refusals = Refusals()
        with trying("make the shared page", "free memory, or raise the limit of the cgroup"):
            self.page = SharedPage.create_memfd(options.max_connections, options.slots)
        self.page_location = f"/proc/{os.getpid()}/fd/{self.page.fd}"

    def start(self, listener: socket.socket) -> None:
        """Starts the server, in the supervisor's own cgroup."""
        fds = (self.page.fd, listener.fileno(), self.refusals.fd)
        command: list[str | Path] = [
            self._program,
            *("--page-fd", str(fds[0]), "--listen-fd", str(fds[1]), "--refusal-fd", str(fds[2])),
        ]
        for name in PASSED_ON:
            command += ["--" + name.replace("_", "-"), str(getattr(self._options, name))]
        self._child = Child("server-epoll", command, self._log, fds, held=LEAVE_SIGNALS)
        listener.close()  # with one copy left, the server can stop the accepting

    @property
    def _server(self) -> Child:
        assert self._child is not None, "start() comes first"
        return self._child

    @property
    def end_fd(self) -> int:
        """The server's pidfd."""
        return self._server.pidfd

    def failure(self) -> LoaderError:
        """What the server said last."""
        remedy = "start again; if it happens again, report it with the text above"
        return LoaderError("go on serving", self._server.fate(), remedy)

    def state(self) -> dict[str, Any]:
        """The server is a process of its own."""
        processes = {"server": self._child.identity.as_dict()} if self._child else {}
        return {"processes": processes, "loop_tid": None}

    def drain(self, stop: StopSignal) -> None:
        """The server has the deadline; a second signal to it ends its drain."""
        server, limit_s = self._server, self._options.drain_ms / 1000 + LEAVE_S
        tried, remedy = "answer what was admitted", "give a larger --drain-ms"
        server.terminate()
        end = time.monotonic() + limit_s
        while server.pidfd not in stop.wait(server.pidfd, timeout_s=max(end - time.monotonic(), 0)):
            if not stop.take():
                raise LoaderError(tried, f"server-epoll still ran after {limit_s:g} s", remedy)
            server.terminate()
        if server.status:
            raise LoaderError(tried, server.fate(), remedy)

    def close(self) -> None:
        """Ends the server if it still runs."""
        if self._child:
            self._child.end(0.5)
        self.page.close()
        self.refusals.close()


class BpfTransport:
    """The kernel path: one thread of this process that stays in the kernel; the page is a map."""

    def __init__(self, options: ServeOptions, instance: Instance, port: int) -> None:
        from loader.kernel_path import KernelPath

        assert instance.groups is not None, "sock_ops programs are attached to a cgroup"
        self._drain_s = options.drain_ms / 1000
        self._end_fd = -1
        pins = instance.create_pins()
        self.refusals = Refusals()
        self._path = KernelPath(
            pins, instance.groups.service, port, options, instance.log_folder, self.refusals.fd
        )
        try:
            self.page = SharedPage.attach(self._path.page_fd)
        except BaseException:
            self._path.close()
            raise
        self.page_location = str(pins / "page")

    def start(self, listener: socket.socket) -> None:
        """Starts the loop's thread."""
        self._path.start(listener, self._drain_s)
        self._end_fd = syscalls.pidfd_open_thread(self._path.loop_tid)

    @property
    def end_fd(self) -> int:
        """A pidfd of the loop's thread."""
        return self._end_fd

    def failure(self) -> LoaderError:
        """Why the loop's thread came back from the kernel."""
        said, remedy = "the loop left the kernel without an error", "report it"
        return self._path.error or LoaderError("go on serving", said, remedy)

    def state(self) -> dict[str, Any]:
        """The loop is a thread of the supervisor."""
        return {"processes": {}, "loop_tid": self._path.loop_tid}

    def drain(self, stop: StopSignal) -> None:
        """The loop has the deadline."""
        self._path.drain(self._drain_s + LEAVE_S)

    def close(self) -> None:
        """Detaches the programs and unpins the maps."""
        if self._end_fd >= 0:
            os.close(self._end_fd)
        self.page.close()
        self._path.close()
        self.refusals.close()


def require_features(transport: str) -> None:
    """Raises LoaderError for the first thing that the transport needs and this machine lacks."""
    from loader import features  # a program that serves need not hold all the probes

    for probe in features.PROBES:
        if transport not in probe.needed_by or probe.slow:
            continue
        finding = features.Finding(probe, probe.ask(), needed=True)
        if finding.stands_in_the_way:
            all_of_it = f"`bpf-gpu-server doctor --transport {transport}` shows all there is"
            raise LoaderError(
                f"start transport {transport}, which needs {probe.name}",
                finding.answer.why,
                f"{finding.answer.do}; {all_of_it}",
            )


def make(options: ServeOptions, instance: Instance, port: int) -> Transport:
    """The transport that was chosen, not started yet. Raises LoaderError."""
    if options.transport == "bpf":
        return BpfTransport(options, instance, port)
    return EpollTransport(options, instance)
