"""Crowds that come and go: at the end the service is as it was.

How often is set by CONFORMANCE_ROUNDS, since an emulated CPU takes long: 50 is the full form.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.support.client import Client
from tests.support.frames import HEADER, PIPELINE, cancel, echo, error, ok, pattern, slow, stream
from tests.support.service import SLOW_S, Service, eventually

ROUNDS = int(os.environ.get("CONFORMANCE_ROUNDS", "2"))

pytestmark = pytest.mark.timeout(60 + 30 * ROUNDS)


def sources() -> list[str]:
    """Addresses to connect from, so that ports in TIME_WAIT do not run out."""
    return [f"127.0.0.{number}" for number in range(2, 12)]


def test_a_thousand_connections_time_and_again(service: Service) -> None:
    for turn in range(ROUNDS):
        source = sources()[turn % 10]
        clients = [service.connect(source=source) for _ in range(1000)]
        for number, client in enumerate(clients):
            client.send(echo(number, b"used"))
        for number, client in enumerate(clients):
            client.expect(ok(number, b"used"))
        for client in clients:
            client.close()
        service.clients.clear()
        assert eventually(lambda: not service.imbalance()), service.imbalance()
        assert service.map_entries() == 0


def test_one_after_the_other(service: Service) -> None:
    """Case K8."""
    for number in range(150 * ROUNDS):
        client = service.connect(source=sources()[number % 10])
        client.send(echo(number))
        client.expect(ok(number))
        client.close()
        service.clients.clear()
    assert eventually(lambda: not service.imbalance(), 2), service.imbalance()
    assert service.map_entries() == 0


def test_resets_before_accept(service: Service) -> None:
    """Case K11."""
    for number in range(200 * ROUNDS):
        service.connect(source=sources()[number % 10]).reset()
        service.clients.clear()
    clients = [service.connect() for _ in range(100)]
    for client in clients:
        client.send(echo(1))
    for client in clients:
        client.expect(ok(1))


def test_a_thousand_send_and_reset(service: Service) -> None:
    """Case K15: what they asked for is done with within twice the time that it takes."""
    clients = [service.connect() for _ in range(1000)]
    for client in clients:
        client.send(slow(1))
    for client in clients:
        client.reset()
    assert eventually(lambda: not any(service.counters()["depth"].values()), 10 * SLOW_S)
    clients = [service.connect() for _ in range(100)]
    for client in clients:
        client.send(echo(1, b"good"))
    for client in clients:
        client.expect(ok(1, b"good"))


@pytest.mark.parametrize("seed", range(2))
def test_random_lives(service: Service, seed: int) -> None:
    """Each client does one of many things, good or bad, and leaves in one of many ways."""
    numbers = random.Random(seed)
    lives = [
        [echo(1), echo(2, pattern(500))],
        [slow(1), echo(2)],
        [stream(1, [1], 50), echo(2)],
        [stream(1, [1], 500), cancel(1)],
        [echo(1), bytes(HEADER)],
        [echo(1, pattern(4096))[:2000]],
        [echo(1)[:10]],
        [echo(i) for i in range(PIPELINE + 5)],
        [],
    ]
    for _ in range(10 * ROUNDS):
        crowd = [service.connect(source=sources()[seed]) for _ in range(30)]
        service.clients.clear()
        for client in crowd:
            client.send(*numbers.choice(lives))
        numbers.shuffle(crowd)
        for client in crowd:
            if numbers.randrange(2):
                client.half_close()
        for client in crowd:
            (Client.reset if numbers.randrange(2) else Client.close)(client)


def test_flows_do_not_mix(service: Service) -> None:
    """Case K16: pipelines that are refilled while replies leave, each with bytes of its own."""
    clients = [service.connect() for _ in range(12)]
    last = 15 * ROUNDS
    for turn in range(last + 2):
        for number, client in enumerate(clients):
            if turn < last:
                client.send(*(echo(turn, pattern(300 + i, turn + number * i)) for i in range(8)))
            if turn >= 2:  # three eights are under way at a time
                before = turn - 2
                client.expect(
                    *(ok(before, pattern(300 + i, before + number * i)) for i in range(8))
                )


def test_stopped_and_continued(service: Service) -> None:
    """Case K27: signals interrupt every wait; nothing is lost by that."""
    client, other = service.connect(), service.connect()
    for turn in range(20 * ROUNDS):
        client.send(echo(turn, b"before"), echo(1))
        with service.paused():
            client.send(echo(turn, b"while"))
        other.send(echo(turn, b"after"))
        other.expect(ok(turn, b"after"))
        client.expect(ok(turn, b"before"), ok(1), ok(turn, b"while"))


def test_error_storm(service: Service) -> None:
    """Every connection ends in an error, hundreds at a time."""
    for _ in range(2):
        clients = [service.connect() for _ in range(300)]
        for client in clients:
            client.send(echo(1), b"?" * HEADER, pattern(3000))
        for client in clients:
            client.expect_end(ok(1), error(0, 2))
            client.close()
