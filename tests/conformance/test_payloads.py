"""Good frames that ask for what cannot be: an error reply, and the connection goes on."""

from __future__ import annotations

import math

import pytest

from gpu_scheduler import workloads
from shared_page import constants
from shared_page.wire import pack_generation, pack_request
from tests.support.frames import echo, error, ok, pattern, slow, slow_ok
from tests.support.service import WORKLOADS, Service

GEMM, FFT, TOYLM = constants.KIND_GEMM, constants.KIND_FFT, constants.KIND_TOYLM
UNKNOWN, BAD_PAYLOAD = constants.STATUS_UNKNOWN_KIND, constants.STATUS_BAD_PAYLOAD
NOT_SERVED = [constants.KIND_LLM, 7, constants.KIND_COUNT - 1, constants.KIND_COUNT, 255, 0xFFFF]


@pytest.mark.parametrize("kind", NOT_SERVED)
@pytest.mark.parametrize("size", [0, 100, 4096])
def test_unknown_kind(service: Service, kind: int, size: int) -> None:
    client = service.connect()
    client.send(pack_request(kind, 1, pattern(size)), echo(2, b"goes on"))
    client.expect(error(1, UNKNOWN), ok(2, b"goes on"))
    client.send(echo(3))
    client.expect(ok(3))


@pytest.mark.parametrize("kind", [GEMM, FFT])
@pytest.mark.parametrize("size", [0, 1, 15, 17, 255, 257, 4096])
def test_payload_of_a_wrong_size(service: Service, kind: int, size: int) -> None:
    client = service.connect()
    client.send(pack_request(kind, 1, bytes(size)), echo(2))
    client.expect(error(1, BAD_PAYLOAD), ok(2))


def generation(max_tokens: int = 5, **sampling: float) -> bytes:
    return pack_generation([1, 2, 3], max_tokens, **sampling)


BAD_GENERATIONS = {
    "empty": b"",
    "no prompt": pack_generation([], 5),
    "a header cut short": generation()[:40],
    "a token less than said": generation()[:-4],
    "a token more than said": generation() + bytes(4),
    "half a token": generation() + bytes(2),
    "no tokens wanted": generation(max_tokens=0),
    "too many tokens wanted": generation(max_tokens=constants.STREAM_TOKENS_MAX + 1),
    "more tokens at least than at most": generation(min_tokens=6),
    "a negative temperature": generation(temperature=-0.5),
    "a temperature that is no number": generation(temperature=math.nan),
    "top_p over 1": generation(top_p=1.5),
    "a negative top_p": generation(top_p=-0.1),
}


@pytest.mark.parametrize("name", BAD_GENERATIONS)
def test_bad_generation_request(service: Service, name: str) -> None:
    client = service.connect()
    client.send(pack_request(TOYLM, 1, BAD_GENERATIONS[name]), echo(2))
    client.expect(error(1, BAD_PAYLOAD), ok(2))


def test_errors_keep_their_place_behind_slow_requests(service: Service) -> None:
    client = service.connect()
    client.send(slow(1), pack_request(99, 2), pack_request(GEMM, 3, b"?"), slow(4), echo(5))
    client.expect(slow_ok(1), error(2, UNKNOWN), error(3, BAD_PAYLOAD), slow_ok(4), ok(5))


def test_errors_count_as_requests_of_the_pipeline(service: Service) -> None:
    client = service.connect()
    for _ in range(5):
        client.send(*(pack_request(99, i) for i in range(constants.PIPELINE_DEPTH)))
        client.expect(*(error(i, UNKNOWN) for i in range(constants.PIPELINE_DEPTH)))


def test_gemm_computes(service: Service) -> None:
    import numpy as np

    spec = next(text for text in WORKLOADS if text.startswith("gemm"))
    client = service.connect()
    for number, payload in enumerate(workloads.payloads(spec, 20, seed=1)):
        expected = workloads.expect(spec, payload)
        client.send(pack_request(GEMM, number, payload))
        reply = client.read()
        assert (reply.request_id, reply.status, len(reply.payload)) == (number, 0, 240)
        difference = np.frombuffer(reply.payload, "<f4") - np.frombuffer(expected.result, "<f4")
        assert abs(difference).max() <= expected.atol
