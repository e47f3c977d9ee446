"""The CPU accounts against known burns; tests/kernel/ asks the same under Linux 7.3."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from experiments import selftest

# Kept exactly; those made of ticks are a few per cent off for burns as short as here.
EXACT = ("service", "loop", "client", "tasks")
GROUPS = "selftest-*"


@pytest.fixture(scope="module")
def result() -> Any:
    patch = pytest.MonkeyPatch()
    patch.setattr(selftest, "BURN_S", 0.3)
    patch.setattr(selftest, "PAUSE_S", 0.1)
    patch.setattr(selftest, "SHORT_BURNS", 5)
    scheduling = os.sched_getscheduler(0), os.sched_getaffinity(0)
    found = selftest.run()
    patch.undo()
    assert (os.sched_getscheduler(0), os.sched_getaffinity(0)) == scheduling
    assert list(Path("/sys/fs/cgroup").glob(GROUPS)) == []
    return found


@pytest.mark.root
@pytest.mark.parametrize("name", selftest.TASKS)
def test_exact_accounts_find_what_was_burnt(result: Any, name: str) -> None:
    if name not in result["burns"]:
        assert "liburing" in result["skipped"][name]
        pytest.skip("liburing is not installed: no io_uring burns; they run in the VM")
    burn = result["burns"][name]
    for account in selftest.ACCOUNTS:
        part = selftest.share(burn, account)
        if account.name in EXACT and name in account.finds and part is not None:
            assert part == pytest.approx(1, abs=selftest.WITHIN), account.title


@pytest.mark.root
def test_an_io_urings_threads_are_in_the_cgroup_and_not_in_the_threads_account(result: Any) -> None:
    for name in (selftest.WORKER, selftest.SQPOLL):
        if burn := result["burns"].get(name):
            assert burn["found_us"]["service"] == pytest.approx(burn["known_us"], rel=0.02)
            assert burn["found_us"]["loop"] < 0.1 * burn["known_us"]


@pytest.mark.root
def test_softirq_of_a_task_is_in_its_account(result: Any) -> None:
    burn = result["burns"][selftest.SOFTIRQ]
    assert burn["softirq_us"] > 0.5 * burn["known_us"]
    assert burn["found_us"]["service"] == pytest.approx(burn["known_us"], rel=0.02)


@pytest.mark.root
def test_softirq_of_an_idle_cpu_is_in_no_tasks_account(result: Any) -> None:
    if burn := result["burns"].get(selftest.IDLE):
        for account in ("service", "loop", "client"):
            assert abs(burn["found_us"][account]) < 0.2 * burn["known_us"], account


def test_what_is_not_found_is_named() -> None:
    burn = {"known_us": 100.0, "softirq_us": 0.0, "found_us": {"service": 97.0, "loop": 99.0}}
    assert selftest.problems({"burns": {selftest.USER: burn}}) == [
        "cpu.stat of the cgroup found 97.0% of user"
    ]
