"""A root reduced to what boots, runs Python and holds chosen files, with the QEMU that boots it."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from vm.errors import SetupError
from vm.qemu import from_root
from vm.root import GUEST_INIT, Root

# What the VM itself needs; the firmware is that of the machine `pc` booted by `-kernel`.
PATHS = (
    *("usr/bin/qemu-system-x86_64", "usr/libexec/virtiofsd"),
    *("usr/share/seabios/bios-256k.bin", "usr/share/qemu/kvmvapic.bin"),
    *("usr/share/qemu/linuxboot_dma.bin", "usr/share/qemu/pvh.bin"),
    *("usr/lib64", "usr/bin/python3", "usr/lib/python3.13", GUEST_INIT.lstrip("/"), "etc/hosts"),
)
# Never imported by what runs in a VM.
LEFT_OUT = ("ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter", "turtledemo")
LOADER = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"


def pack(root: Root, archive: Path, paths: Sequence[str], added: Mapping[str, Path]) -> None:
    """Write an archive: `root/` with the files and folders of the root that `paths` name beside
    PATHS, and every library that they or `added` files are linked with; and those, by name.

    Raises SetupError for what is not there.
    """
    for file in added.values():
        if not file.is_file():
            raise SetupError(f"Packing {file}", "it is not there (ENOENT)", "Build it: `make`.")
    kernel = root.kernel.relative_to(root.path)
    overlay = kernel.with_name("overlay.ko")
    chosen = {*top_level(root.path)}
    for path in (kernel, overlay, *map(Path, (*PATHS, *paths))):
        chosen |= set(below(root.path, path))
    chosen |= set(libraries(root, [*(root.path / path for path in chosen), *added.values()]))
    partial = archive.with_name(archive.name + ".partial")
    archive.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(partial, "w:xz", preset=6) as tar:
            for path in sorted(chosen):
                tar.add(root.path / path, f"root/{path}", recursive=False)
            for name, file in added.items():
                tar.add(file, name)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    partial.rename(archive)


def top_level(root: Path) -> Iterator[Path]:
    """The root's own folders, where file systems are mounted, and links such as /lib64."""
    for path in root.iterdir():
        if path.is_dir():
            yield path.relative_to(root)


def below(root: Path, path: Path) -> Iterator[Path]:
    """A file or folder with what is in it; of a link also what it points to. Raises SetupError."""
    whole = root / path
    if whole.is_symlink():
        yield path
        target = os.path.normpath(Path("/") / path.parent / os.readlink(whole))
        yield from below(root, Path(target).relative_to("/"))
    elif whole.is_dir():
        yield path
        for entry in whole.iterdir():
            if entry.name not in LEFT_OUT:
                yield from below(root, path / entry.name)
    elif whole.exists():
        yield path
    else:
        raise SetupError(f"Packing {path}", f"it is not in {root} (ENOENT)", "Correct its name.")


def libraries(root: Root, files: Iterable[Path]) -> Iterator[Path]:
    """The libraries of the root that ELF files are linked with, as its own loader finds them."""
    found: set[Path] = {Path(LOADER)}
    for file in files:
        if not file.is_file() or file.stat().st_size < 4 or not is_dynamic(file):
            continue
        loader = from_root(root, LOADER)[:3]
        listed = subprocess.run(
            [*loader, "--list", file], capture_output=True, text=True, check=False
        )
        words = (line.split() for line in listed.stdout.splitlines())
        found |= {Path(word[2]).relative_to(root.path) for word in words if len(word) > 3}
    for library in found:
        yield from below(root.path, library)


def is_dynamic(file: Path) -> bool:
    """Whether a file is ELF, for x86-64: a program or library, no kernel."""
    with file.open("rb") as content:
        header = content.read(20)
    return header[:4] == b"\x7fELF" and header[16] in (2, 3) and header[18] == 62
