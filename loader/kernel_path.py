"""Transport `bpf`: the request path inside the kernel, set up and taken down.

Setting up loads two objects that share the page: ingress (sock_ops, sk_skb) and the loop
(struct_ops on an io_uring). Then one thread enters the ring and stays in the kernel; no Python
runs for a request, a connection or a reply.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import signal
import socket
import struct
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from loader import capabilities, libbpf, uring
from loader.errors import LoaderError
from loader.options import ServeOptions
from loader.paths import bpf_object
from shared_page import PAGE_SIZE_BYTES, SharedPage, constants

SQ_ENTRIES = 1024
# The worst case at once: poll, receive, send and shutdown of every connection.
CQ_ENTRIES = 4 * constants.CONNECTION_COUNT
FILES = 2 * constants.CONNECTION_COUNT  # FILE_COUNT in bpf/include/connection.h
LINGER_S = 0.05  # before a close that follows an error reply
ACCEPT_RETRY_S = 0.01


def address_of(mapping: mmap.mmap) -> int:
    """Where a mapping lies in this process."""
    return int(uring.ffi.cast("uintptr_t", uring.ffi.from_buffer(mapping)))


def timespec(seconds: float) -> bytes:
    """A struct __kernel_timespec."""
    whole = int(seconds)
    rest = round((seconds - whole) * 1e9)
    return whole.to_bytes(8, "little") + rest.to_bytes(8, "little")


class KernelPath:
    """One service's kernel path.

    The caller is in the cgroup when it makes the listener, since sock_ops follows cgroups.
    """

    def __init__(
        self,
        bpffs: Path,
        cgroup: Path,
        port: int,
        options: ServeOptions,
        logs: Path,
        refusal_fd: int,
    ) -> None:
        self.loop_tid = 0
        self.error: LoaderError | None = None
        self._logs = logs
        self._options = options
        self._refusal_fd = refusal_fd
        self._pins = [bpffs / name for name in ("page", "sockets", "doorbell")]
        self._loop_object: libbpf.BpfObject | None = None
        self._thread: threading.Thread | None = None
        self._listener: socket.socket | None = None
        self._stop_fd = os.eventfd(0)
        self._keep: list[Any] = []
        self._ingress = libbpf.BpfObject(bpf_object("ingress.bpf.o"))
        try:
            self._load_ingress(cgroup, port)
            SharedPage.initialise(self.page_fd, options.max_connections, options.slots)
            self.page = SharedPage.attach(self.page_fd)
        except BaseException:
            self.close()
            raise

    @property
    def page_fd(self) -> int:
        """The page: a mmapable array map; it stays this object's."""
        return self._ingress.map_fd(".bss.page")

    def _load_ingress(self, cgroup: Path, port: int) -> None:
        options = self._options
        self._ingress.set_constants(
            service_port=port,
            wake_ns=options.wake_us * 1000,
            tick_ns=options.request_timeout_ms * 1_000_000 // constants.REQUEST_TICKS,
            watches_frames=int(options.frame_timeout_ms > 0),
        )
        self._ingress.load(self._logs)
        for name, path in zip((".bss.page", "sockets", "doorbell"), self._pins, strict=True):
            self._ingress.pin_map(name, path)
        self._ingress.run("prepare")
        self._ingress.attach_verdict("admit", "sockets")
        self._ingress.attach_cgroup("establish", cgroup)

    def start(self, listener: socket.socket, drain_s: float = 5.0) -> None:
        """Starts the loop thread and returns when it is about to enter the ring.

        Raises LoaderError when the loop cannot be loaded or attached.
        """
        ready: SimpleQueue[LoaderError | None] = SimpleQueue()
        self._listener = listener
        self._thread = threading.Thread(
            target=self._run, args=(listener, drain_s, ready), name="bpf-loop", daemon=True
        )
        self._thread.start()
        error = ready.get()
        if error:
            self._thread.join()
            raise error

    def _run(
        self, listener: socket.socket, drain_s: float, ready: SimpleQueue[LoaderError | None]
    ) -> None:
        # The ring belongs to the thread that makes it; signals are the main thread's.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self.loop_tid = threading.get_native_id()
        ring: uring.Ring | None = None
        entered = False
        try:
            ring = self._prepare(listener, drain_s)
            capabilities.keep_only(())  # of this thread: the loop needs none
            ready.put(None)
            entered = True
            ring.run_loop()
        except LoaderError as error:
            self.error = error
            if not entered:
                ready.put(error)
        finally:
            if self._loop_object:
                self._loop_object.detach()
            if ring:
                ring.close()

    def _prepare(self, listener: socket.socket, drain_s: float) -> uring.Ring:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(FILES + 64, 1024), max(hard, FILES + 64)))
        ring = uring.Ring(SQ_ENTRIES, CQ_ENTRIES)
        ring.register_files(FILES + 1, FILES, {FILES: listener.fileno()})
        loop = libbpf.BpfObject(bpf_object("loop.bpf.o"))
        self._loop_object = loop
        loop.reuse_map(".bss.page", self.page_fd)
        loop.set_constants(
            **ring.constants(),
            listener_file=FILES,
            doorbell_fd=self._ingress.map_fd("doorbell"),
            stop_fd=self._stop_fd,
            refusal_fd=self._refusal_fd,
        )
        ops = loop.initial_value("loop")
        ops[8:12] = ring.fd.to_bytes(4, "little")  # struct io_uring_bpf_ops.ring_fd
        loop.load(self._logs)
        self._tell_addresses(loop, drain_s)
        loop.attach_struct_ops("loop")
        return ring

    def _tell_addresses(self, loop: libbpf.BpfObject, drain_s: float) -> None:
        """Maps what the loop's SQEs point to, and fills the head of scratch (connection.h)."""
        page = mmap.mmap(self.page_fd, PAGE_SIZE_BYTES)
        scratch = mmap.mmap(loop.map_fd(".bss.scratch"), loop.value_bytes(".bss.scratch"))
        options = self._options
        frame_tick_s = options.frame_timeout_ms / 1000 / constants.FRAME_TICKS
        times = (LINGER_S, drain_s, options.send_timeout_ms / 1000, ACCEPT_RETRY_S, frame_tick_s)
        head = struct.pack("<QQ", address_of(scratch), address_of(page))
        head += b"".join(map(timespec, times))
        scratch[: len(head)] = head
        self._keep += [page, scratch]

    def drain(self, timeout_s: float) -> None:
        """Stops accepting, answers what was admitted, and waits for the loop to leave.

        Raises LoaderError when it has not left after timeout_s, or had ended with an error.
        """
        if self._listener:
            # Refuses newcomers. Not in the loop: see connection_end() in bpf/include/connection.h.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
        os.eventfd_write(self._stop_fd, 1)
        if self._thread:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                raise LoaderError(
                    "drain the request loop", f"it still ran after {timeout_s} s", "kill -9"
                )
        if self.error:
            raise self.error

    def close(self) -> None:
        """Detaches and unpins. The kernel frees the rest when the last reference goes."""
        for path in self._pins:
            path.unlink(missing_ok=True)
        if self._loop_object:
            self._loop_object.close()
        self._ingress.close()
        os.close(self._stop_fd)
