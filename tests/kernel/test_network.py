# SPDX-License-Identifier: MIT
"""A network that loses, delays and reorders packets: TCP repairs it, every reply is right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from experiments import topology
from experiments.topology import Netem, Place, inside
from tests.support.frames import cancel, echo, ok, pattern, stream, stream_expected
from tests.support.kernel_log import KernelLog
from tests.support.service import Options, Service

DISTURBANCES = {
    "delay": Netem(delay_us=5000, jitter_us=3000),
    "loss": Netem(delay_us=500, loss_percent=5),
    "reordering": Netem(delay_us=5000, reorder_percent=30, gap=3),
    "duplicates": Netem(delay_us=500, duplicate_percent=10),
    "small": Netem(delay_us=500, loss_percent=2, limit=20),
}


@pytest.fixture(scope="module")
def network(kernel: None) -> Iterator[Place]:
    with topology.build("veth") as place:
        yield place


@pytest.fixture(scope="module")
def remote(network: Place) -> Iterator[Service]:
    """A service in the server's namespace."""
    with inside(network.server):
        service = Service(Options("bpf", bind=network.address))
    yield service
    with inside(network.server):
        service.stop()


@pytest.fixture(autouse=True)
def before(remote: Service, nothing_left: KernelLog) -> None:
    """The shared parts are there before a test begins to count."""


@pytest.mark.parametrize("kind", DISTURBANCES)
def test_every_reply_is_right(remote: Service, network: Place, kind: str) -> None:
    network.disturb(DISTURBANCES[kind])
    request = stream(7, [3, 1, 4], 60)
    tokens, _ = stream_expected(request)
    with inside(network.client):
        clients = [remote.connect() for _ in range(10)]
        for turn in range(5):
            for number, client in enumerate(clients):
                client.send(*(echo(at, pattern(200 * at, turn + number)) for at in range(12)))
            for number, client in enumerate(clients):
                client.expect(*(ok(at, pattern(200 * at, turn + number)) for at in range(12)))
        for client in clients:
            client.send(request, echo(8), cancel(9))
        for client in clients:
            assert client.read_stream()[0] == tokens
            client.expect(ok(8))
    with inside(network.server):
        remote.settle()
