"""An io_uring that only the kernel uses: made, given files, entered once.

User space maps none of it: the loop program reads and writes the ring through
the kernel's own mapping. Through cffi and liburing-ffi.
"""

from __future__ import annotations

import errno
import functools
import os
from typing import Any

import cffi

from loader.errors import LoaderError, errno_name
from loader.shared_objects import open_library

ffi = cffi.FFI()
ffi.cdef(
    """
    struct io_sqring_offsets { uint32_t head, tail, ring_mask, ring_entries, flags, dropped, array,
                               resv1; uint64_t user_addr; };
    struct io_cqring_offsets { uint32_t head, tail, ring_mask, ring_entries, overflow, cqes, flags,
                               resv1; uint64_t user_addr; };
    struct io_uring_params {
        uint32_t sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle, features, wq_fd;
        uint32_t resv[3];
        struct io_sqring_offsets sq_off;
        struct io_cqring_offsets cq_off;
    };
    struct io_uring_rsrc_register { uint32_t nr, flags; uint64_t resv2, data, tags; };
    struct io_uring_rsrc_update { uint32_t offset, resv; uint64_t data; };
    struct io_uring_file_index_range { uint32_t off, len; uint64_t resv; };

    int io_uring_setup(unsigned int entries, struct io_uring_params *params);
    int io_uring_register(unsigned int fd, unsigned int opcode, const void *argument,
                          unsigned int count);
    int io_uring_enter(unsigned int fd, unsigned int to_submit, unsigned int min_complete,
                       unsigned int flags, void *signals);
    """
)

# include/uapi/linux/io_uring.h
IORING_SETUP_CQSIZE = 1 << 3
IORING_SETUP_SUBMIT_ALL = 1 << 7  # a refused SQE does not hold back those after it
IORING_SETUP_SINGLE_ISSUER = 1 << 12
IORING_SETUP_DEFER_TASKRUN = 1 << 13
IORING_SETUP_NO_SQARRAY = 1 << 16
IORING_ENTER_GETEVENTS = 1 << 0
IORING_REGISTER_FILES_UPDATE = 6
IORING_REGISTER_FILES2 = 13
IORING_REGISTER_FILE_ALLOC_RANGE = 25
IORING_RSRC_REGISTER_SPARSE = 1 << 0
SQE_BYTES = 64
CQE_BYTES = 16


@functools.cache
def library() -> Any:
    """Returns liburing-ffi, opened at first use. Raises LoaderError when it is not installed."""
    remedy = "install liburing 2.4 or newer: apt-get install liburing2 on Debian 13"
    return open_library(ffi, "liburing-ffi.so.2", remedy)


class Ring:
    """An io_uring of the calling thread, for a loop program.

    DEFER_TASKRUN and SINGLE_ISSUER are what the loop requires (io_install_bpf() in
    io_uring/bpf-ops.c, Linux 7.3); NO_SQARRAY makes the SQE at tail & mask the next one.
    """

    def __init__(self, sq_entries: int, cq_entries: int) -> None:
        self._lib = library()
        self.params = ffi.new("struct io_uring_params *")
        self.params.flags = (
            IORING_SETUP_CQSIZE
            | IORING_SETUP_SUBMIT_ALL
            | IORING_SETUP_SINGLE_ISSUER
            | IORING_SETUP_DEFER_TASKRUN
            | IORING_SETUP_NO_SQARRAY
        )
        self.params.cq_entries = cq_entries
        self.fd = self._check(
            self._lib.io_uring_setup(sq_entries, self.params),
            "set up an io_uring",
            "needs Linux 6.6, kernel.io_uring_disabled = 0, and enough locked memory",
        )

    @staticmethod
    def _check(result: int, tried: str, do: str) -> int:
        if result < 0:
            raise LoaderError(tried, errno_name(-result), do)
        return result

    def _register(self, opcode: int, argument: Any, count: int, tried: str, do: str) -> None:
        self._check(self._lib.io_uring_register(self.fd, opcode, argument, count), tried, do)

    def register_files(self, count: int, allocatable: int, files: dict[int, int]) -> None:
        """Makes a table of count fixed files.

        Accepted sockets get places below allocatable; files maps other places to descriptors.
        """
        table = ffi.new("struct io_uring_rsrc_register *")
        table.nr = count
        table.flags = IORING_RSRC_REGISTER_SPARSE
        self._register(
            IORING_REGISTER_FILES2,
            table,
            ffi.sizeof(table[0]),
            f"register a table of {count} files",
            f"raise the limit of open files (ulimit -n) to {count}",
        )
        span = ffi.new("struct io_uring_file_index_range *", {"off": 0, "len": allocatable})
        self._register(
            IORING_REGISTER_FILE_ALLOC_RANGE, span, 0, "set the range of fixed files", "report this"
        )
        for place, descriptor in files.items():
            self._place_file(place, descriptor)

    def _place_file(self, place: int, descriptor: int) -> None:
        descriptors = ffi.new("int[1]", [descriptor])
        update = ffi.new("struct io_uring_rsrc_update *")
        update.offset = place
        update.data = int(ffi.cast("uintptr_t", descriptors))
        self._register(
            IORING_REGISTER_FILES_UPDATE, update, 1, f"register file {place}", "report this"
        )

    def constants(self) -> dict[str, int]:
        """What bpf/include/ring.h needs to know of this ring: entries, and offsets in bytes."""
        p = self.params
        return {
            "sq_entries": p.sq_entries,
            "cq_entries": p.cq_entries,
            "sq_tail_offset": p.sq_off.tail,
            "cq_head_offset": p.cq_off.head,
            "cq_tail_offset": p.cq_off.tail,
            "cqes_offset": p.cq_off.cqes,
            "ring_bytes": p.cq_off.cqes + p.cq_entries * CQE_BYTES,
            "sqes_bytes": p.sq_entries * SQE_BYTES,
        }

    def run_loop(self) -> None:
        """Enters the ring and stays until its loop program returns IOU_LOOP_STOP.

        A signal ends the call with EINTR, before completions are lost; it is entered again.
        Raises LoaderError when the kernel ends the loop otherwise.
        """
        while True:
            result = self._lib.io_uring_enter(self.fd, 0, 0, IORING_ENTER_GETEVENTS, ffi.NULL)
            if result == -errno.EINTR:
                continue
            self._check(
                result,
                "run the request loop in the kernel",
                "EFAULT: the program was detached; EINVAL: it returned a wrong value",
            )
            return

    def close(self) -> None:
        """Closes the ring; the kernel ends what is pending on it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
