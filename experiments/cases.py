"""Requests with the replies to expect, in files that the load generator reads."""

from __future__ import annotations

import json
import re
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from experiments import llm, programs

CASE_COUNT = 64
DUE = "due:"  # a workload that computes nothing: see docs/page.md
OTHERS = DUE, llm.LLM  # no executor of the project's has them
_DUE = re.compile(r"due:service_us=[1-9]\d*")
DUE_BYTES = 256, 240  # of the default gemm's payloads, in and out

_WRITE = """
import json, sys
from gpu_scheduler.workloads import write_cases
for file, spec in json.loads(sys.argv[1]).items():
    write_cases(file, spec, int(sys.argv[2]), int(sys.argv[3]))
"""
_CHECK = """
import json, sys
from gpu_scheduler.workloads import SpecError, parse_spec
wrong = {}
for spec in json.loads(sys.argv[1]):
    try:
        parse_spec(spec)
    except SpecError as error:
        wrong[spec] = str(error)
print(json.dumps(wrong))
"""


def write(workloads: Mapping[Path, str], seed: int) -> None:
    """A file for each workload, as `load` would make it for each run: made once, and on the host,
    since importing numpy takes seconds on an emulated CPU. None for `llm`, whose server has to be
    asked. Raises ExperimentError."""
    for file, workload in workloads.items():
        if workload.startswith(DUE):
            write_due(file, CASE_COUNT, seed)
    computed = {str(file): of for file, of in workloads.items() if not of.startswith(OTHERS)}
    if computed:
        command = [sys.executable, "-c", _WRITE, json.dumps(computed), str(CASE_COUNT), str(seed)]
        programs.output_of(command, "make the requests", timeout_s=600)


def wrong(workloads: Sequence[str]) -> dict[str, str]:
    """What is said about those workloads that are none, by workload. Raises ExperimentError."""
    computed = [one for one in workloads if not one.startswith(OTHERS)]
    command = [sys.executable, "-c", _CHECK, json.dumps(computed)]
    found: dict[str, str] = programs.json_of(command, "check the workloads")
    others = (one for one in workloads if one.startswith(DUE) and not _DUE.fullmatch(one))
    found |= dict.fromkeys(others, "it is not due:service_us=N")
    for one in workloads:
        if one.startswith(llm.LLM):
            try:
                llm.parse(one)
            except ValueError as error:
                found[one] = str(error)
    return found


def write_due(file: Path, count: int, seed: int) -> None:
    """Requests of the default gemm's size, and the replies that fall due: their first 240 bytes.
    docs/measuring.md has the file's format."""
    numbers = Random(seed)
    size, reply = DUE_BYTES
    data = b"BGC1" + struct.pack("<I", count)
    for _ in range(count):
        payload = numbers.randbytes(size)
        # kind gemm, lengths, bytes compared exactly, no tolerances, STATUS_OK, FINISH_NONE
        data += struct.pack("<IIIIffII", 2, size, reply, 0, 0.0, 0.0, 0, 0)
        data += payload + payload[:reply]
    file.write_bytes(data)
