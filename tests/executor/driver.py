"""A transport for tests: requests into the page and replies out of it, in this process."""

from __future__ import annotations

import functools
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shared_page import SharedPage, constants, wire
from shared_page.reading import declarations, ffi
from shared_page.wire import Reply

ROOT = Path(__file__).parents[2]
PATIENCE_S = 20.0


@functools.cache
def built(target: str) -> Any:
    """A library of build.mk, made if it is older than its sources, and loaded."""
    path = f"build/tests/{target}"
    make = ["make", "--no-print-directory", "-f", "tests/executor/build.mk", path]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(make)}:\n{done.stdout}{done.stderr}"
    return ffi.dlopen(str(ROOT / path))


@functools.cache
def library() -> Any:
    """The functions of driver.h."""
    ffi.cdef(declarations(Path(__file__).parent / "driver.h"))
    return built("libexecutor_driver.so")


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Fails the test when the condition does not come true in time."""
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, f"waited {patience_s} s for {what}"
        time.sleep(0.0005)


class Transport:
    """The writer of ingress and egress. Notices are taken by `notices()` only."""

    def __init__(self, page: SharedPage) -> None:
        self.page = page
        self.library = library()

    def connect(self) -> Connection:
        index = ffi.new("uint32_t *")
        assert self.library.transport_open(self.page.struct, index)
        return Connection(self, index[0])

    def connect_many(self, count: int) -> list[Connection]:
        return [self.connect() for _ in range(count)]

    def notices(self) -> list[int]:
        """The connections that the notices which stand are for, in order."""
        taken = []
        index = ffi.new("uint32_t *")
        while self.library.transport_notice(self.page.struct, index):
            taken.append(index[0])
        return taken

    def notices_until(self, count: int) -> list[int]:
        """That many notices, or the test fails."""
        taken: list[int] = []

        def enough() -> bool:
            taken.extend(self.notices())
            return len(taken) >= count

        wait_until(enough, f"{count} notices")
        return taken

    def slots_free(self) -> int:
        page = self.page.struct
        return int(page.egress.free_slot_tail - page.ingress.free_slot_head)

    def settled_after(self, connections: Sequence[Connection]) -> Callable[[], bool]:
        """settled(), asked after all replies that stand have been taken."""

        def settled() -> bool:
            self.notices()
            for connection in connections:
                while connection.frame():
                    pass
            return self.settled()

        return settled

    def settled(self) -> bool:
        """Everything submitted has been answered and announced, and every slot is free."""
        self.notices()
        page = self.page.struct
        return bool(
            page.egress.finals == page.ingress.submit_tail
            and self.slots_free() == constants.SLOT_COUNT
        )


class Connection:
    """Request ids count from 0."""

    def __init__(self, transport: Transport, index: int) -> None:
        self.transport = transport
        self.index = index
        self.sent = 0

    def send(self, kind: int, payload: bytes = b"") -> int:
        """Returns the request's id."""
        self._admit(wire.pack_request(kind, self.sent, payload))
        self.sent += 1
        return self.sent - 1

    def cancel(self, request_id: int) -> None:
        self._admit(wire.pack_cancel(request_id))

    def close(self) -> None:
        self.transport.library.transport_close(self.transport.page.struct, self.index)

    def frame(self) -> Reply | None:
        """The next frame if one can be sent."""
        frame = ffi.new("struct transport_frame *")
        page = self.transport.page.struct
        if not self.transport.library.transport_reply(page, self.index, frame):
            return None
        replies, rest = wire.split_replies(bytes(frame.bytes[0 : frame.length]))
        assert len(replies) == 1, "one frame at a time"
        assert not rest, "whole frames"
        assert replies[0].last == bool(frame.last)
        return replies[0]

    def frames(self) -> list[Reply]:
        """All frames of the oldest unanswered request; the test fails when they do not come."""
        frames: list[Reply] = []

        def ended() -> bool:
            self.transport.notices()
            frame = self.frame()
            if frame:
                frames.append(frame)
            return bool(frame and frame.last)

        wait_until(ended, f"the answer on connection {self.index}")
        return frames

    def answer(self) -> Answer:
        """The oldest unanswered request's answer, its frames put together."""
        return Answer(self.frames())

    def ask(self, kind: int, payload: bytes = b"") -> Answer:
        """One request and its answer; nothing else may be outstanding."""
        self.send(kind, payload)
        return self.answer()

    def _admit(self, frame: bytes) -> None:
        page = self.transport.page.struct
        self.transport.library.transport_admit(page, self.index, frame, len(frame))


class Answer:
    """The frames of one request as one."""

    def __init__(self, frames: list[Reply]) -> None:
        assert {frame.request_id for frame in frames} == {frames[0].request_id}
        assert [frame.last for frame in frames] == [False] * (len(frames) - 1) + [True]
        assert all(frame.status == constants.STATUS_OK for frame in frames[:-1])
        self.request_id = frames[0].request_id
        self.status = frames[-1].status
        self.finish = frames[-1].finish
        self.payload = b"".join(frame.payload for frame in frames)

    @property
    def tokens(self) -> list[int]:
        """Of a stream."""
        return list(memoryview(self.payload).cast("I"))
