"""Burning a known amount of CPU, in user mode, in the kernel and in softirq.

Each burn is a process of its own, first in, first out at a real-time priority: while it runs,
nothing but interrupts takes its CPU, so that CLOCK_MONOTONIC, which no account is made from, knows
what it used. (The kernel lets real-time tasks starve others for 0.95 s at a time; burns are
shorter.) Softirqs are measured by the same clock: the time of a send with packet filters that are
long, less that with filters that are short.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

from experiments.errors import ExperimentError

PRIORITY = 50  # of a burn; who reads the accounts has a higher one
_RESULT = struct.Struct("=qq")
_GROUP, _PORT = "239.255.77.7", 7377
_RECEIVERS = 128  # of one packet, each with a filter
_FILTER_LENGTH = 4096  # BPF_MAXINSNS
_CALIBRATION = 40  # sends
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER
_DELAY_US, _EVERY_S = 1000, 0.002  # of packets that idle time is interrupted for
_SQPOLL, _SQ_AFF, _ASYNC = 1 << 1, 1 << 2, 1 << 4  # include/uapi/linux/io_uring.h
_CHUNK = 8 << 20
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Burnt:
    """ns of CPU, and how many of them in softirq."""

    known: int
    softirq: int = 0


Burn = Callable[[float], Burnt]  # burns for so many seconds


def user() -> Burn:
    """In user mode: reads the clock, which takes no system call."""
    return _until_end(lambda: None)


def system() -> Burn:
    """In the kernel: has it write zeros."""
    zero, buffer = os.open("/dev/zero", os.O_RDONLY), [bytearray(_CHUNK)]
    return _until_end(lambda: os.readv(zero, buffer))


def io_uring_worker() -> Burn:
    """In the kernel, on a worker thread of an io_uring, while the process waits."""
    ring, zero, buffer = Ring(), os.open("/dev/zero", os.O_RDONLY), bytearray(_CHUNK)
    place = (ctypes.c_char * _CHUNK).from_buffer(buffer)
    ring.keep_workers_here()
    return _until_end(lambda: ring.read_on_worker(zero, place))


def io_uring_sqpoll() -> Burn:
    """In the kernel, on the thread that polls the submissions of an io_uring: it spins for a time
    after each, and has this CPU until it sleeps."""

    def burn(seconds: float) -> Burnt:
        ring = Ring(_SQPOLL | _SQ_AFF, spin_ms=round(seconds * 1e3))
        begin = time.monotonic_ns()
        ring.submit_nop()
        os.sched_yield()
        return Burnt(time.monotonic_ns() - begin)

    return burn


def softirq() -> Burn:
    """In softirq, inside the calls of the process that sends packets to itself."""
    packets = Packets()

    def burn(seconds: float) -> Burnt:
        before = packets.sent
        total = _until_end(packets.send)(seconds).known
        return Burnt(total, softirq=round((packets.sent - before) * packets.filter_ns))

    return burn


def idle_softirq(filter_length: int = _FILTER_LENGTH) -> Burn:
    """In softirq, while the CPU has nothing else to do: the packets come later than they are sent,
    in a network namespace of its own. Raises ExperimentError where there is no netem."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _set_loopback("up")
    packets = Packets()
    packets.set_filters(filter_length)
    _set_loopback("netem")

    def burn(seconds: float) -> Burnt:
        count = round(seconds / _EVERY_S)
        for _ in range(count):
            packets.send()
            time.sleep(_EVERY_S)
        known = round(count * packets.filter_ns)
        return Burnt(known, known)

    return burn


def idle_packets() -> Burn:
    """The same packets with filters that take no time: what an account shows of idle_softirq() and
    of this differs by what the filters take."""
    return idle_softirq(filter_length=1)


def _set_loopback(what: str) -> None:
    from pyroute2 import IPRoute, NetlinkError

    with IPRoute() as network:
        try:
            if what == "up":
                network.link("set", index=1, state="up")
            else:
                network.tc("add", "netem", index=1, delay=_DELAY_US)
        except NetlinkError as error:
            said = f"{os.strerror(error.code)}: is there no module sch_netem?"
            raise ExperimentError(f"set loopback {what}", said, "take another kernel") from None


def _until_end(turn: Callable[[], Any]) -> Burn:
    def burn(seconds: float) -> Burnt:
        begin = now = time.monotonic_ns()
        while now < begin + seconds * 1e9:
            turn()
            now = time.monotonic_ns()
        return Burnt(now - begin)

    return burn


