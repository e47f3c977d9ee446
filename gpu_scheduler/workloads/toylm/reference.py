"""toylm token by token: the executor's streams are equal to these."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

from gpu_scheduler.workloads.case import Compare, Expected
from gpu_scheduler.workloads.mix import mix
from gpu_scheduler.workloads.spec import Spec
from shared_page import constants, wire
from shared_page.reading import ffi


def endless(request: Any, prompt: tuple[int, ...], vocab: int) -> Iterator[int]:
    """The tokens that follow, without an end; request is a struct generation_request."""
    state = mix(request.seed if request.temperature > 0 else 0)
    for token in prompt:
        state = mix(state ^ token)
    while True:
        token = (state >> 32) * vocab >> 32
        yield token
        state = mix(state ^ token)


def generate(payload: bytes, vocab: int) -> tuple[list[int], int]:
    """The stream's tokens and its finish reason (enum finish_reason)."""
    size = ffi.sizeof("struct generation_request")
    request = ffi.from_buffer("struct generation_request *", payload)
    prompt = struct.unpack(f"<{request.prompt_count}I", payload[size:])
    tokens: list[int] = []
    for token in islice(endless(request, prompt, vocab), request.max_tokens):
        tokens.append(token)
        if token == request.stop_token and len(tokens) >= request.min_tokens:
            return tokens, constants.FINISH_STOP
    return tokens, constants.FINISH_LENGTH


def payload(spec: Spec, numbers: random.Random) -> bytes:
    """1 to 16 prompt tokens, at most 32 new ones; every second one has a token to stop at."""
    vocab = spec["vocab"]
    prompt = [numbers.randrange(vocab) for _ in range(numbers.randint(1, 16))]
    most = numbers.randint(1, 32)
    sampling = {"temperature": numbers.choice([0.0, 1.0]), "seed": numbers.getrandbits(64)}
    if numbers.randrange(2):
        tokens, _ = generate(wire.pack_generation(prompt, most, **sampling), vocab)
        sampling |= {"stop_token": numbers.choice(tokens), "min_tokens": numbers.randint(0, most)}
    return wire.pack_generation(prompt, most, **sampling)


def expect(spec: Spec, payload: bytes) -> Expected:
    """The stream of a valid payload."""
    tokens, finish = generate(payload, spec["vocab"])
    result = struct.pack(f"<{len(tokens)}I", *tokens)
    return Expected(result, Compare.TOKENS, finish=finish)
