"""A service under test: `bpf-gpu-server serve` as a process, its page, its clients, its end."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from loader.instance import read_state
from loader.page_reader import open_page
from tests.support import sockets
from tests.support.client import DEADLINE_S, Client
from tests.support.kernel_log import KernelLog
from tests.support.maps import sockets_in

ROOT = Path(__file__).resolve().parents[2]
START_S = 100.0
STOP_S = 30.0
BALANCE_S = 15.0
# A request that is slow (frames.slow) and a stream's token (frames.stream) take so long.
SLOW_S = 0.4
TOKEN_S = 0.002
WORKLOADS = (
    "empty",
    "echo",
    "gemm:m=4,k=16,n=15,work=1",
    f"fft:points=2,bins=1,delay_us={round(SLOW_S * 1e6)}",
    f"toylm:vocab=256,batch=4,delay_us={round(TOKEN_S * 1e6)}",
)
_names = itertools.count()

Counters = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Options:
    """A service that two tests can share is one with equal options."""

    transport: str
    bind: str = "127.0.0.1"
    max_connections: int = 1100
    workloads: tuple[str, ...] = WORKLOADS
    program: tuple[str, ...] = ("-m", "loader")
    # Arguments of `serve`. No test meets a time limit that it does not set: emulated CPUs are slow.
    more: tuple[str, ...] = ("--request-timeout-ms", "3600000", "--frame-timeout-ms", "3600000")

    def arguments(self) -> list[str]:
        words = ["--transport", self.transport, "--bind", self.bind, "--allow-remote"]
        words += ["--port", "0", "--max-connections", str(self.max_connections)]
        words += self.more
        return words + [word for spec in self.workloads for word in ("--workload", spec)]


def eventually(true: Callable[[], object], deadline_s: float = DEADLINE_S) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + deadline_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


class Service:
    """Started and ready. `connect` clients to it, let it `settle`, `stop` it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.clients: list[Client] = []
        self._log = KernelLog()
        self._asked_to_leave = False
        instance = f"test-{os.getpid()}-{next(_names)}"
        ready, theirs = os.pipe()
        command = [sys.executable, *options.program, "serve", "--instance", instance]
        command += [*options.arguments(), "--ready-fd", str(theirs)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, pass_fds=[theirs], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        os.close(theirs)
        try:
            self._wait_ready(ready)
            self.state = read_state(instance)
            self._page = open_page(self.state)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            os.close(ready)
        self.address = (options.bind, int(self.state["port"]))

    def _wait_ready(self, ready: int) -> None:
        waits = select.select([ready], [], [], START_S)[0]
        if not waits or not os.read(ready, 4096):
            self._process.kill()
            said = self._process.communicate()[0].decode(errors="replace")
            raise RuntimeError(f"serve {self.options} did not get ready: {said}")

    def connect(
        self,
        address: str | None = None,
        source: str | None = None,
        receive_buffer: int | None = None,
    ) -> Client:
        """A client, closed when the test is over. `address` replaces the service's own."""
        client = Client((address or self.address[0], self.address[1]), source, receive_buffer)
        self.clients.append(client)
        return client

    def counters(self) -> Counters:
        return self._page.counters()

    def counter(self, name: str) -> int:
        """`counter("ingress.frames_bad")`"""
        writer, _, word = name.partition(".")
        return self.counters()[writer][word]

    def reaches(self, name: str, value: int, deadline_s: float = DEADLINE_S) -> bool:
        """Whether a counter comes to be `value` in time."""
        return eventually(lambda: self.counter(name) == value, deadline_s)

    @contextlib.contextmanager
    def counting(self, **changes: int) -> Iterator[None]:
        """Within the block counters rise by exactly so much: `counting(ingress_frames_bad=1)`.

        What is still under way at the block's end is waited for.
        """
        names = [name.replace("_", ".", 1) for name in changes]
        before = [self.counter(name) for name in names]
        wanted = list(changes.values())
        yield

        def rises() -> list[int]:
            return [self.counter(name) - old for name, old in zip(names, before, strict=True)]

        eventually(lambda: rises() == wanted, BALANCE_S)
        assert dict(zip(names, rises(), strict=True)) == dict(zip(names, wanted, strict=True))

    def imbalance(self) -> dict[str, int]:
        """What is in use though no client is connected: words of the page, states of sockets."""
        depth = {name: value for name, value in self.counters()["depth"].items() if value}
        return depth or {
            state: count
            for state, count in sockets.states(self.address[1]).items()
            if state != "LISTEN"
        }

    def map_entries(self) -> int:
        """Sockets that the kernel still keeps in the transport's map; 0 for one without a map."""
        sockmap = Path(self.state["page"]).with_name("sockets")
        return sockets_in(sockmap, self.options.max_connections) if sockmap.exists() else 0

    def settle(self) -> None:
        """Closes the clients; then nothing may be in use, and the kernel may have no complaint."""
        for client in self.clients:
            client.close()
        self.clients.clear()
        assert self.running, "the service has ended: " + self._output()
        assert eventually(lambda: not self.imbalance(), BALANCE_S), self.imbalance()
        faults = self._log.faults()
        assert not faults, "the kernel's log has faults"

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Within the block no thread of the transport runs; the kernel goes on by itself."""
        names = [name for name in self.state["processes"] if name != "executor"]
        with self._stopped("supervisor", *names):
            yield

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Within the block the executor does not run: what is admitted stays in flight."""
        with self._stopped("executor"):
            yield

    @contextlib.contextmanager
    def _stopped(self, *names: str) -> Iterator[None]:
        processes = self.state["processes"] | {"supervisor": self.state["supervisor"]}
        for name in names:
            os.kill(processes[name]["pid"], signal.SIGSTOP)
        try:
            yield
        finally:
            for name in names:
                os.kill(processes[name]["pid"], signal.SIGCONT)

    def said(self) -> str:
        """What it has written since the last call."""
        assert self._process.stdout
        os.set_blocking(self._process.stdout.fileno(), False)
        return (self._process.stdout.read() or b"").decode(errors="replace")

    def _output(self) -> str:
        return self._process.communicate()[0].decode(errors="replace")

    def terminate(self) -> None:
        """SIGTERM, once, without waiting; `stop` waits. (Another one would hurry it.)"""
        if not self._asked_to_leave and self.running:
            self._process.terminate()
        self._asked_to_leave = True

    def stop(self) -> None:
        """SIGTERM; it must leave in time, content, and take everything with it."""
        for client in self.clients:
            client.close()
        self._page.close()
        self.terminate()
        try:
            said = self._process.communicate(timeout=STOP_S)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            self._process.kill()
            said = f"it did not leave within {STOP_S} s: {self._output()}"
        with self._log as log:
            faults = log.faults()
        assert self._process.returncode == 0, said
        assert not faults, "the kernel's log has faults"


class Pool:
    """At most one service at a time, kept as long as tests ask for equal options."""

    def __init__(self) -> None:
        self._service: Service | None = None

    def get(self, options: Options) -> Service:
        if self._service and self._service.options == options and self._service.running:
            return self._service
        self.close()
        self._service = Service(options)
        return self._service

    def close(self) -> None:
        """Stops the service; another `get` starts one."""
        service, self._service = self._service, None
        if service:
            service.stop()

    def discard(self) -> None:
        """After a failed test: the next one gets a fresh service, however this one ends."""
        with contextlib.suppress(AssertionError):
            self.close()
