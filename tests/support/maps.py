"""What stands in a pinned sockmap, by looking at each place."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

from loader import syscalls

BPF_MAP_LOOKUP_ELEM = 1
ATTRIBUTE_SIZE = 128


def sockets_in(sockmap: Path, places: int) -> int:
    """How many of its places hold a socket; the kernel answers with the socket's cookie.

    Raises OSError when it cannot be opened.
    """
    fd = syscalls.bpf_obj_get(str(sockmap))
    try:
        return sum(_holds(fd, place) for place in range(places))
    finally:
        os.close(fd)


def _holds(fd: int, place: int) -> bool:
    key, cookie = ctypes.c_uint32(place), ctypes.c_uint64()
    addresses = ctypes.addressof(key), ctypes.addressof(cookie)
    attributes = struct.pack("=IxxxxQQQ", fd, *addresses, 0).ljust(ATTRIBUTE_SIZE, b"\0")
    command, size = ctypes.c_int(BPF_MAP_LOOKUP_ELEM), ctypes.c_uint(ATTRIBUTE_SIZE)
    try:
        syscalls.syscall(syscalls.SYS_BPF, command, attributes, size)
    except FileNotFoundError:
        return False
    return True
