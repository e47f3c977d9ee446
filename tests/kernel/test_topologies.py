# SPDX-License-Identifier: MIT
"""Both transports serve in a namespace of their own, over an Ethernet pair and an overlay on it."""

from __future__ import annotations

import socket

import pytest

from experiments import topology
from experiments.topology import Netem, inside
from tests.kernel.generator import load
from tests.support.service import Options, Service

NETEM = Netem(delay_us=500, jitter_us=200, loss_percent=0.5, on="client")


@pytest.mark.parametrize("transport", ["epoll", "bpf"])
def test_served_over_veth_and_vxlan(transport: str) -> None:
    with topology.build("vxlan", netem=NETEM, congestion="bbr") as place:
        with inside(place.server):
            service = Service(Options(transport, bind="0.0.0.0"))
        try:
            with inside(place.client):
                for address in (topology.SERVER, place.address):
                    client = service.connect(address).socket
                    used = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
                    assert used.rstrip(b"\0") == b"bbr"
                    report = load(service, "--host", address, "--rate", "1000", "--requests", "300")
                    assert report["verified"] == 300
            with inside(place.server):
                service.settle()
        finally:
            with inside(place.server):
                service.stop()
