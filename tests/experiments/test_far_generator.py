"""The load generator on another machine, which is this one behind a stand-in for ssh."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from experiments import cases as requests
from experiments import measure
from experiments.errors import ExperimentError
from experiments.far_generator import FarGenerator, FarHost
from experiments.generator import Server
from experiments.plan import Condition, Plan, Timing, numbered
from experiments.records import RECORD
from experiments.summary import summarise
from tests.experiments import ssh_stub
from tests.load.generator import echo_cases
from tests.load.stand_in import StandIn, echo

SSH = ("ssh", "-o", "BatchMode=yes", "there")
TIMING = Timing(counting=0.1, settling=0.1, measured=0.5)
CONDITION = Condition(rate=100, connections=4)


@pytest.fixture(autouse=True)
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh_stub.install(tmp_path, monkeypatch, "127.0.0.1")


def running(words: str) -> bool:
    found = subprocess.run(["pgrep", "-f", words], stdout=subprocess.DEVNULL, check=False)
    return found.returncode == 0


def test_results_come_back_and_nothing_stays(tmp_path: Path) -> None:
    cases = echo_cases(tmp_path / "cases.bin")
    with StandIn(echo) as server, FarHost(SSH) as host:
        assert host.folder != tmp_path
        there = Server("127.0.0.1", server.port)
        load = FarGenerator(CONDITION, TIMING, 1, there, cases, 0, host).write_to(tmp_path)
        began = time.monotonic()
        with load:
            assert load.client is None
            assert began < load.wait_until_sending() < time.monotonic() + 0.1
            load.finish()
    result = json.loads((tmp_path / "load.json").read_text())
    assert result["verified"] == result["sent"] > 10
    assert (tmp_path / "records.bin").stat().st_size == RECORD.itemsize * result["sent"]
    assert 0 <= load.clock_ahead_ns < 2e9  # one clock: it is the way of a line
    assert not host.folder.exists()


def test_a_load_that_is_left_ends(tmp_path: Path) -> None:
    cases = echo_cases(tmp_path / "cases.bin")
    long = Timing(counting=0.1, settling=0.1, measured=60)
    with StandIn(echo) as server, FarHost(SSH) as host:
        there = Server("127.0.0.1", server.port)
        load = FarGenerator(CONDITION, long, 1, there, cases, 0, host).write_to(tmp_path)
        with load:
            load.wait_until_sending()
            assert running(f"{host.folder}/load")
        until = time.monotonic() + 10
        while running(f"{host.folder}/load") and time.monotonic() < until:
            time.sleep(0.05)
        assert not running(f"{host.folder}/load")


def test_a_load_that_cannot_run_says_why(tmp_path: Path) -> None:
    cases = echo_cases(tmp_path / "cases.bin")
    with FarHost(SSH) as host:
        load = FarGenerator(CONDITION, TIMING, 1, Server("127.0.0.1", 9), cases, 0, host)
        with pytest.raises(ExperimentError) as caught, load.write_to(tmp_path):
            load.wait_until_sending()
    assert "ECONNREFUSED" in caught.value.said


def test_a_host_that_is_not_there() -> None:
    with pytest.raises(ExperimentError) as caught, FarHost((*SSH[:-1], "gone")):
        pass
    assert caught.value.tried == "make a folder on gone"
    assert "no route to gone" in caught.value.said


@pytest.mark.root
def test_a_condition_with_a_far_client(tmp_path: Path) -> None:
    condition = Condition(rate=100, connections=4, topology="ssh:there")
    raw = tmp_path / "raw"
    raw.mkdir()
    plan = Plan(1, 1, ("epoll",), numbered([condition]), TIMING)
    plan.write(raw)
    requests.write({measure.cases_file(raw, plan, condition): condition.workload}, plan.seed)
    measure.write_json(raw / "host.json", {})
    measure.measure(raw, lambda phase, seconds: None, lambda run: None)
    (run,) = summarise(raw)["runs"]
    assert run["verified"] == run["sent"] > 10
    assert 1 < run["cpu_us_per_request"]["client"] < 10_000
    assert run["commands"]["load"][0].startswith("/tmp/")
