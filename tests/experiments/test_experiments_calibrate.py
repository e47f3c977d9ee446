from __future__ import annotations

import json
from math import exp
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest

from experiments import __main__ as entry
from experiments import calibrate, calibrate_runs, handicap
from experiments.calibrate_runs import BASELINE, TWIN, Calibration

ROOT = Path(__file__).resolve().parents[2]
FIGURES = {"throughput_rps": 1000.0, "p99_us": 150.0, "machine_cpu_us": 60.0}


def recorded(folder: Path, tries: int, noise: float, **effects: float) -> None:
    """Raw data in which the arms differ by these effects, and by chance."""
    plan = Calibration(1, tries, 5, {"cpu": 0.10, "latency": 0.10})
    randomness = Random(7)
    lines = []
    for number in range(tries * plan.pairs):
        for arm in (BASELINE, TWIN, "cpu", "latency"):
            figures = {k: v * exp(randomness.gauss(0, noise)) for k, v in FIGURES.items()}
            if figure := calibrate.FIGURES.get(arm):
                figures["injected_us"] = 0.10 * FIGURES[figure]
                figures[figure] *= 1 + effects.get(arm, 0.10)
            at = {"try": number // plan.pairs, "pair": number % plan.pairs, "arm": arm}
            lines.append(json.dumps({**at, "figures": figures}) + "\n")
    (folder / calibrate_runs.PLAN).write_text(json.dumps(vars(plan)))
    (folder / calibrate_runs.SIZES).write_text('{"reference_us": {}, "more_us": {}}')
    (folder / calibrate_runs.RUNS).write_text("".join(lines))


def test_what_is_there_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path, tries=40, noise=0.01)
    result = calibrate.evaluate(tmp_path)
    assert calibrate.problems(result) == []
    assert result["a/a"]["advantages"] == 0
    assert result["cpu"]["held"] >= 36
    assert result["latency"]["told_apart"] == 40
    assert result["cpu"]["advantages"] == 0
    calibrate.show(result)
    assert "A/A: an advantage in 0 of 40 tries" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("effects", "said"),
    [
        ({"cpu": 0.13}, "cpu: its size"),
        ({"latency": 0.0}, "latency: its size"),
    ],
)
def test_what_is_not_found_is_named(tmp_path: Path, effects: dict[str, float], said: str) -> None:
    recorded(tmp_path, tries=10, noise=0.01, **effects)
    assert any(line.startswith(said) for line in calibrate.problems(calibrate.evaluate(tmp_path)))


def test_too_many_false_advantages_are_named() -> None:
    result: dict[str, Any] = {"plan": {"handicaps": {}}, "a/a": {"tries": 40, "advantages": 2}}
    assert calibrate.problems(result) == []
    result["a/a"]["advantages"] = 3
    assert calibrate.problems(result) == ["A/A: 3 of 40 tries have an advantage"]


def test_damaged_raw_data(tmp_path: Path) -> None:
    recorded(tmp_path, tries=1, noise=0.01)
    (tmp_path / calibrate_runs.RUNS).write_text('{"try": 0,')
    with pytest.raises(calibrate.ExperimentError, match="read the raw data"):
        calibrate.evaluate(tmp_path)


def test_injections() -> None:
    assert handicap.parse(["cpu=+10%", "latency=+2.5%"]) == {"cpu": 0.10, "latency": 0.025}


@pytest.mark.parametrize("text", ["cpu", "cpu=10%", "cpu=+0%", "cpu=+101%", "memory=+10%"])
def test_a_wrong_injection_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["calibrate", "--inject", text]) == 1
    assert f"'{text}' is neither" in capsys.readouterr().err


@pytest.mark.beside
@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(900)
def test_a_short_calibration() -> None:
    """One try of three pairs is no statistics, so it asks for the middle of the pairs, which a
    single disturbance does not move. `make calibrate` has the rest."""
    plan = Calibration(3, tries=1, pairs=3, handicaps={"cpu": 0.10}, reference=5)
    folder = ROOT / "build" / "test" / "calibrate"
    assert calibrate.run(folder, plan)["a/a"]["advantages"] == 0
    lines = map(json.loads, (folder / calibrate_runs.RUNS).read_text().splitlines())
    runs = {(run["arm"], run["pair"]): run["figures"] for run in lines}
    for arm, truth in ((TWIN, 0.0), ("cpu", 0.10)):
        machine = [
            runs[arm, pair]["machine_cpu_us"] / runs[BASELINE, pair]["machine_cpu_us"] - 1
            for pair in range(plan.pairs)
        ]
        assert median(machine) == pytest.approx(truth, abs=0.03), arm
