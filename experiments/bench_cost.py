"""What the steps of a request cost each transport, in instructions: run in the VM under --icount.

There a nanosecond of run time is an instruction, and one CPU takes part. The executor is stopped
(SIGSTOP) while requests come in, so that they stand on the page and go no further; then it goes on,
and the replies leave. Each part is the difference of two loads that differ only in their number of
requests: what starting and connecting cost falls out.

- wire to page: service and generator together while requests come in, one at a time, less what the
  generator uses to send as much to a socket that nobody reads. So it begins where TCP would queue
  the bytes, and has in it whatever brings them to the page: waking, receiving, cutting, admitting.
  (Together, since on loopback the sk_skb program runs inside the sender's call.)
- page to wire: the service while replies leave, all found at one look. It ends in the receive queue
  of the peer, since on loopback TCP's receiving runs inside the sender's call too.
- a look: what the machine spends for finding, once, that no result stands yet.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

from experiments import programs
from experiments.accounts import parse_cpu_stat, process_clock
from experiments.bench_memory import resident_bytes
from experiments.errors import ExperimentError
from experiments.plan import TRANSPORTS, Condition
from experiments.progress import Report, print_event
from experiments.service import Service
from experiments.soak import Soak

CASES = "cases.bin"
RESULT = "cost.json"
CONNECTIONS = 512
REQUESTS = (64, 512)  # of the two loads; at most one a connection, so that each has its own send
REPEATS = 3
# Of two loads before: then programs are read from disk, and every slot of the page was touched.
WARM = 600
RATE = 5000  # a second: each has been dealt with before the next one comes
NO_LOOKS_US = 1_000_000  # between looks for results: none while requests come in
WAKE_US = 60
PATIENCE_S = 60.0  # guest time, of which waiting takes next to none
LOOK_S = 0.02
QUIET_NS = 20_000  # in LOOK_S, of a generator that waits
SOAK_S = 0.3
# Expected, on an emulated CPU.
SENDING_S, WAYS_S, LOOKING_S = 8.0, 18.0, 10.0
TOTAL_S = SENDING_S + len(TRANSPORTS) * (WAYS_S + LOOKING_S)


def measure(folder: Path, report: Report = print_event) -> None:
    """Leaves the costs of both transports, and of the generator alone, in the folder's cost.json.

    Raises ExperimentError.
    """
    report("cost: the generator alone", SENDING_S)
    _, *sent = [sending(folder, requests) for requests in (WARM, *REQUESTS * REPEATS)]
    send = difference(sent)
    costs: dict[str, Any] = {"generator": {"send": send}}
    for transport in TRANSPORTS:
        report(f"cost: {transport}, both ways", WAYS_S)
        ways = both_ways(folder, transport)
        ways["wire_to_page"] -= send
        report(f"cost: {transport}, looks", LOOKING_S)
        costs[transport] = {**ways, **look(folder, transport)}
    (folder / RESULT).write_text(json.dumps(costs, indent=2) + "\n")


def sending(folder: Path, requests: int) -> float:
    """Instructions of a generator until all is sent, to a socket whose connections nobody accepts
    or reads. Raises ExperimentError."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2 * CONNECTIONS)
        with Load(folder, int(listener.getsockname()[1]), requests) as load:
            load.wait_sent()
            return load.cpu_ns()


def difference(used: list[float]) -> float:
    """Instructions a request, from those of pairs of loads: the median of the pairs."""
    pairs = zip(used[::2], used[1::2], strict=True)
    return median((many - few) / (REQUESTS[1] - REQUESTS[0]) for few, many in pairs)


