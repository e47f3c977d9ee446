"""The CPU accounts against known burns: here, and in the VM where instructions are counted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from experiments import cgroups, programs, selftest
from loader.cli import cli

ROOT = Path(__file__).resolve().parents[2]
# Kept exactly; those made of ticks are a few per cent off for burns as short as here.
EXACT = ("service", "loop", "client", "tasks")
BURN_S = 0.3


@pytest.fixture(scope="module")
def result() -> Any:
    scheduling = os.sched_getscheduler(0), os.sched_getaffinity(0)
    found = selftest.run(BURN_S)
    assert (os.sched_getscheduler(0), os.sched_getaffinity(0)) == scheduling
    assert list(cgroups.mount().glob("selftest-*")) == []
    return found


@pytest.mark.root
@pytest.mark.parametrize("name", [selftest.USER, selftest.SYSTEM, selftest.SOFTIRQ])
def test_exact_accounts_find_what_was_burnt(result: Any, name: str) -> None:
    burn = result["burns"][name]
    assert burn["known_us"] >= BURN_S * 1e6
    for account in selftest.ACCOUNTS:
        part = selftest.share(burn, account)
        if account.name in EXACT and part is not None:
            assert part == pytest.approx(1, abs=selftest.WITHIN), account.title


@pytest.mark.root
def test_softirq_of_a_task_is_in_its_account(result: Any) -> None:
    burn = result["burns"][selftest.SOFTIRQ]
    assert burn["softirq_us"] > 0.5 * burn["known_us"]


@pytest.mark.root
def test_what_cannot_be_burnt_here_is_said(result: Any) -> None:
    assert {*result["burns"], *result["skipped"]} >= {*selftest.TASKS, selftest.IDLE}
    assert all(result["skipped"].values())


@pytest.mark.beside
@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(900)
def test_every_burn_in_the_vm() -> None:
    """There an io_uring's threads are found, and an idle CPU's softirq is in no task's account."""
    file = ROOT / "build" / "test" / "selftest.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    command = programs.command_line("ab", "selftest", "--exact", "--seconds", str(BURN_S))
    programs.output_of([*command, "--json", str(file)], "test the accounts", timeout_s=850)
    result = json.loads(file.read_text())
    assert result["skipped"] == {}
    assert set(result["burns"]) == set(selftest.BURNS)
    for name in (selftest.WORKER, selftest.SQPOLL):
        burn = result["burns"][name]
        assert burn["found_us"]["loop"] < 0.1 * burn["known_us"]
    idle = result["burns"][selftest.IDLE]
    for account in ("service", "loop", "client"):
        assert abs(idle["found_us"][account]) < 0.05 * idle["known_us"]


def test_a_file_that_the_vm_does_not_see_is_refused() -> None:
    words = ["ab", "selftest", "--exact", "--json", "/tmp/selftest.json"]
    result = CliRunner().invoke(cli, words, standalone_mode=False)
    assert result.return_value == 1
    assert "the VM sees only" in result.stderr


def test_what_is_not_found_is_named() -> None:
    burn = {"known_us": 100.0, "softirq_us": 0.0, "found_us": {"service": 97.0, "loop": 99.0}}
    assert selftest.problems({"burns": {selftest.USER: burn}}) == [
        "cpu.stat of the cgroup found 97.0% of user"
    ]


def test_one_disturbed_burn_does_not_count() -> None:
    def burn(tasks: float) -> dict[str, Any]:
        return {"known_us": 100.0, "softirq_us": 0.0, "found_us": {"tasks": tasks}}

    assert selftest.middle([burn(117.0), burn(100.5), burn(99.0)]) == burn(100.5)
