from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import summary
from experiments.plan import TRANSPORTS, Condition, Plan, Timing, labels, numbered


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
    plan = Plan(
        3,
        4,
        ("bpf",),
        numbered([Condition(rate=17.5), Condition(netem={"gap": 3})]),
        Timing(measured=0.5),
        "Why?",
        True,
        {"cpu": 0.1},
    )
    plan.write(tmp_path)
    assert Plan.read(tmp_path) == plan


def test_a_plan_of_another_version_is_refused(tmp_path: Path) -> None:
    Plan(3).write(tmp_path)
    file = tmp_path / "plan.json"
    file.write_text(file.read_text().replace('"wake_us"', '"wake_ms"'))
    with pytest.raises(ValueError, match="Condition has no wake_ms"):
        Plan.read(tmp_path)


def test_what_a_plan_had_no_choice_of_then_has_its_default(tmp_path: Path) -> None:
    Plan(3, 7).write(tmp_path)
    file = tmp_path / "plan.json"
    values = json.loads(file.read_text())
    del values["inject"], values["points"]["p01"]["share"]
    file.write_text(json.dumps(values))
    assert Plan.read(tmp_path) == Plan(3, 7)


def test_a_handicap_is_the_last_arms_by_a_reference_of_each_point() -> None:
    conditions = numbered(Condition(rate=rate) for rate in (10, 20))
    plan = Plan(9, 2, ("bpf", "bpf"), conditions, inject={"cpu": 0.1})
    assert plan.handicapped == "bpf2"
    found = [(run.point, run.arm, run.pair) for run in plan.references()]
    assert found == [("p01", "bpf", 0), ("p02", "bpf", 0)]
    assert {run.name for run in plan.references()}.isdisjoint(run.name for run in plan.runs())
    assert list(replace(plan, inject={}).references()) == []


def test_points_and_arms_are_shuffled_within_each_pair() -> None:
    conditions = numbered(Condition(rate=rate) for rate in (10, 20, 30))
    plan = Plan(9, 40, points=conditions)
    runs = list(plan.runs())
    assert len(runs) == plan.run_count() == 240
    blocks = [runs[i : i + 6] for i in range(0, 240, 6)]
    for pair, block in enumerate(blocks, start=1):
        assert {run.pair for run in block} == {pair}
        assert sorted({run.point for run in block}) == ["p01", "p02", "p03"]
        for first, second in zip(block[::2], block[1::2], strict=True):
            assert (first.point, first.seed) == (second.point, second.seed)
            assert {first.arm, second.arm} == set(TRANSPORTS)
    assert len({tuple(run.point for run in block) for block in blocks}) == 6  # every order
    assert len({run.seed for run in runs}) == 120


def test_a_transport_against_itself_has_two_arms() -> None:
    plan = Plan(1, 3, ("epoll", "bpf", "epoll", "epoll"))
    assert plan.arms == {"epoll": "epoll", "bpf": "bpf", "epoll2": "epoll", "epoll3": "epoll"}
    assert len({run.name for run in plan.runs()}) == 12


def test_a_point_is_called_by_what_differs() -> None:
    conditions = [
        Condition(rate=0),
        Condition(rate=1500, service_cpus=1, netem={"delay_us": 50}),
        Condition(share=0.7, wake_us=5, congestion="bbr"),
    ]
    assert list(labels(numbered(conditions)).values()) == [
        "closed loop, looks every 60 µs, all CPUs, congestion as it is, no netem",
        "1,500/s, looks every 60 µs, 1 CPU, congestion as it is, delay_us 50",
        "70% of saturation, looks every 5 µs, all CPUs, bbr, no netem",
    ]
    assert labels(numbered([Condition()])) == {"p01": "1,000/s"}


def test_a_warm_up_too_short_for_what_is_counted_in_it() -> None:
    assert summary.unsettled(0.0) == []
    (reason,) = summary.unsettled(-0.25)
    assert "0.25 s after" in reason
    assert "warmup_s" in reason
