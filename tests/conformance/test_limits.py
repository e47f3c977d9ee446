"""A service with eight entries for connections: refusals, and entries that change hands."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from tests.support.client import Client
from tests.support.frames import HEADER, echo, error, ok, pattern, slow, slow_ok, stream
from tests.support.service import Service, eventually

ENTRIES = 8
# Rounds in which each entry changes hands while an old result is coming.
HAND_OVERS = int(os.environ.get("CONFORMANCE_HAND_OVERS", "40"))

pytestmark = pytest.mark.service(max_connections=ENTRIES)


def fill(service: Service) -> list[Client]:
    clients = [service.connect() for _ in range(ENTRIES)]
    for client in clients:
        client.send(echo(1))
        client.expect(ok(1))
    return clients


def test_refusals_are_said_once(service: Service) -> None:
    """And not again for a while, however many there are."""
    fill(service)
    service.said()
    text = ""

    def told() -> bool:
        nonlocal text
        text += service.said()
        return "--max-connections" in text

    for _ in range(30):
        service.connect().expect_gone()
    assert eventually(told)
    assert text.count("refused") == 1
    assert f"all {ENTRIES} places are taken" in text


@pytest.mark.parametrize("more", [1, 30])
def test_over_the_limit(service: Service, more: int) -> None:
    """Refused without a byte, and counted; who is in stays in."""
    clients = fill(service)
    with service.counting(ingress_connections_refused=more):
        refused = [service.connect() for _ in range(more)]
        for client in refused:
            client.expect_gone()
    for client in clients:
        client.send(echo(2, b"still in"))
        client.expect(ok(2, b"still in"))


def test_refused_with_a_request_under_way(service: Service) -> None:
    clients = fill(service)
    for _ in range(10):
        client = service.connect()
        client.socket.send(echo(1))
        client.expect_gone()
    clients[0].send(echo(2))
    clients[0].expect(ok(2))


def test_room_for_the_next_one(service: Service) -> None:
    clients = fill(service)
    for turn in range(20):
        clients.pop(0).close()
        assert service.reaches("depth.connections", ENTRIES - 1)
        clients.append(service.connect())
        clients[-1].send(echo(turn))
        clients[-1].expect(ok(turn))


def test_full_and_early(service: Service) -> None:
    """More than there is room for, all before accept: those in time are served, no others."""
    with service.counting(ingress_connections_refused=7):
        with service.paused():
            clients = [service.connect() for _ in range(ENTRIES + 7)]
            for client in clients:
                client.socket.send(echo(1, b"early"))
        served = 0
        for client in clients:
            try:
                client.expect(ok(1, b"early"))
                served += 1
            except (EOFError, ConnectionResetError):
                pass
    assert served == ENTRIES


def hand_over(service: Service, leave: Callable[[Client], None]) -> None:
    """Each entry's owner asks twice and goes; before the results come, others have the entries."""
    with service.stalled():
        admitted = service.counter("ingress.submit_tail")
        old = [service.connect() for _ in range(ENTRIES)]
        for client in old:
            client.send(echo(666, b"not yours"), echo(667, pattern(4096)))
        admitted += 2 * ENTRIES
        assert service.reaches("ingress.submit_tail", admitted)
        for client in old:
            leave(client)
        assert service.reaches("depth.connections", 0)
        new = [service.connect() for _ in range(ENTRIES)]
        for client in new[::2]:
            client.send(echo(1, b"mine"))
        admitted += ENTRIES // 2
        assert service.reaches("ingress.submit_tail", admitted)
    for number, client in enumerate(new):
        client.half_close()
        client.expect_end(*([] if number % 2 else [ok(1, b"mine")]))
        client.close()
    assert service.reaches("depth.connections", 0)


def test_new_clients_get_no_byte_of_old_ones(service: Service) -> None:
    """Case K13: entries change hands while results of their old owners are still to come."""
    with service.counting(egress_stale_results=2 * ENTRIES * HAND_OVERS):
        for _ in range(HAND_OVERS):
            hand_over(service, Client.reset)


def test_new_clients_get_no_byte_of_closed_ones(service: Service) -> None:
    """After a FIN the server cannot know that nobody reads: it sends, and learns by a reset."""
    for turn in range(10):
        old = [service.connect() for _ in range(ENTRIES)]
        admitted = service.counter("ingress.submit_tail") + 3 * ENTRIES
        for client in old:
            client.send(*(echo(666, pattern(4096)) for _ in range(3)))
        assert service.reaches("ingress.submit_tail", admitted)
        for client in old:
            client.close()
        assert service.reaches("depth.connections", 0)
        new = [service.connect() for _ in range(ENTRIES)]
        for client in new[::2]:
            client.send(echo(turn))
        for number, client in enumerate(new):
            client.half_close()
            client.expect_end(*([] if number % 2 else [ok(turn)]))
            client.close()
        assert service.reaches("depth.connections", 0)


def test_new_clients_get_no_frame_of_old_streams(service: Service) -> None:
    for turn in range(10):
        old = [service.connect() for _ in range(ENTRIES)]
        admitted = service.counter("ingress.submit_tail") + ENTRIES
        for client in old:
            client.send(stream(666, [turn], 1000))
        assert service.reaches("ingress.submit_tail", admitted)
        old[0].read()
        for client in old:
            client.close()
        assert service.reaches("depth.connections", 0)
        new = [service.connect() for _ in range(ENTRIES)]
        for client in new:
            client.send(echo(turn))
            client.expect(ok(turn))
            client.expect_silence(0.005)
            client.close()
        assert service.reaches("depth.connections", 0)


def test_half_a_frame_of_the_old_client_is_not_the_new_one_s(service: Service) -> None:
    for have in (1, HEADER - 1, HEADER, HEADER + 5):
        old = fill(service)
        for client in old:
            client.send(echo(666, b"leftovers")[:have])
        time.sleep(0.05)
        for client in old:
            client.close()
        assert service.reaches("depth.connections", 0)
        new = fill(service)
        for client in new:
            client.close()
        assert service.reaches("depth.connections", 0)


def test_an_entry_closed_for_an_error_opens_again(service: Service) -> None:
    for _ in range(3):
        clients = fill(service)
        for client in clients:
            client.send(slow(2), bytes(HEADER))
        for client in clients:
            client.expect_end(slow_ok(2), error(0, 2))
            client.close()
        assert service.reaches("depth.connections", 0)
