# SPDX-License-Identifier: MIT
"""Options and cases files that make no sense: one message that says what, why and what to do."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from shared_page import constants
from tests.load.generator import echo_cases, refuse

RUN = ("--port", "9", "--rate", "10", "--requests", "1")


def header(**changed: float) -> bytes:
    """The header of one case with a payload of 8 bytes and a reply of 4."""
    fields: dict[str, float] = {"kind": 6, "request": 8, "expected": 4, "compare": 0}
    fields |= {"rtol": 0.0, "atol": 0.0, "status": 0, "finish": 0}
    return struct.pack("<4I2f2I", *(fields | changed).values())


def file(*parts: bytes, count: int = 1) -> bytes:
    return b"BGC1" + struct.pack("<I", count) + b"".join(parts)


BODY = b"request!" + b"okay"


@pytest.mark.parametrize(
    ("content", "place", "said"),
    [
        (b"", "the file's header", "ends in the middle"),
        (b"BGC2" + bytes(40), "the file's header", "does not begin with BGC1"),
        (file(count=0), "the file's header", "announces 0 cases"),
        (file(count=70000), "the file's header", "announces 70000 cases"),
        (file(header()[:10]), "case 0", "ends in the middle"),
        (file(header(), BODY[:-1]), "case 0", "ends in the middle"),
        (file(header(), BODY, count=2), "case 1", "ends in the middle"),
        (file(header(), BODY, b"!"), "case 0", "bytes after the last case"),
        (file(header(kind=0), BODY), "case 0", "kind 0 is not between 1 and"),
        (file(header(request=4097), bytes(5000)), "case 0", "request length 4097"),
        (file(header(expected=1 << 31)), "case 0", "expected length 2147483648"),
        (file(header(compare=4), BODY), "case 0", "compare 4 is not between 0 and 3"),
        (file(header(status=11), BODY), "case 0", "status 11 is not between 0 and 10"),
        (file(header(finish=4), BODY), "case 0", "finish 4 is not between 0 and 3"),
        (file(header(compare=1, expected=3), BODY), "case 0", "not a whole number of 4-byte"),
        (file(header(rtol=-1.0), BODY), "case 0", "tolerance is negative"),
        (file(header(atol=float("nan")), BODY), "case 0", "tolerance is negative or not a number"),
    ],
)
def test_a_cases_file(content: bytes, place: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "cases"
    path.write_bytes(content)
    message = refuse(*RUN, "--cases", str(path))
    assert f"reading {place} of the cases file {path} at byte " in message
    assert said in message
    assert "Write the file again" in message


def test_no_cases_file(tmp_path: Path) -> None:
    message = refuse(*RUN, "--cases", str(tmp_path / "none"))
    assert "ENOENT" in message
    assert "write_cases" in message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--prot", "9"), "there is no option --prot"),
        (("9",), "every option begins with --"),
        ((), "--port is missing"),
        (("--port", "70000"), "reading the option --port"),
        (("--port",), "needs a value"),
        (("--port", "9"), "exactly one of --cases and --echo"),
        (("--port", "9", "--echo"), "exactly one of --rate and --closed"),
        (
            ("--port", "9", "--echo", "--rate", "1", "--closed"),
            "exactly one of --rate and --closed",
        ),
        (("--port", "9", "--echo", "--closed"), "exactly one of --duration and --requests"),
        ((*RUN, "--echo", "--duration", "1"), "exactly one of --duration and --requests"),
        (
            ("--port", "9", "--echo", "--closed", "--duration", "1", "--late-us", "1"),
            "--late-us is for an open loop",
        ),
        ((*RUN, "--echo", "--rate", "fast"), "'fast' is not a number"),
        ((*RUN, "--echo", "--rate", "nan"), "is not between"),
        ((*RUN, "--echo", "--rate=-1"), "is not between"),
        ((*RUN, "--echo", "--depth", "32"), "32 is not between 1 and 24"),
        ((*RUN, "--echo", "--arrivals", "often"), "neither 'poisson' nor 'constant'"),
        ((*RUN, "--echo", "--threads", "2"), "more threads than connections"),
        ((*RUN, "--echo", "--rate", "1e8", "--warmup", "1000"), "fit in 32 bits"),
        ((*RUN, "--echo", "--host", "not a name"), "looking up the address of not a name"),
        ((*RUN, "--echo", "--json", "/none/there"), "writing --json to /none/there: ENOENT"),
        ((*RUN, "--echo", "--records", "/none/there"), "writing --records to /none/there: ENOENT"),
    ],
)
def test_options(options: tuple[str, ...], said: str) -> None:
    message = refuse(*options)
    assert said in message
    assert message.endswith(".\n")


def test_the_largest_case_is_taken(tmp_path: Path) -> None:
    """Up to the connection, which nobody accepts."""
    cases = echo_cases(tmp_path / "cases", count=1, size=constants.REQUEST_MAX)
    assert "ECONNREFUSED" in refuse(*RUN, "--cases", str(cases))
