"""Experiments as TOML files: what they become, and what is said about those that are wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments import ab, experiment_file, topology
from experiments.errors import ExperimentError
from experiments.experiment_file import CONDITION
from experiments.plan import SLOTS, Condition, Plan
from shared_page import constants

ASKS = 'asks = "Why?"\n'


def read(tmp_path: Path, text: str, exact: bool = False) -> Plan:
    file = tmp_path / "why.toml"
    file.write_text(ASKS + text)
    return experiment_file.read(file, exact)


def test_the_defaults(tmp_path: Path) -> None:
    plan = read(tmp_path, "")
    assert plan.points == {"p01": Condition()}
    assert (plan.asks, plan.pairs, plan.transports) == ("Why?", 5, ("epoll", "bpf"))
    assert plan.timing.warmup == pytest.approx(1.5)
    assert read(tmp_path, "").seed != plan.seed


def test_every_combination_of_every_table(tmp_path: Path) -> None:
    text = """
pairs = 3
seed = 7
warmup_s = 0.6
measured_s = 2
transports = ["bpf", "bpf"]
[[condition]]
workload = "gemm:m=4,k=16,n=15"
work = [1, 4]
rate = [100, "closed", "70%"]
depth = 8
netem = [{ delay_us = 50 }, {}]
[[condition]]
workload = "empty"
depth = 2
"""
    plan = read(tmp_path, text)
    assert (plan.pairs, plan.seed, plan.transports) == (3, 7, ("bpf", "bpf"))
    assert (plan.timing.warmup, plan.timing.measured) == (pytest.approx(0.6), 2)
    found = list(plan.points.values())
    one, four = (f"gemm:m=4,k=16,n=15,work={work}" for work in (1, 4))
    assert len(found) == 13
    assert found[1] == Condition(workload=one, rate=100, depth=8)
    assert found[8] == Condition(workload=four, rate=0, depth=8, netem={"delay_us": 50})
    assert found[11] == Condition(workload=four, share=0.7, depth=8)
    assert found[12] == Condition(workload="empty", depth=2)


def test_work_without_a_workload_is_that_of_the_default(tmp_path: Path) -> None:
    (point,) = read(tmp_path, "condition.work = 3").points.values()
    assert point.workload == "gemm:m=4,k=16,n=15,work=3"


@pytest.mark.parametrize(
    ("text", "said", "do"),
    [
        ("pairs = 0", "pairs = 0 is not a whole number from 1", "take one from 1 to 1000"),
        ("pairs = true", "pairs = True is not a whole number", "take one from 1"),
        ("paris = 5", "unknown key paris", "did you mean pairs?"),
        ("measured_s = -1", "measured_s = -1 is not a number of seconds above 0", "take one such"),
        ("warmup_s = nan", "warmup_s = nan is not a number of seconds", "take one such"),
        ('transports = "epoll"', "transports = 'epoll' is not a list", 'write ["epoll", "bpf"]'),
        ('transports = ["telepathy"]', "transports = 'telepathy' is none of", "take epoll or bpf"),
        ("condition = 5", "condition is not a table", "write [condition]"),
        ("condition.colour = 1", "unknown key condition.colour", "take workload, work, rate"),
        ("condition.conections = 1", "unknown key condition.conections", "mean connections?"),
        ("condition.rate = []", "condition.rate has no value", "give one, or remove the key"),
        ("condition.rate = [5, 5]", "two points are the same", "remove the value"),
        ('condition.rate = "fast"', "condition.rate = 'fast' is no number", '"closed"'),
        ('condition.rate = "closed"', "condition.depth = 24 on 128", "take depth = 8 or less"),
        ('condition = { rate = "5%", slots = 100 }', "depth = 1 on 128", "connections = 100 or"),
        ("condition.slots = 1025", "condition.slots = 1025", "take one from 1 to 1024"),
        ('condition.rate = "0%"', "condition.rate = '0%' is no number", '"70%"'),
        ("condition.connections = 5000", "condition.connections = 5000", "from 1 to 4096"),
        ("condition.service_cpus = 1.0", "condition.service_cpus = 1.0", "take one from 0"),
        ("condition.depth = 25", "condition.depth = 25", "take one from 1 to 24"),
        ('condition.topology = "moon"', "condition.topology = 'moon'", "take loopback or veth"),
        ('condition.topology = "ssh:"', "condition.topology = 'ssh:' is none of", "ssh:HOST"),
        ('condition.topology = "ssh:-oProxy"', "condition.topology = 'ssh:-oProxy'", "ssh:HOST"),
        ('condition = { topology = "ssh:a", congestion = "bbr" }', "both machines", "set them up"),
        ("condition.congestion = 1", "condition.congestion = 1 is not a text", "in quotes"),
        ("condition.netem = 1", "condition.netem = 1 is not a table", "write it as {"),
        ("condition.netem.los = 1", "an unknown key 'los'", "take delay_us, "),
        ("condition.netem.delay_us = 0.5", "delay_us = 0.5, which is no int", "correct delay_us"),
        ('condition.workload = "sudoku"', "condition.workload = 'sudoku': ", "correct workload"),
        ('condition.workload = "gemm:k=0"', "condition.workload = 'gemm:k=0': ", "correct"),
        ('condition.workload = "due:us=2"', "it is not due:service_us=N", "correct workload"),
        ("exact = 1", "exact = 1 is neither true nor false", "take true or false"),
        ('inject = "cpu"', "'cpu' is neither cpu=+N% nor latency=+N%", 'take "cpu=+10%"'),
        ("inject = 10", "inject = 10 is not a text", 'take "cpu=+10%"'),
        ('inject = "cpu=+9%"\ntransports = ["bpf"]', "gives one of two arms", "one twice"),
        ('inject = "latency=+9%"\ncondition = { rate = "closed", depth = 1 }', "closed", "cpu"),
        ("=", "it is not TOML: ", "correct it there"),
    ],
)
def test_what_is_wrong_is_named_with_file_key_and_remedy(
    tmp_path: Path, text: str, said: str, do: str
) -> None:
    with pytest.raises(ExperimentError) as caught:
        read(tmp_path, text)
    assert caught.value.tried == f"use the experiment {tmp_path / 'why.toml'}"
    assert said in caught.value.said
    assert do in caught.value.do


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError) as caught:
        experiment_file.read(tmp_path / "none.toml")
    assert "No such file" in caught.value.said
    assert "ab list" in caught.value.do


def test_a_question_is_needed(tmp_path: Path) -> None:
    (tmp_path / "mute.toml").write_text("pairs = 5\n")
    with pytest.raises(ExperimentError, match="the key asks is missing"):
        experiment_file.read(tmp_path / "mute.toml")


def test_counting_instructions_is_asked_for_in_either_place(tmp_path: Path) -> None:
    assert not read(tmp_path, "").exact
    assert read(tmp_path, "", exact=True).exact
    assert read(tmp_path, "exact = true").exact


def test_a_handicap_is_asked_for_in_either_place(tmp_path: Path) -> None:
    assert read(tmp_path, 'inject = ["cpu=+10%", "latency=+5%"]').inject == {
        "cpu": pytest.approx(0.10),
        "latency": pytest.approx(0.05),
    }
    file = tmp_path / "why.toml"
    assert experiment_file.read(file, injected=["cpu=+20%"]).inject == {"cpu": pytest.approx(0.2)}


def test_limits_are_those_of_the_page() -> None:
    assert SLOTS == constants.SLOT_COUNT
    limits = {"depth": constants.PIPELINE_DEPTH, "connections": constants.CONNECTION_COUNT}
    for key, most in limits.items():
        assert CONDITION[key](most) == most
        with pytest.raises(ValueError):
            CONDITION[key](most + 1)
    assert CONDITION["topology"]("ssh:someone@there") == "ssh:someone@there"
    assert set(experiment_file.TOPOLOGIES) == set(topology.MAKERS)


def test_every_experiment_of_the_project() -> None:
    listed = {name: (asks, size) for name, asks, size in ab.list_files()}
    networks, models = {"containers"}, {"llm", "vllm"}
    assert set(listed) == networks | models | {
        "small_requests", "one_cpu", "heavy_requests", "instructions", "wake_ups",
    }  # fmt: skip
    for asks, size in listed.values():
        assert asks.endswith("?")
        assert re.search(r"\d+ points × \d pairs × (epoll and bpf|vllm): about \d+ min", size)
    plan = experiment_file.read(ab.find_file(Path("small_requests")))
    assert {one.connections for one in plan.points.values()} == {128}
    assert {one.workload.partition(":")[0] for one in plan.points.values()} == {"gemm", "fft"}
    assert len({one.share for one in plan.points.values()}) > 2
    assert len({one.service_cpus for one in plan.points.values()}) == 2
