"""The workload `llm`: what a server of the OpenAI API is asked, and the tokens it must answer with.

`llm:model=NAME,prompt=32,tokens=64,vocab=32000,temperature=0`: prompts of so many random tokens,
each below `vocab`, and so many tokens in return. Nobody here computes the model, so where the
sampling is greedy (`temperature=0`) the right tokens are those that the server itself gives when it
is asked for one request at a time, without streaming; else only their number is known.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, fields
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from experiments import programs
from experiments.errors import ExperimentError

LLM = "llm:"
CASE_COUNT = 64
ANSWER_S = 120.0  # the first request may compile kernels
PROMPT_MAX, TOKENS_MAX = 1000, 1024  # of the project's protocol, whose cases these are

# Packing is the protocol's business, which another part of the project knows.
_WRITE = """
import json, pathlib, struct, sys
from gpu_scheduler.workloads import case
from shared_page import constants, wire
cases = []
for one in json.load(sys.stdin):
    tokens = struct.pack(f"<{len(one['expected'])}I", *one["expected"])
    compare = case.Compare.TOKEN_COUNT if one["temperature"] else case.Compare.TOKENS
    expected = case.Expected(tokens, compare, finish=constants.FINISH_LENGTH)
    sampling = {"temperature": one["temperature"], "seed": one["seed"]}
    cases.append((wire.pack_generation(one["prompt"], len(one["expected"]), **sampling), expected))
case.write(pathlib.Path(sys.argv[1]), constants.KIND_LLM, cases)
"""


@dataclass(frozen=True)
class Llm:
    """A specification that was understood."""

    model: str
    prompt: int = 32
    tokens: int = 64
    vocab: int = 32000
    temperature: float = 0.0


_LIMITS: dict[str, tuple[float, float]] = {
    "prompt": (1, PROMPT_MAX),
    "tokens": (1, TOKENS_MAX),
    "vocab": (2, 1 << 24),
    "temperature": (0, 2),
}


def parse(workload: str) -> Llm:
    """Raises ValueError, for people."""
    given = dict(part.partition("=")[::2] for part in workload.removeprefix(LLM).split(","))
    known = [one.name for one in fields(Llm)]
    if unknown := given.keys() - set(known):
        raise ValueError(f"llm has {', '.join(known)}, and no {', '.join(sorted(unknown))}")
    if not given.get("model"):
        raise ValueError("the model is missing: write llm:model=NAME")
    values: dict[str, Any] = {"model": given.pop("model")}
    for name, text in given.items():
        least, most = _LIMITS[name]
        kind = float if name == "temperature" else int
        try:
            values[name] = kind(text)
        except ValueError:
            raise ValueError(f"{name} is {text!r}, which is no number") from None
        if not least <= values[name] <= most:
            raise ValueError(f"{name} is {text}, and not from {least} to {most}")
    return Llm(**values)


def write_cases(file: Path, workload: str, seed: int, server: str) -> None:
    """Requests, and for greedy ones the answers that the server at `server` (ADDRESS:PORT) gives to
    each alone; as `load` reads them. Raises ExperimentError."""
    spec, numbers = parse(workload), random.Random(f"{LLM}{seed}")
    cases = []
    for _ in range(CASE_COUNT):
        prompt = [numbers.randrange(spec.vocab) for _ in range(spec.prompt)]
        expected = [0] * spec.tokens if spec.temperature else ask(server, spec, prompt)
        cases.append({"prompt": prompt, "expected": expected, "seed": numbers.getrandbits(63),
                      "temperature": spec.temperature})  # fmt: skip
    unfinished = file.with_suffix(".unfinished")
    command = [sys.executable, "-c", _WRITE, str(unfinished)]
    programs.output_of(command, "write the requests", stdin=json.dumps(cases))
    unfinished.replace(file)


def ask(server: str, spec: Llm, prompt: list[int]) -> list[int]:
    """The tokens of one greedy request, not streamed. Raises ExperimentError."""
    asked = {
        "model": spec.model, "prompt": prompt, "max_tokens": spec.tokens, "temperature": 0,
        "stream": False, "return_token_ids": True, "ignore_eos": True,
    }  # fmt: skip
    tried, path = "ask for the tokens to expect", "/v1/completions"
    try:
        status, answer = call(server, path, json.dumps(asked), ANSWER_S)
    except (OSError, HTTPException) as error:
        said = f"{server}{path}: {type(error).__name__}: {error}"
        raise ExperimentError(tried, said, "see service.log") from None
    said = f"{server}{path} answers with status {status}: {answer[:1000].decode(errors='replace')}"
    if status != HTTPStatus.OK:
        do = "see whether vocab, prompt and tokens of the workload fit the model"
        raise ExperimentError(tried, said, do)
    try:
        tokens = json.loads(answer)["choices"][0]["token_ids"]
        if len(tokens) == spec.tokens:
            return list(map(int, tokens))
    except (ValueError, LookupError, TypeError):
        pass
    raise ExperimentError(
        tried, f"{spec.tokens} token ids are not in it: {said}",
        "take vLLM 0.10.2 or later, which knows return_token_ids",
    )  # fmt: skip


def call(server: str, path: str, body: str | None, timeout_s: float) -> tuple[int, bytes]:
    """Status and body of an answer to a POST, or to a GET where nothing is sent. Raises OSError or
    HTTPException."""
    connection = HTTPConnection(server, timeout=timeout_s)
    try:
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request("POST" if body else "GET", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
