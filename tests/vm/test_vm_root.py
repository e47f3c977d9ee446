"""Building the root and choosing kernels, without a mirror."""

from __future__ import annotations

import ctypes
import fcntl
import struct
import threading
import time
from pathlib import Path

import pytest

from vm.accelerator import choose_accelerator
from vm.errors import SetupError, VmLost
from vm.kernel_log import kernel_log_faults
from vm.kernels import kernel_packages, newest, uncompress_kernel
from vm.root import build_base, lock
from vm.tsc import host_tsc_khz

RELEASES = [f"{version}+deb13-cloud-amd64" for version in ("6.12.9", "6.12.107", "7.1.3", "7.13.1")]


@pytest.fixture
def mmdebstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in: a test writes its body; $target is the folder to make."""
    program = tmp_path / "bin/mmdebstrap"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("BPF_GPU_SERVER_MIRROR", "http://mirror.example/debian")
    return program


def body(text: str) -> str:
    return f"""#!/bin/bash
target=${{@: -2:1}}
{text}
"""


def test_failed_build_leaves_no_root(mmdebstrap: Path, tmp_path: Path) -> None:
    mmdebstrap.write_text(body('mkdir "$target"; echo "E: no such suite" >&2; exit 25'))
    shown: list[str] = []
    with pytest.raises(SetupError, match="E: no such suite") as failed:
        build_base(tmp_path / "root", shown.append)
    assert str(tmp_path / "root.log") in failed.value.do
    assert shown[-1] == "no such suite"
    assert not (tmp_path / "root").exists()


def test_build_starts_afresh_and_is_renamed_when_whole(mmdebstrap: Path, tmp_path: Path) -> None:
    (tmp_path / "root.partial/of-an-interrupted-build").mkdir(parents=True)
    script = (
        'mkdir "$target" && mkdir "$target/etc"; cat > "$target/sources"; touch "$target/etc/{}"'
    )
    mmdebstrap.write_text(body(script.format("resolv.conf")))
    build_base(tmp_path / "root", lambda line: None)
    assert not (tmp_path / "root.partial").exists()
    assert not (tmp_path / "root/of-an-interrupted-build").exists()
    assert [path.name for path in (tmp_path / "root/etc").iterdir()] == ["hosts"]
    assert "http://mirror.example/debian trixie main" in (tmp_path / "root/sources").read_text()


def test_missing_mmdebstrap_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mmdebstrap: Path
) -> None:
    mmdebstrap.unlink()
    (tmp_path / "bin/apt-config").symlink_to("/bin/true")
    (tmp_path / "bin/rm").symlink_to("/bin/rm")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(SetupError, match="apt-get install mmdebstrap"):
        build_base(tmp_path / "root", lambda line: None)


def test_builders_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    shown: list[str] = []
    order: list[str] = []

    def second() -> None:
        with lock(path, shown.append):
            order.append("second")

    with lock(path, shown.append):
        thread = threading.Thread(target=second)
        thread.start()
        while not shown:
            time.sleep(0.01)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert "waiting" in shown[0]
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # free again


def test_newest_release_of_a_version() -> None:
    assert newest(RELEASES, "6.12") == "6.12.107+deb13-cloud-amd64"
    assert newest(RELEASES, "7.1") == "7.1.3+deb13-cloud-amd64"
    assert newest(RELEASES, "6.12.9") == "6.12.9+deb13-cloud-amd64"
    assert newest(RELEASES, RELEASES[0]) == RELEASES[0]
    assert newest(RELEASES, "6.1") is None


def test_packages_of_a_kernel() -> None:
    release = "7.3.4+deb13-cloud-amd64"
    wanted = [
        *(f"linux-{kind}-{release}" for kind in ("base", "binary", "headers", "image", "modules")),
        "linux-headers-7.3.4+deb13-common",
    ]
    others = [
        f"linux-image-{release}-dbg", f"linux-image-{release}-unsigned", "linux-base",
        "linux-headers-7.3.4+deb13-common-rt", "linux-image-7.3.4+deb13-amd64",
        "linux-headers-7.3.40+deb13-common",
    ]  # fmt: skip
    assert kernel_packages([*others, *wanted], release) == sorted(wanted)


def compressed_image(content: bytes) -> bytes:
    """A bzImage as far as its header goes: 2 setup sectors, a payload at 16 with its size."""
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_compress.restype = ctypes.c_size_t
    output = ctypes.create_string_buffer(len(content) + 1024)
    length = zstd.ZSTD_compress(
        output, ctypes.c_size_t(len(output)), content, ctypes.c_size_t(len(content)), 3
    )
    payload = output.raw[:length] + struct.pack("<I", len(content))
    image = bytearray(3 * 512 + 16) + payload + b"after the payload"
    image[0x1F1] = 2
    struct.pack_into("<II", image, 0x248, 16, len(payload))
    return bytes(image)


def test_kernel_is_taken_out_of_its_image(tmp_path: Path) -> None:
    content = b"\x7fELF" + bytes(range(256)) * 500
    (tmp_path / "vmlinuz").write_bytes(compressed_image(content))
    uncompress_kernel(tmp_path / "vmlinuz", tmp_path / "vmlinux")
    assert (tmp_path / "vmlinux").read_bytes() == content


@pytest.mark.parametrize("damage", ["another compression", "cut short"])
def test_image_of_another_kind_is_left_alone(tmp_path: Path, damage: str) -> None:
    image = bytearray(compressed_image(b"\x7fELF" + bytes(5000)))
    if damage == "another compression":
        image[3 * 512 + 16] ^= 1
    else:
        image[-40:-21] = bytes(19)
    (tmp_path / "vmlinuz").write_bytes(image)
    uncompress_kernel(tmp_path / "vmlinuz", tmp_path / "vmlinux")
    assert not (tmp_path / "vmlinux").exists()


def test_accelerator_is_probed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: True)
    probes = []

    def lose() -> int:
        probes.append("lost")
        raise VmLost("Booting", "died", tmp_path / "log", [])

    def end_well() -> int:
        probes.append("ended")
        return 0

    cache = tmp_path / "accelerator.json"
    assert choose_accelerator(cache, "qemu 1", lose) == "tcg"
    assert choose_accelerator(cache, "qemu 1", end_well) == "tcg"
    assert choose_accelerator(cache, "qemu 2", end_well) == "kvm"
    assert choose_accelerator(cache, "qemu 2", lose) == "kvm"
    assert probes == ["lost", "ended"]
    cache.write_text("{")
    assert choose_accelerator(cache, "qemu 2", lose) == "tcg"


def test_no_kvm_without_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert choose_accelerator(tmp_path / "a.json", "qemu", lambda: 0) == "tcg"


def test_tsc_frequency_is_measured_the_same_twice() -> None:
    first, second = host_tsc_khz(), host_tsc_khz()
    assert first
    assert 100_000 < first < 10_000_000
    assert second == pytest.approx(first, rel=1e-3)


@pytest.mark.parametrize(
    "line",
    [
        "[    1.0] WARNING: CPU: 0 PID: 1 at net/core/sock.c:1 sock_f+0x1/0x2",
        "[    1.0] WARNING: net/core/sock.c:1 at sock_f+0x1/0x2, CPU#0: swapper/1",
        "[    1.0] WARNING: possible circular locking dependency detected",
        "[    1.0] BUG: kernel NULL pointer dereference, address: 0000000000000010",
        "[    1.0] kernel BUG at mm/slub.c:1!",
        "[    1.0] Oops: int3: 0000 [#1] SMP NOPTI",
        "[    1.0] Oops: general protection fault, probably for non-canonical address 0x1",
        "[    1.0] BUG: KASAN: slab-use-after-free in f+0x1/0x2",
        "[    1.0] UBSAN: array-index-out-of-bounds in f.c:1:2",
        "[    1.0] watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [x:1]",
        "[    1.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "[    1.0] INFO: task iou-wrk-1:2 blocked for more than 120 seconds.",
        "[    1.0] refcount_t: underflow; use-after-free.",
        "[    1.0] list_del corruption, c->next is LIST_POISON1",
        "[    1.0] Kernel panic - not syncing: sysrq triggered crash",
        "[    1.0] Out of memory: Killed process 1 (x)",
    ],
)
def test_faults_are_found(line: str) -> None:
    assert kernel_log_faults(f"[    0.5] all well\n{line}\n") == [line]


@pytest.mark.parametrize(
    "line",
    [
        "[    1.0] tracing: debugfs: warning level",
        "[    1.0] Memory cgroup out of memory: Killed process 1 (x)",
        "[    1.0] x86/mm: Checked W+X mappings: passed, no W+X pages found.",
        "[    1.0] audit: debug info: none",
        "[    1.0] Spectre V2 : kernel not compiled with retpoline; no mitigation available!",
    ],
)
def test_ordinary_lines_are_no_faults(line: str) -> None:
    assert kernel_log_faults(line) == []
