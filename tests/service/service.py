"""A service started as a user would start it, and what must not be left of it."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from loader import cgroups
from loader.instance import PROJECT
from loader.processes import Identity
from shared_page import constants
from shared_page.wire import Reply, pack_request, split_replies

ROOT = Path(__file__).resolve().parent.parent.parent
READY_S = 60.0  # an emulated CPU on a busy machine is slow
END_S = 30.0
NOBODY = 65534
ECHO = "echo:delay_us=0"

_numbers = itertools.count()


def instance_name() -> str:
    return f"test-{os.getpid()}-{next(_numbers)}"


def cli(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Runs the command line to its end."""
    return subprocess.run(
        [sys.executable, "-m", "loader", *arguments],
        **{"cwd": ROOT, "capture_output": True, "text": True, "timeout": 100, **settings},
        check=False,
    )


class Service:
    """`serve` on a free port. `nobody` starts it without any privilege, in a folder of its own."""

    def __init__(
        self, *options: str, transport: str = "epoll", instance: str = "", nobody: bool = False
    ) -> None:
        self.instance = instance or instance_name()
        self.home: Path | None = None
        settings: dict[str, Any] = {}
        if nobody:
            self.home = Path(tempfile.mkdtemp(prefix="bpf-gpu-server-test-"))
            os.chown(self.home, NOBODY, NOBODY)
            environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.home)}
            settings = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "env": environment}
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - until close()
        ours, theirs = os.pipe()
        command = [sys.executable, "-m", "loader", "serve", "--transport", transport]
        command += ["--instance", self.instance, "--ready-fd", str(theirs)]
        command += ["--port", "0"] if "--port" not in options else []
        command += ["--workload", ECHO] if "--workload" not in options else []
        self.process = subprocess.Popen(
            [*command, *options], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self._output,
            stderr=self._output, pass_fds=[theirs], start_new_session=True, **settings,
        )  # fmt: skip
        os.close(theirs)
        self.ready_line = _read_line(ours)
        self.state: dict[str, Any] = self.read_state() if self.ready_line else {}

    @property
    def runtime(self) -> Path:
        base = self.home or Path("/run")
        return base / PROJECT / self.instance

    def read_state(self) -> dict[str, Any]:
        state = json.loads((self.runtime / "state.json").read_text())
        assert isinstance(state, dict)
        return state

    def require_ready(self) -> Service:
        assert self.ready_line.startswith("serving on "), self.output()
        return self

    def output(self) -> str:
        self._output.seek(0)
        return self._output.read()

    def process_of(self, role: str) -> Identity:
        return Identity(**self.read_state()["processes"][role])

    def connect(self) -> socket.socket:
        client = socket.create_connection((self.state["address"], self.state["port"]), timeout=20)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def ask(self, payload: bytes = b"hello", request_id: int = 1) -> Reply:
        """One echo request on a connection of its own."""
        with self.connect() as client:
            client.sendall(pack_request(constants.KIND_ECHO, request_id, payload))
            return receive(client)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Signals the supervisor alone and returns its exit status."""
        self.process.send_signal(number)
        return self.process.wait(END_S)

    def close(self) -> None:
        """Whatever a test did: nothing of this service goes on."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for role in self.state.get("processes", {}):
            identity = Identity(**self.state["processes"][role])
            if identity.runs():
                os.kill(identity.pid, signal.SIGKILL)
        self._output.close()
        if self.home:
            shutil.rmtree(self.home)


def _read_line(fd: int) -> str:
    """A line, or nothing when the writer ended first."""
    with os.fdopen(fd) as file:
        if not select.select([fd], [], [], READY_S)[0]:
            return ""
        return file.readline()


def receive(client: socket.socket) -> Reply:
    """The next reply frame of a connection that has no other outstanding."""
    data = b""
    while True:
        more = client.recv(65536)
        if not more:
            raise EOFError(f"the connection ended after {len(data)} bytes of a reply")
        data += more
        replies, rest = split_replies(data)
        if replies:
            assert not rest
            return replies[0]


def traces(instance: str, base: Path = Path("/run")) -> list[str]:
    """Folders, cgroups and pins of an instance that exist."""
    candidates = [base / PROJECT / instance]
    if mount := cgroups.mount_point("cgroup2"):
        candidates.append(mount / f"{PROJECT}.{instance}")
    if bpffs := cgroups.mount_point("bpf"):
        candidates.append(bpffs / PROJECT / instance)
    return [str(path) for path in candidates if path.exists()]
