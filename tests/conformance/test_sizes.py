"""Frames of every size, whole."""

from __future__ import annotations

import pytest

from shared_page import constants
from shared_page.wire import pack_request
from tests.support.frames import HEADER, PIPELINE, echo, empty, ok, pattern
from tests.support.service import Service

SIZES = [0, 1, 2, 3, 7, 8, 15, 16, 17, 23, 24, 25, 40, 63, 64, 65, 255, 256, 257, 1000, 1447, 1448]
SIZES += [1449, 2047, 2048, 2049, 4071, 4072, 4073, 4094, 4095, 4096]


@pytest.mark.parametrize("size", SIZES)
def test_payload_of_any_size_comes_back(service: Service, size: int) -> None:
    client = service.connect()
    client.send(echo(size, pattern(size)))
    client.expect(ok(size, pattern(size)))


@pytest.mark.parametrize("size", [0, 1, 256, 4096])
def test_a_full_pipeline_in_one_burst(service: Service, size: int) -> None:
    client = service.connect()
    ids = range(PIPELINE)
    client.send(*(echo(i, pattern(size, i)) for i in ids))
    client.expect(*(ok(i, pattern(size, i)) for i in ids))


def test_payload_that_nobody_computes_with(service: Service) -> None:
    client = service.connect()
    client.send(empty(1, pattern(4096)), empty(2), empty(3, b"x"))
    client.expect(ok(1), ok(2), ok(3))


def test_small_replies_after_large_ones_carry_nothing_of_them(service: Service) -> None:
    """Slots are used again: a reply's bytes are its own request's."""
    sizes = [4096, 0, 1, 4095, 16, 17]
    for turn in range(8):
        client = service.connect()
        payloads = [pattern(size, turn) for size in sizes]
        client.send(*(echo(i, payload) for i, payload in enumerate(payloads)))
        client.expect(*(ok(i, payload) for i, payload in enumerate(payloads)))


def test_payload_that_looks_like_frames(service: Service) -> None:
    client = service.connect()
    inner = echo(666, echo(667)) * 20
    client.send(echo(1, inner), echo(2, inner[1:]), echo(3))
    client.expect(ok(1, inner), ok(2, inner[1:]), ok(3))


@pytest.mark.parametrize("request_id", [0, 1, 2**32, 2**63, 2**64 - 1])
def test_request_id_comes_back(service: Service, request_id: int) -> None:
    client = service.connect()
    client.send(echo(request_id, b"id"))
    client.expect(ok(request_id, b"id"))


def test_request_ids_may_repeat(service: Service) -> None:
    client = service.connect()
    client.send(*(echo(7, bytes([i])) for i in range(PIPELINE)))
    client.expect(*(ok(7, bytes([i])) for i in range(PIPELINE)))


@pytest.mark.parametrize("flags", [1, 0x8000, 0xFFFFFFFF])
def test_unknown_request_flags_are_ignored(service: Service, flags: int) -> None:
    client = service.connect()
    client.send(pack_request(constants.KIND_ECHO, 5, b"flags", flags=flags))
    client.expect(ok(5, b"flags"))


def test_bytes_are_counted(service: Service) -> None:
    client = service.connect()
    with service.counting(
        ingress_bytes_received=2 * HEADER + 300,
        egress_bytes_sent=2 * constants.REPLY_HEADER_SIZE + 300,
        egress_replies=2,
        executor_completed=2,
    ):
        client.send(echo(1, bytes(300)), echo(2))
        client.expect(ok(1, bytes(300)), ok(2))
