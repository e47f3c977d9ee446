"""IPv6 clients, and IPv4 clients of an IPv6 socket."""

from __future__ import annotations

import pytest

from tests.support.client import Client
from tests.support.frames import HEADER, PIPELINE, echo, error, ok, pattern, slow, slow_ok
from tests.support.service import Service

# What the service binds to, and where its clients find it.
ADDRESSES = {
    "IPv6": ("::1", "::1"),
    "IPv4-mapped": ("::ffff:127.0.0.1", "127.0.0.1"),
}
PARAMETERS = [
    pytest.param(theirs, marks=pytest.mark.service(bind=ours), id=name)
    for name, (ours, theirs) in ADDRESSES.items()
]

pytestmark = pytest.mark.parametrize("address", PARAMETERS)


def test_replies(service: Service, address: str) -> None:
    client = service.connect(address)
    client.send(*(echo(i, pattern(i * 100, i)) for i in range(PIPELINE)))
    client.expect(*(ok(i, pattern(i * 100, i)) for i in range(PIPELINE)))


def test_pieces(service: Service, address: str) -> None:
    client = service.connect(address)
    frames = echo(1, b"first") + echo(2, b"second")
    for cut in range(1, len(frames)):
        client.send_pieces(frames, cut)
        client.expect(ok(1, b"first"), ok(2, b"second"))


def test_order(service: Service, address: str) -> None:
    client = service.connect(address)
    client.send(slow(1), echo(2), slow(3))
    client.expect(slow_ok(1), ok(2), slow_ok(3))


def test_bad_frame(service: Service, address: str) -> None:
    client = service.connect(address)
    client.send(echo(1), bytes(HEADER))
    client.expect_end(ok(1), error(0, 2))


def test_half_close(service: Service, address: str) -> None:
    client = service.connect(address)
    client.send(slow(1), echo(2))
    client.half_close()
    client.expect_end(slow_ok(1), ok(2))


def test_early_request(service: Service, address: str) -> None:
    with service.paused():
        client = service.connect(address)
        client.send(echo(1, b"early"))
    client.expect(ok(1, b"early"))


def test_many(service: Service, address: str) -> None:
    clients = [service.connect(address) for _ in range(200)]
    for number, client in enumerate(clients):
        client.send(slow(1), echo(number, pattern(number)))
    for number, client in enumerate(clients):
        client.expect(slow_ok(1), ok(number, pattern(number)))
        (Client.reset if number % 2 else Client.close)(client)
