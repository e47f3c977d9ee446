"""`doctor`: every answer has a reason and a remedy, and the exit status says what can run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loader.btf import KIND_FUNC, KIND_STRUCT, KernelTypes
from loader.errors import LoaderError
from loader.features import PROBES, Finding, Probe, examine
from loader.probes import io_uring, kernel, software
from loader.probes.answer import Answer, Verdict, yes
from tests.service.service import NOBODY, ROOT, cli

NAMED = {
    "kernel", "BTF", "sockmap", "sk_skb programs", "sock_ops programs", "ringbuf overwrite",
    "io_uring", "io_uring sysctl", "io_uring flags", "io_uring BPF ops", "CAP_BPF",
    "CAP_NET_ADMIN", "CAP_PERFMON", "CAP_SYS_ADMIN", "cgroup v2", "bpffs", "memlock, mmapable map",
    "clang", "libbpf", "liburing-ffi", "GPU", "cupy", "torch",
}  # fmt: skip


def doctor(*arguments: str, **settings: Any) -> tuple[int, dict[str, Any]]:
    run = cli("doctor", "--json", *arguments, **settings)
    assert run.stderr == ""
    result = json.loads(run.stdout)
    assert isinstance(result, dict)
    return run.returncode, result


def answers(result: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["answer"] for one in result["capabilities"]}


@pytest.mark.parametrize("transport", ["epoll", "bpf"])
@pytest.mark.parametrize("executor", ["cpu", "cuda"])
def test_json(transport: str, executor: str) -> None:
    status, result = doctor("--transport", transport, "--executor", executor)
    assert {one["name"] for one in result["capabilities"]} >= NAMED
    for one in result["capabilities"]:
        assert set(one) == {"name", "since", "needed", "answer", "why", "do"}
        assert one["answer"] in ("yes", "no", "could not tell")
        assert one["why"]
        assert one["do"]
        assert (one["do"] == "nothing") == (one["answer"] == "yes")
    needed = [one["answer"] for one in result["capabilities"] if one["needed"]]
    assert result["can_run"] == all(answer == "yes" for answer in needed)
    assert status == (0 if result["can_run"] else 1)


def test_table() -> None:
    wide = {**os.environ, "COLUMNS": "200"}
    run = cli("doctor", env=wide)
    for probe in PROBES:
        assert probe.name in run.stdout
    can_run = "transport epoll with executor cpu can run here." in run.stdout
    assert can_run == (run.returncode == 0), run.stdout


def test_works_where_packages_are_missing() -> None:
    hidden = "".join(f"sys.modules[{name!r}] = None; " for name in ("rich", "cffi", "numpy"))
    code = f"import sys; {hidden}from loader.cli import run; sys.exit(run(['doctor']))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.stderr == ""
    assert run.returncode == 1
    assert re.search(r"^cffi\* +no ", run.stdout, re.MULTILINE)
    assert "cannot run here: see cffi" in run.stdout


def test_without_click_there_is_a_message() -> None:
    code = "import sys; sys.modules['click'] = None; from loader.cli import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "do:   apt-get install python3-click" in run.stderr


def test_unprivileged_is_not_taken_for_an_old_kernel(nobody: None) -> None:
    as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    status, result = doctor("--transport", "bpf", **as_nobody)
    assert status == 1
    found = answers(result)
    for name in ("CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"):
        assert found[name] == "no"
    for name in ("sockmap", "sk_skb programs", "sock_ops programs"):
        assert found[name] == "could not tell"


def test_a_new_enough_kernel_never_says_no(root: None) -> None:
    """Distributions build these in; a no on a newer kernel is the probe's own mistake."""
    running = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    for finding in examine("bpf", "cpu", kernel_probes()):
        since = tuple(map(int, re.findall(r"(\d+)\.(\d+)", finding.probe.since)[0]))
        if running >= since:
            assert finding.answer.verdict is Verdict.YES, finding
        else:
            assert finding.answer.verdict is Verdict.NO, finding


def kernel_probes() -> list[Probe]:
    modules = (kernel.__name__, io_uring.__name__)
    return [p for p in PROBES if p.since and getattr(p.attempt, "__module__", "") in modules]


def test_every_probe_of_the_kernel_says_since_when() -> None:
    assert len(kernel_probes()) >= 8
    for probe in kernel_probes():
        assert re.fullmatch(r"Linux \d+\.\d+(, [0-9a-f]{12})?", probe.since)


def test_a_probe_that_fails_could_not_tell() -> None:
    def broken() -> Answer:
        raise RuntimeError("broken probe")

    probe = Probe("broken", "", broken, ("epoll",))
    (finding,) = examine("epoll", "cpu", [probe])
    assert finding.answer.verdict is Verdict.UNKNOWN
    assert finding.answer.why == "RuntimeError: broken probe"
    assert finding.stands_in_the_way
    assert not Finding(probe, yes("fine"), needed=True).stands_in_the_way
    assert not Finding(probe, finding.answer, needed=False).stands_in_the_way


@pytest.mark.parametrize(
    ("value", "verdict"),
    [("0", Verdict.YES), ("absent", Verdict.YES), ("2", Verdict.NO), ("7", Verdict.NO)],
)
def test_sysctl(monkeypatch: pytest.MonkeyPatch, value: str, verdict: Verdict) -> None:
    monkeypatch.setattr(io_uring, "sysctl_value", lambda: value)
    assert io_uring.sysctl().verdict is verdict


def test_gpu_package_that_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crashing.py").write_text("import os; os.abort()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    answer = software.gpu_package("crashing", "reinstall it")
    assert (answer.verdict, answer.do) == (Verdict.NO, "reinstall it")
    assert "status -6" in answer.why


def test_kernel_types() -> None:
    if not Path("/sys/kernel/btf/vmlinux").exists():
        pytest.skip("this kernel has no BTF: use one built with CONFIG_DEBUG_INFO_BTF=y")
    types = KernelTypes()
    assert types.has("task_struct", KIND_STRUCT)
    assert types.has("tcp_sendmsg", KIND_FUNC)
    assert not types.has("task_struct", KIND_FUNC)
    assert not types.has("no_such_struct_anywhere", KIND_STRUCT)


def test_kernel_types_of_another_file(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(100))
    with pytest.raises(LoaderError) as caught:
        KernelTypes(other)
    assert caught.value.said == "it does not begin with BTF's magic"
    with pytest.raises(LoaderError) as caught:
        KernelTypes(tmp_path / "none")
    assert caught.value.said == "ENOENT (No such file or directory)"
