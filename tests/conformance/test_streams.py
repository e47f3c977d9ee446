"""Token streams: frames as tokens come, the last one with the reason for the end."""

from __future__ import annotations

import pytest

from shared_page import constants
from shared_page.wire import Reply
from tests.support.client import Client
from tests.support.frames import HEADER, echo, ok, slow, slow_ok, stream, stream_expected
from tests.support.service import Service

FINISH_SHIFT = constants.REPLY_FINISH_SHIFT


def expect_stream(client: Client, request_id: int, request: bytes) -> list[Reply]:
    """The whole stream, token by token as the reference has it. Returns its frames."""
    tokens, finish = stream_expected(request)
    frames: list[Reply] = []
    while not frames or not frames[-1].last:
        frames.append(client.read())
    assert {frame.request_id for frame in frames} == {request_id}
    assert {frame.status for frame in frames} == {constants.STATUS_OK}
    assert [frame.flags for frame in frames[:-1]] == [0] * (len(frames) - 1)
    assert frames[-1].flags == constants.REPLY_LAST | finish << FINISH_SHIFT
    sizes = [len(frame.tokens) for frame in frames]
    assert max(sizes) <= constants.FRAME_TOKENS_MAX
    assert 0 not in sizes[:-1]
    assert [token for frame in frames for token in frame.tokens] == tokens
    return frames


@pytest.mark.parametrize("length", [1, 2, 11, 12, 13, 24, 25, 100])
def test_stream_of_a_length(service: Service, length: int) -> None:
    client = service.connect()
    request = stream(5, [1, 2, 3], length)
    client.send(request)
    expect_stream(client, 5, request)


def test_longest_stream(service: Service) -> None:
    client = service.connect()
    request = stream(5, [9], constants.STREAM_TOKENS_MAX)
    client.send(request)
    expect_stream(client, 5, request)


def test_longest_prompt(service: Service) -> None:
    client = service.connect()
    room = HEADER + constants.REQUEST_MAX - len(stream(5, [], 3))
    request = stream(5, range(room // constants.TOKEN_SIZE), 3)
    assert len(request) == HEADER + constants.REQUEST_MAX
    client.send(request)
    expect_stream(client, 5, request)


@pytest.mark.parametrize("at", [0, 1, 11, 12, 30])
def test_stop_token(service: Service, at: int) -> None:
    """It is delivered, and the reason is another one."""
    tokens, _ = stream_expected(stream(0, [4, 4], 40))
    request = stream(5, [4, 4], 40, stop_token=tokens[at])
    expected, finish = stream_expected(request)
    assert finish == constants.FINISH_STOP
    assert expected == tokens[: tokens.index(tokens[at]) + 1]
    client = service.connect()
    client.send(request)
    expect_stream(client, 5, request)


def test_stop_token_below_the_minimum_does_not_stop(service: Service) -> None:
    tokens, _ = stream_expected(stream(0, [4, 4], 40))
    request = stream(5, [4, 4], 40, stop_token=tokens[0], min_tokens=20)
    client = service.connect()
    client.send(request)
    expect_stream(client, 5, request)


def test_sampling_follows_the_seed(service: Service) -> None:
    client = service.connect()
    for seed in (0, 1, 2**64 - 1):
        request = stream(seed, [7], 20, temperature=0.8, seed=seed)
        client.send(request)
        expect_stream(client, seed, request)


def test_tokens_come_as_they_are_made(service: Service) -> None:
    """Not all at the end."""
    client = service.connect()
    request = stream(5, [1], 200)
    client.send(request)
    frames = expect_stream(client, 5, request)
    assert len(frames[0].tokens) < 200
    assert len(frames) >= 200 / constants.FRAME_TOKENS_MAX


def test_replies_behind_a_stream(service: Service) -> None:
    client = service.connect()
    request = stream(1, [1], 30)
    client.send(request, echo(2, b"behind"), slow(3), echo(4))
    expect_stream(client, 1, request)
    client.expect(ok(2, b"behind"), slow_ok(3), ok(4))


def test_stream_behind_replies(service: Service) -> None:
    """It may be complete before its turn comes."""
    client = service.connect()
    request = stream(3, [1], 50)
    client.send(slow(1), echo(2), request, echo(4))
    client.expect(slow_ok(1), ok(2))
    expect_stream(client, 3, request)
    client.expect(ok(4))


def test_streams_behind_each_other(service: Service) -> None:
    client = service.connect()
    requests = [stream(i, [i + 1], 3 + i) for i in range(20)]
    client.send(*requests)
    for i, request in enumerate(requests):
        expect_stream(client, i, request)


def test_streams_beside_each_other(service: Service) -> None:
    """More than run at a time; each has its own tokens."""
    clients = [service.connect() for _ in range(20)]
    requests = [stream(i, [i, i], 25) for i in range(len(clients))]
    for client, request in zip(clients, requests, strict=True):
        client.send(request)
    for i, (client, request) in enumerate(zip(clients, requests, strict=True)):
        expect_stream(client, i, request)


def test_streams_use_slots_again(service: Service) -> None:
    """Long after short, short after long: no token of the slot's last stream."""
    client = service.connect()
    for length in (40, 1, 13, 2, 30, 12):
        request = stream(length, [length], length)
        client.send(request, echo(1, bytes(4096)))
        expect_stream(client, length, request)
        client.expect(ok(1, bytes(4096)))


def test_half_close_behind_a_stream(service: Service) -> None:
    client = service.connect()
    request = stream(1, [1], 60)
    client.send(request)
    client.half_close()
    expect_stream(client, 1, request)
    client.expect_end()