class Packets:
    """Packets over loopback to many sockets, whose filters take long and drop them: filters run in
    the softirq that receives. `filter_ns` is what the filters of one packet take."""

    def __init__(self) -> None:
        self._receivers = [self._receiver() for _ in range(_RECEIVERS)]
        self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        here = socket.inet_aton("127.0.0.1")
        self._sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, here)
        self._sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        self.sent = 0
        short = self._send_ns(1)
        self.filter_ns = self._send_ns(_FILTER_LENGTH) - short

    def _receiver(self) -> socket.socket:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((_GROUP, _PORT))
        group = socket.inet_aton(_GROUP) + socket.inet_aton("127.0.0.1")
        one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
        return one

    def set_filters(self, length: int) -> None:
        """Gives each socket a filter of so many instructions."""
        # Classic BPF: additions to the accumulator, then the return of 0, which drops the packet.
        words = struct.pack("=HBBI", 0x04, 0, 0, 1) * (length - 1)
        program = ctypes.create_string_buffer(words + struct.pack("=HBBI", 0x06, 0, 0, 0))
        described = struct.pack("@HP", length, ctypes.addressof(program))
        for one in self._receivers:
            one.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, described)

    def _send_ns(self, filter_length: int) -> float:
        """The median time of a send with such filters."""
        self.set_filters(filter_length)
        times = [time.monotonic_ns()]
        for _ in range(_CALIBRATION):
            self.send()
            times.append(time.monotonic_ns())
        return median(b - a for a, b in pairwise(times))

    def send(self) -> None:
        """One packet to all."""
        self._sender.sendto(b"", (_GROUP, _PORT))
        self.sent += 1


class Ring:
    """An io_uring through liburing. Raises OSError."""

    def __init__(self, flags: int = 0, spin_ms: int = 0) -> None:
        self._library = ctypes.CDLL("liburing-ffi.so.2")
        self._library.io_uring_get_sqe.restype = ctypes.c_void_p
        self._ring = ctypes.create_string_buffer(512)  # struct io_uring has 216
        cpu = min(os.sched_getaffinity(0))
        # sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle of struct io_uring_params
        params = ctypes.create_string_buffer(struct.pack("=5I", 0, 0, flags, cpu, spin_ms), 120)
        self._check(self._library.io_uring_queue_init_params(8, self._ring, params))

    def keep_workers_here(self) -> None:
        """On this thread's CPUs."""
        mask = sum(1 << cpu for cpu in os.sched_getaffinity(0)).to_bytes(128, "little")
        self._check(self._library.io_uring_register_iowq_aff(self._ring, len(mask), mask))

    def read_on_worker(self, fd: int, place: Any) -> None:
        """Has a worker thread read a chunk, and waits for it."""
        sqe = ctypes.c_void_p(self._library.io_uring_get_sqe(self._ring))
        self._library.io_uring_prep_read(sqe, fd, place, len(place), ctypes.c_uint64(0))
        self._library.io_uring_sqe_set_flags(sqe, _ASYNC)
        self._check(self._library.io_uring_submit_and_wait(self._ring, 1))
        self._library.io_uring_cq_advance(self._ring, 1)

    def submit_nop(self) -> None:
        """Has a request that does nothing submitted."""
        sqe = ctypes.c_void_p(self._library.io_uring_get_sqe(self._ring))
        self._library.io_uring_prep_nop(sqe)
        self._check(self._library.io_uring_submit(self._ring))

    @staticmethod
    def _check(result: int) -> None:
        if result < 0:
            raise OSError(-result, os.strerror(-result))


class Burner:
    """A process that burns, in a cgroup, on the CPUs of its parent, in the `with` block.

    Raises ExperimentError when it cannot.
    """

    def __init__(self, group: Path, make: Callable[[], Burn]) -> None:
        self._group, self._make = group, make

    def __enter__(self) -> Self:
        self._ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            self._ours.close()
            self._serve(theirs)
        theirs.close()
        try:
            self._answer()
        except ExperimentError:
            self.__exit__(None, None, None)
            raise
        return self

    def _serve(self, parent: socket.socket) -> None:
        """The child. Never returns."""
        try:
            (self._group / "cgroup.procs").write_text("0")
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
            burn = self._make()
            parent.sendall(_RESULT.pack(0, 0))
            while asked := parent.recv(8):
                parent.sendall(_RESULT.pack(*astuple(burn(*struct.unpack("=d", asked)))))
        except Exception as error:
            parent.sendall(str(error).ljust(_RESULT.size + 1).encode())
        finally:
            os._exit(0)

    def burn(self, seconds: float) -> Burnt:
        """Has it burn for so long."""
        self._ours.sendall(struct.pack("=d", seconds))
        return self._answer()

    def _answer(self) -> Burnt:
        answer = self._ours.recv(4096)
        if len(answer) != _RESULT.size:
            said = answer.decode(errors="replace").strip() or "the process that burns has ended"
            raise ExperimentError("burn CPU", said, "remove that cause")
        return Burnt(*_RESULT.unpack(answer))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ours.close()
        os.waitpid(self.pid, 0)
