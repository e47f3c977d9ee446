"""What a command sees in the VM, and what comes back of it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.vm.conftest import Outcome
from vm.qemu import Share
from vm.root import Root
from vm.tsc import host_tsc_khz

pytestmark = [pytest.mark.timeout(600), pytest.mark.root]

ODD = ["", " ", "a b", "'", '"', "$HOME", "`id`", "\\", "*", "-x", "--", "new\nline", "µ→é", "#"]


def fingerprint(folder: Path) -> str:
    """Of every name, kind, size and time below a folder."""
    digest = hashlib.sha256()
    for path, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *files]):
            status = os.lstat(os.path.join(path, name))
            digest.update(f"{path}/{name} {status.st_mode} {status.st_size} ".encode())
            digest.update(f"{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def facts(root: Root, run_in_vm: Callable[..., Outcome]) -> dict[str, Any]:
    script = Path(__file__).with_name("guest_facts.py")
    before = fingerprint(root.path)
    outcome = run_in_vm(
        ["python3", str(script), *ODD],
        stdin="input, with µ\n".encode(),
        env={"ODD": "a 'quoted' \"$value\"\n", "PATH": "/usr/bin"},
        cwd=script.parent,
    )
    assert outcome.out, outcome.err
    return {
        **json.loads(outcome.out),
        "status": outcome.status,
        "err": outcome.err,
        "changed": fingerprint(root.path) != before,
    }


def test_status_and_streams_pass(facts: dict[str, Any]) -> None:
    assert facts["status"] == 3
    assert facts["stdin"] == "input, with µ\n"
    assert facts["err"] == b"a line for stderr\n"


def test_kernel_is_the_one_chosen(facts: dict[str, Any], root: Root) -> None:
    assert facts["release"] == root.release
    assert root.release.startswith("7.3")


def test_odd_arguments_pass_unchanged(facts: dict[str, Any]) -> None:
    assert facts["arguments"] == ODD


def test_environment_is_the_one_given(facts: dict[str, Any]) -> None:
    assert facts["environment"] == {
        "PATH": "/usr/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "ODD": "a 'quoted' \"$value\"\n",
    }


def test_root_stays_unmodified(facts: dict[str, Any]) -> None:
    assert not facts["changed"]


def test_project_folder_is_at_its_path(facts: dict[str, Any]) -> None:
    here = Path(__file__).parent
    assert facts["folder"] == str(here)
    assert facts["mounts"][str(here.parent.parent)] == "virtiofs"


def test_file_systems_are_mounted(facts: dict[str, Any]) -> None:
    expected = {
        "/": "overlay",
        "/dev": "devtmpfs",
        "/dev/pts": "devpts",
        "/dev/shm": "tmpfs",
        "/proc": "proc",
        "/run": "tmpfs",
        "/sys": "sysfs",
        "/sys/fs/bpf": "bpf",
        "/sys/fs/cgroup": "cgroup2",
        "/sys/kernel/debug": "debugfs",
        "/sys/kernel/tracing": "tracefs",
        "/tmp": "tmpfs",
    }
    assert {path: facts["mounts"].get(path) for path in expected} == expected


def test_command_has_loopback_a_session_and_no_strange_descriptor(facts: dict[str, Any]) -> None:
    assert facts["loopback"]
    assert facts["leader"]
    assert sorted(facts["open"]) == ["0", "1", "2"], facts["open"]


def test_clock_is_the_tsc_at_the_hosts_frequency(facts: dict[str, Any]) -> None:
    assert facts["clocksource"].strip() == "tsc"
    host = host_tsc_khz()
    assert host
    if facts["tsc_mhz"]:  # measured in the guest's first seconds, unless it ended before
        assert facts["tsc_mhz"] * 1000 == pytest.approx(host, rel=0.01)


def test_shares_bytes_and_signals(run_in_vm: Callable[..., Outcome], tmp_path: Path) -> None:
    """A megabyte through stdin, a shared file and stdout; a read-only share; death by a signal."""
    open_folder, closed_folder = tmp_path / "open", tmp_path / "closed"
    open_folder.mkdir()
    closed_folder.mkdir()
    data = random.Random(7).randbytes(1 << 20)
    outcome = run_in_vm(
        "tee copy; pwd >&2; touch /closed/x && echo written >&2; kill -9 $$",
        stdin=data,
        shares=[Share(open_folder), Share(closed_folder, Path("/closed"), read_only=True)],
        guest_ram_file=tmp_path / "ram",
        memory_mib=512,
    )
    assert outcome.status == 128 + 9
    assert outcome.out == data
    assert (open_folder / "copy").read_bytes() == data
    assert outcome.err.startswith(f"{open_folder}\n".encode())
    assert b"Read-only file system" in outcome.err
    assert b"written" not in outcome.err
    ram = (tmp_path / "ram").read_bytes()
    assert len(ram) == 512 << 20
    assert data[4096:8192] in ram  # the page cache of the copied file


def test_two_at_the_same_time(run_in_vm: Callable[..., Outcome]) -> None:
    with ThreadPoolExecutor() as pool:
        first = pool.submit(run_in_vm, ["cat"], stdin=b"of the first", cpus=1, memory_mib=512)
        second = pool.submit(run_in_vm, ["no-such-program"], cpus=1, memory_mib=512)
    assert first.result() == Outcome(0, b"of the first", b"")
    assert second.result().status == 127
    assert b"cannot run 'no-such-program'" in second.result().err


def test_icount_counts_no_housekeeping(run_in_vm: Callable[..., Outcome]) -> None:
    """Threads of the kernel that wake up of themselves, and burn tens of ms in any window."""
    outcome = run_in_vm("cat /proc/[0-9]*/comm 2> /dev/null", icount=True, memory_mib=512)
    names = outcome.out.decode().split()
    assert "kthreadd" in names
    assert not {name for name in names if name.startswith(("khugepaged", "kdamond"))}


def test_icount_skips_idle_time(run_in_vm: Callable[..., Outcome]) -> None:
    started = time.monotonic()
    outcome = run_in_vm("sleep 200; cat /proc/uptime", icount=True, memory_mib=512)
    assert outcome.status == 0
    assert float(outcome.out.split()[0]) > 200
    assert time.monotonic() - started < 190
