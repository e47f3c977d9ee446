# SPDX-License-Identifier: MIT
"""The shared page as Python sees it: made, checked, read and viewed through numpy.

The creator of a page is normally the supervisor, which imports this and must stay small: numpy is
imported only where a view is asked for.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from . import frames, reading
from .reading import CONSTANTS, ffi

if TYPE_CHECKING:
    import numpy as np

PAGE_SIZE_BYTES: int = ffi.sizeof("struct shared_page")
PAGE_FRAMES = -(-PAGE_SIZE_BYTES // frames.FRAME_BYTES)
_WRITERS = ("supervisor", "ingress", "egress", "executor")


class PageError(RuntimeError):
    """A descriptor that holds no usable page, with the reason and what to do."""


class SharedPage:
    """A mapped page. ``struct`` gives typed access to every member, without copying.

    Python makes plain loads and stores, each of an aligned word: good for counters and flags, not
    for taking part in a ring.
    """

    def __init__(self, memory: mmap.mmap, fd: int, owns_fd: bool = False) -> None:
        self.fd = fd
        self._owns_fd = owns_fd
        self._memory = memory
        self._view = ffi.from_buffer("struct shared_page *", memory, require_writable=True)
        self.struct: Any = self._view

    @classmethod
    def create_memfd(
        cls,
        max_connections: int,
        max_slots: int = CONSTANTS["SLOT_COUNT"],
        name: str = "bpf-gpu-server.page",
    ) -> Self:
        """A new page, ready to be attached to, whose size nobody can change any more.

        The descriptor ``fd`` is closed on exec; pass it on with ``pass_fds``. Raises ValueError
        when max_connections is not 1 to CONNECTION_COUNT, or max_slots not 1 to SLOT_COUNT,
        OSError when memory is refused.
        """
        _check_places(max_connections, max_slots)
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, PAGE_SIZE_BYTES)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            cls.initialise(fd, max_connections, max_slots)
            return cls(_map(fd), fd, owns_fd=True)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def attach(cls, fd: int, in_frames: Sequence[int] | None = None) -> Self:
        """The page behind a memfd or a BPF map, which stays the caller's.

        With `in_frames`, `fd` is the memory of a virtual machine, and the page in it consists of
        these frames, in this order. Raises PageError when it cannot be mapped or has another
        layout.
        """
        page = cls(_map(fd) if in_frames is None else _map_frames(fd, in_frames), fd)
        try:
            page._check()
        except BaseException:
            page.close()
            raise
        return page

    @classmethod
    def initialise(
        cls, fd: int, max_connections: int, max_slots: int = CONSTANTS["SLOT_COUNT"]
    ) -> None:
        """Makes a page of zeroed memory: everything free, nobody attached.

        Raises ValueError for max_connections and max_slots, PageError when the memory is already
        a page or cannot be mapped.
        """
        _check_places(max_connections, max_slots)
        with cls(_map(fd), fd) as page:
            if page.struct.identity.magic:
                raise PageError(
                    f"initialise the page (descriptor {fd}): its memory is in use; make a new one"
                )
            page._fill(max_connections, max_slots)

    def _fill(self, max_connections: int, max_slots: int) -> None:
        ends = reading.field_ends("PAGE_FIELDS")
        page, identity = self.struct, self.struct.identity
        identity.layout_version = CONSTANTS["PAGE_LAYOUT_VERSION"]
        identity.size = PAGE_SIZE_BYTES
        identity.layout_hash = reading.layout_hash(ends)
        identity.layout_fields = len(ends)
        identity.max_connections = max_connections
        identity.max_slots = max_slots
        identity.layout_field[0 : len(ends)] = ends
        page.free_slot[0:max_slots] = range(max_slots)
        page.egress.free_slot_tail = max_slots
        page.free_connection[0:max_connections] = range(max_connections)
        page.egress.free_connection_tail = max_connections
        identity.magic = CONSTANTS["PAGE_MAGIC"]  # last: who finds it may rely on the rest

    def _check(self) -> None:
        """In the order of page_matches() in attach.h: the first difference is the one named."""
        identity = self.struct.identity
        listed, ends = reading.fields("PAGE_FIELDS"), reading.field_ends("PAGE_FIELDS")
        self._match("page_identity.magic", identity.magic, CONSTANTS["PAGE_MAGIC"])
        version = CONSTANTS["PAGE_LAYOUT_VERSION"]
        self._match("page_identity.layout_version", identity.layout_version, version)
        for at, (structure, member) in enumerate(listed):
            self._match(f"{structure}.{member}", identity.layout_field[at], ends[at])
        self._match("page_identity.layout_fields", identity.layout_fields, len(ends))
        self._match("page_identity.size", identity.size, PAGE_SIZE_BYTES)
        self._match("page_identity.layout_hash", identity.layout_hash, reading.layout_hash(ends))

    @staticmethod
    def _match(field: str, there: int, ours: int) -> None:
        if there != ours:
            raise PageError(
                f"attach to the page: {field} is {there:#x} there and {ours:#x} here; let a part "
                "built from the same sources initialise the page"
            )

    def frames(self) -> list[int]:
        """The numbers of the frames of memory that the page consists of, in order.

        They hold for a BPF map, whose memory stays where it is. Raises PermissionError without
        CAP_SYS_ADMIN.
        """
        return frames.frames_of(self._memory)

    @property
    def executor_state(self) -> int:
        """One of EXECUTOR_ABSENT, EXECUTOR_READY, EXECUTOR_STOPPED, EXECUTOR_FAILED."""
        return int(self.struct.executor.state)

    def request_stop(self) -> None:
        """Tells the executor to finish what was submitted and to leave. Supervisor only."""
        self.struct.supervisor.stop = 1

    def adapt_wakes(self, interval_us: int) -> None:
        """Results are looked for when they are expected; until it is known when, and where several
        are, at this interval in µs (1 to 1,000,000). Supervisor only, before the first request."""
        self.struct.supervisor.adaptive_wake_ns = interval_us * 1000

    def counters(self) -> dict[str, dict[str, int]]:
        """Each writer's words by name, and under "depth" what is queued and in use.

        A depth is what one writer has added less what another has taken; the latter is read
        first, so that none is negative.
        """
        first = {writer: _numbers(getattr(self.struct, writer)) for writer in _WRITERS}
        ingress = _numbers(self.struct.ingress)
        return {**first, "depth": _depths(first, ingress, self.struct.identity)}

    def as_numpy(self) -> np.ndarray[Any, Any]:
        """The whole page as a structured array of shape () over the same memory.

        ``page.as_numpy()["slot"]["executor"]["done"]`` has shape (SLOT_COUNT,). The array keeps
        the mapping: close() fails with BufferError while one is referenced.
        """
        import numpy as np

        page = _dtype(ffi.typeof("struct shared_page"))
        return np.frombuffer(self._memory, page, count=1).reshape(())

    def close(self) -> None:
        """Unmaps the page, and closes the descriptor of one that create_memfd() made."""
        ffi.release(self._view)
        self._memory.close()
        if self._owns_fd:
            os.close(self.fd)
            self._owns_fd = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _check_places(max_connections: int, max_slots: int) -> None:
    for name, value, most in (
        ("max_connections", max_connections, CONSTANTS["CONNECTION_COUNT"]),
        ("max_slots", max_slots, CONSTANTS["SLOT_COUNT"]),
    ):
        if not 1 <= value <= most:
            raise ValueError(f"{name} is {value}; the page has room for 1 to {most}")


def _map(fd: int) -> mmap.mmap:
    try:
        status = os.fstat(fd)
        # Only a file says its size; for a BPF map mmap() itself compares (see attach.h).
        if stat.S_ISREG(status.st_mode) and status.st_size < PAGE_SIZE_BYTES:
            raise _refused(fd, f"it has {status.st_size} bytes")
        return mmap.mmap(fd, PAGE_SIZE_BYTES)
    except OSError as error:
        said = errno.errorcode.get(error.errno or 0, str(error.errno))
        raise _refused(fd, said) from error


def _map_frames(fd: int, numbers: Sequence[int]) -> mmap.mmap:
    if len(numbers) != PAGE_FRAMES:
        raise _refused(fd, "the list of its frames is not whole")
    try:
        if max(numbers) >= os.fstat(fd).st_size // frames.FRAME_BYTES:
            raise _refused(fd, "a frame lies behind its end")
        return frames.map_frames(fd, numbers)
    except OSError as error:
        raise _refused(fd, errno.errorcode.get(error.errno or 0, str(error.errno))) from error


def _refused(fd: int, said: str) -> PageError:
    return PageError(
        f"map the page (descriptor {fd}): {said}; pass the descriptor of a page, a memfd or a BPF "
        f"map of at least {PAGE_SIZE_BYTES} bytes"
    )


def _numbers(group: Any) -> dict[str, int]:
    return {
        name: int(getattr(group, name))
        for name, field in ffi.typeof(group).fields
        if field.type.kind == "primitive"
    }


def _depths(
    first: dict[str, dict[str, int]], ingress: dict[str, int], identity: Any
) -> dict[str, int]:
    egress = first["egress"]
    return {
        "queued": ingress["submit_tail"] - first["executor"]["submit_head"],
        "in_flight": ingress["submit_tail"] - egress["finals"],
        "slots": identity.max_slots - egress["free_slot_tail"] + ingress["free_slot_head"],
        "connections": identity.max_connections
        - egress["free_connection_tail"]
        + ingress["free_connection_head"],
    }


def _dtype(kind: Any) -> Any:
    """The numpy dtype of a cffi type; structures keep cffi's offsets and size."""
    import numpy as np

    if kind.kind == "struct":
        members = kind.fields
        return np.dtype(
            {
                "names": [name for name, _ in members],
                "formats": [_dtype(field.type) for _, field in members],
                "offsets": [field.offset for _, field in members],
                "itemsize": ffi.sizeof(kind),
            }
        )
    if kind.kind == "array":
        return np.dtype((_dtype(kind.item), (kind.length,)))
    code = "f" if kind.cname in ("float", "double") else "iu"[kind.cname.startswith("u")]
    return np.dtype(f"<{code}{ffi.sizeof(kind)}")
