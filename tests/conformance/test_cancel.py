"""CANCEL names a request of its own connection. It gets no reply; the request gets one, always."""

from __future__ import annotations

import pytest

from shared_page import constants
from shared_page.wire import Reply, pack_request
from tests.support.client import Client
from tests.support.frames import HEADER, cancel, echo, ok, slow, slow_ok, stream, stream_expected
from tests.support.service import Service

ABORTED = constants.REPLY_LAST | constants.FINISH_ABORT << constants.REPLY_FINISH_SHIFT
LONG = 1000  # tokens of a stream that is cancelled long before its end


def expect_aborted(client: Client, request_id: int, request: bytes) -> list[int]:
    """A stream that was cut: its tokens so far are right. Returns them."""
    tokens, last = client.read_stream()
    assert last._replace(payload=b"") == Reply(request_id, constants.STATUS_CANCELLED, ABORTED, b"")
    assert tokens == stream_expected(request)[0][: len(tokens)]
    assert len(tokens) < LONG
    return tokens


@pytest.mark.parametrize("request_id", [0, 1, 2**64 - 1])
def test_unknown_id(service: Service, request_id: int) -> None:
    """No reply, no harm."""
    client = service.connect()
    with service.counting(ingress_cancels=2):
        client.send(cancel(request_id), echo(5, b"on"), cancel(request_id))
        client.expect(ok(5, b"on"))
        client.expect_silence(0.1)


def test_before_its_request(service: Service) -> None:
    """It means nothing for a request that comes later."""
    client = service.connect()
    client.send(cancel(1), slow(1), echo(2))
    client.expect(slow_ok(1), ok(2))


def test_after_its_reply(service: Service) -> None:
    client = service.connect()
    client.send(echo(1))
    client.expect(ok(1))
    client.send(cancel(1), echo(1, b"again"))
    client.expect(ok(1, b"again"))


def test_running_stream(service: Service) -> None:
    client = service.connect()
    request = stream(1, [5], LONG)
    client.send(request)
    first = client.read()
    assert not first.last
    client.send(cancel(1), echo(2, b"goes on"))
    tokens, last = client.read_stream()
    assert (last.status, last.flags) == (constants.STATUS_CANCELLED, ABORTED)
    tokens = [*first.tokens, *tokens]
    assert tokens == stream_expected(request)[0][: len(tokens)]
    assert len(tokens) < LONG
    client.expect(ok(2, b"goes on"))


def test_in_the_same_segment(service: Service) -> None:
    client = service.connect()
    request = stream(1, [5], LONG)
    client.send(request, cancel(1), echo(2))
    expect_aborted(client, 1, request)
    client.expect(ok(2))


def test_stream_that_waits_for_its_turn(service: Service) -> None:
    """It never ran: not one token."""
    client = service.connect()
    running = [stream(i, [i], LONG) for i in range(4)]  # as many as run at a time
    waiting = stream(9, [9], LONG)
    client.send(*running)
    assert not client.read().last
    with service.counting(executor_dropped=1):
        client.send(waiting, cancel(9))
    client.send(*(cancel(i) for i in range(4)))
    client.read_stream()
    for i in range(1, 4):
        expect_aborted(client, i, running[i])
    client.expect(Reply(9, constants.STATUS_CANCELLED, ABORTED, b""))


def test_stream_behind_a_slow_reply(service: Service) -> None:
    """Its turn to be sent has not come, and it is over before that."""
    client = service.connect()
    request = stream(2, [5], LONG)
    client.send(slow(1), request)
    client.send(cancel(2), echo(3))
    client.expect(slow_ok(1))
    expect_aborted(client, 2, request)
    client.expect(ok(3))


def test_only_the_named_one(service: Service) -> None:
    client = service.connect()
    requests = [stream(i, [i], 40) for i in range(3)]
    cut = stream(7, [7], LONG)
    client.send(requests[0], cut, *requests[1:], cancel(7))
    assert client.read_stream()[0] == stream_expected(requests[0])[0]
    expect_aborted(client, 7, cut)
    for request in requests[1:]:
        assert client.read_stream()[0] == stream_expected(request)[0]


def test_not_of_another_connection(service: Service) -> None:
    mine, other = service.connect(), service.connect()
    request = stream(1, [3], 60)
    mine.send(request)
    for _ in range(20):
        other.send(cancel(1))
    other.send(echo(2))
    other.expect(ok(2))
    tokens, last = mine.read_stream()
    assert (tokens, last.status) == (stream_expected(request)[0], constants.STATUS_OK)


def test_twice(service: Service) -> None:
    client = service.connect()
    request = stream(1, [5], LONG)
    with service.counting(ingress_cancels=2, executor_completed=2):
        client.send(request, cancel(1), cancel(1), echo(2))
        expect_aborted(client, 1, request)
        client.expect(ok(2))


def test_slow_request_is_answered_once(service: Service) -> None:
    """By its result or as cancelled: what was started may run to its end."""
    client = service.connect()
    with service.counting(executor_completed=2, egress_replies=2):
        client.send(slow(1), cancel(1), echo(2, b"next"))
        reply = client.read()
        if reply.status == constants.STATUS_CANCELLED:
            assert reply == Reply(1, reply.status, constants.REPLY_LAST, b"")
        else:
            assert reply == slow_ok(1)
        client.expect(ok(2, b"next"))


@pytest.mark.parametrize("size", [1, HEADER, 4096])
def test_with_a_payload(service: Service, size: int) -> None:
    """Nobody wants it, but it is part of the frame."""
    client = service.connect()
    payload = (echo(3) * 200)[:size]
    client.send(pack_request(constants.KIND_CANCEL, 8, payload), echo(2))
    client.expect(ok(2))
    client.send_pieces(pack_request(constants.KIND_CANCEL, 8, payload), *range(1, 60, 7))
    client.send(echo(4))
    client.expect(ok(4))


def test_cut_at_every_byte(service: Service) -> None:
    client = service.connect()
    frame = cancel(8)
    for cut in range(1, len(frame)):
        client.send_pieces(frame, cut)
    client.send(echo(1))
    client.expect(ok(1))


def test_many_at_once(service: Service) -> None:
    """Thirty streams on each of five connections, all cancelled: every one gets its last frame."""
    clients = [service.connect() for _ in range(5)]
    requests = [stream(i, [i], LONG) for i in range(30)]
    for client in clients:
        client.send(*requests)
    for client in clients:
        client.send(*(cancel(i) for i in reversed(range(30))))
    for client in clients:
        for i, request in enumerate(requests):
            expect_aborted(client, i, request)


def test_then_close(service: Service) -> None:
    for _ in range(10):
        client = service.connect()
        client.send(*(stream(i, [i], LONG) for i in range(20)), *(cancel(i) for i in range(20)))
        client.close()
