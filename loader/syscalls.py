"""System calls that Python's library lacks, through ctypes, so that probing needs no package."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

libc = ctypes.CDLL(None, use_errno=True)

SYS_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280}.get(platform.machine(), -1)
SYS_IO_URING_SETUP, SYS_PIDFD_OPEN = 425, 434
PIDFD_THREAD = os.O_EXCL  # Linux 6.9, 64bef697d33b

BPF_MAP_CREATE, BPF_PROG_LOAD, BPF_OBJ_GET = 0, 5, 7
BPF_F_MMAPABLE, BPF_F_RB_OVERWRITE = 1 << 10, 1 << 19
MAP_ARRAY, MAP_SOCKMAP, MAP_SOCKHASH, MAP_RINGBUF = 2, 15, 18, 27
PROG_SOCK_OPS, PROG_SK_SKB = 13, 14
ATTACH_SOCK_OPS, ATTACH_SK_SKB_VERDICT = 3, 38
ATTRIBUTE_SIZE = 128  # of union bpf_attr: a kernel accepts a larger one whose tail is zero

IORING_SINGLE_ISSUER, IORING_DEFER_TASKRUN, IORING_NO_SQARRAY = 1 << 12, 1 << 13, 1 << 16
IO_URING_PARAMS_SIZE = 120

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38


def syscall(number: int, *arguments: object) -> int:
    """The call's result. Raises OSError for its errno."""
    result = int(libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def prctl(option: int, argument: int) -> None:
    """prctl(2) with one argument. Raises OSError."""
    zero = ctypes.c_ulong(0)
    if libc.prctl(ctypes.c_int(option), ctypes.c_ulong(argument), zero, zero, zero) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _bpf(command: int, attributes: bytes) -> int:
    attributes = attributes.ljust(ATTRIBUTE_SIZE, b"\0")
    return syscall(SYS_BPF, ctypes.c_int(command), attributes, ctypes.c_uint(len(attributes)))


def bpf_map_create(kind: int, key: int, value: int, entries: int, flags: int = 0) -> int:
    """A descriptor of a new map; sizes in bytes. Raises OSError."""
    return _bpf(BPF_MAP_CREATE, struct.pack("=5I", kind, key, value, entries, flags))


def bpf_return(value: int) -> bytes:
    """The instructions `r0 = value; exit`."""
    return struct.pack("=BBhi", 0xB7, 0, 0, value) + struct.pack("=BBhi", 0x95, 0, 0, 0)


def bpf_prog_load(kind: int, instructions: bytes, attach: int = 0) -> int:
    """A descriptor of a loaded program for attach type `attach`. Raises OSError."""
    code = ctypes.create_string_buffer(instructions, len(instructions))
    terms = ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack(
        "=IIQQIIQII16sII",
        *(kind, len(instructions) // 8, ctypes.addressof(code), ctypes.addressof(terms)),
        *(0, 0, 0, 0, 0, b"probe", 0, attach),
    )
    return _bpf(BPF_PROG_LOAD, attributes)


def bpf_obj_get(path: str) -> int:
    """A descriptor of a pinned object. Raises OSError."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    return _bpf(BPF_OBJ_GET, struct.pack("=QII", ctypes.addressof(name), 0, 0))


def pidfd_open_thread(tid: int) -> int:
    """A descriptor that becomes readable when the thread ends. Raises OSError."""
    return syscall(SYS_PIDFD_OPEN, ctypes.c_int(tid), ctypes.c_uint(PIDFD_THREAD))


def io_uring_setup(entries: int, flags: int) -> int:
    """A descriptor of a new ring. Raises OSError."""
    params = ctypes.create_string_buffer(IO_URING_PARAMS_SIZE)
    struct.pack_into("=I", params, 8, flags)
    return syscall(SYS_IO_URING_SETUP, ctypes.c_uint(entries), params)
