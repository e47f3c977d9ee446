from __future__ import annotations

from pathlib import Path

import pytest

from experiments.plan import TRANSPORTS, Condition, Plan, Timing


def order(seed: int, pairs: int = 3) -> list[str]:
    return [run.transport for run in Plan(seed, pairs).runs()]


def test_a_seed_is_an_order() -> None:
    assert order(7) == order(7)
    assert list(Plan(7, 3).runs()) == list(Plan(7, 3).runs())


def test_seeds_give_every_order_about_equally_often() -> None:
    """Of 1,000 seeds each of the 8 orders of 3 pairs is expected 125 times; 5 sigma are 52."""
    counts: dict[str, int] = {}
    for seed in range(1000):
        counts[" ".join(order(seed))] = counts.get(" ".join(order(seed)), 0) + 1
    assert len(counts) == 8
    assert all(abs(count - 125) < 52 for count in counts.values()), counts


def test_each_pair_has_every_transport_and_one_seed() -> None:
    runs = list(Plan(5, 20).runs())
    assert [run.number for run in runs] == list(range(1, 41))
    pairs = [runs[i : i + 2] for i in range(0, 40, 2)]
    for pair in pairs:
        assert sorted(run.transport for run in pair) == sorted(TRANSPORTS)
        assert len({run.seed for run in pair}) == len({run.pair for run in pair}) == 1
    assert len({pair[0].seed for pair in pairs}) == 20


def test_run_folders_are_apart() -> None:
    runs = list(Plan(5, 20).runs())
    assert len({run.name for run in runs}) == 40


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    plan = Plan(3, 4, ("bpf",), Condition(rate=17.5, connections=3), Timing(measured=0.5))
    plan.write(tmp_path)
    assert Plan.read(tmp_path) == plan


def test_a_plan_of_another_version_is_refused(tmp_path: Path) -> None:
    Plan(3).write(tmp_path)
    file = tmp_path / "plan.json"
    file.write_text(file.read_text().replace('"wake_us"', '"wake_ms"'))
    with pytest.raises(ValueError, match="wake_us"):
        Plan.read(tmp_path)
