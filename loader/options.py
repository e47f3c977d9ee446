"""What `serve` was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TRANSPORTS = ("epoll", "bpf")
EXECUTORS = ("cpu", "cuda")
WAKE_POLICIES = ("fixed", "adaptive")


@dataclass(frozen=True)
class ServeOptions:
    """Options of `serve`; the command line's help says what each one means.

    `wake_us` and `executor_sleep_us` are in microseconds, what ends in `_ms` in milliseconds.
    """

    workloads: tuple[str, ...]
    transport: str = "epoll"
    executor: str = "cpu"
    bind: str = "127.0.0.1"
    port: int = 7373
    allow_remote: bool = False
    max_connections: int = 1024
    slots: int = 1024
    wake_us: int = 60
    wake_policy: str = "fixed"
    drain_ms: int = 5000
    send_timeout_ms: int = 30_000
    request_timeout_ms: int = 10_000
    frame_timeout_ms: int = 10_000
    instance: str = "default"
    executor_poll: str | None = None
    executor_sleep_us: int | None = None
    ready_fd: int | None = None
    page_frames: Path | None = None
