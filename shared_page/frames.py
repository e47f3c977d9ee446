# SPDX-License-Identifier: MIT
"""A page across the border of a virtual machine: the frames of memory that it consists of.

Inside, the kernel says which ones they are; outside, where the machine's memory is a file, the same
frames are mapped side by side. page_attach_frames() in attach.h is the C twin of the latter.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from pathlib import Path

FRAME_BYTES = 4096  # of x86-64, as PAGE_FRAME_BYTES in attach.h
# Documentation/admin-guide/mm/pagemap.rst: 64 bits a page, the frame in the lowest 55.
_ENTRY_BYTES = 8
_FRAME_MASK = (1 << 55) - 1
_MAP_FIXED = 0x10
_MAP_FAILED = ctypes.c_void_p(-1).value


def frames_of(memory: mmap.mmap) -> list[int]:
    """The frames behind a mapping, in order.

    Raises PermissionError where the kernel hides them: it takes CAP_SYS_ADMIN.
    """
    count = -(-len(memory) // FRAME_BYTES)
    for page in range(count):
        memory[page * FRAME_BYTES]  # only a page that was touched has a frame
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        pagemap.seek(_address(memory) // FRAME_BYTES * _ENTRY_BYTES)
        entries = memoryview(pagemap.read(count * _ENTRY_BYTES)).cast("Q")
    found = [entry & _FRAME_MASK for entry in entries]
    if not all(found):
        raise PermissionError("/proc/self/pagemap hides the frames: it takes CAP_SYS_ADMIN")
    return found


def map_frames(fd: int, frames: Sequence[int]) -> mmap.mmap:
    """Frames of a file as one mapping, in the order given. Raises OSError."""
    memory = mmap.mmap(-1, len(frames) * FRAME_BYTES)
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = (ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *numbers)
    libc.mmap.restype = ctypes.c_void_p
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED
    at = _address(memory)
    for number, frame in enumerate(frames):
        place, offset = at + number * FRAME_BYTES, frame * FRAME_BYTES
        if libc.mmap(place, FRAME_BYTES, protection, flags, fd, offset) == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), "mmap")
    return memory


def write_frames(path: Path, frames: Sequence[int]) -> None:
    """One number a line, in one step: who waits for the file finds all of them. Raises OSError.

    Only the owner can read it: the kernel shows frames to nobody else either.
    """
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_text("".join(f"{frame}\n" for frame in frames))
    new.rename(path)


def read_frames(path: Path) -> list[int]:
    """What write_frames() wrote. Raises OSError, and ValueError for anything else."""
    return [int(line) for line in path.read_text().splitlines()]


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
