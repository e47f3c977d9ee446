"""The whole chain, with the CPU's executor for the GPU's: the kernel's loop in the VM, and outside
of it who computes, on frames of the VM's memory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments import chain, folders
from experiments.chain import Chain, Part
from experiments.errors import ExperimentError

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240  # for a machine that is busy with something else
REQUESTS = 150
PACK_MOST = 48 << 20


@pytest.fixture
def out() -> Iterator[Path]:
    """A folder that the VM sees: only the project's is shared with it."""
    if os.geteuid():
        pytest.skip("needs uid 0: run as root or through sudo")
    folder = ROOT / "build" / "test" / "chain"
    shutil.rmtree(folder, ignore_errors=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 10)
def test_every_reply_through_loop_and_frames(out: Path) -> None:
    command = [sys.executable, "-m", "experiments", "chain", "--out", str(out)]
    command += ["--requests", str(REQUESTS), "--rate", "300"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((out / "report.json").read_text())
    assert report == json.loads(done.stdout)
    assert report["kernel"].startswith("7.")
    assert (report["transport"], report["executor"], report["gpu"]) == ("bpf", "cpu", None)
    assert report["requests"] == report["verified"] == 2 * REQUESTS
    assert [spec.partition(":")[0] for spec in report["workloads"]] == ["gemm", "fft"]
    counters = report["counters"]
    assert counters["executor"]["completed"] == counters["egress"]["replies"] == 2 * REQUESTS
    assert counters["egress"]["steps"] > 0
    assert counters["egress"]["stale_results"] == counters["ingress"]["frames_busy"] == 0


def test_a_part_that_fails_ends_the_others(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        Part("wait", ["sleep", "60"], tmp_path / "other") as other,
        Part("run the executor", ["sh", "-c", "echo no GPU; exit 3"], log) as failing,
        pytest.raises(ExperimentError, match="run the executor") as caught,
    ):
        chain.finish((other, failing), 30)
    assert "left with 3:\nno GPU" in caught.value.said
    assert other._process.returncode < 0


def test_a_part_that_takes_too_long(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        Part("run the VM", ["sleep", "60"], log) as part,
        pytest.raises(ExperimentError, match="not done after") as caught,
    ):
        chain.finish((part,), 0.1)
    assert caught.value.do == f"see {log}"


def test_a_vm_that_ends_before_it_says_where_the_page_is(tmp_path: Path) -> None:
    with (
        Part("run the VM", ["sh", "-c", "echo qemu: no; exit 125"], tmp_path / "log") as part,
        pytest.raises(ExperimentError, match="left with 125:\nqemu: no"),
    ):
        part.wait_for(tmp_path / "frames")


def test_an_archive_that_is_none(tmp_path: Path) -> None:
    for content in (b"no archive", None):
        archive = tmp_path / "pack.tar.xz"
        archive.write_bytes(content) if content else archive.unlink()
        with pytest.raises(ExperimentError, match="unpack") as caught:
            chain.unpack(archive, tmp_path / "into")
        assert caught.value.do == "make it with `make chain-pack`"


def test_a_folder_with_something_else_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.programs.project_folder", lambda: tmp_path)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ExperimentError, match="other files in it"):
        chain.run(Chain(), tmp_path)
    with pytest.raises(ExperimentError, match="the VM sees only"):
        folders.check_seen(Path("/elsewhere"), tmp_path)
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_archive_is_all_it_takes(out: Path) -> None:
    """Packs for minutes, so only when it is asked for."""
    if "TESTS_CHAIN_PACK" not in os.environ:
        pytest.skip("packing takes minutes: set TESTS_CHAIN_PACK=1")
    archive = ROOT / "build/chain-pack.tar.xz"
    subprocess.run(["make", "chain-pack"], cwd=ROOT, check=True, capture_output=True)
    assert archive.stat().st_size < PACK_MOST
    # Where the VM's own folder is empty, with nothing of this environment.
    script = 'mount -t tmpfs none build/vm && exec env -i PATH=/usr/bin:/bin "$@"'
    command = [sys.executable, "-m", "experiments", "chain", "--pack", str(archive)]
    command += ["--requests", str(REQUESTS), "--out", str(out)]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script, "-", *command],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["verified"] == 2 * REQUESTS
