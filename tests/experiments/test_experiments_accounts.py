from __future__ import annotations

import os
import struct
import threading
import time
from pathlib import Path

import pytest

from experiments import accounts
from experiments.task_ticks import TaskTicks, attributes

TICK = accounts.TICK_US


def test_cpu_stat() -> None:
    text = "usage_usec 7220\nuser_usec 1548\nsystem_usec 5672\nnr_periods 0\nburst_usec 0\n"
    assert accounts.parse_cpu_stat(text) == 7220


def test_cpu_stat_without_times() -> None:
    with pytest.raises(KeyError):
        accounts.parse_cpu_stat("nr_periods 0\n")


def test_proc_stat_reads_the_line_of_all_cpus() -> None:
    text = "cpu  128 1 515 635 12 3 28 4 90 91\ncpu0 93 0 320 265 11 0 16 0 0 0\nctxt 5\n"
    expected = {"user": 128, "nice": 1, "system": 515, "idle": 635, "iowait": 12, "irq": 3}
    expected |= {"softirq": 28, "steal": 4}
    assert accounts.parse_proc_stat(text) == {name: n * TICK for name, n in expected.items()}


def test_schedstat() -> None:
    assert accounts.parse_schedstat("129001933 17350860 39\n") == pytest.approx(129001.933)


def test_machine_schedstat_adds_cpus_and_skips_domains() -> None:
    text = (
        "version 17\ntimestamp 4294894225\n"
        "cpu0 0 0 0 0 0 0 5151096712 1186703038 1832\n"
        "domain0 MC 3 0 0 0 0\n"
        "cpu1 0 0 0 0 0 0 3497445158 1507676913 2409\n"
    )
    assert accounts.parse_machine_schedstat(text) == pytest.approx(8648541.870)


def test_accounts_of_this_process(tmp_path: Path) -> None:
    """Burns a known amount as the client; the cgroups are files that stand still."""
    (tmp_path / "cpu.stat").write_text("usage_usec 5\n")
    tid = threading.get_native_id()
    with accounts.Accounts(tmp_path, tmp_path, [tid], tid, os.getpid()) as account:
        first, clock = accounts.parse(account.read()), time.process_time()
        while time.process_time() < clock + 0.3:
            pass
        burnt = (time.process_time() - clock) * 1e6
        last = accounts.parse(account.read())
    used = accounts.spent(first, last, os.sysconf("SC_NPROCESSORS_ONLN"))
    assert used["service"] == used["executor"] == 0
    for account_name in ("client", "observer"):
        assert used[account_name] == pytest.approx(burnt, rel=0.02, abs=10_000), account_name
    # This thread was one of what the machine ran (which is brought up to date when it is switched
    # away), and the tick found it there.
    assert used["machine"] > 0.8 * used["loop"]
    assert used["loop.ticks.user"] + used["loop.ticks.system"] > 200_000


def test_accounts_need_the_cgroups(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        accounts.Accounts(tmp_path, tmp_path, [], None, os.getpid())


def test_within_takes_the_outermost_samples_inside() -> None:
    samples = [{"at": float(at)} for at in (90, 100, 150, 190, 201)]
    assert accounts.within(samples, 100, 200) == ({"at": 100.0}, {"at": 190.0})


def test_within_needs_two_samples() -> None:
    with pytest.raises(ValueError, match="1 samples"):
        accounts.within([{"at": 50.0}, {"at": 150.0}], 100, 200)


def test_spent_machine_by_tick_is_what_was_not_idle() -> None:
    first = {"at": 0.0, "machine.idle": 10.0, "machine.iowait": 1.0}
    last = {"at": 100.0, "machine.idle": 130.0, "machine.iowait": 6.0}
    used = accounts.spent(first | service(0, 0, 0), last | service(0, 0, 0), cpus=2)
    assert used["machine"] == used["by_tick"] == 2 * 100 - 120 - 5


def test_spent_prefers_the_exact_machine() -> None:
    nothing = {"at": 0.0, "machine.idle": 0.0, "machine.iowait": 0.0} | service(0, 0, 0)
    used = accounts.spent(nothing | {"tasks": 10.0}, nothing | {"tasks": 90.0}, cpus=2)
    assert used["machine"] == 80


def test_spent_adds_interrupts_that_no_task_has() -> None:
    nothing = {"at": 0.0, "machine.idle": 0.0, "machine.iowait": 0.0, "tasks": 0.0}
    nothing |= service(0, 0, 0) | {"machine.irq": 0.0, "machine.softirq": 0.0}
    later = nothing | {"tasks": 80.0, "machine.irq": 3.0, "machine.softirq": 7.0}
    assert accounts.spent(nothing, later, cpus=2)["machine"] == 80
    assert accounts.spent(nothing, later, cpus=2, irq_apart=True)["machine"] == 90


def service(total: float, user: float, system: float) -> accounts.Sample:
    return {"service": total, "service.ticks.user": user, "service.ticks.system": system}


@pytest.mark.parametrize(
    ("ticks", "split"),
    [((1, 3), (25, 75)), ((0, 3), (0, 100)), ((2, 0), (100, 0)), ((0, 0), (0, 100))],
)
def test_spent_splits_the_service_as_its_ticks(
    ticks: tuple[int, int], split: tuple[int, int]
) -> None:
    """Only ticks between the samples count: the service had 50 in user mode before."""
    idle = {"at": 0.0, "machine.idle": 0.0, "machine.iowait": 0.0}
    first, last = service(30, 50, 10), service(130, 50 + ticks[0], 10 + ticks[1])
    used = accounts.spent(idle | first, idle | last, cpus=1)
    assert (used["service.user"], used["service.system"]) == split


def test_ticks_find_this_thread_where_it_is() -> None:
    """Burns a second, nearly all of it in user mode."""
    with TaskTicks() as ticks:
        before = ticks.read(threading.get_native_id())
        end = time.thread_time() + 1.0
        while time.thread_time() < end:
            sum(range(100_000))
        user, system = (
            b - a for a, b in zip(before, ticks.read(threading.get_native_id()), strict=True)
        )
    assert user > 700_000
    assert system < 200_000


def test_ticks_of_a_thread_that_is_gone() -> None:
    with TaskTicks() as ticks, pytest.raises(ProcessLookupError):
        ticks.read(2**22 + 1)  # above the highest possible pid


def test_netlink_attributes_are_padded_to_four_bytes() -> None:
    data = struct.pack("=HH3sxHH2s", 7, 1, b"abc", 6, 2 | 0x8000, b"de")
    assert attributes(data) == {1: b"abc", 2: b"de"}
