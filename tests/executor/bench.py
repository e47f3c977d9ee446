"""What an executor sustains, driven through the page by one thread: no sockets.

`python -m tests.executor.bench` prints two tables: CPU time a request, which other load on the
machine changes little, and requests a second, which needs two cores that are free.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpu_scheduler import workloads
from shared_page import SharedPage, constants
from shared_page.reading import ffi

from .driver import Transport, library, wait_until
from .executors import EXECUTORS, Executor

SPECS = ["empty", "gemm:work=1", "fft:work=1"]
ROUNDS = 8
NAMES = ["cpu"]  # gpu_scheduler.bench measures cuda


@contextmanager
def serving(name: str, spec: str, *options: str) -> Iterator[Executor]:
    """An executor on a page of its own."""
    with SharedPage.create_memfd(64) as page:
        executor = Executor(EXECUTORS[name], page, spec, *options)
        try:
            yield executor.ready()
        finally:
            executor.close()


def cpu_us(name: str, spec: str) -> float:
    """CPU microseconds a request: the page is filled while the executor sleeps, ROUNDS times."""
    parsed = workloads.parse_spec(spec)
    (payload,) = workloads.payloads(spec, 1, seed=1)
    with serving(name, spec, "--sleep-us", "50000") as executor:
        transport = Transport(executor.page)
        connections = transport.connect_many(constants.SLOT_COUNT)
        schedstat = Path(f"/proc/{executor.process.pid}/schedstat")
        before_ns = int(schedstat.read_text().split()[0])
        for _ in range(ROUNDS):
            for connection in connections:
                connection.send(parsed.kind, payload)
            wait_until(transport.settled_after(connections), "the answers")
        ran_ns = int(schedstat.read_text().split()[0]) - before_ns
    return ran_ns / 1e3 / (ROUNDS * constants.SLOT_COUNT)


def per_second(name: str, spec: str, connections: int, depth: int, requests: int) -> float:
    """Requests a second with connections · depth outstanding; the executor spins.

    Raises RuntimeError when they are not answered in a minute.
    """
    (payload,) = workloads.payloads(spec, 1, seed=1)
    driver = library()
    load = ffi.new("struct transport_load *")
    load.kind, load.length = workloads.parse_spec(spec).kind, len(payload)
    load.connections, load.depth, load.requests = connections, depth, requests
    with serving(name, spec, "--poll", "spin") as executor:
        page = executor.page.struct
        seconds = driver.transport_load(page, load, payload)
        assert seconds < 0 or page.executor.completed == page.executor.batched == requests
    if seconds < 0:
        raise RuntimeError(f"{spec}: {requests} requests were not answered in a minute")
    return requests / float(seconds)


def main() -> None:
    """Prints the tables."""
    print(f"{'executor':10} {'workload':14} {'CPU us a request':>17} {'a core, a second':>17}")
    for name in NAMES:
        for spec in SPECS:
            least = min(cpu_us(name, spec) for _ in range(3))
            print(f"{name:10} {spec:14} {least:17.3f} {1e6 / least:17,.0f}")
    print(
        f"\n{'executor':10} {'workload':14} {'outstanding':>11} {'requests/s':>12} {'us each':>8}"
    )
    for name in NAMES:
        for connections, depth, requests in ((32, 16, 200_000), (1, 1, 20_000)):
            for spec in SPECS:
                best = max(per_second(name, spec, connections, depth, requests) for _ in range(3))
                outstanding = connections * depth
                print(f"{name:10} {spec:14} {outstanding:11} {best:12,.0f} {1e6 / best:8.2f}")


if __name__ == "__main__":
    main()
