from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path

import pytest

from experiments import __main__ as entry
from experiments import cases, exact, exact_runs, programs
from experiments.plan import TRANSPORTS, Condition
from experiments.service import Service

ROOT = Path(__file__).resolve().parents[2]
SERVICE_US = 20_000


def runs() -> exact.Runs:
    """Figures that agree with the baseline."""
    baseline = json.loads(exact.BASELINE.read_text())
    more = {figure: 1.0 for _, figure, _ in exact.ROWS}
    return {
        name: {arm: {**more, **of, "service_spread": 0.005} for arm, of in arms.items()}
        for name, arms in baseline.items()
    }


def test_the_baseline_has_every_condition() -> None:
    baseline = json.loads(exact.BASELINE.read_text())
    assert set(baseline) == set(exact_runs.RATES) == set(exact_runs.REQUESTS)
    for arms in baseline.values():
        assert set(arms) == set(TRANSPORTS)
        assert all(1000 < of[figure] < 100_000 for of in arms.values() for figure in exact.HELD)
    assert exact.problems(runs(), baseline) == []


@pytest.mark.parametrize(
    ("figure", "factor", "said"),
    [
        ("service", 1.029, None),
        ("service", 1.031, "high, bpf: service was"),
        ("service", 0.969, "high, bpf: service was"),
        ("client", 1.031, "high, bpf: client was"),
        ("service_spread", 1.99, None),
        ("service_spread", 2.01, "high, bpf: service repeats only within 1.00%"),
    ],
)
def test_what_moves_is_named(figure: str, factor: float, said: str | None) -> None:
    baseline = json.loads(exact.BASELINE.read_text())
    changed = runs()
    changed["high"]["bpf"][figure] *= factor
    found = exact.problems(changed, baseline)
    assert len(found) == (said is not None)
    assert said is None or found[0].startswith(said)


def test_status_and_result_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worse = copy.deepcopy(runs())
    worse["low"]["epoll"]["client"] *= 2
    out = tmp_path / "exact.json"
    for result, status in ((runs(), 0), (worse, 1)):
        monkeypatch.setattr(exact, "run", lambda raw, wake_policy, result=result: result)
        assert entry.main(["exact", "--out", str(out)]) == status
        assert json.loads(out.read_text()) == result
    assert "low, epoll: client was" in capsys.readouterr().err
    # The baseline is of the fixed policy.
    assert entry.main(["exact", "--out", str(out), "--wake-policy", "adaptive"]) == 0
    baseline = tmp_path / "baseline.json"
    exact.record(worse, baseline)
    assert exact.problems(worse, json.loads(baseline.read_text())) == []


@pytest.mark.root
def test_results_fall_due_after_the_set_time(tmp_path: Path) -> None:
    """Here, with epoll; the VM's run has bpf."""
    cases.write_due(tmp_path / exact_runs.CASES, 16, exact_runs.SEED)
    condition = Condition(workload=f"due:service_us={SERVICE_US}", connections=8)
    service = Service("epoll", condition, tmp_path / "service.log")
    with service:
        port = service.state()["port"]
        command = [programs.native_program("load"), "--port", str(port), "--connections", "8"]
        command += ["--cases", tmp_path / exact_runs.CASES, "--rate", "200", "--requests", "100"]
        load = json.loads(programs.output_of([*command, "--json", "-"], "load it"))
        assert (load["verified"], load["failures"]) == (100, {})
        assert load["latency_us"]["p50"] >= SERVICE_US
        counters = json.loads(service.counters())["counters"]
    assert counters["executor"]["completed"] == 100
    assert counters["executor"]["launches"] == 0


@pytest.mark.parametrize(
    "spec", ["due", "due:service_us=", "due:service_us=0", "due:service_us=2x"]
)
def test_a_wrong_time_is_refused(spec: str) -> None:
    command = [programs.native_program("executor-due"), "--page-fd", "0", "--workloads", spec]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"'{spec}' is not usable. Give due:service_us=N" in done.stderr


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.root
@pytest.mark.timeout(1300)
def test_instructions_are_those_of_the_baseline() -> None:
    """Whether they repeat, `make exact` says: it takes three pairs of loads for each figure."""
    figures = exact.run(ROOT / "build" / "test" / "exact", pairs=1)
    assert exact.problems(figures, json.loads(exact.BASELINE.read_text())) == []
    for arms in figures.values():
        # User space takes no part, and the loop is not woken for nothing.
        assert arms["bpf"]["timer_wakes_per_request"] == 0
        assert arms["bpf"]["steps_per_request"] < arms["epoll"]["steps_per_request"]
