"""The page of a running instance, mapped for reading only."""

from __future__ import annotations

import mmap
import os
from typing import Any

from loader import syscalls
from loader.errors import LoaderError
from loader.processes import Identity
from shared_page import PAGE_SIZE_BYTES, PageError, SharedPage
from shared_page.reading import ffi


class PageReader(SharedPage):
    """A view that cannot write: the mapping has no write permission."""

    def __init__(self, memory: mmap.mmap, fd: int) -> None:
        self.fd, self._memory, self._owns_fd = fd, memory, True
        self._view = ffi.from_buffer("struct shared_page *", memory)
        self.struct: Any = self._view


def open_page(state: dict[str, Any]) -> PageReader:
    """Maps the page that a state file names. Raises LoaderError."""
    where = state["page"]
    tried = f"read the page of instance {state['instance']} at {where}"
    remedy = "run as the user who runs the service, or as root"
    try:
        fd = _open(where)
        reader = PageReader(mmap.mmap(fd, PAGE_SIZE_BYTES, prot=mmap.PROT_READ), fd)
        reader._check()
    except OSError as error:
        raise LoaderError.from_os_error(tried, error, remedy) from None
    except PageError as error:
        remedy = "use the bpf-gpu-server that the service was started with"
        raise LoaderError(tried, str(error), remedy) from None
    return reader


def _open(where: str) -> int:
    if where.startswith("/proc/"):
        return os.open(where, os.O_RDONLY | os.O_CLOEXEC)
    # Writable, although the mapping is not: without it the kernel takes MAP_SHARED from the
    # mapping (do_mmap), which a BPF map then refuses.
    return syscalls.bpf_obj_get(where)


def require_alive(state: dict[str, Any]) -> None:
    """Raises LoaderError when the supervisor that wrote this state has ended."""
    if not Identity(**state["supervisor"]).runs():
        raise LoaderError(
            f"go on watching instance {state['instance']}",
            f"its supervisor, process {state['supervisor']['pid']}, has ended",
            "start it again with `bpf-gpu-server serve`",
        )
