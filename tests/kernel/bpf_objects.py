# SPDX-License-Identifier: MIT
"""Numbers of all BPF objects that the kernel holds, whoever uses them."""

from __future__ import annotations

import ctypes
import struct

from loader import syscalls

# enum bpf_cmd: BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID, BPF_LINK_GET_NEXT_ID
PROGRAM, MAP, LINK = 11, 12, 31


def ids(command: int) -> set[int]:
    """Ids of a kind, by a BPF_*_GET_NEXT_ID command. Raises PermissionError without rights."""
    found: set[int] = set()
    attributes = ctypes.create_string_buffer(syscalls.ATTRIBUTE_SIZE)
    last = 0
    while True:
        struct.pack_into("=II", attributes, 0, last, 0)
        try:
            syscalls.syscall(
                syscalls.SYS_BPF,
                ctypes.c_int(command),
                attributes,
                ctypes.c_uint(len(attributes)),
            )
        except FileNotFoundError:
            return found
        last = struct.unpack_from("=II", attributes)[1]
        found.add(last)
