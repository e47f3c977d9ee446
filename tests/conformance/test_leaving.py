"""SIGTERM: what was admitted is answered, what comes late is refused, everybody hears an end."""

from __future__ import annotations

import pytest

from shared_page import constants
from tests.support.frames import HEADER, PIPELINE, echo, error, ok, pattern, stream, stream_expected
from tests.support.service import Service

SHUTTING_DOWN = constants.STATUS_SHUTTING_DOWN


@pytest.mark.ends_service
def test_leaving(service: Service) -> None:
    owed = [service.connect() for _ in range(20)]
    idle = [service.connect() for _ in range(20)]
    busy, half, streaming = (service.connect() for _ in range(3))
    request = stream(1, [1], 40)
    late = [echo(i, pattern(4096)) for i in range(1, PIPELINE)]
    with service.stalled():
        for client in owed:
            client.send(*(echo(i, pattern(99, i)) for i in range(5)))
        half.send(echo(1, pattern(500))[: HEADER + 9])
        busy.send(echo(0))
        streaming.send(request)
        assert service.reaches("depth.slots", 20 * 5 + 3)
        service.terminate()
        for client in (*idle, half):
            client.expect_end()
        with pytest.raises(ConnectionRefusedError):
            service.connect()
        with service.counting(ingress_frames_busy=20 + len(late)):
            busy.send(*late)
            for client in owed:
                client.send(echo(5, pattern(99)))
    for client in owed:
        client.expect(*(ok(i, pattern(99, i)) for i in range(5)))
        client.expect_end(error(5, SHUTTING_DOWN))
    busy.expect_end(ok(0), *(error(i, SHUTTING_DOWN) for i in range(1, PIPELINE)))
    tokens, last = streaming.read_stream()
    assert (tokens, last.status) == (stream_expected(request)[0], constants.STATUS_OK)
    streaming.expect_end()
