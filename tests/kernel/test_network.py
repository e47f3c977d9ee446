# SPDX-License-Identifier: MIT
"""A network that loses, delays and reorders packets: TCP repairs it, every reply is right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernel.network import SERVER, Network, inside
from tests.support.frames import cancel, echo, ok, pattern, stream, stream_expected
from tests.support.kernel_log import KernelLog
from tests.support.service import Options, Service

DISTURBANCES = {
    "delay": {"delay": 5000, "jitter": 3000},
    "loss": {"delay": 500, "loss": 5},
    "reordering": {"delay": 5000, "prob_reorder": 30, "gap": 3},
    "duplicates": {"delay": 500, "duplicate": 10},
    "small": {"delay": 500, "loss": 2, "limit": 20},
}


@pytest.fixture(scope="module")
def network(kernel: None) -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture(scope="module")
def remote(network: Network) -> Iterator[Service]:
    """A service in the server's namespace."""
    with inside(network.server):
        service = Service(Options("bpf", bind=SERVER))
    yield service
    with inside(network.server):
        service.stop()


@pytest.fixture(autouse=True)
def before(remote: Service, nothing_left: KernelLog) -> None:
    """The shared parts are there before a test begins to count."""


@pytest.mark.parametrize("kind", DISTURBANCES)
def test_every_reply_is_right(remote: Service, network: Network, kind: str) -> None:
    network.disturb(**DISTURBANCES[kind])
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
