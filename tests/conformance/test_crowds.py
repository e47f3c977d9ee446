"""Full queues, full tables, peers that do not read: nobody else pays for them."""

from __future__ import annotations

import socket
import time

from shared_page import constants
from shared_page.wire import pack_request
from tests.support.client import Client
from tests.support.frames import (
    DEEP_FILLERS,
    DEPTH,
    FILLERS,
    HEADER,
    PIPELINE,
    cancel,
    echo,
    error,
    ok,
    pattern,
    slow,
)
from tests.support.service import Service, eventually

SLOTS = constants.SLOT_COUNT
BUSY = constants.STATUS_BUSY


def fill(service: Service) -> list[Client]:
    """Takes every slot."""
    clients = [service.connect() for _ in FILLERS]
    for client, count in zip(clients, FILLERS, strict=True):
        client.send(*(echo(i) for i in range(count)))
        if client is clients[DEEP_FILLERS - 1]:
            assert service.reaches("depth.in_flight", sum(FILLERS[:DEEP_FILLERS]))
    assert service.reaches("depth.in_flight", SLOTS)
    return clients


def decided(service: Service) -> int:
    """Requests that were admitted, or answered with BUSY."""
    return service.counter("ingress.submit_tail") + service.counter("ingress.frames_busy")


def test_full_queue_is_said_at_once(service: Service) -> None:
    """Not when there is room: nobody computes meanwhile."""
    client = service.connect()
    with service.counting(ingress_frames_busy=3, executor_completed=SLOTS):
        with service.stalled():
            fillers = fill(service)
            client.send(echo(1, pattern(4096)), echo(2), slow(3))
            client.expect(error(1, BUSY), error(2, BUSY), error(3, BUSY))
        for filler, count in zip(fillers, FILLERS, strict=True):
            filler.expect(*(ok(i) for i in range(count)))
    client.send(echo(4, b"room again"))
    client.expect(ok(4, b"room again"))


def test_the_greedy_leave_room_for_the_modest(service: Service) -> None:
    """Fifty that ask for all they can get hold 19 slots each: 4 · 18 were free before the last."""
    greedy = [service.connect() for _ in range(50)]
    modest = [service.connect() for _ in range(SLOTS - 50 * 19)]
    with service.counting(ingress_frames_busy=50 * (PIPELINE - 19), executor_completed=SLOTS):
        before = decided(service)
        with service.stalled():
            for turn in range(PIPELINE):
                for client in greedy:
                    client.send(echo(turn))
                asked = before + 50 * (turn + 1)
                assert eventually(lambda asked=asked: decided(service) == asked)
            for client in modest:
                client.send(echo(1, b"me too"))
            assert service.reaches("depth.in_flight", SLOTS)
    for client in modest:
        client.expect(ok(1, b"me too"))
    for client in greedy:
        client.expect(*(ok(i) if i < 19 else error(i, BUSY) for i in range(PIPELINE)))


def test_bad_frames_do_not_need_room(service: Service) -> None:
    client, bad = service.connect(), service.connect()
    with service.stalled():
        fill(service)
        bad.send(bytes(HEADER))
        bad.expect_end(error(0, constants.STATUS_BAD_FRAME))
        client.send(cancel(1), pack_request(99, 2))
        client.expect(error(2, BUSY))


def test_clients_that_leave_a_full_queue(service: Service) -> None:
    """Their slots are theirs until the executor has seen them; then there is room."""
    with service.counting(egress_stale_results=SLOTS), service.stalled():
        for client in fill(service):
            client.reset()
        assert service.reaches("depth.connections", 0)
        late = service.connect()
        late.send(echo(1))
        late.expect(error(1, BUSY))
    late.send(echo(2))
    late.expect(ok(2))


def test_busy_keeps_its_place(service: Service) -> None:
    """Admitted ones and refused ones of a connection are answered in its order."""
    clients = [service.connect() for _ in range(40)]
    asked = decided(service) + 40 * PIPELINE
    with service.stalled():
        for client in clients:
            client.send(*(echo(i, b"admitted") for i in range(PIPELINE)))
        assert eventually(lambda: decided(service) == asked)
    for client in clients:
        for i in range(PIPELINE):
            assert client.read() in (ok(i, b"admitted"), error(i, BUSY))


def test_half_frames_hold_their_slots_only_while_their_clients_stay(service: Service) -> None:
    holders = [service.connect() for _ in range(SLOTS)]
    for client in holders:
        client.send(echo(1, b"??")[:-1])
    assert service.reaches("depth.slots", SLOTS)
    late = service.connect()
    late.send(echo(1))
    late.expect(error(1, BUSY))
    for client in holders[: SLOTS // 2]:
        client.close()
    assert service.reaches("depth.slots", SLOTS // 2)
    late.send(echo(2))
    late.expect(ok(2))
    for client in holders[SLOTS // 2 :]:
        client.send(b"?")
    for client in holders[SLOTS // 2 :]:
        client.expect(ok(1, b"??"))


def clog(service: Service, client: Client) -> int:
    """Asks for large replies and reads none, until the server can send no more. Counts them."""
    answered = service.counter("egress.replies")
    for asked in range(PIPELINE, 200 * PIPELINE, PIPELINE):
        client.send(*(echo(i, pattern(4095, i)) for i in range(asked - PIPELINE, asked)))
        answered += PIPELINE
        if not service.reaches("egress.replies", answered, 0.5):
            return asked
    raise AssertionError("25 MB of replies were accepted by a peer that reads nothing")


def test_peers_that_never_read(service: Service) -> None:
    """Each holds at most a pipeline of slots, and nobody waits for them."""
    deaf = [service.connect(receive_buffer=4096) for _ in range(4)]
    for client in deaf:
        clog(service, client)
    other = service.connect()
    assert service.reaches("depth.in_flight", 0)
    with service.counting(ingress_frames_busy=0, executor_completed=100):
        for i in range(50):
            other.send(echo(i, pattern(500)), echo(i))
            other.expect(ok(i, pattern(500)), ok(i))
    assert service.counter("depth.slots") <= len(deaf) * PIPELINE
    with service.counting(ingress_frames_bad=len(deaf)):
        for client in deaf:
            client.send(*(echo(i) for i in range(PIPELINE + 1)))
    other.send(echo(1))
    other.expect(ok(1))


def test_peer_that_reads_after_all(service: Service) -> None:
    """A reply that was half sent goes on where it stopped."""
    client = service.connect(receive_buffer=4096)
    asked = clog(service, client)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    client.expect(*(ok(i, pattern(4095, i)) for i in range(asked)))
    client.send(echo(1, b"on time"))
    client.half_close()
    client.expect_end(ok(1, b"on time"))


def test_slow_reader_gets_every_byte(service: Service) -> None:
    """Case K7: replies larger than what the peer's window lets through."""
    client, other = service.connect(receive_buffer=4096), service.connect()
    count = 6 * DEPTH
    sent = 0
    for i in range(count):
        while sent < min(i + DEPTH, count):
            client.send(echo(sent, pattern(4096, sent)))
            sent += 1
        time.sleep(0.002)
        client.expect(ok(i, pattern(4096, i)))
        other.send(echo(i))
        other.expect(ok(i))


def test_reader_that_starts_late(service: Service) -> None:
    client = service.connect(receive_buffer=4096)
    client.send(*(echo(i, pattern(4096, i)) for i in range(PIPELINE)))
    client.half_close()
    time.sleep(0.5)
    client.expect_end(*(ok(i, pattern(4096, i)) for i in range(PIPELINE)))
