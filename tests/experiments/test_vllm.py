"""vLLM as an arm, played by a stand-in with the same HTTP API."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from experiments import cgroups, experiment_file, llm, place, vllm
from experiments.errors import ExperimentError
from experiments.overview import sentences
from experiments.plan import Condition, Plan
from experiments.records import read_verified
from experiments.report import with_verdicts
from tests.support.vllm_stand_in import ENGINE, StandIn, tokens_of

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = ROOT / "tests" / "support" / "vllm_stand_in.py"
GROUPS = "bpf-gpu-server-vllm"
WORKLOAD = "llm:model=a/b,prompt=5,tokens=12"
ENGINE_SHARE = 0.1  # of a CPU, at least; 0.2 where nothing else runs
FILE = f"""
asks = "Why?"
transports = ["vllm"]
pairs = 2
seed = 3
warmup_s = 0.4
measured_s = 0.8
condition = {{ workload = "{WORKLOAD}", rate = 60, connections = 8, depth = 1 }}
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`vllm`, by the way that a user names one that is not on PATH."""
    file = tmp_path / "vllm"
    file.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(STAND_IN)])} "$@"\n')
    file.chmod(0o755)
    monkeypatch.setenv(vllm.PROGRAM, str(file))
    return file


def read(tmp_path: Path, text: str) -> Plan:
    file = tmp_path / "why.toml"
    file.write_text('asks = "Why?"\n' + text)
    return experiment_file.read(file)


def left() -> list[Path]:
    return list(cgroups.mount().glob(f"{GROUPS}-*"))


def engines() -> list[int]:
    """Processes that stand for an engine."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if ENGINE.encode() in file.read_bytes():
                found.append(int(file.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


@pytest.mark.parametrize(
    ("transports", "condition", "said", "do"),
    [
        (["epoll"], {}, "epoll does not serve llm yet", 'take transports = ["vllm"]'),
        (["vllm", "bpf"], {}, "bpf does not serve llm yet", 'workload = "toylm"'),
        (["vllm"], {"workload": "toylm"}, "vllm serves llm only", "llm:model=NAME"),
        (["vllm"], {"depth": 2}, "HTTP has one request at a time", "take depth = 1"),
        (["vllm"], {"topology": "veth"}, "over this machine's loopback only", "leave out topology"),
        (["vllm"], {"workload": "llm:prompt=5"}, "the model is missing", "correct workload"),
        (["vllm"], {"workload": "llm:model=m,tokens=0"}, "not from 1 to 1024", "correct workload"),
        (["vllm"], {"workload": "llm:model=m,tokens=x"}, "which is no number", "correct workload"),
        (["vllm"], {"workload": "llm:model=m,top=1"}, "and no top", "correct workload"),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_runs(
    tmp_path: Path, transports: list[str], condition: dict[str, Any], said: str, do: str
) -> None:
    values = {"workload": WORKLOAD, "depth": 1} | condition
    table = "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
    with pytest.raises(ExperimentError) as caught:
        read(tmp_path, f"transports = {json.dumps(transports)}\n[condition]\n{table}\n")
    assert said in caught.value.said
    assert do in caught.value.do


def test_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(vllm.PROGRAM, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExperimentError) as caught:
        place.find(["vllm"])
    assert caught.value.said == "there is no program vllm on PATH"
    assert "pip install vllm" in caught.value.do
    assert vllm.PROGRAM in caught.value.do


def test_it_runs_where_the_gpu_is(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place.find(["vllm"]).prefix == ()
    with pytest.raises(ExperimentError, match="in the VM, which has no GPU"):
        place.find(["vllm"], exact=True)
    monkeypatch.setattr(place, "missing_for_bpf", lambda: ["io_uring_bpf"])
    with pytest.raises(ExperimentError, match="this host lacks io_uring_bpf for transport bpf"):
        place.find(["vllm", "bpf"])


def test_the_tokens_to_expect_are_asked_for_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "cases.bin"
    with StandIn("a/b") as server:
        llm.write_cases(file, WORKLOAD, 7, f"127.0.0.1:{server.port}")
        first = file.read_bytes()
        llm.write_cases(file, WORKLOAD, 7, f"127.0.0.1:{server.port}")
        llm.write_cases(file, f"{WORKLOAD},temperature=1", 7, f"127.0.0.1:{server.port}")
    assert file.read_bytes() != first  # and nobody was asked for those
    assert len(server.asked) == 2 * llm.CASE_COUNT
    assert server.asked[: llm.CASE_COUNT] == server.asked[llm.CASE_COUNT :]
    for asked in server.asked[: llm.CASE_COUNT]:
        tokens = b"".join(token.to_bytes(4, "little") for token in tokens_of(asked))
        assert tokens in first
        assert not asked["stream"]


@pytest.mark.parametrize(
    ("model", "mode", "said", "do"),
    [
        ("a/b", "old", "12 token ids are not in it", "take vLLM 0.10.2 or later"),
        ("c", "", "status 400: ", "see whether vocab"),
        ("a/b", "gone", "ConnectionRefusedError", "see service.log"),
    ],
)
def test_no_tokens_to_expect(tmp_path: Path, model: str, mode: str, said: str, do: str) -> None:
    with StandIn(model, mode) as server:
        address = f"127.0.0.1:{1 if mode == 'gone' else server.port}"
        with pytest.raises(ExperimentError) as caught:
            llm.write_cases(tmp_path / "cases.bin", WORKLOAD, 7, address)
    assert said in caught.value.said
    assert do in caught.value.do
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_it_dies_at_the_start(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN", "dying")
    with pytest.raises(ExperimentError, match="start vLLM") as caught:
        arm(tmp_path).__enter__()
    assert "no kernel image is available" in caught.value.said
    assert left() == []


@pytest.mark.root
def test_it_never_serves(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "loading")
    monkeypatch.setattr(vllm, "START_S", 1.0)
    with pytest.raises(ExperimentError, match="did not serve after 1 s"):
        arm(tmp_path).__enter__()
    assert left() == []
    assert engines() == []


@pytest.mark.root
def test_it_leaves_early(program: Path, tmp_path: Path) -> None:
    with pytest.raises(ExperimentError) as caught, arm(tmp_path) as server:
        pid = server.state()["supervisor"]["pid"]
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert caught.value.tried == "keep vLLM running"
    assert "was ended by SIGKILL" in caught.value.said
    assert left() == []
    assert engines() == []


@pytest.mark.root
def test_nothing_is_left_of_one_whose_experiment_was_killed(program: Path, tmp_path: Path) -> None:
    """vLLM is told to leave; an engine that does not listen is ended by the next experiment."""
    text = f"""
import sys, time
from pathlib import Path
from experiments.plan import Condition
from experiments.vllm import Vllm
with Vllm(Condition(workload={WORKLOAD!r}), Path({str(tmp_path / "log")!r})) as server:
    print(server.port, flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE) as killed:
        assert killed.stdout
        port = int(killed.stdout.readline())
        killed.kill()
    for _ in range(100):
        try:
            llm.call(f"127.0.0.1:{port}", "/health", None, 1.0)
        except OSError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("it still serves")
    assert len(engines()) == len(left()) / 2 == 1
    with cgroups.groups(GROUPS):
        assert engines() == []
    assert left() == []


def arm(tmp_path: Path) -> vllm.Vllm:
    return vllm.Vllm(Condition(workload=WORKLOAD), tmp_path / "service.log")


def ab_run(tmp_path: Path, file: str, mode: str) -> dict[str, Any]:
    """Runs it to its end, and gives the summary."""
    (tmp_path / "why.toml").write_text(file)
    words = [sys.executable, "-m", "loader", "ab", "run", str(tmp_path / "why.toml")]
    words += ["--out", str(tmp_path / "out")]
    environment = {**os.environ, "STAND_IN": mode}
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert left() == []
    assert engines() == []
    summary: dict[str, Any] = with_verdicts(tmp_path / "out")
    return summary


@pytest.mark.root
@pytest.mark.slow
def test_an_experiment(program: Path, tmp_path: Path) -> None:
    summary = ab_run(tmp_path, FILE, "slow")
    first, second = summary["runs"]
    for run in (first, second):
        assert run["sent"] == run["verified"] > 20
        assert run["commands"]["service"][:3] == [str(program), "serve", "a/b"]
        cpu = run["cpu_us_per_request"]
        engine_us = ENGINE_SHARE * run["accounted"]["seconds"] * 1e6 / run["accounted"]["requests"]
        assert cpu["service_user"] + cpu["service_system"] > engine_us
        assert run["streams"]["first_token_us"]["p50"] > 50_000
        assert run["counters_per_reply"] == {}
    folders = sorted((tmp_path / "out" / "raw").glob("0*"))
    assert [len(read_verified(folder)) for folder in folders] == [
        run["verified"] for run in (first, second)
    ]
    kept = json.loads((folders[0] / "counters.json").read_text())
    assert kept["vllm"] == {"version": "0.0-stand-in"}
    assert sentences(summary) == ["There is one arm, so nothing is compared."]
    page = (tmp_path / "out" / "points" / "p01.html").read_text()
    assert "asked for each request alone" in page
    assert "first token P99" in page


@pytest.mark.root
@pytest.mark.slow
def test_a_wrong_token_is_a_failure_of_the_run(program: Path, tmp_path: Path) -> None:
    twice = FILE.replace('["vllm"]', '["vllm", "vllm"]').replace("pairs = 2", "pairs = 1")
    summary = ab_run(tmp_path, twice, "wrong")
    assert summary["arms"] == ["vllm", "vllm2"]
    for run in summary["runs"]:
        assert set(run["failures"]) == {"wrong_payload"}
        assert run["verified"] + run["failures"]["wrong_payload"] == run["sent"]
