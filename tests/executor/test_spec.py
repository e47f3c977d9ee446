"""Specifications: understood and refused alike by the executor and by Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_scheduler import workloads
from gpu_scheduler.workloads import SpecError

from .driver import ROOT
from .executors import Program, refusal

REFUSED = [
    ("matmul", "there is no workload 'matmul'. Take one of echo, empty, fft, gemm, toylm"),
    ("", "there is no workload ''"),
    ("gemm:work", "'work' has no '='"),
    ("gemm:work=1,,m=2", "'' has no '='"),
    ("gemm:m=1,m=2", "m is there twice"),
    ("gemm:m=", "m is ''"),
    ("gemm:m=-1", "m is '-1'. Give a whole number from 1 to 1024"),
    ("gemm:m= 1", "m is ' 1'"),
    ("gemm:m=1.5", "m is '1.5'"),
    ("gemm:m=99999999999999999999", "from 1 to 1024"),
    ("gemm:m=65", "a request has m*k*4 = 4160 bytes, 4096 is the most. Make m or k smaller"),
    ("gemm:m=4,n=257", "a result has m*n*4 = 4112 bytes, 4096 is the most"),
    ("gemm:m=1,k=1024,work=17", "the model has work*k*k*4 = 71303168 bytes, 67108864"),
    ("gemm:q=1", "gemm has no parameter 'q'. Its parameters are batch, delay_us, in_flight, k,"),
    ("fft:points=48", "points is 48. Give a power of two"),
    ("fft:points=8,bins=9", "bins is 9, more than points, 8"),
    ("fft:points=1024", "a request has points*8 = 8192 bytes, 4096 is the most"),
    ("toylm:in_flight=2", "toylm has no parameter 'in_flight'"),
    ("empty:batch=0", "batch is '0'. Give a whole number from 1 to 1024"),
    ("echo:delay_us=10000001", "Give a whole number from 0 to 10000000"),
]


def executor_says(program: Program, spec: str) -> str:
    said = refusal(program, "--page-fd", "99", "--workloads", spec or ";")
    return said.removesuffix("\n").partition(": ")[2]


@pytest.mark.parametrize(("spec", "words"), REFUSED)
def test_both_refuse_with_the_same_words(program: Program, spec: str, words: str) -> None:
    with pytest.raises(SpecError) as error:
        workloads.parse_spec(spec)
    assert str(error.value) == executor_says(program, spec)
    assert str(error.value).startswith(f"reading workload '{spec}': ")
    assert words in str(error.value)


@pytest.mark.parametrize("name", workloads.names())
def test_both_know_the_same_parameters_and_ranges(program: Program, name: str) -> None:
    for key, parameter in workloads.parse_spec(name).parameters.items():
        for value in (parameter.least - 1, parameter.most + 1):
            test_both_refuse_with_the_same_words(program, f"{name}:{key}={value}", f"{key} is")
    test_both_refuse_with_the_same_words(program, f"{name}:zz=1", "has no parameter 'zz'")


@pytest.mark.parametrize("spec", ["empty:", "gemm:m=004,", "echo:delay_us=0", "toylm:vocab=2"])
def test_both_accept(program: Program, spec: str) -> None:
    workloads.parse_spec(spec)
    assert "EBADF" in refusal(program, "--page-fd", "99", "--workloads", spec), "it got further"


def test_a_kind_twice(program: Program) -> None:
    assert "there already" in executor_says(program, "gemm;empty;gemm:m=2")


def test_defaults_are_those_of_the_small_requests() -> None:
    for spec in ("gemm", "fft"):
        (payload,) = workloads.payloads(spec, 1, seed=1)
        assert (len(payload), len(workloads.reference(spec, payload))) == (256, 240)


def test_payloads_depend_on_the_seed_alone() -> None:
    assert workloads.payloads("gemm", 3, 1) == workloads.payloads("gemm:work=2", 3, 1)
    assert workloads.payloads("gemm", 3, 1) != workloads.payloads("gemm", 3, 2)


@pytest.mark.parametrize("name", workloads.names())
def test_cases_file(tmp_path: Path, name: str) -> None:
    """Read as the load generator does."""
    import struct

    path = tmp_path / "cases"
    workloads.write_cases(path, name, 5, seed=2)
    data = path.read_bytes()
    assert data[:4] == b"BGC1"
    (count,) = struct.unpack_from("<I", data, 4)
    at = 8
    for payload in workloads.payloads(name, 5, seed=2):
        expected = workloads.expect(name, payload)
        fields = struct.unpack_from("<4I2f2I", data, at)
        kind = workloads.parse_spec(name).kind
        assert fields[:4] == (kind, len(payload), len(expected.result), expected.compare)
        assert fields[4:6] == pytest.approx((expected.rtol, expected.atol))
        assert fields[6:] == (expected.status, expected.finish)
        at += 32 + len(payload) + len(expected.result)
        assert data[:at].endswith(payload + expected.result)
    assert (count, at) == (5, len(data))


def test_every_workload_is_a_folder_with_its_three_files() -> None:
    for name in workloads.names():
        folder = ROOT / "gpu_scheduler/workloads" / name
        for file in (f"{name}.cpp", "__init__.py", "reference.py"):
            assert (folder / file).exists(), folder / file


def test_reading_a_specification_needs_no_numpy() -> None:
    """The supervisor does it, and stays small."""
    import subprocess
    import sys

    program = (
        "import sys; from gpu_scheduler import workloads\n"
        "for name in workloads.names(): workloads.parse_spec(name)\n"
        "assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
