"""Results: right by the references, and the same bits each time."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_scheduler import workloads
from gpu_scheduler.workloads import Expected
from gpu_scheduler.workloads.case import Compare
from gpu_scheduler.workloads.gemm import reference as gemm
from shared_page import constants

from .conftest import Start
from .driver import Answer, Transport

SPECS = [
    "empty",
    "echo",
    "gemm",
    "gemm:m=1,k=1,n=1",
    "gemm:m=1,k=1024,n=1024,work=3",
    "gemm:m=32,k=32,n=32,work=20,seed=7",
    "gemm:work=5000",
    "gemm:m=3,k=5,n=7,work=2,seed=2147483647",
    "fft",
    "fft:points=2,bins=1",
    "fft:points=512,bins=512,work=3",
    "fft:work=2000",
    "toylm",
    "toylm:vocab=2",
    "toylm:vocab=16777216,batch=3",
]


def error(answer: bytes, expected: Expected) -> float:
    """The largest difference in units of what is allowed."""
    got, right = (np.frombuffer(data, dtype=np.float32) for data in (answer, expected.result))
    allowed = expected.atol + expected.rtol * np.abs(right)
    return float((np.abs(got - right) / allowed).max())


def check(answer: Answer, expected: Expected) -> None:
    assert answer.status == expected.status
    assert answer.finish == expected.finish
    assert len(answer.payload) == len(expected.result)
    if expected.compare == Compare.FLOAT32:
        assert error(answer.payload, expected) <= 1
    else:
        assert answer.payload == expected.result


@pytest.mark.parametrize("spec", SPECS)
def test_results_equal_the_reference_twice(transport: Transport, start: Start, spec: str) -> None:
    parsed = workloads.parse_spec(spec)
    payloads = workloads.payloads(spec, 12, seed=3)
    runs = []
    for _ in range(2):
        executor = start(spec)
        connection = transport.connect()
        runs.append([connection.ask(parsed.kind, payload) for payload in payloads])
        assert executor.terminate() == 0
    for payload, first, second in zip(payloads, *runs, strict=True):
        check(first, workloads.expect(spec, payload))
        assert first.payload == second.payload


def test_batched_results_have_the_same_bits(transport: Transport, start: Start) -> None:
    spec = "gemm:work=3"
    start(spec)
    payloads = workloads.payloads(spec, 31, seed=4)
    connection = transport.connect()
    alone = [connection.ask(constants.KIND_GEMM, payload) for payload in payloads]
    for payload in payloads:
        connection.send(constants.KIND_GEMM, payload)
    together = [connection.answer() for _ in payloads]
    assert [answer.payload for answer in alone] == [answer.payload for answer in together]


@pytest.mark.parametrize(("spec", "kind"), [("gemm:work=64", "GEMM"), ("fft:work=64", "FFT")])
def test_tolerance_is_tight_enough_to_find_a_wrong_bit(
    transport: Transport, start: Start, spec: str, kind: str
) -> None:
    """The tolerance is small against the values, and a flipped mantissa bit breaks it."""
    start(spec)
    (payload,) = workloads.payloads(spec, 1, seed=5)
    expected = workloads.expect(spec, payload)
    answer = transport.connect().ask(getattr(constants, f"KIND_{kind}"), payload)
    assert error(answer.payload, expected) <= 1
    values = np.frombuffer(answer.payload, dtype=np.float32).copy()
    assert expected.atol < 1e-3 * np.abs(values).max()
    values.view(np.uint32)[np.abs(values).argmax()] ^= 1 << 16
    assert error(values.tobytes(), expected) > 1


def test_any_number_of_gemm_layers_keeps_the_magnitude() -> None:
    layers = [gemm.reflection(1, layer, 16).astype(np.float64) for layer in range(50)]
    assert len({layer.tobytes() for layer in layers}) == 50
    for layer in layers:
        np.testing.assert_allclose(layer @ layer.T, np.eye(16), atol=1e-6)


def test_greedy_streams_do_not_depend_on_the_seed() -> None:
    def tokens(temperature: float, seed: int) -> bytes:
        from shared_page import wire

        payload = wire.pack_generation([1, 2], 20, temperature=temperature, seed=seed)
        return workloads.reference("toylm", payload)

    assert tokens(0.0, 1) == tokens(0.0, 2)
    assert tokens(1.0, 1) != tokens(1.0, 2)
