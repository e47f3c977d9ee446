"""A service in its network and on its CPUs, and loads for it, from wherever these come."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from experiments.errors import ExperimentError
from experiments.far_generator import FarGenerator, FarHost
from experiments.generator import Generator, Server
from experiments.plan import SSH, VLLM, Condition, Timing
from experiments.service import Service
from experiments.vllm import Vllm

LOOPBACK = "127.0.0.1"

Loads = Callable[[Timing, int, Path, int], Generator]  # by length, seed, requests, µs too late


@contextmanager
def serving(
    transport: str, condition: Condition, log: Path
) -> Iterator[tuple[Service | Vllm, Loads]]:
    """A service in its network and on its CPUs, and what makes loads for it. Raises
    ExperimentError."""
    with network(condition) as (address, *prefixes):
        ours, theirs = map(list.__add__, prefixes, pinned(condition.service_cpus))
        with server_of(transport, condition, log, ours, address) as service:
            model = service.model if isinstance(service, Vllm) else ""
            server = Server(address, int(service.state()["port"]), model)
            with far_host(condition, prefixes[1]) as host:

                def loads(timing: Timing, seed: int, cases: Path, late_us: int) -> Generator:
                    asked = (condition, timing, seed, server, cases)
                    if host:
                        return FarGenerator(*asked, late_us, host)
                    return Generator(*asked, theirs, late_us)

                yield service, loads


def server_of(
    transport: str, condition: Condition, log: Path, prefix: list[str], address: str
) -> Service | Vllm:
    """What serves, not started yet."""
    if transport == VLLM:
        return Vllm(condition, log, prefix)
    service = Service(transport, condition, log, prefix)
    return service if address == LOOPBACK else service.listen_on(address)


def far_host(condition: Condition, prefix: list[str]) -> AbstractContextManager[FarHost | None]:
    """The machine that the load runs on, where it is another."""
    return FarHost(prefix) if condition.topology.startswith(SSH) else nullcontext()


@contextmanager
def network(condition: Condition) -> Iterator[tuple[str, list[str], list[str]]]:
    """The server's address, and what comes before the server's and the load's commands. Raises
    ExperimentError."""
    if condition.topology == "loopback" and not condition.congestion and not condition.netem:
        yield LOOPBACK, [], []
        return
    from experiments import topology

    netem = topology.Netem(**condition.netem) if condition.netem else None
    made = topology.build(condition.topology, netem=netem, congestion=condition.congestion or None)
    with made as place:
        yield place.address, list(place.server_prefix), list(place.client_prefix)


def pinned(service_cpus: int) -> tuple[list[str], list[str]]:
    """What comes before the service's and before the load's command to keep each, and its
    children, on CPUs of its own. Raises ExperimentError."""
    cpus = sorted(os.sched_getaffinity(0))
    if not service_cpus:
        return [], []
    if service_cpus >= len(cpus):
        raise ExperimentError(
            f"give the service {service_cpus} CPUs of its own",
            f"there are {len(cpus)}, and the load needs one",
            f"make service_cpus less than {len(cpus)}, or 0 to share all",
        )  # fmt: skip
    load, service = cpus[:-service_cpus], cpus[-service_cpus:]
    return _taskset(service), _taskset(load)


def _taskset(cpus: list[int]) -> list[str]:
    return ["taskset", "--cpu-list", ",".join(map(str, cpus))]
