"""Clients that are quicker than accept."""

from __future__ import annotations

from tests.support.client import Client
from tests.support.frames import HEADER, PIPELINE, echo, error, ok, pattern
from tests.support.service import Service


def test_request_before_accept(service: Service) -> None:
    """Case K23: answered without another byte of the client."""
    with service.paused():
        client = service.connect()
        client.send(echo(1, b"early"))
    client.expect(ok(1, b"early"))


def test_full_pipeline_before_accept(service: Service) -> None:
    with service.paused():
        client = service.connect()
        client.send(*(echo(i, pattern(200, i)) for i in range(PIPELINE)))
    client.expect(*(ok(i, pattern(200, i)) for i in range(PIPELINE)))


def test_half_a_request_before_accept(service: Service) -> None:
    frame = echo(1, pattern(500))
    with service.paused():
        client = service.connect()
        client.send(frame[:100])
    client.send(frame[100:])
    client.expect(ok(1, pattern(500)))


def test_request_and_half_close_before_accept(service: Service) -> None:
    with service.paused():
        client = service.connect()
        client.send(echo(1, b"early"))
        client.half_close()
    client.expect_end(ok(1, b"early"))


def test_half_close_before_accept(service: Service) -> None:
    with service.paused():
        client = service.connect()
        client.half_close()
    client.expect_end()


def test_garbage_before_accept(service: Service) -> None:
    with service.paused():
        client = service.connect()
        client.send(bytes(HEADER))
    client.expect_end(error(0, 2))


def test_leaving_before_accept(service: Service) -> None:
    """Cases K3 and K11: whoever came and went is no burden, and who comes then is served."""
    with service.paused():
        for number in range(300):
            client = service.connect()
            if number % 3:
                client.send(echo(1, pattern(100)))
            (Client.reset if number % 2 else Client.close)(client)
    clients = [service.connect() for _ in range(100)]
    for client in clients:
        client.send(echo(1, b"good"))
    for client in clients:
        client.expect(ok(1, b"good"))


def test_many_before_accept(service: Service) -> None:
    with service.paused():
        clients = [service.connect() for _ in range(500)]
        for number, client in enumerate(clients):
            client.send(echo(number, pattern(number)))
    for number, client in enumerate(clients):
        client.expect(ok(number, pattern(number)))
