"""The whole demo, short, and the system calls' counter: in the VM, or here where bpf runs here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments import place
from experiments.plan import TRANSPORTS

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240  # for a machine that is busy with something else


@pytest.fixture(scope="module")
def out() -> Iterator[Path]:
    """A folder that the VM sees: only the project's is shared with it."""
    folder = ROOT / "build" / "test" / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def summary(out: Path) -> Any:
    command = [sys.executable, "-m", "experiments", "demo", "--pairs", "1", "--seconds", "2"]
    command += ["--rate", "400", "--seed", "5", "--out", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((out / "summary.json").read_text())


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 10)
def test_every_reply_of_both_transports(summary: Any) -> None:
    assert sorted(run["transport"] for run in summary["runs"]) == sorted(TRANSPORTS)
    for run in summary["runs"]:
        assert 600 < run["sent"] < 1000  # Poisson: 800 expected
        assert run["verified"] == run["sent"]
        assert run["failures"] == run["warmup_failures"] == {}
        assert 0 < run["latency_us"]["p50"] <= run["latency_us"]["p99"] <= run["latency_us"]["max"]
    first, second = summary["runs"]
    assert first["sent"] == second["sent"], "the arms of a pair have the same arrivals"


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 10)
def test_user_space_left_the_request_path_of_bpf(summary: Any) -> None:
    runs = {run["transport"]: run for run in summary["runs"]}
    assert runs["bpf"]["service_syscalls_after_start"] == 0
    assert {t["name"] for t in runs["bpf"]["syscall_window"]["threads"]} == {"supervisor", "loop"}
    assert runs["bpf"]["loop_user_us"] == 0
    assert runs["bpf"]["loop_run_us"] > 0
    assert runs["bpf"]["counters_per_reply"]["sqes"] >= 1
    assert runs["epoll"]["service_syscalls_after_start"] > 128  # accept alone is one a connection
    assert runs["epoll"]["loop_user_us"] is None
    assert runs["epoll"]["counters_per_reply"]["sqes"] == 0


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 10)
def test_accounts_are_parts_of_the_machine(summary: Any) -> None:
    where = place.find(TRANSPORTS)
    for run in summary["runs"]:
        cpu = run["cpu_us_per_request"]
        parts = [cpu[name] for name in ("service_user", "service_system", "executor", "client")]
        assert all(part >= 0 for part in parts)
        assert cpu["service_system"] > 0
        # What else runs, and interrupts, are in the machine's account only.
        assert sum(parts) < cpu["machine"] * 1.02
        if where.boot_s:
            assert cpu["vm_on_host"] > 0
        assert run["machine_source"] == "/proc/schedstat"
        assert 0 < run["machine_busy_share"] <= 1.02


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 10)
def test_report_of_the_demo(summary: Any, out: Path) -> None:
    page = (out / "report.html").read_text()
    assert page.count("<svg") == 2
    assert summary["kernel"] in page


COUNT = """
import os, threading
from experiments.system_calls import SystemCalls, threads_of
release = threading.Event()
other = threading.Thread(target=release.wait)
other.start()
ours = threading.get_native_id()
assert set(threads_of([os.getpid()])) == {ours, other.native_id}
with SystemCalls([ours, other.native_id]) as counted:
    for _ in range(1000):
        os.getppid()
release.set()
assert counted.counts[other.native_id] == 0, counted.counts
# ... and the one or two with which the counters are opened and read.
assert 1000 <= counted.counts[ours] <= 1004, counted.counts
"""


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 10)
def test_system_calls_are_counted_one_by_one() -> None:
    where = place.find(TRANSPORTS)
    done = subprocess.run(
        [*where.prefix, where.python, "-c", COUNT], cwd=ROOT, capture_output=True, text=True,
        timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
