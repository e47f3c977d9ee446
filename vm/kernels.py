"""Debian's cloud kernels: which the suites offer, and unpacking one into the root."""

from __future__ import annotations

import ctypes
import lzma
import re
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from vm.apt import Apt
from vm.errors import SetupError

MODULES = "usr/lib/modules"
IMAGE = re.compile(r"linux-image-(\d\S*-cloud-amd64)")


def version_key(release: str) -> tuple[int, ...]:
    """Sorts releases: (7, 3, 4) for 7.3.4+deb13-cloud-amd64."""
    return tuple(int(number) for number in re.findall(r"\d+", release.split("+")[0]))


def newest(releases: Iterable[str], kernel: str) -> str | None:
    """The newest release that `kernel` names, at a boundary: 7.1 is 7.1.3, but not 7.13."""
    pattern = re.compile(re.escape(kernel) + r"(?![0-9])")
    return max(filter(pattern.match, releases), key=version_key, default=None)


def installed(root: Path) -> list[str]:
    """Releases that are in the root, whole."""
    return [entry.name for entry in (root / MODULES).glob("[0-9]*")]


def kernel_packages(names: Iterable[str], release: str) -> list[str]:
    """The packages with this kernel's files, as far as the suites still have them.

    Up to 6.18 linux-image holds a kernel with its modules; later it is split in three. Of a
    superseded kernel the suites keep the signed part, which is the kernel itself: it boots, without
    modules. Headers are for bcc, which compiles against them.
    """
    kinds = "image|base|binary|modules|headers"
    exact = re.compile(rf"linux-(?:{kinds})-{re.escape(release)}")
    common = re.compile(rf"linux-headers-{re.escape(release.removesuffix('-cloud-amd64'))}-common")
    return sorted(name for name in names if exact.fullmatch(name) or common.fullmatch(name))


def offered_kernels(apt: Apt) -> list[str]:
    """Releases that could be added now, oldest first; asks the mirror."""
    apt.update()
    images = (IMAGE.fullmatch(name) for name in apt.package_names("linux-image-"))
    return sorted((match[1] for match in images if match), key=version_key)


def add_kernel(root: Path, kernel: str, apt: Apt, progress: Callable[[str], None]) -> str:
    """Unpack the newest kernel that `kernel` names into the root; returns its release.

    Unpacked, not installed: the packages' scripts would want an initramfs generator and a boot
    loader. Nothing counts until the modules folder is renamed into place. Raises SetupError.
    """
    progress(f"looking for kernel {kernel}")
    offered = offered_kernels(apt)
    release = newest(offered, kernel)
    if release is None:
        raise SetupError(
            f"Looking for kernel {kernel} in Debian's suites",
            f"the mirror offers {', '.join(offered) or 'none'}",
            "Choose one of these.",
        )
    packages = kernel_packages(apt.package_names("linux-"), release)
    progress(f"adding kernel {release}")
    if f"linux-headers-{release}" not in packages:
        progress("the mirror no longer has its headers: bcc cannot compile there")
    staging = root / "var/tmp/kernel"  # in the root: the root's own depmod works on it
    remove_tree(staging)
    (staging / "usr/lib").mkdir(parents=True)
    (staging / "lib").symlink_to("usr/lib")  # older packages ship /lib/modules
    with tempfile.TemporaryDirectory(dir=root / "var/tmp") as folder:
        for package in apt.download(packages, Path(folder)):
            subprocess.run(["dpkg-deb", "--extract", package, staging], check=True)
    if not (staging / MODULES / release / "kernel").exists():
        progress("the mirror no longer has its modules: it can only do what is built in")
    place_kernel(root, staging, release)
    remove_tree(staging)
    return release


def place_kernel(root: Path, staging: Path, release: str) -> None:
    """Bring an unpacked kernel into the form it boots from, and into its place."""
    modules = staging / MODULES / release
    modules.mkdir(parents=True, exist_ok=True)
    in_boot = staging / f"boot/vmlinuz-{release}"
    if in_boot.exists():
        in_boot.rename(modules / "vmlinuz")
    uncompress_kernel(modules / "vmlinuz", modules / "vmlinux")
    uncompress_module(modules / "kernel/fs/overlayfs/overlay.ko.xz", modules / "overlay.ko")
    if (modules / "modules.order").exists():
        inside = "/" + str(staging.relative_to(root))
        subprocess.run(["chroot", root, "depmod", "--basedir", inside, release], check=True)
    for folder in staging.glob("usr/src/*"):
        target = root / "usr/src" / folder.name
        remove_tree(target)
        folder.rename(target)
    (root / MODULES).mkdir(exist_ok=True)
    modules.rename(root / MODULES / release)


def uncompress_kernel(image: Path, into: Path) -> None:
    """Write the ELF kernel that a bzImage carries: QEMU starts it at its PVH entry, which saves a
    second of decompressing under an emulated CPU at every boot, and keeps addresses the same.

    Layout: Documentation/arch/x86/boot.rst (setup_sects, payload_offset, payload_length). An image
    that is not compressed with zstd is left alone, and booted as it is.
    """
    data = image.read_bytes()
    sectors = data[0x1F1] or 4
    offset, length = struct.unpack_from("<II", data, 0x248)
    start = (sectors + 1) * 512 + offset
    payload, size = data[start : start + length - 4], data[start + length - 4 : start + length]
    if payload[:4] != b"\x28\xb5\x2f\xfd":
        return
    zstd = ctypes.CDLL("libzstd.so.1")  # apt and dpkg depend on it; Python has it from 3.14
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    output = ctypes.create_string_buffer(int.from_bytes(size, "little"))
    written = zstd.ZSTD_decompress(
        output, ctypes.c_size_t(len(output)), payload, ctypes.c_size_t(len(payload))
    )
    if written == len(output):
        into.write_bytes(output)


def uncompress_module(packed: Path, into: Path) -> None:
    """Init loads this module itself, before anything that could decompress it is there."""
    if packed.exists():
        into.write_bytes(lzma.decompress(packed.read_bytes()))


def remove_tree(path: Path) -> None:
    """Remove a folder, without entering a /proc or /sys that a killed builder left mounted."""
    subprocess.run(["rm", "-rf", "--one-file-system", path], check=True)