class Load:
    """A generator that sends so many requests, one every 1 / RATE seconds, in the `with` block."""

    def __init__(self, folder: Path, port: int, requests: int) -> None:
        self._requests, self._log = requests, folder / "load.log"
        self._command = [
            str(programs.native_program("load")), "--port", str(port),
            "--cases", str(folder / CASES), "--connections", str(CONNECTIONS),
            "--rate", str(RATE), "--arrivals", "constant", "--requests", str(requests),
            "--timeout", str(PATIENCE_S), "--json", str(folder / "load.json"),
        ]  # fmt: skip

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stderr=log)
        return self

    def cpu_ns(self) -> int:
        """So far: instructions."""
        return time.clock_gettime_ns(process_clock(self._process.pid))

    def wait_sent(self) -> None:
        """Returns when all is sent. Raises ExperimentError when it ends before."""
        tasks = Path(f"/proc/{self._process.pid}/task")
        sent, before = False, 0
        for _ in range(int(PATIENCE_S / LOOK_S)):
            time.sleep(LOOK_S)
            if self._process.poll() is not None:
                break
            if not sent:  # its threads start when all connections are open
                sent = len(list(tasks.iterdir())) > 1
                time.sleep(sent * self._requests / RATE)
                continue
            now = self.cpu_ns()
            if now - before < QUIET_NS:
                return
            before = now
        raise self._failed("send requests")

    def wait_answered(self) -> None:
        """Waits for its end. Raises ExperimentError unless every reply was the expected one."""
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise self._failed("wait for replies") from None
        if self._process.returncode:
            raise self._failed("check replies")

    def _failed(self, tried: str) -> ExperimentError:
        status = programs.end(self._process, 1.0)
        said = self._log.read_text(errors="replace")
        return programs.failed(tried, self._command, status, said)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        programs.end(self._process, 1.0)


class Held:
    """A service whose executor is stopped until release()."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.port = int(state["port"])
        self.supervisor = int(state["supervisor"]["pid"])
        self._account = Path(state["cgroups"]["service"]) / "cpu.stat"
        self._executor = int(state["processes"]["executor"]["pid"])
        self.hold()

    def hold(self) -> None:
        """From now on no request is taken."""
        os.kill(self._executor, signal.SIGSTOP)

    def release(self) -> None:
        """From now on they are again."""
        os.kill(self._executor, signal.SIGCONT)

    def cpu_ns(self) -> float:
        """Instructions of the service's threads so far; the executor's are not among them."""
        return parse_cpu_stat(self._account.read_text()) * 1e3


@contextmanager
def held(folder: Path, transport: str, wake_us: int) -> Iterator[Held]:
    """A service with a stopped executor. Raises ExperimentError."""
    condition = Condition(connections=CONNECTIONS, wake_us=wake_us)
    with Service(transport, condition, folder / "service.log") as service:
        page = Held(service.state())
        try:
            yield page
        finally:
            page.release()


def both_ways(folder: Path, transport: str) -> dict[str, float]:
    """Instructions a request, to the page (sending included) and from it; and what the supervisor
    has in RAM. Raises ExperimentError."""
    came, left = [], []
    with held(folder, transport, NO_LOOKS_US) as page:
        page.release()
        for _ in range(2):
            with Load(folder, page.port, WARM) as load:
                load.wait_answered()
        page.hold()
        for requests in REQUESTS * REPEATS:
            before = page.cpu_ns()
            with Load(folder, page.port, requests) as load:
                load.wait_sent()
                between = page.cpu_ns()
                came.append(between - before + load.cpu_ns())
                page.release()
                load.wait_answered()
            left.append(page.cpu_ns() - between)
            page.hold()
        resident = resident_bytes(page.supervisor)
    return {
        "wire_to_page": difference(came),
        "page_to_wire": difference(left),
        "supervisor_resident_bytes": resident,
    }


def look(folder: Path, transport: str) -> dict[str, float]:
    """Instructions of a look that finds nothing, whoever pays for them, and those that the service
    pays for. Raises ExperimentError."""
    with held(folder, transport, WAKE_US) as page, Soak() as soak:
        without = soak.rate(SOAK_S)
        with Load(folder, page.port, 1) as load:
            load.wait_sent()
            before, began = page.cpu_ns(), time.monotonic_ns()
            left = soak.rate(SOAK_S) / without
            service = (page.cpu_ns() - before) / (time.monotonic_ns() - began)
            page.release()
            load.wait_answered()
    # The next look comes WAKE_US after one has ended, so that they take 1 - left of the time.
    every_ns = WAKE_US * 1e3 / left
    return {"look": (1 - left) * every_ns, "look_in_service": service * every_ns}
